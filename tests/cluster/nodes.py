"""Ray nodes on this machine, for the test and the benchmark of the cluster.

Ray listens on the address of its host; here all of it lives in a network namespace of its own that
has the loopback alone, made by `unshare --net`: that needs root, or user namespaces.
"""
import glob
import os
import secrets
import signal
import subprocess
import sys
import time

PORT = 6399


def enter_namespace():
    """Go on in a network namespace with nothing but lo."""
    if os.environ.get("GPUSERVE_IN_NAMESPACE"):
        # Ended from outside it ends its nodes too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        return
    flags = ["--net"] if os.geteuid() == 0 else ["--net", "--map-root-user"]
    os.environ["GPUSERVE_IN_NAMESPACE"] = "1"
    # All processes of a cluster must agree on one. A busy machine may take long to start a node.
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32),
                      RAY_raylet_start_wait_time_s="600")
    os.execvp("unshare", ["unshare", *flags, "sh", "-c", 'ip link set lo up && exec "$@"', "sh",
                          sys.executable, *sys.argv])


def start(folder, *arguments, cpus=1, core=None):
    """A Ray node in a process group of its own, so that all of it can be killed; waits for it."""
    path = os.path.join(folder, f"node-{time.monotonic_ns()}.log")
    code = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
    pin = [] if core is None else ["taskset", "--cpu-list", str(core)]
    with open(path, "wb") as log:
        node = subprocess.Popen(
            [*pin, sys.executable, "-c", code, "start", *arguments, "--node-ip-address=127.0.0.1",
             f"--num-cpus={cpus}", "--object-store-memory=80000000", "--disable-usage-stats",
             "--block"], stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "RAY_BACKEND_LOG_LEVEL": "error"})
    # Ray says so when the node is known to the head. Asking the head would cost a start of Ray each
    # time, seconds of the cores that the nodes need to start.
    wait_until(f"node {' '.join(arguments)}",
               lambda: "Ray runtime started" in text_of(path) or node.poll() is not None,
               lambda: text_of(path) + logs_of_ray(folder))
    if node.poll() is not None:
        raise SystemExit(f"a node ended as it started:\n{text_of(path)[-3000:]}")
    return node


def start_head(folder, cpus=1):
    return start(folder, "--head", f"--port={PORT}", "--include-dashboard=false",
                 f"--temp-dir={folder}/ray", cpus=cpus)


def start_node(folder, core=None):
    return start(folder, f"--address=127.0.0.1:{PORT}", core=core)


def kill(node):
    """A machine that lost its power: every process of the node at once."""
    group = os.getpgid(node.pid)
    os.killpg(group, signal.SIGKILL)
    node.wait()


def start_job(folder, model, name, *arguments):
    """`python -m gpuserve.ray` on the cluster, from NAME.parquet to NAME-out.parquet."""
    with open(f"{folder}/{name}.log", "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "gpuserve.ray", "--address", f"127.0.0.1:{PORT}", "--model",
             model, "--input", f"{folder}/{name}.parquet", "--output",
             f"{folder}/{name}-out.parquet", *map(str, arguments)], stdout=log, stderr=log)


def text_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def logs_of_ray(folder):
    """The ends of what Ray's own processes have written."""
    paths = sorted(glob.glob(folder + "/ray/session_latest/logs/*"))
    return "".join(f"\n== {os.path.basename(path)}\n{text_of(path)[-1500:]}" for path in paths
                   if os.path.isfile(path) and os.path.getsize(path))


def wait_until(what, condition, more=lambda: "", seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"after {seconds} s still not: {what}\n{more()}")
        time.sleep(0.2)
