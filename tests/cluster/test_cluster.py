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
                      RAY_raylet_start_wait_time_s="120")
    os.execvp("unshare", ["unshare", *flags, "sh", "-c", 'ip link set lo up && exec "$@"', "sh",
                          sys.executable, *sys.argv])


def start(folder, *arguments):
    """A Ray process in a group of its own, so that the whole node can be killed."""
    log = open(os.path.join(folder, f"node-{time.monotonic_ns()}.log"), "wb")
    code = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", code, "start", *arguments, "--node-ip-address=127.0.0.1",
         "--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats", "--block"],
        stdout=log, stderr=log, start_new_session=True,
        env={**os.environ, "RAY_BACKEND_LOG_LEVEL": "error"})


def kill(node):
    """A machine that lost its power: every process of the node at once."""
    group = os.getpgid(node.pid)
    os.killpg(group, signal.SIGKILL)
    node.wait()


def wait_until(what, condition, seconds=180):
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
        wait_until("the head", lambda: count_nodes() == 1)
        nodes += [start(folder, f"--address=127.0.0.1:{PORT}") for _ in range(2)]
        wait_until("three nodes", lambda: count_nodes() == 3)
        log = open(folder + "/job.log", "wb")
        job = subprocess.Popen(
            [sys.executable, "-m", "gpuserve.ray", "--address", f"127.0.0.1:{PORT}", "--model",
             MODEL, "--input", folder + "/s.parquet", "--output", folder + "/o.parquet",
             "--unit-rows", str(UNIT_ROWS)], stdout=log, stderr=log)
        wait_until("some parts", lambda: n_parts(folder) >= 6 or job.poll() is not None)
        if must_kill:
            assert job.poll() is None, "the job was over before a node could be killed"
            before = n_parts(folder)
            kill(nodes.pop())
            print(f"killed a node at {before} parts of {N_ROWS // UNIT_ROWS}", flush=True)
        wait_until("the end of the job", lambda: job.poll() is not None, 240)
        with open(folder + "/job.log", encoding="utf-8", errors="replace") as file:
            assert job.returncode == 0, file.read()[-3000:]
        check(folder)
    finally:
        for process in nodes:
            kill(process)
        if job is not None and job.poll() is None:
            job.kill()


def count_nodes():
    """Nodes alive, asked by a process that connects and leaves."""
    done = subprocess.run(
        [sys.executable, "-c", f"""
import ray
ray.init(address="127.0.0.1:{PORT}", log_to_driver=False, logging_level="CRITICAL")
print(sum(node["Alive"] for node in ray.nodes()))
"""], capture_output=True, text=True, check=False)
    return int(done.stdout.split()[-1]) if done.returncode == 0 else 0


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
