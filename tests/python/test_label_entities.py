#!/usr/bin/env python3
"""Entities of given labels (GLiNER models) over the Python package, the program and the server: those of the reference
package (tests/data/entities by tools/fixtures/make_entity_models.py)."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

from common import PROGRAM, ROOT, environment, gpuserve

from gpuserve.errors import FormatError, InvalidError, TooLargeError, UnsupportedError
from gpuserve import Model

FOLDER = os.path.join(ROOT, "tests", "data", "entities")
MODELS = ("deberta-spans", "bert-spans", "modernbert-spans", "deberta-tokens")
TOLERANCE = 1e-5


def cases(name):
    with open(os.path.join(FOLDER, name, "reference.json"), encoding="utf-8") as file:
        return json.load(file)


def names_of(row):
    by_text = isinstance(row["labels"][0], list)
    return row["labels"] if by_text else [row["labels"]] * len(row["texts"])


def without_empty_texts(row):
    """The server refuses empty texts."""
    kept = [i for i, text in enumerate(row["texts"]) if text]
    by_text = isinstance(row["labels"][0], list)
    return {**row, "texts": [row["texts"][i] for i in kept], "entities": [row["entities"][i] for i in kept],
            "labels": [row["labels"][i] for i in kept] if by_text else row["labels"]}


class LabelEntities(unittest.TestCase):
    def assertFound(self, row, found):
        self.assertEqual(len(found), len(row["texts"]))
        for text, names, want, got in zip(row["texts"], names_of(row), row["entities"], found):
            begins = [(one["start"], one["end"], one["entity_group"]) for one in got]
            self.assertEqual(begins, [(len(text.encode()[:begin].decode()), len(text.encode()[:end].decode()), names[label])
                                      for begin, end, label, _ in want])
            self.assertEqual([one["word"] for one in got], [text[one["start"]:one["end"]] for one in got])
            for one, (*_, score) in zip(got, want):
                self.assertAlmostEqual(one["score"], score, delta=TOLERANCE)

    def copy(self, name):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        return shutil.copytree(os.path.join(FOLDER, name), os.path.join(folder, name))

    def change(self, folder, **settings):
        path = os.path.join(folder, "gliner_config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file) | settings
        with open(path, "w", encoding="utf-8") as file:
            json.dump({key: value for key, value in config.items() if value is not None}, file)

    # ------------------------------------------------------------------------------ the package

    def test_package(self):
        for name in MODELS:
            model = Model(os.path.join(FOLDER, name), device="cpu")
            self.assertIn("entities", model.info()["tasks"])
            for row in cases(name):
                found = model.entities(row["texts"], labels=row["labels"], threshold=row["threshold"], nested=row["nested"],
                                       multi_label=row["multi_label"])
                self.assertFound(row, found)
            self.assertEqual(model.entities([], labels=["city"]), [])
            self.assertEqual(model.entities("", labels=["city"]), [])

    def test_refused_arguments(self):
        model = Model(os.path.join(FOLDER, "bert-spans"), device="cpu")
        for labels, words in (("city", "one string"), (["city", "city"], "that of label 0"), (["a\0b"], "NUL"),
                              ([["city"], ["city"]], "2 lists, but there are 1 texts"), ([""], "empty")):
            with self.assertRaisesRegex(InvalidError, words):
                model.entities(["Ada"], labels=labels)
        with self.assertRaisesRegex(InvalidError, "labels of text 1 are the string 'city'"):
            model.entities(["Ada", "Bob"], labels=[["city"], "city"])
        for threshold in (0, 1.5, -1, float("nan")):
            with self.assertRaisesRegex(InvalidError, "threshold"):
                model.entities("Ada", labels=["city"], threshold=threshold)
        with self.assertRaisesRegex(TooLargeError, "30 words, the limit is 24"):
            model.entities("the " * 30, labels=["city"], truncation="strict")
        with self.assertRaisesRegex(UnsupportedError, "GLiNER"):
            Model(os.path.join(ROOT, "tests", "data", "recurrent", "torch")).entities("Ada", labels=["city"])

    # ---------------------------------------------------------------------------------- the files

    def test_encoder_configuration_beside_the_file(self):
        """Older directories name the encoder only: its config.json is copied to them."""
        folder = self.copy("deberta-spans")
        with open(os.path.join(folder, "gliner_config.json"), encoding="utf-8") as file:
            encoder = json.load(file)["encoder_config"]
        self.change(folder, encoder_config=None)
        with self.assertRaisesRegex(Exception, "\"encoder_config\" is missing, and the directory has no config.json"):
            Model(folder)
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(encoder | {"vocab_size": 100}, file)  # without the added tokens
        row = cases("deberta-spans")[0]
        self.assertFound(row, Model(folder, device="cpu").entities(row["texts"], labels=row["labels"],
                                                                   threshold=row["threshold"]))

    def test_refused_settings(self):
        folder = self.copy("bert-spans")
        for settings, kind, words in (
                ({"span_mode": "conv_max"}, UnsupportedError, "span_mode 'conv_max' is not supported"),
                ({"labels_encoder": "bge"}, UnsupportedError, "\"labels_encoder\" is not supported"),
                ({"post_fusion_schema": "l2t"}, UnsupportedError, "\"post_fusion_schema\" is not supported"),
                ({"fuse_layers": True}, UnsupportedError, "\"fuse_layers\" is not supported"),
                ({"words_splitter_type": "spacy"}, UnsupportedError, "words_splitter_type 'spacy' is not supported"),
                ({"max_width": 0}, FormatError, "max_width"),
                ({"max_len": 100000}, FormatError, "max_len"),
                ({"num_rnn_layers": 1}, FormatError, "tensor 'rnn.lstm.weight_ih_l0' is missing"),
                ({"hidden_size": 26}, FormatError, "tensor 'token_rep_layer.projection.weight' is missing")):
            changed = self.copy("bert-spans")
            self.change(changed, **settings)
            with self.assertRaisesRegex(kind, words):
                Model(changed)
        with self.assertRaisesRegex(UnsupportedError, "int8"):
            Model(folder, dtype="int8", device="cpu")

    # -------------------------------------------------------------------------------- the program

    def classify(self, name, row, *options):
        options += ("--nested",) * row["nested"] + ("--multi-label",) * row["multi_label"]
        return gpuserve("classify", "-m", os.path.join(FOLDER, name), "--device", "cpu", "-q", "--input-format", "jsonl", "--labels",
                        ", ".join(row["labels"]), "--threshold", str(row["threshold"]), *options,
                        stdin="".join(json.dumps({"text": text}) + "\n" for text in row["texts"]))

    def test_program(self):
        for name in MODELS:
            for row in cases(name)[::2]:
                for options in ((), ("--batch", "1")):
                    got = self.classify(name, row, *options)
                    self.assertEqual(got.returncode, 0, got.err)
                    self.assertFound(row, [json.loads(line)["entities"] for line in got.out.splitlines()])

    def test_program_refuses(self):
        folder = os.path.join(FOLDER, "bert-spans")
        for options, words in (((), "--labels, which is missing"), (("--labels", "a", "--top", "3"), "--top"),
                               (("--labels", "a,,b"), "label 1 is empty"),
                               (("--labels", "a", "--aggregation", "max"), "--aggregation")):
            got = gpuserve("classify", "-m", folder, *options, "Ada")
            self.assertNotEqual(got.returncode, 0)
            self.assertIn(words, got.err)
        got = gpuserve("classify", "-m", os.path.join(ROOT, "tests", "data", "recurrent", "torch"), "--labels", "a", "Ada")
        self.assertIn("GLiNER", got.err)

    # --------------------------------------------------------------------------------- the server

    def serve(self, name):
        server = subprocess.Popen([PROGRAM, "serve", "-m", os.path.join(FOLDER, name), "--device", "cpu", "--port", "0",
                                   "--no-sandbox", "--auto-truncate"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment())
        self.addCleanup(server.wait)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.send_signal, signal.SIGTERM)
        return server.stdout.readline().strip()

    def post(self, url, inputs, **parameters):
        request = urllib.request.Request(url + "/", json.dumps({"inputs": inputs, "parameters": parameters}).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.load(answer), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, json.load(error), error.headers

    def test_server(self):
        for name in MODELS:
            url = self.serve(name)
            for row in map(without_empty_texts, cases(name)):
                settings = {key: row[key] for key in ("labels", "threshold", "nested", "multi_label")}
                status, found, headers = self.post(url, row["texts"], **settings)
                self.assertEqual(status, 200, found)
                self.assertFound(row, found)
            self.assertGreater(int(headers["x-compute-tokens"]), 0)

    def test_server_one_text_and_truncation(self):
        url = self.serve("bert-spans")
        status, found, headers = self.post(url, "the " * 30, labels=["person"], threshold=1e-9)
        self.assertEqual((status, headers["x-gpuserve-truncated"]), (200, "1"))
        self.assertEqual((found[0]["start"], found[-1]["end"]), (0, 24 * 4 - 1))

    def test_server_refuses(self):
        url = self.serve("bert-spans")
        for parameters, words in (({}, "labels"), ({"labels": "city"}, "`labels` is not a list"),
                                  ({"labels": []}, "`labels` is not a list"), ({"labels": [1]}, "item 0 is not a string"),
                                  ({"labels": ["a", "a"]}, "that of label 0"), ({"labels": [["a"], ["b"]]}, "2 lists, but there are 1"),
                                  ({"labels": ["a\0b"]}, "NUL"), ({"labels": ["a"], "threshold": 2}, "`threshold` is not a number"),
                                  ({"labels": ["a"], "threshold": "1"}, "`threshold` is not a number"),
                                  ({"labels": ["a"], "aggregation_strategy": "max"}, "aggregation_strategy")):
            status, answer, _ = self.post(url, ["Ada"], **parameters)
            self.assertIn(status, (400, 422), answer)
            self.assertIn(words, json.dumps(answer, ensure_ascii=False))

    def test_server_blames_the_labels(self):
        """Not the tokenizer, and not the text."""
        url = self.serve("bert-spans")
        for labels, words in ((["city", "city"], "`labels`: label 1, 'city', is that of label 0"),
                              ([f"l{i}" for i in range(2000)], "2000 labels for one text, the limit is"),
                              (["a b c d e f g"] + [f"l{i}" for i in range(100)], "leaves no room for a text")):
            status, answer, _ = self.post(url, ["Ada"], labels=labels)
            self.assertEqual((status, answer["error_type"]), (422, "Validation"), answer)
            self.assertIn(words, answer["error"])
            self.assertNotIn("shorter text", answer["error"])


if __name__ == "__main__":
    unittest.main()
