#!/usr/bin/env python3
"""The oldest GNU C Library that the binaries of a folder run with: glibc.py FOLDER MAXIMUM

Prints the newest symbol version that any program or library of FOLDER needs, such as 2.29. A newer one than MAXIMUM fails and names
the files. Symbols of other libraries (OPENSSL_3.0.0) do not count.
"""
import pathlib
import re
import sys

from contents import elf_files, run


def number(version):
    return tuple(int(part) for part in version.split("."))


def needed_versions(path):
    """Versions of the GNU C Library in the section of needed versions."""
    return re.findall(r"Name: GLIBC_(\d+(?:\.\d+)+)\b", run("readelf", "--version-info", "--wide", path))


def main():
    folder, maximum = pathlib.Path(sys.argv[1]), sys.argv[2]
    files = {path: max(needed_versions(path), key=number, default="0") for path in elf_files(folder)}
    if not files:
        sys.exit(f"glibc.py: no program or library in {folder}")
    newer = {path: version for path, version in files.items() if number(version) > number(maximum)}
    for path, version in newer.items():
        print(f"{path} needs GLIBC_{version}, newer than {maximum}", file=sys.stderr)
    print(max(files.values(), key=number))
    return 1 if newer else 0


if __name__ == "__main__":
    sys.exit(main())
