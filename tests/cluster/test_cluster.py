#!/usr/bin/env python3
"""Ray on a real cluster of a head and two nodes, one of which is killed during the job.

    test_cluster.py [ROUNDS]        default 1; through `./dev cluster`
"""
import os
import sys
import tempfile
import time

from nodes import enter_namespace, kill, start_head, start_job, start_node, text_of, wait_until

MODEL = os.path.join(os.environ["GPUSERVE_TEST_MODELS"], "splade-tiny")
N_ROWS, UNIT_ROWS = 24_000, 500


def n_parts(folder):
    parts = folder + "/s-out.parquet.parts"
    return sum(name.endswith(".parquet") for name in os.listdir(parts)) if os.path.isdir(parts) else 0


def check(folder):
    """Every row once, in its place, with the vector of its text."""
    import numpy as np
    import pyarrow.parquet as pq

    from gpuserve import Model

    table = pq.read_table(folder + "/s-out.parquet")
    assert table.column("id").to_pylist() == list(range(N_ROWS)), "rows are missing or twice"
    vectors = np.stack(table.column("embedding").slice(0, N_ROWS).to_numpy(zero_copy_only=False))
    some = list(range(0, N_ROWS, 997))
    expected = Model(MODEL).encode([table.column("text")[i].as_py() for i in some])
    assert (vectors[some] == expected).all(), "vectors are not those of their texts"


def one_round(folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [f"row {i}: " + "some words that take their time to be embedded " * 8
             for i in range(N_ROWS)]
    pq.write_table(pa.table({"id": range(N_ROWS), "text": texts}), folder + "/s.parquet",
                   row_group_size=5000)
    nodes, job = [], None
    try:
        nodes.append(start_head(folder))
        nodes += [start_node(folder), start_node(folder)]
        job = start_job(folder, MODEL, "s", "--unit-rows", UNIT_ROWS)
        wait_until("some parts", lambda: n_parts(folder) >= 6 or job.poll() is not None)
        assert job.poll() is None, ("the job was over before a node could be killed:\n"
                                    + text_of(folder + "/s.log")[-3000:])
        before = n_parts(folder)
        kill(nodes.pop())
        print(f"killed a node at {before} parts of {N_ROWS // UNIT_ROWS}", flush=True)
        wait_until("the end of the job", lambda: job.poll() is not None)
        assert job.returncode == 0, text_of(folder + "/s.log")[-3000:]
        check(folder)
    finally:
        for process in nodes:
            kill(process)
        if job is not None and job.poll() is None:
            job.kill()


def main():
    enter_namespace()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    for i in range(rounds):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="gsv", ignore_cleanup_errors=True) as folder:
            one_round(folder)
        print(f"round {i + 1}: every row once, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{rounds} passed, 0 failed")


if __name__ == "__main__":
    main()
