#!/usr/bin/env python3
"""Check the contracts of public functions, and that documents are found and lead somewhere.

A public function has a comment right above it that says since when. One with more than two parameters also says what
it returns or what its parameters are. docs/README.md names each document of docs/. A relative link of a document
leads to a file that exists and to a heading in it.
Prints each finding and "N passed, N failed", counted in functions and documents.
"""
import re
import subprocess
import sys
from pathlib import Path

from doxygen_markdown import LINK, anchor

ROOT = Path(__file__).resolve().parent.parent
INDEX = ROOT / "docs" / "README.md"
DECLARATION = re.compile(r"^GPUSERVE_API\b(.*?);", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"\b(gpuserve_\w+)\s*\(")
COMMENT = re.compile(r"/\*\*((?:(?!\*/).)*)\*/\s*\Z", re.DOTALL)


def problem(comment, declaration):
    if comment is None:
        return "has no /** comment */ above it"
    if "Since: " not in comment:
        return "does not say since when"
    if declaration.count(",") > 2 and "@" not in comment and " as in gpuserve_" not in comment:
        return "does not explain its parameters"
    return None


def prose(text):
    """A document without its blocks of code, which have neither headings nor links."""
    text = re.sub(r"(?ms)^```.*?^```$", "", text)
    return "\n".join(line for line in text.split("\n") if not line.startswith("    "))


def unlisted(index, names):
    """The documents of a folder that its index does not name."""
    linked = {match[2].partition("#")[0] for match in LINK.findall(prose(index))}
    return sorted(set(names) - linked - {"README.md"})


def dead_links(path, text, read):
    """Targets of the links of one document that there are not. `read` gives a file's text, None without one."""
    found = []
    for _, _, target in LINK.findall(prose(text)):
        name, _, fragment = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        other = text if not name else read((path.parent / name).resolve())
        if other is None or fragment and fragment not in map(anchor, re.findall(r"(?m)^#+ (.*)", prose(other))):
            found.append(target)
    return found


def read(path):
    if path.is_dir():
        return ""
    return path.read_text("utf-8") if path.is_file() else None


def check_documents():
    """(passed, failed) of the documents."""
    names = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout.split()
    paths = [ROOT / name for name in names if not name.startswith("tests/data/")]
    failed = 0
    for path in paths:
        wrong = [f"a link leads nowhere: {target}" for target in dead_links(path, path.read_text("utf-8"), read)]
        if path == INDEX:
            wrong += [f"does not name {name}" for name in unlisted(path.read_text("utf-8"), [
                one.name for one in paths if one.parent == INDEX.parent])]
        failed += bool(wrong)
        for sentence in wrong:
            print(f"{path.relative_to(ROOT)}: {sentence}")
    if INDEX not in paths:
        print(f"there is no {INDEX.relative_to(ROOT)}")
    return len(paths) - failed, failed + (INDEX not in paths)


def main():
    passed, failed = check_documents()
    for header in sorted((ROOT / "include" / "gpuserve").glob("*.h")):
        text = header.read_text("utf-8")
        for found in DECLARATION.finditer(text):
            comment = COMMENT.search(text[:found.start()])
            wrong = problem(comment and comment.group(1), found.group(1))
            passed, failed = passed + (not wrong), failed + bool(wrong)
            if wrong:
                line = text.count("\n", 0, found.start()) + 1
                name = NAME.search(found.group(1)).group(1)
                print(f"{header.relative_to(ROOT)}:{line}: {name} {wrong}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
