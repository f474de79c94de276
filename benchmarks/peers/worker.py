#!/usr/bin/env python3
"""One engine in a process of its own: worker.py ENGINE THREADS MODEL PREPARED

Reads a JSON object a line from standard input and answers each with one line:

    {"do": "load"}                                    -> seconds, memory
    {"do": "tune", "texts": [..], "repeats": n}       -> seconds for each setting, texts
    {"do": "bulk", "texts": [..], "setting": {..}}    -> seconds; "save": path keeps the vectors
    {"do": "latency", "texts": [..], "seconds": s}    -> the median of single calls, in ms

Libraries may print what they like: it goes to standard error.
"""
import importlib
import json
import os
import sys
import time
from pathlib import Path

MIN_CALLS, MAX_CALLS = 8, 400
TUNE_S = 4            # of one setting; slower engines get fewer texts, settings and calls to warm up
MIN_TUNE_TEXTS = 16


def memory_kb(field):
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1])
    return 0


class Worker:
    def __init__(self, name, threads, paths):
        from engines import ENGINES
        started = time.perf_counter()
        module, kind, arguments = ENGINES[name]
        self.engine = getattr(importlib.import_module(f"engines.{module}"), kind)(**arguments)
        self.import_seconds = time.perf_counter() - started
        self.threads, self.paths = threads, paths

    def load(self, _request):
        before_kb = memory_kb("VmRSS")
        started = time.perf_counter()
        self.engine.load(self.paths, self.threads)
        loaded = time.perf_counter() - started
        self.engine.embed(["The first text."], self.engine.latency_setting)
        return {"import_s": self.import_seconds, "load_s": loaded,
                "first_text_s": time.perf_counter() - started, "before_load_kb": before_kb,
                **self.engine.facts()}

    def tune(self, request):
        texts, results, settings, n_warm = request["texts"], [], self.engine.settings(), 64
        self.engine.embed(texts[:4], settings[0])
        expected_s = self.timed(texts[:MIN_TUNE_TEXTS], settings[0]) / MIN_TUNE_TEXTS * len(texts)
        if expected_s > TUNE_S:
            n_warm, n = 4, min(len(texts), max(MIN_TUNE_TEXTS, int(len(texts) * TUNE_S / expected_s)))
            settings = settings[1::2] if len(settings) > 2 else settings  # each second size of a batch
            texts = [texts[i * len(texts) // n] for i in range(n)]
        for setting in settings:
            self.engine.embed(texts[:n_warm], setting)
            seconds = min(self.timed(texts, setting) for _ in range(request["repeats"]))
            results.append({"setting": setting, "seconds": seconds})
        return {"results": results, "texts": len(texts)}

    def bulk(self, request):
        import numpy as np
        started = time.perf_counter()
        vectors = self.engine.embed(request["texts"], request["setting"])
        seconds = time.perf_counter() - started
        if "save" in request:
            np.save(request["save"], vectors)
        return {"seconds": seconds, "peak_kb": memory_kb("VmHWM")}

    def latency(self, request):
        texts, times = request["texts"], []
        setting = self.engine.latency_setting
        for text in texts[:3]:
            self.engine.embed([text], setting)
        end = time.perf_counter() + request["seconds"]
        while len(times) < MIN_CALLS or (time.perf_counter() < end and len(times) < MAX_CALLS):
            times.append(self.timed([texts[len(times) % len(texts)]], setting))
        times.sort()
        return {"ms": times[len(times) // 2] * 1e3, "calls": len(times)}

    def timed(self, texts, setting):
        started = time.perf_counter()
        self.engine.embed(texts, setting)
        return time.perf_counter() - started


def main():
    name, threads = sys.argv[1], int(sys.argv[2])
    paths = {"model": Path(sys.argv[3]), "prepared": Path(sys.argv[4])}
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            worker = worker or Worker(name, threads, paths)
            answer = getattr(worker, request["do"])(request)
        except Exception as error:  # told to the harness, which goes on with the other engines
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
