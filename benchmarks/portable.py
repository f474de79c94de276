#!/usr/bin/env python3
"""What portable bits cost: portable.py MODEL [--quick] [--results FOLDER]

The same texts go through a model with its fastest kernels and with --portable-bits, in float32, bfloat16
and int8: one short text, texts of mixed lengths, long texts. The order turns from round to round, disturbed rounds are
dropped (benchmarks/common); the result cache is off. GPUSERVE_LIBRARY names the library.
"""
import argparse
import contextlib
import os
import random
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "python"), str(HERE / "common")]

from measure import keep, machine, rounds, today  # noqa: E402
from outputs import WORDS, as_lists, seconds  # noqa: E402
from verdict import MIN_COSINE, least_cosine, spread  # noqa: E402

from gpuserve import Model, devices  # noqa: E402

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}


def texts_of(n, lengths, seed):
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=lengths(chance))) for _ in range(n)]


def workloads(quick):
    """{name: (texts, times a round)}: words are one token each, with two special ones."""
    some = 4 if quick else 1
    return {"1 text of 8 tokens": (texts_of(1, lambda _: 6, 1), 400 // some),
            "texts of 40 tokens on average": (
                texts_of(400 // some, lambda chance: min(254, max(1, round(chance.lognormvariate(3.35, 0.8)))), 2), 1),
            "texts of 256 tokens": (texts_of(32 // some, lambda _: 254, 3), 1)}


def timed(model, texts, times):
    return seconds(lambda: [model.encode_multi(texts, ["dense"], cache="off") for _ in range(times)]) / times


def check(name, native, portable):
    """Both are vectors of the same texts."""
    texts = texts_of(8, lambda chance: chance.randrange(1, 60), 4)
    found = least_cosine(*(as_lists(model.encode_multi(texts, ["dense"])["dense"]) for model in (native, portable)))
    if found < MIN_COSINE[name]:
        sys.exit(f"{name}: portable bits are other vectors: least cosine {found}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--quick", action="store_true", help="3 rounds of a quarter of the texts")
    parser.add_argument("--results", type=Path, help="folder for the figures")
    given, facts, figures, parts = parser.parse_args(), machine(), {}, {}
    isa = next(device.isa for device in devices() if device.selector == "cpu")
    with contextlib.ExitStack() as stack:
        for name, dtype in DTYPES.items():
            native, portable = (stack.enter_context(Model(given.model, device="cpu", dtype=dtype, portable_bits=bits))
                                for bits in (False, True))
            figures[name] = {"cosine": check(name, native, portable)}
            for what, (texts, times) in workloads(given.quick).items():
                parts[name, what, "native"] = lambda model=native, texts=texts, times=times: timed(model, texts, times)
                parts[name, what, "portable"] = lambda model=portable, texts=texts, times=times: timed(model, texts, times)
        for part in parts.values():  # warm
            part()
        found = rounds(3 if given.quick else 9, parts, say=print)
    if not found.kept:
        sys.exit("other processes disturbed every round: measure on a quiet machine")
    print(f"{isa}; time with portable bits over time without")
    for name, what, kind in parts:
        if kind == "portable":
            times = spread(found.ratios((name, what, "portable"), (name, what, "native")))
            figures[name][what] = {"of_native": times, "native_ms": spread([1000 * s for s in found.values((name, what, "native"))])}
            print(f"{name:5} {what:32} {times['median']:.2f} ({times['min']:.2f} to {times['max']:.2f})")
    if given.results:
        print(keep({"date": today(), "quick": given.quick, "machine": facts, "isa": isa, "model": os.path.basename(given.model),
                    "figures": figures, "rounds": found.facts()}, given.results, f"portable-{isa}"))


if __name__ == "__main__":
    main()
