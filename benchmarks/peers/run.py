#!/usr/bin/env python3
"""Measure gpuserve against other engines on this machine's CPU; ./dev bench peers calls it.

    prepared models -> one process an engine -> tune each -> rounds, engine by engine -> medians

Rounds go through all engines, and the chain of matrix products that limits them, before any is
measured again, so that a machine which grows slower or busier meanwhile is the same for all. Ratios
within one run are what counts; see report.py.
"""
import argparse
import datetime
import json
import os
import re
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))

import report  # noqa: E402
from engines import ENGINES, is_ours, precision_of, runs_another_model  # noqa: E402
from gemm_limit import Limit  # noqa: E402
from harness import (ISA_LIMITS, UNLIMITED, EngineProcess, clean_environment, exceeds,  # noqa: E402
                     has_cpuid_faulting, isa_reported)
from measure import MAX_ROUNDS, Watch, machine, order  # noqa: E402

W1_SECONDS = {False: 0.5, True: 0.25}       # for each length and round, by --quick
CHAIN_SECONDS = 0.3                         # for each precision, engine and batch size of the limit
SLOW_TEXTS_PER_S = 60                       # slower engines get a part of W2


def parse_arguments():
    parser = argparse.ArgumentParser(description="Compare gpuserve with other engines.")
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--prepared", required=True, type=Path)
    parser.add_argument("--library", required=True, type=Path)
    parser.add_argument("--results", required=True, type=Path, help="folder for the files written")
    parser.add_argument("--gemm", type=Path, help="program that measures the GEMM chain")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a fifth of the texts")
    parser.add_argument("--isa", choices=list(ISA_LIMITS), help="limits every engine that can be limited")
    parser.add_argument("--cpuid-limit", type=Path,
                        help="the library of cpuid_limit.c: --isa hides instruction sets from the engines where it can")
    parser.add_argument("--texts", type=int, help="of W2, instead of all (--quick: a fifth)")
    parser.add_argument("--only", help="engines whose name matches this regular expression")
    args = parser.parse_args()
    if not args.isa or not has_cpuid_faulting():
        args.cpuid_limit = None
    return args


def say(text):
    print(text, file=sys.stderr, flush=True)


def start_engines(args, log):
    """The engines that load, with what loading took; the others with the reason. Under a limit of the
    instruction set, what each reports, too: one that reports more than the limit takes no part."""
    engines, loads, missing, isas = {}, {}, {}, {}
    for name in ENGINES:
        if args.only and not re.search(args.only, name):
            continue
        if args.isa and not args.cpuid_limit and name.startswith(UNLIMITED):
            missing[name] = f"no setting limits it to {args.isa}"
            continue
        if args.isa:
            isas[name] = isa_reported(name, args)
            if exceeds(isas[name], args.isa):
                missing[name] = f"it says that it uses {isas[name]}"
                continue
        engine = EngineProcess(name, args, log)
        answer = engine.ask(do="load")
        if "error" in answer:
            say(f"    {name}: {answer['error']}")
            missing[name] = answer["error"]
            engine.close()
        else:
            say(f"    {name}: loaded in {answer['load_s']:.2f} s")
            engines[name], loads[name] = engine, answer
    return engines, loads, missing, isas


def tune(engine, texts, repeats):
    """The engine's fastest setting for these texts."""
    answer = engine.ask(do="tune", texts=texts, repeats=repeats)
    if "error" in answer:
        raise RuntimeError(f"{engine.name}: {answer['error']}")
    best = min(answer["results"], key=lambda result: result["seconds"])
    return best["setting"], answer["texts"] / best["seconds"]


class Measurement:
    """What one engine did: its settings and, for each workload, one value a round."""

    def __init__(self, engine, texts, quick):
        n_tune, started = 100 if quick else 200, time.monotonic()
        self.engine = engine
        self.w2_setting, speed = tune(engine, texts["tune"][:n_tune], 1)
        self.w3_setting, _ = tune(engine, texts["w3"], 1)
        # A slow engine is measured on every n-th text: the mix of lengths stays the same.
        step = 4 if speed < SLOW_TEXTS_PER_S else 1
        self.w2_texts = texts["w2"][::step]
        self.values = {}
        say(f"    {engine.name}: {self.w2_setting}, {time.monotonic() - started:.0f} s")

    def add(self, workload, value):
        self.values.setdefault(workload, []).append(value)

    def bulk(self, workload, texts, setting, **more):
        answer = self.engine.ask(do="bulk", texts=texts, setting=setting, **more)
        if "error" in answer:
            raise RuntimeError(f"{self.engine.name}: {answer['error']}")
        self.add(workload, len(texts) / answer["seconds"])
        self.peak_kb = answer["peak_kb"]

    def round(self, texts, w1_seconds):
        for length, samples in texts["w1"].items():
            answer = self.engine.ask(do="latency", texts=samples, seconds=w1_seconds)
            self.add(f"W1-{length}", answer["ms"])
        self.bulk("W2", self.w2_texts, self.w2_setting)
        self.bulk("W3", texts["w3"], self.w3_setting)

    def drop_round(self):
        for values in self.values.values():
            values.pop()

    def result(self):
        return {"precision": precision_of(self.engine.name), "ours": is_ours(self.engine.name),
                "w2_setting": self.w2_setting, "w3_setting": self.w3_setting,
                "peak_mb": round(self.peak_kb / 1024, 1),
                "median": {name: round(statistics.median(values), 4)
                           for name, values in self.values.items()},
                "rounds": {name: [round(value, 4) for value in values]
                           for name, values in self.values.items()}}


def accuracy(measurement, texts, reference, scratch):
    """Cosine of every W2 vector with sentence-transformers' fp32 one; None for another model."""
    if runs_another_model(measurement.engine.name):
        return None
    path = scratch / "vectors.npy"
    answer = measurement.engine.ask(do="bulk", texts=texts["w2"], setting=measurement.w2_setting,
                                    save=str(path))
    if "error" in answer:
        return {"error": answer["error"]}
    cosines = (np.load(path).astype(np.float64) * reference).sum(axis=1)
    return {"cosine_mean": round(float(cosines.mean()), 7),
            "cosine_min": round(float(cosines.min()), 7)}


def run_rounds(args, texts, measured, limit):
    """Every engine and the limit once a round, in an order that turns. A round in which other processes took
    processor time is dropped, and another one is tried, up to twice the rounds asked for."""
    watched, kept = [], 0
    parts = {name: lambda one=one: one.round(texts, W1_SECONDS[args.quick]) for name, one in measured.items()}
    if limit:
        parts["limit"] = lambda: limit.round(CHAIN_SECONDS)
    while kept < args.rounds and len(watched) < MAX_ROUNDS * args.rounds:
        say(f"==> round {kept + 1} of {args.rounds}")
        watching = Watch()
        for name in order(parts, len(watched)):
            started = time.monotonic()
            parts[name]()
            speed = f"W2 {measured[name].values['W2'][-1]:.0f} texts/s, " if name in measured else ""
            say(f"    {name}: {speed}{time.monotonic() - started:.0f} s")
        watched.append(watching.stop())
        if watched[-1]["disturbed"]:
            say(f"    dropped: others took {watched[-1]['others_share']:.1%} of the processors")
            for one in [*measured.values(), *([limit] if limit else [])]:
                one.drop_round()
        kept += not watched[-1]["disturbed"]
    if not kept:
        sys.exit("other processes disturbed every round: measure on a quiet machine")
    return watched


def measure(args, texts, limit, scratch):
    with open(scratch / "workers.log", "w", encoding="utf-8") as log:
        say("==> loading")
        engines, loads, missing, isas = start_engines(args, log)
        try:
            say("==> choosing batch sizes")
            measured = {name: Measurement(engine, texts, args.quick)
                        for name, engine in engines.items()}
            watched = run_rounds(args, texts, measured, limit)
            say("==> accuracy")
            reference = np.load(args.prepared / "reference.npy")[:len(texts["w2"])]
            results = {}
            for name, one in measured.items():
                results[name] = {**one.result(), "load": loads[name], "isa": isas.get(name),
                                 "accuracy": accuracy(one, texts, reference, scratch)}
        finally:
            for engine in engines.values():
                engine.close()
    return results, missing, watched


def limit_of_model(args, config):
    if not args.gemm:
        return None
    return Limit(args.gemm, args.threads, config, clean_environment(args))


def limit_facts(limit, results, texts):
    """The bounds, of int8 with the products that the library kept in a higher precision."""
    ours = results.get("gpuserve int8")
    return limit and limit.result(texts["w2_lengths"], ours and ours["load"].get("int8"))


def main():
    args = parse_arguments()
    started = time.monotonic()
    facts = {**machine(), "threads": args.threads}
    texts = json.loads((args.prepared / "texts.json").read_text("utf-8"))
    model = json.loads((args.prepared / "facts.json").read_text("utf-8"))
    if args.quick or args.texts:
        n_texts = args.texts or max(40, len(texts["w2"]) // 5)
        texts["w2"], texts["w2_lengths"] = texts["w2"][:n_texts], texts["w2_lengths"][:n_texts]
    scratch = args.results / ".scratch"
    scratch.mkdir(parents=True, exist_ok=True)

    limit = limit_of_model(args, model["config"])
    results, missing, watched = measure(args, texts, limit, scratch)
    document = {
        "date": datetime.date.today().isoformat(), "kind": "cpu-peers", "machine": facts,
        "isa_limit": args.isa, "isa_limit_by": args.isa and ("CPUID" if args.cpuid_limit else "variables"),
        "quick": args.quick, "rounds": args.rounds, "seconds": round(time.monotonic() - started),
        "model": model["model"], "pooling": model["pooling"], "versions": report.versions(args.library),
        "w2": {"texts": len(texts["w2"]), "mean_tokens": float(np.mean(texts["w2_lengths"])),
               "sha256": texts["sha256"]},
        "limit": limit_facts(limit, results, texts), "engines": results, "missing": missing, "watched": watched,
    }
    for path in report.write(document, args.results):
        say(f"==> wrote {path}")
    print(report.table(document))


if __name__ == "__main__":
    main()
