#!/usr/bin/env python3
"""Start-up time and memory: load.py PROGRAM MODEL --results FOLDER

Runs PROGRAM (benchmarks/load.c) in new processes, the file in the page cache, and takes medians.
Goals for all-MiniLM-L6-v2: open within 150 ms, peak memory within 1.3 times the weights + 64 MB;
with packed weights on disk (docs/formats.md), from the second start on, within 20 ms.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

RUNS = 7
# name: dtype, use_mmap, whether packed weights are kept on disk
STARTS = {"fp32": (1, 0, False), "int8": (5, 0, False), "fp32, mmap": (1, 1, True),
          "int8, second start": (5, 0, True), "int8, second start, mmap": (5, 1, True)}
GOAL_LOAD_MS, GOAL_SECOND_MS = 150, 20
MB = 1 << 20


def once(program, model, start, cache):
    dtype, use_mmap, _ = start
    done = subprocess.run([program, model, str(dtype), str(use_mmap)], check=True, text=True,
                          stdout=subprocess.PIPE, env={**os.environ, "GPUSERVE_WEIGHTS_CACHE": cache})
    return json.loads(done.stdout)


def measure(program, model, start):
    with tempfile.TemporaryDirectory() as folder:
        cache = folder if start[2] else "off"
        once(program, model, start, cache)          # brings the files into the page cache
        runs = [once(program, model, start, cache) for _ in range(RUNS)]
    middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    weights_mb = (model_bytes(model)) / MB
    return {"load_ms": round(middle["load_s"] * 1e3, 1),
            "first_vector_ms": round(middle["first_vector_s"] * 1e3, 1),
            "peak_mb": round(middle["peak_kb"] / 1024, 1), "file_mb": round(weights_mb, 1),
            "planned_mb": round(middle["total_bytes"] / MB, 1),
            "goal_load_ms": GOAL_SECOND_MS if start[2] else GOAL_LOAD_MS,
            "goal_peak_mb": round(weights_mb * 1.3 + 64, 1)}


def model_bytes(model):
    return sum(path.stat().st_size for path in Path(model).glob("*.safetensors"))


def main():
    parser = argparse.ArgumentParser(description="Measure start-up time and memory.")
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--results", type=Path, required=True)
    args = parser.parse_args()

    results = {name: measure(args.program, args.model, start) for name, start in STARTS.items()}
    for name, row in results.items():
        verdict = "met" if (row["load_ms"] <= row["goal_load_ms"] and
                            row["peak_mb"] <= row["goal_peak_mb"]) else "missed"
        print(f"{name}: open in {row['load_ms']} ms (goal {row['goal_load_ms']}), first vector after "
              f"{row['first_vector_ms']} ms, peak {row['peak_mb']} MB (goal {row['goal_peak_mb']}, "
              f"planned {row['planned_mb']}, file {row['file_mb']}): {verdict}")
    args.results.mkdir(parents=True, exist_ok=True)
    path = args.results / f"{datetime.date.today().isoformat()}-load.json"
    path.write_text(json.dumps({"date": datetime.date.today().isoformat(), "runs": RUNS,
                                "cores": os.cpu_count(), "engines": results}, indent=1) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
