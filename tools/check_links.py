#!/usr/bin/env python3
"""Links of generated HTML pages lead somewhere: check_links.py FOLDER

Each local link of each page below FOLDER names a file that exists and, behind #, an element of that page. Links to other hosts are not followed.
"""
import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.names, self.links = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if value and (key == "id" or (tag == "a" and key == "name")):
                self.names.add(value)
            elif value and key in ("href", "src"):
                self.links.add(value)


def faults(folder):
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            to = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            name = urllib.parse.unquote(parts.fragment)
            if not to.exists():
                yield f"{path}: {link}: no such file"
            elif name and to in pages and name not in pages[to].names:
                yield f"{path}: {link}: no element {name}"
    if not pages:
        yield f"{folder}: no page"


def main():
    found = list(faults(pathlib.Path(sys.argv[1])))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
