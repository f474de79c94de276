#!/usr/bin/env python3
"""Check that each public function has its contract: a comment right above it that says since when.

A function with more than two parameters also says what it returns or what its parameters are.
Prints each finding and "N passed, N failed", counted in functions.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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


def main():
    passed = failed = 0
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
