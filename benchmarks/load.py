#!/usr/bin/env python3
"""Start-up time and memory: load.py PROGRAM MODEL --results FOLDER

Runs PROGRAM (benchmarks/load.c) in new processes, the file in the page cache, and takes medians.
Goals for all-MiniLM-L6-v2: open within 150 ms, peak memory within 1.3 times the weights + 64 MB.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
from pathlib import Path

RUNS = 7
DTYPES = {"fp32": 1, "int8": 5}
GOAL_LOAD_MS = 150
MB = 1 << 20


def once(program, model, dtype):
    done = subprocess.run([program, model, str(dtype)], check=True, stdout=subprocess.PIPE,
                          text=True)
    return json.loads(done.stdout)


def measure(program, model, dtype):
    once(program, model, dtype)                 # brings the file into the page cache
    runs = [once(program, model, dtype) for _ in range(RUNS)]
    middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    weights_mb = (model_bytes(model)) / MB
    return {"load_ms": round(middle["load_s"] * 1e3, 1),
            "first_vector_ms": round(middle["first_vector_s"] * 1e3, 1),
            "peak_mb": round(middle["peak_kb"] / 1024, 1), "file_mb": round(weights_mb, 1),
            "planned_mb": round(middle["total_bytes"] / MB, 1),
            "goal_peak_mb": round(weights_mb * 1.3 + 64, 1)}


def model_bytes(model):
    return sum(path.stat().st_size for path in Path(model).glob("*.safetensors"))


def main():
    parser = argparse.ArgumentParser(description="Measure start-up time and memory.")
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--results", type=Path, required=True)
    args = parser.parse_args()

    results = {name: measure(args.program, args.model, dtype) for name, dtype in DTYPES.items()}
    for name, row in results.items():
        verdict = "met" if (row["load_ms"] <= GOAL_LOAD_MS and
                            row["peak_mb"] <= row["goal_peak_mb"]) else "missed"
        print(f"{name}: open in {row['load_ms']} ms (goal {GOAL_LOAD_MS}), first vector after "
              f"{row['first_vector_ms']} ms, peak {row['peak_mb']} MB (goal {row['goal_peak_mb']}, "
              f"planned {row['planned_mb']}, file {row['file_mb']}): {verdict}")
    args.results.mkdir(parents=True, exist_ok=True)
    path = args.results / f"{datetime.date.today().isoformat()}-load.json"
    path.write_text(json.dumps({"date": datetime.date.today().isoformat(), "runs": RUNS,
                                "cores": os.cpu_count(), "engines": results}, indent=1) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
