#!/usr/bin/env python3
"""Ray on two nodes of one core each beside each of them alone: cluster.py, through `./dev bench ray`.

A head without cores, then node 0 (pinned to core 0) does a job alone, then both nodes do one of
twice the rows, then node 1 (pinned to core 1) one alone. Rates are over the last two thirds of the
units written, when all actors have started; what starting takes is told apart. The driver and the
head share the two cores with the nodes. GPUSERVE_LIBRARY, GPUSERVE_TEST_MODELS as for the tests.
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

from measure import finish, processor  # noqa: E402
from nodes import enter_namespace, kill, start_head, start_job, start_node, text_of  # noqa: E402

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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=3840, help="of a node alone; both get twice")
    parser.add_argument("--output")
    given = parser.parse_args()
    enter_namespace()
    load = os.getloadavg()[0]
    nodes = []
    with tempfile.TemporaryDirectory(prefix="gsv", ignore_cleanup_errors=True) as folder:
        try:
            nodes = [start_head(folder, cpus=0), start_node(folder, core=0)]
            first = measure(folder, "first", given.rows)
            nodes.append(start_node(folder, core=1))
            both = measure(folder, "both", 2 * given.rows)
            kill(nodes.pop(1))
            second = measure(folder, "second", given.rows)
        finally:
            for node in nodes:
                kill(node)
    alone = first["rows_per_s"] + second["rows_per_s"]
    results = {"date": time.strftime("%Y-%m-%d"), "cpu": processor(), "threads": os.cpu_count(),
               "load_before": load, "unit_rows": UNIT_ROWS, "first_alone": first,
               "second_alone": second, "both": both,
               "both_of_the_sum": both["rows_per_s"] / alone}
    finish(results, given.output)


if __name__ == "__main__":
    main()
