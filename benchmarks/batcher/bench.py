#!/usr/bin/env python3
"""Measure the batcher: `./dev bench batcher` calls it.

    bench.py BENCH_BATCHER MODEL [--seconds S] [--rounds N] --results FOLDER

bench_batcher prints what each round gave and the processor time that others took meanwhile. Rounds in
which others took more than benchmarks/common/measure.py allows are dropped. The ratios of the rounds that
are left are judged against the goals (benchmarks/common/verdict.py); the noise floor is the difference
between two offline measurements of one round.
"""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))

from measure import disturbed, keep, machine  # noqa: E402
from verdict import line, noise_floor, verdict  # noqa: E402

REQUEST_GOAL_US = 5
CLIENT_SHARE, CLIENT_US = 1.1, 50   # the whole call takes at most this factor times the forward pass, plus this number of us


def undisturbed(rows):
    return [row for row in rows if not disturbed(row["others_s"], row["seconds"], os.cpu_count())]


def offline_of(row):
    """The offline rate of a round: the mean of its two measurements."""
    return (row["offline"] + row["offline_again"]) / 2


def call_ratio(block):
    """The time of a call, of what the forward pass alone allows it."""
    return block["whole_us"] / (CLIENT_SHARE * block["forward_us"] + CLIENT_US)


def judged(run):
    """(name, verdict) of each goal."""
    rows, overload = undisturbed(run["throughput"]), undisturbed(run["overload"])
    floor = noise_floor([(row["offline"], row["offline_again"]) for row in rows], relative=True)
    for kind in ("threads", "callbacks"):
        yield (f"64 clients ({kind}), of offline",
               verdict([row[kind]["texts_per_s"] / offline_of(row) for row in rows], 0.9, noise=floor))
    for name in ("short", "middle", "long"):
        yield (f"one client ({name}), of 1.1 x forward + 50 us",
               verdict([call_ratio(block) for block in undisturbed(run["one_client"][name]["blocks"])], 1, at_most=True,
                       least=0))
    yield "a request beside its computation, us", verdict(run["one_client"]["request_us"], REQUEST_GOAL_US, at_most=True,
                                                          least=0)
    yield "goodput at 10 times the peak, of the peak", verdict([row["of_peak"] for row in overload], 0.95)
    yield ("the same by processor time",
           verdict([row["of_peak_by_processor_time"] for row in overload], 0.95))
    yield ("p99 of a refusal, ms",
           verdict([row["refusal_p99_us"] / 1e3 for row in overload], 20, at_most=True, least=0))


def main():
    parser = argparse.ArgumentParser(description="Measure the batcher.")
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--seconds", default="0.6", help="of each part")
    parser.add_argument("--rounds", default="5")
    parser.add_argument("--results", type=Path, required=True)
    args = parser.parse_args()

    runs = []
    for dtype in ("fp32", "int8"):
        done = subprocess.run([args.program, args.model, dtype, args.seconds, args.rounds], check=True,
                              stdout=subprocess.PIPE, text=True)
        run = json.loads(done.stdout)
        run["goals"] = dict(judged(run))
        runs.append(run)
        for name, found in run["goals"].items():
            print(f"{dtype}: {line(name, found)}")
    print(keep({"machine": machine(), "seconds": args.seconds, "rounds": args.rounds, "runs": runs}, args.results, "batcher"))


if __name__ == "__main__":
    main()
