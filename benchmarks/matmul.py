#!/usr/bin/env python3
"""The matrix product's ladder: matmul.py PROGRAM --results FOLDER [DEVICE [SIDE...]]

Runs PROGRAM (examples/matmul_ladder.c), which checks every step against the first, and keeps what it
prints as a dated file.
"""
import argparse
import datetime
import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "common"))

from measure import processor  # noqa: E402

LINE = re.compile(r"^  (.+?) +([\d.]+) GFLOP/s +([\d.]+) ms  copies +([\d.]+) ms  off by (\S+)")


def parse(text):
    """(device, {side: [steps]})"""
    device, sides = "", {}
    for line in text.splitlines():
        if line.startswith("on "):
            device = line[3:]
        elif match := re.match(r"^(\d+) x \d+$", line):
            steps = sides.setdefault(match[1], [])
        elif match := LINE.match(line):
            steps.append({"step": match[1], "gflops": float(match[2]), "ms": float(match[3]),
                          "copies_ms": float(match[4]), "distance": float(match[5])})
    return device, sides


def main():
    parser = argparse.ArgumentParser(description="Measure the matrix product's ladder.")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs="*", metavar="DEVICE|SIDE")
    parser.add_argument("--results", type=Path, required=True)
    args = parser.parse_intermixed_args()

    done = subprocess.run([args.program, *args.arguments], check=True, stdout=subprocess.PIPE,
                          text=True)
    print(done.stdout, end="")
    device, sides = parse(done.stdout)
    today = datetime.date.today().isoformat()
    args.results.mkdir(parents=True, exist_ok=True)
    path = args.results / f"{today}-matmul-{device.replace(':', '')}.json"
    path.write_text(json.dumps({"date": today, "device": device, "processor": processor(),
                                "cores": len(os.sched_getaffinity(0)), "sides": sides},
                               indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
