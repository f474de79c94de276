#!/usr/bin/env python3
"""Entities with each aggregation strategy, as transformers' pipeline finds them (aggregations.json, written by
tools/fixtures/make_aggregations.py). The word is compared where transformers decodes it once: it decodes the words of "first",
"average" and "max" again as if they were tokens, which spoils characters that are not ASCII with byte-level BPE, and loses
spaces between words of Unigram: there the words are compared without spaces."""
import json
import os
import unittest

from common import ROOT, gpuserve, lines

from gpuserve import Model
from gpuserve.errors import InvalidError

STRATEGIES = ("none", "simple", "first", "average", "max")
KEYS = ("entity", "entity_group", "index", "start", "end")


class Aggregations(unittest.TestCase):
    def compare(self, got, want, text, strategy, spelled=str):
        self.assertEqual([{k: one[k] for k in KEYS if k in one} for one in got],
                         [{k: one[k] for k in KEYS if k in one} for one in want], (text, strategy))
        for one, other in zip(got, want):
            self.assertAlmostEqual(one["score"], other["score"], delta=2e-6)
            if strategy in ("none", "simple"):
                self.assertEqual(one["word"], other["word"], (text, strategy))
            elif text.isascii():
                self.assertEqual(spelled(one["word"]), spelled(other["word"]), (text, strategy))

    def test_as_transformers(self):
        for name in ("bert-tokens", "roberta-tokens", "deberta-v3-entities"):
            folder = os.path.join(ROOT, "tests", "data", "models", name)
            with open(os.path.join(folder, "aggregations.json"), encoding="utf-8") as file:
                rows = json.load(file)
            differ = {strategy: 0 for strategy in STRATEGIES}
            with Model(folder) as model:
                for strategy in STRATEGIES:
                    found = model.entities([row["text"] for row in rows], aggregation_strategy=strategy, ignore_labels=())
                    for got, row in zip(found, rows):
                        self.compare(got, row[strategy], row["text"], strategy,
                                     (lambda word: word.replace(" ", "")) if name == "deberta-v3-entities" else str)
                        differ[strategy] += row[strategy] != row["simple"]
            for strategy in ("first", "average", "max"):  # else the test shows nothing
                self.assertGreater(differ[strategy], 2, (name, strategy))

    def test_program(self):
        folder = os.path.join(ROOT, "tests", "data", "models", "roberta-tokens")
        with open(os.path.join(folder, "aggregations.json"), encoding="utf-8") as file:
            row = json.load(file)[0]
        for strategy in STRATEGIES:
            done = gpuserve("classify", "-m", folder, "-q", "--aggregation", strategy, "--ignore-label", "", row["text"])
            self.assertEqual(done.returncode, 0, done.err)
            self.compare(lines(done.out)[0]["entities"], row[strategy], row["text"], strategy)

    def test_unknown_strategy(self):
        with Model(os.path.join(ROOT, "tests", "data", "models", "bert-tokens")) as model:
            with self.assertRaisesRegex(InvalidError, "known are average, first, max, none, simple"):
                model.entities("a", aggregation_strategy="last")


if __name__ == "__main__":
    unittest.main()
