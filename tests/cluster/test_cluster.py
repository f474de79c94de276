#!/usr/bin/env python3
"""Ray on a real cluster of a head and two nodes, one of which is killed during the job.

    test_cluster.py [ROUNDS]        default 1

Ray listens on the address of its host; here all of it lives in a network namespace of its own that
has the loopback alone, made by `unshare --net`: that needs root, or user namespaces.
"""
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time

MODEL = os.path.join(os.environ["GPUSERVE_TEST_MODELS"], "splade-tiny")
N_ROWS, UNIT_ROWS = 24_000, 500
PORT = 6399


def enter_namespace():
    """Go on in a network namespace with nothing but lo."""
    if os.environ.get("GPUSERVE_IN_NAMESPACE"):
        return
    flags = ["--net"] if os.geteuid() == 0 else ["--net", "--map-root-user"]
    os.environ["GPUSERVE_IN_NAMESPACE"] = "1"
    # All processes of a cluster must agree on one.
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32),
                      RAY_raylet_start_wait_time_s="600")
    os.execvp("unshare", ["unshare", *flags, "sh", "-c", 'ip link set lo up && exec "$@"', "sh",
                          sys.executable, *sys.argv])


def start(folder, *arguments):
    """A Ray node in a process group of its own, so that all of it can be killed; waits for it."""
    path = os.path.join(folder, f"node-{time.monotonic_ns()}.log")
    code = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
    with open(path, "wb") as log:
        node = subprocess.Popen(
            [sys.executable, "-c", code, "start", *arguments, "--node-ip-address=127.0.0.1",
             "--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats", "--block"],
            stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "RAY_BACKEND_LOG_LEVEL": "error"})
    # Ray says so when the node is known to the head. Asking the head would cost a start of Ray each
    # time, seconds of the cores that the nodes need to start.
    wait_until(f"node {' '.join(arguments)}",
               lambda: "Ray runtime started" in text_of(path) or node.poll() is not None)
    if node.poll() is not None:
        raise SystemExit(f"a node ended as it started:\n{text_of(path)[-3000:]}")
    return node


def text_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def kill(node):
    """A machine that lost its power: every process of the node at once."""
    group = os.getpgid(node.pid)
    os.killpg(group, signal.SIGKILL)
    node.wait()


def wait_until(what, condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"after {seconds} s still not: {what}")
        time.sleep(0.2)


def n_parts(folder):
    parts = folder + "/o.parquet.parts"
    return sum(name.endswith(".parquet") for name in os.listdir(parts)) if os.path.isdir(parts) else 0


def check(folder):
    """Every row once, in its place, with the vector of its text."""
    import numpy as np
    import pyarrow.parquet as pq

    from gpuserve import Model

    table = pq.read_table(folder + "/o.parquet")
    assert table.column("id").to_pylist() == list(range(N_ROWS)), "rows are missing or twice"
    vectors = np.stack(table.column("embedding").slice(0, N_ROWS).to_numpy(zero_copy_only=False))
    some = list(range(0, N_ROWS, 997))
    expected = Model(MODEL).encode([table.column("text")[i].as_py() for i in some])
    assert (vectors[some] == expected).all(), "vectors are not those of their texts"


def one_round(folder, must_kill):
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [f"row {i}: " + "some words that take their time to be embedded " * 8
             for i in range(N_ROWS)]
    pq.write_table(pa.table({"id": range(N_ROWS), "text": texts}), folder + "/s.parquet",
                   row_group_size=5000)
    nodes = [start(folder, "--head", f"--port={PORT}", "--include-dashboard=false",
                   f"--temp-dir={folder}/ray")]
    job = None
    try:
        for _ in range(2):
            nodes.append(start(folder, f"--address=127.0.0.1:{PORT}"))
        with open(folder + "/job.log", "wb") as log:
            job = subprocess.Popen(
                [sys.executable, "-m", "gpuserve.ray", "--address", f"127.0.0.1:{PORT}", "--model",
                 MODEL, "--input", folder + "/s.parquet", "--output", folder + "/o.parquet",
                 "--unit-rows", str(UNIT_ROWS)], stdout=log, stderr=log)
        wait_until("some parts", lambda: n_parts(folder) >= 6 or job.poll() is not None)
        if must_kill:
            assert job.poll() is None, ("the job was over before a node could be killed:\n"
                                        + text_of(folder + "/job.log")[-3000:])
            before = n_parts(folder)
            kill(nodes.pop())
            print(f"killed a node at {before} parts of {N_ROWS // UNIT_ROWS}", flush=True)
        wait_until("the end of the job", lambda: job.poll() is not None)
        assert job.returncode == 0, text_of(folder + "/job.log")[-3000:]
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
            one_round(folder, must_kill=True)
        print(f"round {i + 1}: every row once, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{rounds} passed, 0 failed")


if __name__ == "__main__":
    main()
