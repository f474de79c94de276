#!/usr/bin/env python3
"""What many callers cost: bench.py PROGRAM MODEL --results FOLDER

Runs PROGRAM (benchmarks/batcher/bench_batcher.c) in float32 and int8, says which goals are met, and
keeps everything as JSON. Goals: 64 clients of single texts reach 90 % of the offline rate; one
client waits at most 10 % + 50 us longer than the bare forward; a request costs at most 5 us beside
tokenizer and forward; at 10 times the load goodput is at least 95 % and refusals take under 20 ms.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from report import processor  # noqa: E402


def commit():
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE,
                          text=True, check=False)
    return done.stdout.strip() or None


def undisturbed(rounds):
    """Those in which the benchmark had the machine for itself; all, if there are none."""
    own = [row for row in rounds if row["cores_busy"] >= 0.97 * os.cpu_count()]
    return own or rounds


def verdicts(run):
    overload = undisturbed(run["overload"])
    one = [row for row in run["one_client"].values() if isinstance(row, dict)]
    yield ("64 clients, of offline", min(run["clients_64_threads"]["of_offline"],
                                         run["clients_64_callbacks"]["of_offline"]), 0.9, True)
    yield ("one client, of its goal", max(row["p50_us"] / row["goal_us"] for row in one), 1, False)
    yield ("request, us", run["one_client"]["request_us"], 5, False)
    yield ("goodput at 10x, of peak",
           statistics.median(row["of_peak"] for row in overload), 0.95, True)
    yield ("the same by processor time",
           statistics.median(row["of_peak_by_processor_time"] for row in overload), 0.95, True)
    yield ("refusal p99, ms", max(row["refusal_p99_us"] for row in overload) / 1e3, 20, False)


def main():
    parser = argparse.ArgumentParser(description="Measure the batcher.")
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--seconds", default="0.6", help="of each part")
    parser.add_argument("--results", type=Path, required=True)
    args = parser.parse_args()

    runs = []
    for dtype in ("fp32", "int8"):
        done = subprocess.run([args.program, args.model, dtype, args.seconds], check=True,
                              stdout=subprocess.PIPE, text=True)
        runs.append(json.loads(done.stdout))
        for what, value, goal, is_least in verdicts(runs[-1]):
            met = value >= goal if is_least else value <= goal
            print(f"{dtype}: {what} {value:.3g} (goal {'>=' if is_least else '<='} {goal}): "
                  f"{'met' if met else 'missed'}")
    today = datetime.date.today().isoformat()
    args.results.mkdir(parents=True, exist_ok=True)
    path = args.results / f"{today}-batcher.json"
    path.write_text(json.dumps({"date": today, "processor": processor(), "cores": os.cpu_count(),
                                "commit": commit(), "runs": runs}, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
