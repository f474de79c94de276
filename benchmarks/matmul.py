#!/usr/bin/env python3
"""The matrix product's ladder: matmul.py PROGRAM --results FOLDER [--quick] [DEVICE [SIDE...]]

Runs PROGRAM (examples/matmul_ladder.c), which measures the steps one after the other and checks every
one against the first, in rounds; those disturbed are dropped. Keeps the spread of each step as a
dated file, and of its ratio to the first step in the same round.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "common"))

from measure import keep, machine, rounds, today  # noqa: E402
from verdict import spread  # noqa: E402

LINE = re.compile(r"^  (.+?) +([\d.]+) GFLOP/s +([\d.]+) ms  copies +([\d.]+) ms  off by (\S+)")


def parse(text):
    """(device, {side: {step: figures}})"""
    device, sides = "", {}
    for line in text.splitlines():
        if line.startswith("on "):
            device = line[3:]
        elif match := re.match(r"^(\d+) x \d+$", line):
            steps = sides.setdefault(match[1], {})
        elif match := LINE.match(line):
            steps[match[1]] = {"gflops": float(match[2]), "ms": float(match[3]),
                               "copies_ms": float(match[4]), "distance": float(match[5])}
    return device, sides


def summary(found):
    """{side: [the spreads of each step]}"""
    kept = [sides for _, sides in found.values("ladder")]
    table = {}
    for side in kept[0] if kept else ():
        first = next(iter(kept[0][side]))
        table[side] = [
            {"step": step, "distance": max(run[side][step]["distance"] for run in kept),
             **{key: spread([run[side][step][key] for run in kept]) for key in ("gflops", "ms", "copies_ms")},
             "of_first": spread([run[side][step]["gflops"] / run[side][first]["gflops"] for run in kept])}
            for step in kept[0][side]]
    return table


def main():
    parser = argparse.ArgumentParser(description="Measure the matrix product's ladder.")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs="*", metavar="DEVICE|SIDE")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--rounds", type=int, help="undisturbed ones wanted (default 5, quick 2)")
    parser.add_argument("--quick", action="store_true", help="2 rounds")
    args = parser.parse_intermixed_args()
    facts = machine()

    def ladder():
        return parse(subprocess.run([args.program, *args.arguments], check=True, text=True,
                                    stdout=subprocess.PIPE).stdout)

    found = rounds(args.rounds or (2 if args.quick else 5), {"ladder": ladder}, say=print)
    table = summary(found)
    for side, steps in table.items():
        for row in steps:
            rate = row["gflops"]
            print(f"{side:>6} {row['step']:40} {rate['median']:9.1f} GFLOP/s ({rate['min']:.1f} to {rate['max']:.1f}), "
                  f"{row['of_first']['median']:.1f} times the first, off by {row['distance']:.2g}")
    if not table:
        sys.exit("other processes disturbed every round: measure on a quiet machine")
    device = found.values("ladder")[0][0]
    print(keep({"date": today(), "quick": args.quick, "device": device, "machine": facts, "sides": table,
                "rounds": found.facts()}, args.results, f"matmul-{device.replace(':', '')}"))


if __name__ == "__main__":
    main()
