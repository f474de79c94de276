#!/usr/bin/env python3
"""The cost of each output of a pass beside the dense one alone: outputs.py MODEL [--quick] [--results FOLDER]

The same texts go through one model with each set of outputs, and through separate passes of the outputs of
the largest set. The order turns from round to round, disturbed rounds are dropped (benchmarks/common); the
caches are off. MODEL is a folder with several outputs, such as one of BGE-M3. GPUSERVE_LIBRARY names the
library.
"""
import argparse
import os
import random
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "python"), str(HERE / "common")]

from measure import keep, machine, rounds  # noqa: E402

from gpuserve import Model  # noqa: E402

WORDS = ("time person year way day thing man world life hand part child eye woman place work week "
         "case point government company number group problem fact").split()


def texts_of(n, words, seed=7):
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=words)) for _ in range(n)]


def sets_of(model):
    """Dense alone, dense with each other output, and all of them."""
    has = list(model.encode_multi("a text"))
    if model.labels:
        has.append("labels")
    if "dense" not in has:
        sys.exit("the model has no dense output: nothing to compare with")
    others = [name for name in has if name != "dense"]
    if not others:
        others = ["colbert"]
    sets = [["dense"], *(["dense", name] for name in others)]
    return sets if len(others) < 2 else [*sets, ["dense", *others]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--quick", action="store_true", help="few short rounds: only whether it runs")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype")
    parser.add_argument("--words", type=int, default=100, help="words of a text")
    parser.add_argument("--results", type=Path, help="folder for the figures")
    given = parser.parse_args()
    facts = machine()
    with Model(given.model, device=given.device, dtype=given.dtype) as model:
        texts = texts_of(4 if given.quick else 32, given.words)
        sets = sets_of(model)

        def timed(names):
            began = time.perf_counter()
            for one in names:
                model.encode_multi(texts, one, cache="off")
            return time.perf_counter() - began

        parts = {"+".join(names): lambda names=names: timed([names]) for names in sets}
        parts["separate passes"] = lambda: timed([[name] for name in sets[-1]])
        for part in parts.values():
            part()
        if given.quick:
            kept, dropped = [{name: part() for name, part in parts.items()} for _ in range(2)], 0
        else:
            found = rounds(15, parts, say=print)
            kept, dropped = found.kept, found.dropped
    if not kept:
        sys.exit("every round was disturbed by other processes")
    table = {name: {"ms": round(1000 * statistics.median(one[name] for one in kept), 3),
                    "of_dense": round(statistics.median(one[name] / one["dense"] for one in kept), 3)}
             for name in parts}
    for name, row in table.items():
        print(f"{name:40} {row['ms']:10.2f} ms  {row['of_dense']:.3f} of dense")
    if given.results:
        keep({**facts, "model": os.path.basename(given.model), "device": given.device, "dtype": given.dtype,
              "texts": len(texts), "words": given.words, "rounds": len(kept), "dropped": dropped, "sets": table},
             given.results, "outputs")


if __name__ == "__main__":
    main()
