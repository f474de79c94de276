#!/usr/bin/env python3
"""Ray on two nodes of one core each, and each of them alone: cluster.py, through `./dev bench ray`.

A head without cores, and in each round, in an order that turns: node 0 (pinned to core 0) does a job
alone, node 1 (pinned to core 1) another, both nodes one of twice the rows. Rates are over the last two
thirds of the units written, when all actors have started; the start-up time is reported separately. The
driver and the head share the two cores with the nodes. A round in which other processes took
processor time is dropped. GPUSERVE_LIBRARY, GPUSERVE_TEST_MODELS as for the tests.
"""
import argparse
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/cluster"), str(ROOT / "benchmarks/common")]

from measure import Watch, finish, machine, rounds, today  # noqa: E402
from nodes import enter_namespace, kill, start_head, start_job, start_node, text_of  # noqa: E402
from verdict import spread  # noqa: E402

MODEL = os.path.join(os.environ["GPUSERVE_TEST_MODELS"], "all-MiniLM-L6-v2")
WORDS = ("time person year way day thing man world life hand part child eye woman place work week "
         "case point government company number group problem fact").split()
UNIT_ROWS = 128


def write_texts(path, n):
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = random.Random(7)
    texts = [" ".join(chance.choices(WORDS, k=max(1, min(200, int(chance.lognormvariate(3.1, 0.8))))))
             for _ in range(n)]
    pq.write_table(pa.table({"text": texts}), path)


def written(folder, name, times):
    """Note when each unit's part appears."""
    parts = f"{folder}/{name}-out.parquet.parts"
    while not times.get("over"):
        if os.path.isdir(parts):
            for part in os.listdir(parts):
                if part.endswith(".parquet"):
                    times.setdefault(part, time.monotonic())
        time.sleep(0.01)


def measure(folder, name, n_rows):
    """Rows a second over the last two thirds of the units."""
    write_texts(f"{folder}/{name}.parquet", n_rows)
    times = {}
    began = time.monotonic()
    job = start_job(folder, MODEL, name, "--unit-rows", UNIT_ROWS)
    watch = threading.Thread(target=written, args=(folder, name, times))
    watch.start()
    job.wait()
    ended = time.monotonic()
    times["over"] = True
    watch.join()
    if job.returncode:
        raise SystemExit(text_of(f"{folder}/{name}.log")[-3000:])
    at = sorted(value for key, value in times.items() if key != "over")
    third = len(at) // 3
    return {"rows": n_rows,
            "rows_per_s": (len(at) - 1 - third) * UNIT_ROWS / (at[-1] - at[third]),
            "seconds_to_first_unit": at[0] - began, "seconds": ended - began}


class Jobs:
    """The parts of a round, each on nodes of its own."""

    def __init__(self, folder, n_rows):
        self.folder, self.n_rows, self.n_jobs, self.watched = folder, n_rows, 0, []

    def run(self, cores):
        """Figures of a job on one node for each of `cores`."""
        nodes, self.n_jobs = [], self.n_jobs + 1
        try:
            nodes = [start_node(self.folder, core=core) for core in cores]
            watch = Watch()  # only while the nodes live: the time of killed ones is lost
            figures = measure(self.folder, f"job-{self.n_jobs}", len(cores) * self.n_rows)
            self.watched.append(watch.stop())
        finally:
            for node in nodes:
                kill(node)
        return figures

    def watch(self):
        """What rounds() watches with: the parts of one round together."""
        self.watched = []
        return self

    def stop(self):
        seconds = sum(one["seconds"] for one in self.watched)
        return {"seconds": round(seconds, 3), "disturbed": any(one["disturbed"] for one in self.watched),
                "others_share": max(one["others_share"] for one in self.watched)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=2560, help="of a node alone; both get twice")
    parser.add_argument("--rounds", type=int, default=3, help="undisturbed ones wanted")
    parser.add_argument("--output")
    given = parser.parse_args()
    enter_namespace()
    facts = machine()
    with tempfile.TemporaryDirectory(prefix="gsv", ignore_cleanup_errors=True) as folder:
        head = start_head(folder, cpus=0)
        try:
            jobs = Jobs(folder, given.rows)
            found = rounds(given.rounds, {"first_alone": lambda: jobs.run([0]), "both": lambda: jobs.run([0, 1]),
                                          "second_alone": lambda: jobs.run([1])}, watch=jobs.watch, say=print)
        finally:
            kill(head)
    finish({"date": today(), "machine": facts, "unit_rows": UNIT_ROWS, "rows": given.rows,
            "rows_per_s": {name: spread([row[name]["rows_per_s"] for row in found.kept])
                           for name in ("first_alone", "second_alone", "both")},
            "both_of_the_sum": spread([row["both"]["rows_per_s"] / (
                row["first_alone"]["rows_per_s"] + row["second_alone"]["rows_per_s"]) for row in found.kept]),
            "rounds": found.facts(), "values": found.kept}, given.output)


if __name__ == "__main__":
    main()
