#!/usr/bin/env python3
"""Start-up time and memory: load.py PROGRAM MODEL --results FOLDER [--quick]

Runs PROGRAM (benchmarks/load.c) in new processes, the files in the page cache, in rounds of all kinds
of start whose order turns. Goals for all-MiniLM-L6-v2: open within 150 ms, peak memory within 1.3
times the weights + 64 MB; with packed weights on disk (docs/formats.md), from the second start on,
within 20 ms.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "common"))

from measure import keep, machine, rounds, today  # noqa: E402
from verdict import line, spread, verdict  # noqa: E402

# name: dtype, use_mmap, whether packed weights are kept on disk
STARTS = {"fp32": (1, 0, False), "int8": (5, 0, False), "fp32, mmap": (1, 1, True),
          "int8, second start": (5, 0, True), "int8, second start, mmap": (5, 1, True)}
GOAL_LOAD_MS, GOAL_SECOND_MS = 150, 20
MB = 1 << 20


def once(args, start, cache):
    dtype, use_mmap, _ = start
    done = subprocess.run([args.program, args.model, str(dtype), str(use_mmap)], check=True, text=True,
                          stdout=subprocess.PIPE, env={**os.environ, "GPUSERVE_WEIGHTS_CACHE": cache})
    found = json.loads(done.stdout)
    return {"load_ms": found["load_s"] * 1e3, "first_vector_ms": found["first_vector_s"] * 1e3,
            "peak_mb": found["peak_kb"] / 1024, "planned_mb": found["total_bytes"] / MB}


def measure(args):
    """Rounds of all starts; each with packed weights has a cache of its own, filled by a start before."""
    with tempfile.TemporaryDirectory() as folder:
        parts = {}
        for i, (name, start) in enumerate(STARTS.items()):
            cache = str(Path(folder, str(i))) if start[2] else "off"
            once(args, start, cache)          # brings the files into the page cache
            parts[name] = lambda start=start, cache=cache: once(args, start, cache)
        return rounds(args.rounds, parts, say=print)


def model_bytes(model):
    return sum(path.stat().st_size for path in Path(model).glob("*.safetensors"))


def judge(args, found):
    """name -> {figure: verdict or spread}"""
    table, weights_mb = {}, model_bytes(args.model) / MB
    for name, start in STARTS.items():
        values = {key: [row[name][key] for row in found.kept]
                  for key in ("load_ms", "first_vector_ms", "peak_mb", "planned_mb")}
        goals = {"load_ms": GOAL_SECOND_MS if start[2] else GOAL_LOAD_MS, "peak_mb": weights_mb * 1.3 + 64}
        table[name] = {"file_mb": round(weights_mb, 1),
                       **{key: verdict(values[key], round(goals[key], 1), at_most=True, least=0)
                          if key in goals else spread(values[key]) for key in values}}
    return table


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measure start-up time and memory.")
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--rounds", type=int, help="undisturbed ones wanted (default 9, quick 3)")
    parser.add_argument("--quick", action="store_true", help="3 rounds")
    args = parser.parse_args()
    args.rounds = args.rounds or (3 if args.quick else 9)
    return args


def main():
    args, facts = parse_arguments(), machine()
    found = measure(args)
    table = judge(args, found)
    for name, row in table.items():
        for key in ("load_ms", "peak_mb"):
            print(line(f"{name}: {key}", row[key]))
    print(keep({"date": today(), "quick": args.quick, "machine": facts, "engines": table,
                "rounds": found.facts(), "values": found.kept}, args.results, "load"))


if __name__ == "__main__":
    main()
