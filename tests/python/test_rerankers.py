#!/usr/bin/env python3
"""Rerankers that are language models, over the Python package, the program and the server: the scores are those of
transformers in float64 (tests/data/rerankers, written by tools/fixtures/make_rerankers.py)."""
import json
import os
import shutil
import tempfile
import unittest

from common import ROOT, gpuserve

from gpuserve.errors import FormatError, InvalidError, UnsupportedError
from gpuserve import Model

FOLDER = os.path.join(ROOT, "tests", "data", "rerankers")
NAMES = ("causal", "logit-score", "sequence")


def expected():
    with open(os.path.join(FOLDER, "expected.json"), encoding="utf-8") as file:
        return json.load(file)


class Rerankers(unittest.TestCase):
    def setUp(self):
        self.rows = expected()
        self.plain = [row for row in self.rows if not row["instruction"]]
        self.told = [row for row in self.rows if row["instruction"]]

    def copy(self, name):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        return shutil.copytree(os.path.join(FOLDER, name), os.path.join(folder, name))

    def change(self, folder, file, old, new):
        path = os.path.join(folder, file)
        with open(path, encoding="utf-8") as f:
            text = f.read()
        self.assertIn(old, text)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace(old, new))

    def check(self, model, rows, **options):
        got = {one["corpus_id"]: one["score"]
               for one in model.rank(rows[0]["query"], [row["document"] for row in rows], **options)}
        for i, row in enumerate(rows):
            self.assertAlmostEqual(got[i], row["score"], delta=2e-6)

    def test_scores(self):
        for name in NAMES:
            with self.subTest(name), Model(os.path.join(FOLDER, name)) as model:
                self.check(model, self.plain)
                self.check(model, self.told, prompt=self.told[0]["instruction"])
                pairs = [(row["query"], row["document"]) for row in self.plain]
                logits = model.predict(pairs, activation="raw")
                for logit, row in zip(logits, self.plain):
                    self.assertAlmostEqual(float(logit), row["logit"], delta=2e-5)
                self.assertEqual(model.info()["rerank"], "cross_encoder")
                self.assertEqual(model.info()["pair_template"], "qwen3-reranker")

    def test_default_score_is_of_yes(self):
        for name in ("causal", "logit-score"):
            with Model(os.path.join(FOLDER, name)) as model:
                got = model.predict([(row["query"], row["document"]) for row in self.plain])
                for score, row in zip(got, self.plain):
                    self.assertAlmostEqual(float(score), row["score"], delta=2e-6)

    def test_cut_texts_keep_the_end(self):
        """The ids of the longest case are exactly the limit, in the order of the model card."""
        longest = max(self.rows, key=lambda row: len(row["ids"]))
        with Model(os.path.join(FOLDER, "causal")) as model:
            self.assertEqual(len(longest["ids"]), model.info()["max_tokens"])
            self.check(model, [longest])
        with self.assertRaisesRegex(InvalidError, "template of a pair has"):
            Model(os.path.join(FOLDER, "causal"), max_tokens=100)

    def test_program(self):
        for rows in (self.plain, self.told):
            more = ["--instruction", rows[0]["instruction"]] if rows[0]["instruction"] else []
            texts = "".join(json.dumps({"text": row["document"]}) + "\n" for row in rows)
            got = gpuserve("rerank", "-m", os.path.join(FOLDER, "causal"), "-q", "--format", "json", "--input-format", "jsonl", *more,
                           rows[0]["query"], stdin=texts)
            self.assertEqual(got.returncode, 0, got.err)
            for one in map(json.loads, got.out.splitlines()):
                self.assertAlmostEqual(one["score"], rows[one["index"]]["score"], delta=2e-6)

    def test_pooling_embeds(self):
        with Model(os.path.join(FOLDER, "causal"), pooling="last") as model:
            self.assertEqual(model.encode("Hello world").shape, (16,))
            self.assertEqual(model.info()["rerank"], "cosine")

    def test_refused(self):
        folder = self.copy("causal")
        self.change(folder, "tokenizer.json", '"yes":', '"yet":')
        self.change(folder, "tokenizer.json", '["ye","s"]', '["ye","t"]')
        with self.assertRaisesRegex(UnsupportedError, 'no token "yes"'):
            Model(folder)
        for old, new in (("Note that", "Note, that"), ("<Query>: ", "<Query>:{{- ' ' }}"), ("\\n\\n\" }}", "\\n\" }}"),
                         ("Given a web", "Given the web")):
            for name in ("logit-score", "sequence"):
                folder = self.copy(name)
                self.change(folder, "chat_template.jinja", old, new)
                with self.assertRaisesRegex(UnsupportedError, "only Qwen3-Reranker's"):
                    Model(folder)
        folder = self.copy("logit-score")
        self.change(folder, "1_LogitScore/config.json", '"true_token_id": ', '"true_token_id": 9')
        with self.assertRaisesRegex(FormatError, "outside the vocabulary"):
            Model(folder)
        folder = self.copy("logit-score")
        self.change(folder, "1_LogitScore/config.json", "causal_logits", "logits")
        with self.assertRaisesRegex(UnsupportedError, "module_input_name"):
            Model(folder)

    def test_cross_encoder_without_instruction(self):
        pairs = os.path.join(FOLDER, "sequence")
        folder = self.copy("sequence")
        os.remove(os.path.join(folder, "chat_template.jinja"))
        with Model(folder) as model, Model(pairs) as other:
            with self.assertRaisesRegex(InvalidError, "does not accept prompts"):
                model.rank("Hello", ["world"], prompt="Find")
            self.assertNotIn("pair_template", model.info())
            row = self.plain[0]
            self.assertNotAlmostEqual(float(model.predict((row["query"], row["document"]))),
                                      float(other.predict((row["query"], row["document"]))), delta=1e-4)


if __name__ == "__main__":
    unittest.main()
