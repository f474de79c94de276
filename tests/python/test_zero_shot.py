#!/usr/bin/env python3
"""Zero-shot classification by entailment, over the Python package and the program: the scores are those of transformers'
pipeline in float64 (tests/data/nli, written by tools/fixtures/make_nli_models.py)."""
import json
import os
import shutil
import tempfile
import unittest

import numpy as np

from common import ROOT, gpuserve

from gpuserve import Model
from gpuserve.errors import InvalidError, MismatchError, UnsupportedError
from gpuserve._zero_shot import scores_of

NLI = os.path.join(ROOT, "tests", "data", "nli")
TINY = os.path.join(ROOT, "tests", "data", "models")

with open(os.path.join(NLI, "expected.json"), encoding="utf-8") as file:
    EXPECTED = json.load(file)


class ZeroShot(unittest.TestCase):
    def folder(self, names, model="deberta-v3"):
        """The model with other names of its labels."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        copy = shutil.copytree(os.path.join(NLI, model), os.path.join(folder, "model"))
        path = os.path.join(copy, "config.json")
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        config["id2label"] = dict(enumerate(names))
        config["label2id"] = {name: i for i, name in enumerate(names)}
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)
        return copy

    def rows(self, order, model="deberta-v3"):
        return [row for row in EXPECTED["rows"] if row["model"] == model and row["order"] == order]

    def orders(self):
        """(model, order, names of the labels) of all rows."""
        return [(model, order, EXPECTED["orders"][order])
                for model, order in dict.fromkeys((row["model"], row["order"]) for row in EXPECTED["rows"])]

    def same(self, got, row):
        """`got`: scores by label."""
        self.assertEqual(sorted(got), sorted(row["labels"]))
        for label, score in zip(row["labels"], row["scores"]):
            self.assertAlmostEqual(got[label], score, delta=2e-6, msg=str(row))

    def test_as_transformers(self):
        self.assertEqual({model for model, *_ in self.orders()}, {"deberta-v3", "bart"})
        for name, order, names in self.orders():
            with self.subTest(model=name, order=order), Model(self.folder(names, name)) as model:
                self.assertEqual(model.info()["entailment_label"], [name.lower() for name in names].index("entailment"))
                for row in self.rows(order, name):
                    options = dict(candidate_labels=row["labels"], hypothesis_template=row["template"], multi_label=row["multi_label"])
                    found = model.classify(row["text"], top_k=None, **options)
                    self.same({one["label"]: one["score"] for one in found}, row)
                    self.assertEqual(found, sorted(found, key=lambda one: -one["score"]))
                    self.assertEqual(model.classify(row["text"], **options), found[0])

    def test_many_texts(self):
        rows = [row for row in self.rows("first") if not row["multi_label"] and row["template"].startswith("This") and len(row["labels"]) == 4]
        with Model(os.path.join(NLI, "deberta-v3")) as model:
            for batch_size in (None, 3):
                found = model.classify([row["text"] for row in rows] * 5, top_k=None, candidate_labels=rows[0]["labels"], batch_size=batch_size)
                self.assertEqual(len(found), 5 * len(rows))
                for one, row in zip(found, rows * 5):
                    self.same({each["label"]: each["score"] for each in one}, row)
            self.assertEqual(model.classify([], candidate_labels=["a", "b"]), [])

    def test_program(self):
        for name, order, names in self.orders():
            folder = self.folder(names, name)
            for multi_label in (False, True):
                rows = [row for row in self.rows(order, name) if row["multi_label"] == multi_label and len(row["labels"]) == 4]
                for template in {row["template"] for row in rows}:
                    some = [row for row in rows if row["template"] == template]
                    texts = "".join(json.dumps({"text": row["text"]}) + "\n" for row in some)
                    got = gpuserve("classify", "-m", folder, "-q", "--input-format", "jsonl", "--batch", "3", "--hypothesis-template", template,
                                   "--candidate-labels", ", ".join(some[0]["labels"]), *["--multi-label"] * multi_label, stdin=texts)
                    self.assertEqual(got.returncode, 0, got.err)
                    for line, row in zip(map(json.loads, got.out.splitlines()), some, strict=True):
                        self.same(line["scores"], row)
                        self.assertEqual(line["score"], max(line["scores"].values()))
                        self.assertEqual(line["scores"][line["label"]], line["score"])

    def test_program_top_and_cut_texts(self):
        long = max(self.rows("first"), key=lambda row: len(row["text"]))["text"]
        got = gpuserve("classify", "-m", os.path.join(NLI, "deberta-v3"), "--candidate-labels", "a,b,c", "--top", "2", long, "bread")
        self.assertEqual(got.returncode, 0, got.err)
        self.assertIn("1 of 2 texts were longer than 64 tokens with a hypothesis and were cut", got.err)
        self.assertEqual([len(json.loads(line)["scores"]) for line in got.out.splitlines()], [2, 2])

    def test_texts_without_the_end_token(self):
        """BART's classifier reads the vector of the end token, which this tokenizer does not add."""
        folder = self.folder(["contradiction", "neutral", "entailment"], "bart")
        vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "word": 4}
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
            json.dump({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
                       "post_processor": None, "decoder": None,
                       "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}}, f)
        with Model(folder, warmup="auto", pooling="mean") as model:
            self.assertEqual(model.predict_proba(["word </s> word", "</s>"]).shape, (2, 3))
            self.assertEqual(model.encode(["word word"]).shape, (1, 16))
            for texts in (["word"], ["</s>", "word word"]):
                with self.assertRaisesRegex(InvalidError, f"item {len(texts) - 1}: the text has no token 2 .eos_token_id., whose vector"):
                    model.predict_proba(texts)

    def test_models_without_the_label(self):
        for name in ("bert-pairs-multi", "bert-cross-encoder", "bert-tokens", "st-xlm-roberta"):
            with self.subTest(name), Model(os.path.join(TINY, name)) as model:
                self.assertNotIn("entailment_label", model.info())
                with self.assertRaisesRegex(UnsupportedError, "zero-shot"):
                    model.classify("a", candidate_labels=["b"])
        with Model(self.folder(["neutral", "entails not", "same"])) as model:
            self.assertEqual(model.info()["entailment_label"], 1)
        folder = self.folder(["neutral", "no entailment", "same"])
        with Model(folder) as model, self.assertRaisesRegex(UnsupportedError, 'begins with "entail"'):
            model.classify("a", candidate_labels=["b"])
        got = gpuserve("classify", "-m", folder, "--candidate-labels", "a,b", "text")
        self.assertEqual((got.returncode, got.out), (1, ""))
        self.assertIn('begins with "entail"', got.err)

    def test_refused_arguments(self):
        with Model(os.path.join(NLI, "deberta-v3")) as model:
            for options, words in ((dict(candidate_labels=[]), "empty"), (dict(candidate_labels="a"), "list of strings"),
                                   (dict(candidate_labels=["a", ""]), "list of strings"), (dict(candidate_labels=["a"], score="raw"), "score"),
                                   (dict(candidate_labels=["a"], hypothesis_template="x"), "no {} for the label"),
                                   (dict(candidate_labels=["a"], pairs="b"), "exclude")):
                with self.assertRaisesRegex(InvalidError, words):
                    model.classify("text", **options)
            logits = np.zeros((2, 2), dtype=np.float32)
            with self.assertRaisesRegex(MismatchError, "2 labels, the model has 3"):
                scores_of(model, logits, 1, 2, False)
            with self.assertRaisesRegex(InvalidError, "`n_candidates` is 0"):
                scores_of(model, np.zeros((0, 3), dtype=np.float32), 1, 0, False)
        for arguments, words in ((("--candidate-labels", "a,,b"), "label 2 is empty"), (("--candidate-labels", "a", "--raw"), "not valid"),
                                 (("--candidate-labels", "a", "--pairs", "--input", os.devnull), "not valid"), (("--hypothesis-template", "{}"), "needs --candidate-labels"),
                                 (("--candidate-labels", "a", "--hypothesis-template", "x"), "has no {}"),
                                 (("--candidate-labels", "a", "--threshold", "0.1"), "GLiNER")):
            text = [] if "--input" in arguments else ["text"]
            got = gpuserve("classify", "-m", os.path.join(NLI, "deberta-v3"), *arguments, *text)
            self.assertEqual((got.returncode, got.out), (2, ""), (arguments, got.err))
            self.assertIn(words, got.err)
        got = gpuserve("classify", "-m", os.path.join(TINY, "bert-tokens"), "--candidate-labels", "a,b", "text")
        self.assertEqual(got.returncode, 2)
        self.assertIn("not texts", got.err)


if __name__ == "__main__":
    unittest.main()
