#!/usr/bin/env python3
"""Models of the modules WordEmbeddings, LSTM and Pooling: token ids and embeddings are those of
sentence-transformers (tests/data/words by tools/fixtures/make_word_models.py)."""
import json
import os
import shutil
import tempfile
import unittest

from common import ROOT, gpuserve

from gpuserve.errors import FormatError, InvalidError, UnsupportedError
from gpuserve import Model, Tokenizer

FOLDER = os.path.join(ROOT, "tests", "data", "words")


def reference():
    with open(os.path.join(FOLDER, "reference.json"), encoding="utf-8") as file:
        return json.load(file)


class Words(unittest.TestCase):
    def copy(self, name):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        return shutil.copytree(os.path.join(FOLDER, name), os.path.join(folder, name))

    def edit(self, folder, file, change):
        path = os.path.join(folder, file)
        with open(path, encoding="utf-8") as opened:
            data = json.load(opened)
        change(data)
        with open(path, "w", encoding="utf-8") as opened:
            json.dump(data, opened)

    def refuse(self, name, file, kind, words, **settings):
        folder = self.copy(name)
        self.edit(folder, file, lambda data: data.update(settings))
        with self.assertRaisesRegex(kind, words):
            Model(folder)

    def check(self, folder, texts, want):
        with Model(folder) as model:
            got = model.encode(texts)
            for text, row, expected in zip(texts, got, want):
                for x, y in zip(row, expected):
                    self.assertAlmostEqual(float(x), y, delta=2e-6, msg=text)

    def test_embeddings(self):
        data = reference()
        for name, model in data["models"].items():
            with self.subTest(name):
                self.check(os.path.join(FOLDER, name), data["texts"], model["embeddings"])

    def test_ids(self):
        data = reference()
        for name, model in data["models"].items():
            with self.subTest(name), Tokenizer(os.path.join(FOLDER, name)) as tokenizer:
                for text, want in zip(data["texts"], model["ids"]):
                    got = list(tokenizer.encode(text).ids)
                    self.assertEqual(got[:len(want)], want, text)

    def test_older_layout(self):
        """Release 5 and before: a folder for WordEmbeddings, and another key of the LSTM's input width."""
        data = reference()
        folder = self.copy("lstm-mean")
        os.mkdir(os.path.join(folder, "0_WordEmbeddings"))
        for file in ("model.safetensors", "whitespacetokenizer_config.json", "wordembedding_config.json"):
            shutil.move(os.path.join(folder, file), os.path.join(folder, "0_WordEmbeddings", file))
        modules = [{"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.models." + kind}
                   for i, (path, kind) in enumerate((("0_WordEmbeddings", "WordEmbeddings"), ("1_LSTM", "LSTM"),
                                                     ("2_Pooling", "Pooling")))]
        with open(os.path.join(folder, "modules.json"), "w", encoding="utf-8") as file:
            json.dump(modules, file)
        self.edit(os.path.join(folder, "1_LSTM"), "lstm_config.json",
                  lambda config: config.update(word_embedding_dimension=config.pop("embedding_dimension")))
        self.check(folder, data["texts"], data["models"]["lstm-mean"]["embeddings"])

    def test_text_without_words(self):
        for text in ("", "the is", "unknown words ..?"):
            with Model(os.path.join(FOLDER, "lstm-mean")) as model:
                with self.assertRaisesRegex(InvalidError, "the text has no tokens"):
                    model.encode([text])
            with Model(os.path.join(FOLDER, "average")) as model:
                self.assertEqual(model.encode([text]).tolist(), [[0.0] * 7])

    def test_refused(self):
        config = "wordembedding_config.json"
        self.refuse("lstm-mean", config, UnsupportedError, "tokenizer_class 'x.PhraseTokenizer' is not supported",
                    tokenizer_class="x.PhraseTokenizer")
        self.refuse("lstm-mean", config, FormatError, "max_seq_length", max_seq_length=0)
        lstm = "1_LSTM/lstm_config.json"
        self.refuse("lstm-mean", lstm, FormatError, "hidden_dim", hidden_dim=0)
        self.refuse("lstm-mean", lstm, FormatError, "num_layers", num_layers=65)
        self.refuse("lstm-mean", lstm, FormatError, "encoder.weight_ih_l1' is missing", num_layers=2)
        self.refuse("lstm-mean", lstm, FormatError, r"encoder.weight_ih_l0' is \[20, 7\].*expected shape \[24, 7\]",
                    hidden_dim=6)
        self.refuse("lstm-mean", lstm, FormatError, r"emb_layer.weight' is \[15, 7\].*expected shape \[15, 8\]",
                    embedding_dimension=8)
        words = "whitespacetokenizer_config.json"
        self.refuse("lstm-mean", words, FormatError, "\"vocab\" is empty", vocab=[])
        self.refuse("lstm-mean", words, FormatError, "\"vocab\": element 1 is not a text", vocab=["a", 1])
        self.refuse("lstm-mean", words, FormatError, "\"do_lower_case\" is neither true nor false", do_lower_case=1)
        self.refuse("lstm-mean", words, FormatError, "has ids up to 16, the model's embedding table only 15 rows", vocab=[f"w{i}" for i in range(17)])
        with self.assertRaisesRegex(UnsupportedError, "LSTM layers computes in float32 only"):
            Model(os.path.join(FOLDER, "lstm-mean"), dtype="bfloat16")

    def test_modules_out_of_order(self):
        for order in ((1, 0, 2), (0, 2, 1), (0, 1, 1, 2)):
            folder = self.copy("lstm-mean")
            with open(os.path.join(folder, "modules.json"), encoding="utf-8") as file:
                modules = json.load(file)
            with open(os.path.join(folder, "modules.json"), "w", encoding="utf-8") as file:
                json.dump([modules[i] for i in order], file)
            with self.assertRaisesRegex(UnsupportedError, "LSTM' is not supported at this position"):
                Model(folder)

    def test_program(self):
        data = reference()
        got = gpuserve("embed", "-m", os.path.join(FOLDER, "lstm-last"), stdin=data["texts"][0] + "\n")
        self.assertEqual(got.returncode, 0, got.err)
        row = json.loads(got.out.splitlines()[0])
        row = row["embedding"] if isinstance(row, dict) else row
        for x, y in zip(row, data["models"]["lstm-last"]["embeddings"][0]):
            self.assertAlmostEqual(x, y, delta=2e-6)

    def test_convert(self):
        data = reference()
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        out = os.path.join(folder, "out")
        got = gpuserve("convert", os.path.join(FOLDER, "lstm-mean"), out, "--dtype", "float32")
        self.assertEqual(got.returncode, 0, got.err)
        self.check(out, data["texts"], data["models"]["lstm-mean"]["embeddings"])


if __name__ == "__main__":
    unittest.main()
