#!/usr/bin/env python3
"""A document as doxygen reads it: doxygen_markdown.py FILE, a filter of docs/Doxyfile.

GitHub makes anchors of headings by itself; doxygen before 1.10 does not. So each heading gets its anchor with the
file's name before it, links follow, and links to files that are not on the site become their text.
"""
import re
import sys
from pathlib import Path

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
ROOT = Path(__file__).resolve().parent.parent
PAGES = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}


def anchor(heading):
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def label(path, fragment=""):
    name = "docs" if path == ROOT / "docs" / "README.md" else path.stem.lower()
    return f"page-{name}" + (f"-{fragment}" if fragment else "")


def is_page(path):
    return path.is_relative_to(ROOT) and (path.parent == ROOT / "docs" or str(path.relative_to(ROOT)) in PAGES)


def link(match, page):
    image, text, target = match.groups()
    if image or re.match(r"[a-z]+:", target):
        return match[0]
    name, _, fragment = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    if path.suffix == ".md" and is_page(path):
        return f"[{text}](#{label(path, fragment)})" if path != ROOT / "README.md" or fragment else f"[{text}](index.html)"
    return f"{text} (`{target}`)" if text != target else f"`{target}`"


def main():
    page = Path(sys.argv[1]).resolve()
    in_code, first = False, True
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            in_code = not in_code
        heading = None if in_code else re.match(r"(#+) (.*)", line)
        if heading:
            name = label(page) if first else label(page, anchor(heading[2]))
            line, first = f"{heading[1]} {heading[2]} {{#{name}}}", False
        elif not in_code and not line.startswith("    "):
            line = LINK.sub(lambda match: link(match, page), line)
        print(line)


if __name__ == "__main__":
    main()
