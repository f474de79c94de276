#!/usr/bin/env python3
"""What Python costs more than the C library: python.py [--quick], through `./dev bench python`.

The same library does the same work twice: once through Model.encode, once through gpuserve_run with
pointers made beforehand, which is what a C program would pay. The order turns from round to round,
disturbed rounds are dropped, the ratios of the rounds are judged (benchmarks/common); the caches are
off. With --peer PYTHON, an interpreter that has sentence-transformers, that takes its turn too: its
vectors must be ours. GPUSERVE_LIBRARY names the library, GPUSERVE_MODELS its models.
"""
import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from ctypes import byref
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "python"), str(HERE / "common")]

import verdict  # noqa: E402
from measure import finish, machine, rounds  # noqa: E402

from gpuserve import Model  # noqa: E402
from gpuserve._ffi import abi as _abi, calls as _calls  # noqa: E402

THROUGHPUT_GOAL, OVERHEAD_GOAL_US, PEER_GOAL, START_GOAL_S = 0.97, 30, 1.3, 0.5
MODELS = Path(os.environ["GPUSERVE_MODELS"])
WORDS = ("time person year way day thing man world life hand part child eye woman place work week "
         "case point government company number group problem fact").split()


def texts_of(n, seed=7):
    """English-like texts with log-normal lengths, 30 words on average."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=max(1, min(200, int(chance.lognormvariate(3.1, 0.8))))))
            for _ in range(n)]


def prepared(model, texts):
    output = np.empty((len(texts), model.dim), np.float32)
    return _calls.Call(texts, output, task=_abi.TASK_EMBED, cache=_abi.CACHE_OFF)


def run_c(model, call):
    """The blocking call of the C library, whatever the number of texts."""
    status = model._library.gpuserve_run(model._handle, byref(call.job), None)
    assert status == _abi.OK, status


# Told a file of texts a line, it embeds them and tells the seconds; the first line is its start.
PEER = """
import json, sys, time
began = time.perf_counter()
import torch
torch.set_num_threads({threads})
from sentence_transformers import SentenceTransformer
model = SentenceTransformer({path!r}, device="cpu")
model.encode("a short text")
print(time.perf_counter() - began, flush=True)
for line in sys.stdin:
    texts, wanted = json.loads(line)
    began = time.perf_counter()
    vectors = model.encode(texts, batch_size=32)
    took = time.perf_counter() - began
    print(json.dumps(vectors.tolist() if wanted else took), flush=True)
"""


class Peer:
    """sentence-transformers in a process of its own."""

    def __init__(self, python, path):
        code = PEER.format(threads=os.cpu_count(), path=str(path))
        self._process = subprocess.Popen(
            [python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        self.start_s = float(self._process.stdout.readline())

    def ask(self, texts, vectors=False):
        """Seconds, or the vectors."""
        self._process.stdin.write(json.dumps([texts, vectors]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def against(peer, model, n, n_rounds):
    """Both embed the same texts, in turn; both are warm."""
    texts = texts_of(n)
    cosine = verdict.least_cosine(model.encode(texts[:100]).tolist(), peer.ask(texts[:100], vectors=True))
    if cosine < verdict.MIN_COSINE["fp32"]:
        sys.exit(f"the peer's vectors are not ours: cosine {cosine:.4f} at worst")
    found = rounds(n_rounds, {"ours": lambda: seconds(lambda: model.encode(texts, cache="off")),
                              "peer": lambda: peer.ask(texts)})
    return {"texts": n, "gpuserve_texts_per_s": median(n / s for s in found.values("ours")),
            "peer_texts_per_s": median(n / s for s in found.values("peer")), "least_cosine": cosine,
            "gpuserve_of_peer": verdict.verdict(found.ratios("peer", "ours"), PEER_GOAL), "rounds": found.facts(),
            "peer_import_load_first_vector_s": peer.start_s}


def median(values):
    values = list(values)
    return statistics.median(values) if values else None


def seconds(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def throughput(model, n, n_rounds):
    texts = texts_of(n)
    call = prepared(model, texts)
    run_c(model, call)
    model.encode(texts, cache="off")
    found = rounds(n_rounds, {"c": lambda: seconds(lambda: run_c(model, call)),
                              "python": lambda: seconds(lambda: model.encode(texts, cache="off"))})
    return {"texts": n, "c_texts_per_s": median(n / s for s in found.values("c")),
            "python_texts_per_s": median(n / s for s in found.values("python")),
            "python_of_c": verdict.verdict(found.ratios("c", "python"), THROUGHPUT_GOAL), "rounds": found.facts()}


def overhead(model, n):
    """One short text, one call through each in turn, in turned order; the difference of each pair. Others on the
    machine lengthen some of the calls; the medians of many do not care."""
    call = prepared(model, ["a short text"])
    for _ in range(50):
        run_c(model, call)
        model.encode("a short text")
    both = []
    for number in range(n):
        pair = [seconds(lambda: run_c(model, call))] if number % 2 else []
        python = seconds(lambda: model.encode("a short text", cache="off"))
        both.append((*(pair or [seconds(lambda: run_c(model, call))]), python))
    c, python = (statistics.median(column) for column in zip(*both))
    return {"c_us": c * 1e6, "python_us": python * 1e6,
            "overhead_us": verdict.verdict([(b - a) * 1e6 for a, b in both], OVERHEAD_GOAL_US, at_most=True, least=0)}


def resident_mb():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def stream(model, n):
    """Resident memory while n short texts stream through."""
    seen, done = [], 0
    began = time.perf_counter()
    for part in model.encode_stream(f"short text number {i}" for i in range(n)):
        done += len(part)
        seen.append((done, resident_mb()))
    tenth = next(mb for count, mb in seen if count >= n // 10)
    return {"texts": done, "seconds": time.perf_counter() - began, "mb_at_a_tenth": tenth,
            "mb_at_the_end": seen[-1][1], "mb_most": max(mb for _, mb in seen)}


def start(path):
    """Import, load and first vector in a new process, five times: files are in the cache."""
    code = ("import time; t = time.perf_counter()\n"
            f"from gpuserve import Model; Model({str(path)!r}).encode('a short text')\n"
            "print(time.perf_counter() - t)")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent / "python")}
    found = [float(subprocess.run([sys.executable, "-c", code], env=env, check=True,
                                  capture_output=True, text=True).stdout) for _ in range(5)]
    return {"import_load_first_vector_s": verdict.verdict(found, START_GOAL_S, at_most=True)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peer", help="an interpreter that has sentence-transformers")
    parser.add_argument("--output")
    given = parser.parse_args()
    minilm, tiny = MODELS / "all-MiniLM-L6-v2", MODELS / "splade-tiny"
    results = {"date": time.strftime("%Y-%m-%d"), "machine": machine(),
               "python": platform.python_version(), "numpy": np.__version__}
    with Model(minilm) as model:
        results["throughput"] = throughput(model, 200 if given.quick else 2000,
                                           3 if given.quick else 7)
        results["call"] = overhead(model, 500 if given.quick else 5000)
        if given.peer:
            peer = Peer(given.peer, minilm)
            results["sentence_transformers"] = against(peer, model, 200 if given.quick else 1000,
                                                       3 if given.quick else 5)
            peer.close()
    with Model(tiny) as model:
        # The forward of so small a model hides less of what the call costs.
        results["call_of_a_tiny_model"] = overhead(model, 2000 if given.quick else 20_000)
        results["stream"] = stream(model, 20_000 if given.quick else 1_000_000)
    results["start"] = start(minilm)
    finish(results, given.output)


if __name__ == "__main__":
    main()
