#!/usr/bin/env python3
"""Count the tests of a `meson test` run: count_tests.py testlog.json [--complete | --take-timeouts]

One line of the log is one program. What it printed says how many tests it held:

    Criterion      "Synthesis: Tested: 9 | Passing: 8 | Failing: 1 | Crashing: 0"
    our scripts    "8 passed, 1 failed", the last such line
    anything else  one test, by its exit status

A line "note: ..." of a program is printed again, so that a run's log tells what a machine could not execute.
A program that failed is named with the lines of its output that say why, the last eight of them, behind
"    | ", so that the end of a long log is enough to see what failed.
The programs that took longest are named with their seconds, while others ran beside them.
With --take-timeouts only the programs that reached their time limit are named, one a line, and their lines leave the log:
a caller runs them again.
A program that says all is well and yet fails (a leak found at exit, a timeout) is one failure
more. With --complete, so is a program of tests/programs.txt that did not run. Ends with the line "N passed, N failed"; exit status 1 on a failure, or when nothing ran.
"""
import argparse
import json
import pathlib
import re
import sys

import select_tests

SYNTHESIS = re.compile(r"Synthesis: Tested: \D*(\d+) \D*Passing: \D*(\d+) "
                       r"\D*Failing: \D*(\d+) \D*Crashing: \D*(\d+)")
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed\b", re.MULTILINE)
NOTE = re.compile(r"^note: .*$", re.MULTILINE)
REASON = re.compile(r"^.*(?:\[FAIL\]|\[CRASH|\bFAIL|assert|Error|ERROR|Unexpected signal|Timeout|warning:).*$", re.MULTILINE)
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


def reasons(test):
    """The last lines of a failed program that say why it failed; its very last lines when none does."""
    output = ESCAPES.sub("", test.get("stdout", "") + "\n" + test.get("stderr", ""))
    lines = REASON.findall(output) or [line for line in output.splitlines() if line.strip()]
    return [line.rstrip()[:240] for line in lines[-8:]]


def last_line(test):
    lines = (test.get("stdout", "") + test.get("stderr", "")).strip().splitlines()
    return lines[-1] if lines else "it gives no reason"


def take_timeouts(path):
    """Name the programs that reached their time limit, and remove their lines from the log."""
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines(keepends=True)
    ended = []
    for line in lines:
        test = json.loads(line)
        if test["result"] == "TIMEOUT":
            print(test["name"].split(" / ")[-1])
        else:
            ended.append(line)
    pathlib.Path(path).write_text("".join(ended), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("log")
    parser.add_argument("--complete", action="store_true")
    parser.add_argument("--take-timeouts", action="store_true")
    options = parser.parse_args()
    if options.take_timeouts:
        take_timeouts(options.log)
        return 0
    total, results, durations = [0, 0, 0], {}, {}
    if not pathlib.Path(options.log).exists():
        sys.exit("no test was run: none of those chosen belongs to this build's suites")
    with open(options.log, encoding="utf-8") as log:
        for line in log:
            test = json.loads(line)
            name = test["name"].split(" / ")[-1]
            results[name] = test["result"]
            durations[name] = test.get("duration", 0.0)
            numbers = count(test)
            total = [a + b for a, b in zip(total, numbers)]
            for note in NOTE.findall(test.get("stdout", "")):
                print(f"{name}: {note}")
            if numbers[1]:
                print(f"failed: {name} ({test['result']}, {numbers[0]} passed, {numbers[1]} failed)")
                print("".join(f"    | {line}\n" for line in reasons(test)), end="")
            if numbers[2]:
                print(f"skipped: {name}: {last_line(test)}")
    for name, why in sorted(select_tests.check(results).items() if options.complete else ()):
        print(f"failed: {name}: {why}")
        total[1] += 1
    longest = sorted(durations, key=durations.get, reverse=True)[:8]
    print(f"{len(results)} test programs; longest, in s: " +
          ", ".join(f"{name} {durations[name]:.0f}" for name in longest))
    print(f"{total[0]} passed, {total[1]} failed")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
