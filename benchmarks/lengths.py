#!/usr/bin/env python3
"""One text of a length next to a multiple of the tile height: lengths.py BENCH_ENCODER --results FOLDER [--quick] [--isa ISA...]

Kernels compute rows in tiles of 6 or 12; a text of one token more starts another tile. Times one
text of 12 and 13, 18 and 19, 24 and 25 tokens through the layers of MiniLM (bench_encoder), for each
instruction set and dtype. The ratio of a pair is at best that of its tokens (1.08, 1.06, 1.04): the
last partial tile should cost its rows. Goal: at most 1.2.
"""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "common"))

from measure import keep, machine, rounds, today  # noqa: E402
from verdict import line, spread, verdict  # noqa: E402

PAIRS = ((12, 13), (18, 19), (24, 25))
GOAL = 1.2


def measure(args, isa):
    """(the instruction set used, {dtype: {tokens: milliseconds}}) of one run."""
    environment = {**os.environ, **({"GPUSERVE_MAX_ISA": isa} if isa else {})}
    done = subprocess.run([args.program, str(args.threads), str(args.seconds), "lengths"], check=True,
                          text=True, stdout=subprocess.PIPE, env=environment)
    document, found = json.loads(done.stdout), {}
    for row in document["figures"]:
        if row.get("what") == "latency":
            found.setdefault(row["dtype"], {})[row["tokens"]] = row["p50_ms"]
    return document["isa"], found


def used(args):
    """The instruction sets to measure: those that the processor has, each once."""
    found = []
    for isa in args.isa or [None]:
        name = measure(args, isa)[0]
        if isa and name != isa:
            print(f"{isa}: the processor lacks it")
        elif name not in found:
            found.append(name)
    return found


def judge(found, isas):
    """isa -> dtype -> {"ms": {tokens: spread}, "pairs": {"13 / 12": verdict}}"""
    table = {}
    for isa in isas:
        runs = found.values(isa)
        for dtype in runs[0] if runs else ():
            pairs = {f"{after} / {before}": verdict([run[dtype][after] / run[dtype][before] for run in runs],
                                                    GOAL, at_most=True, least=0.8) for before, after in PAIRS}
            table.setdefault(isa, {})[dtype] = {
                "ms": {n: spread([run[dtype][n] for run in runs]) for pair in PAIRS for n in pair},
                "pairs": pairs}
    return table


def show(table):
    lengths = [n for pair in PAIRS for n in pair]
    print(f"| instruction set | dtype | {' | '.join(f'{n}, ms' for n in lengths)} |")
    print("|---|---|" + "---|" * len(lengths))
    for isa, dtypes in table.items():
        for dtype, row in dtypes.items():
            print(f"| {isa} | {dtype} | " + " | ".join(f"{row['ms'][n]['median']:.3f}" for n in lengths) + " |")
    for isa, dtypes in table.items():
        for dtype, row in dtypes.items():
            for name, one in row["pairs"].items():
                print(line(f"{isa}, {dtype}, {name}", one))


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measure texts of lengths next to multiples of the tile height.")
    parser.add_argument("program")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--isa", nargs="+", help="names that GPUSERVE_MAX_ISA has; default the processor's best")
    parser.add_argument("--seconds", type=float, help="of each length (default 0.2, quick 0.1)")
    parser.add_argument("--rounds", type=int, help="undisturbed ones wanted (default 7, quick 3)")
    parser.add_argument("--quick", action="store_true", help="3 short rounds")
    args = parser.parse_args()
    args.seconds = args.seconds or (0.1 if args.quick else 0.2)
    args.rounds = args.rounds or (3 if args.quick else 7)
    return args


def main():
    args, facts = parse_arguments(), machine()
    isas = used(args)
    found = rounds(args.rounds, {isa: lambda isa=isa: measure(args, isa)[1] for isa in isas}, say=print)
    table = judge(found, isas)
    show(table)
    print(keep({"date": today(), "quick": args.quick, "machine": facts, "threads": args.threads,
                "seconds": args.seconds, "table": table, "rounds": found.facts()}, args.results, "lengths"))


if __name__ == "__main__":
    main()
