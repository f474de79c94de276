#!/usr/bin/env python3
"""Count the tests of a `meson test` run: count_tests.py testlog.json

One line of the log is one program. What it printed says how many tests it held:

    Criterion      "Synthesis: Tested: 9 | Passing: 8 | Failing: 1 | Crashing: 0"
    our scripts    "8 passed, 1 failed", the last such line
    anything else  one test, by its exit status

A program that says all is well and yet fails (a leak found at exit, a timeout) is one failure
more. Ends with the line "N passed, N failed"; exit status 1 on a failure, or when nothing ran.
"""
import json
import re
import sys

SYNTHESIS = re.compile(r"Synthesis: Tested: \D*(\d+) \D*Passing: \D*(\d+) "
                       r"\D*Failing: \D*(\d+) \D*Crashing: \D*(\d+)")
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed\b", re.MULTILINE)
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def count(test):
    """(passed, failed, skipped) of one line of the log."""
    if test["result"] == "SKIP":
        return 0, 0, 1
    output = ESCAPES.sub("", test.get("stdout", "") + test.get("stderr", ""))
    good = test["result"] == "OK"
    passed = failed = 0
    if syntheses := SYNTHESIS.findall(output):
        passed = sum(int(numbers[1]) for numbers in syntheses)
        failed = sum(int(numbers[2]) + int(numbers[3]) for numbers in syntheses)
    elif summaries := SUMMARY.findall(output):
        passed, failed = map(int, summaries[-1])
    elif good:
        passed = 1
    if not good and failed == 0:
        failed = 1
    return passed, failed, 0


def main():
    total = [0, 0, 0]
    with open(sys.argv[1], encoding="utf-8") as log:
        for line in log:
            test = json.loads(line)
            numbers = count(test)
            total = [a + b for a, b in zip(total, numbers)]
            if numbers[1]:
                print(f"failed: {test['name']} ({test['result']}, {numbers[0]} passed, "
                      f"{numbers[1]} failed)")
            if numbers[2]:
                print(f"skipped: {test['name']}")
    print(f"{total[0]} passed, {total[1]} failed")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
