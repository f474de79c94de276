#!/usr/bin/env python3
"""GGUF files of real models: the token ids and vectors of the directories that they were converted from, and the
refusal of other formats."""
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from gpuserve import Model
from gpuserve.errors import GpuserveError

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "tests/data"
sys.path.insert(0, str(ROOT / "tools/fixtures"))
from make_test_gguf import convert  # noqa: E402

MODELS = Path(os.environ.get("GPUSERVE_TEST_MODELS", Path.home() / ".cache/gpuserve/models"))
MINILM = MODELS / "all-MiniLM-L6-v2"


def texts():
    with open(DATA / "oracle/texts.jsonl", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def plain_texts():
    """Texts whose only white space is single spaces between words. Of other white space, the small charsmap of
    the fixtures makes no spaces, unlike the files of models."""
    return [text for text in texts() if text and text == " ".join(text.split())]


class Fixtures(unittest.TestCase):
    """The files of tests/data/gguf against their originals."""

    def check(self, name, original, some, **options):
        got, want = Model(DATA / "gguf" / name), Model(DATA / "models" / original, **options)
        for text in some:
            self.assertEqual(list(got.tokenize(text).ids), list(want.tokenize(text).ids), text)
            self.assertEqual(got.decode(got.tokenize(text).ids), want.decode(want.tokenize(text).ids), text)
        np.testing.assert_array_equal(got.encode(some[:64], normalize_embeddings=True),
                                      want.encode(some[:64], normalize_embeddings=True))

    def test_wordpiece(self):
        self.check("bert-f32.gguf", "bert-pairs", texts(), pooling="mean")

    def test_unigram(self):
        # This tokenizer.json keeps white space at the end of a text; SentencePiece and the files of models do not.
        self.check("xlm-roberta.gguf", "st-xlm-roberta", plain_texts())


class Converted(unittest.TestCase):
    """Tokenizers of other models in the file of a small one, whose embedding table is made large enough."""

    def ids_equal(self, tokenizer, pre, some=None):
        from safetensors.numpy import load_file, save_file

        size = Tokenizer.from_file(str(tokenizer)).get_vocab_size()
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "source"
            source.mkdir()
            config = json.loads((DATA / "models/bert/config.json").read_text())
            (source / "config.json").write_text(json.dumps(config | {"vocab_size": size}))
            tensors = load_file(DATA / "models/bert/model.safetensors")
            word = next(name for name in tensors if name.endswith("word_embeddings.weight"))
            tensors[word] = np.zeros((size, 32), np.float32)
            save_file(tensors, source / "model.safetensors")
            parsed = json.loads(Path(tokenizer).read_text(encoding="utf-8"))
            convert(source, Path(folder) / "model.gguf", "F32", "MEAN", pre, parsed)
            model = Model(Path(folder) / "model.gguf")
        original = Tokenizer.from_file(str(tokenizer))
        original.no_truncation()
        original.no_padding()
        for text in some or texts():
            self.assertEqual(list(model.tokenize(text).ids), original.encode(text).ids, text)

    def test_wordpiece(self):
        self.ids_equal(MINILM / "tokenizer.json", "jina-v2-en")

    def test_unigram(self):
        parsed = json.loads((DATA / "models/st-xlm-roberta/tokenizer.json").read_text(encoding="utf-8"))
        parsed["normalizer"] = parsed["normalizer"]["normalizers"][0]  # as in the files of XLM-RoBERTa models
        parsed["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}]}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tokenizer.json"
            path.write_text(json.dumps(parsed), encoding="utf-8")
            self.ids_equal(path, "default", plain_texts() + ["a  <mask> b", "  a  b   "])

    def test_byte_level(self):
        from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers

        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        special = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, special=True)]
        tokenizer.train_from_iterator(texts(), trainers.BpeTrainer(
            vocab_size=2000, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tokenizer.json"
            tokenizer.save(str(path))
            self.ids_equal(path, "roberta-bpe", texts() + ["a  <mask>b", "it's 12345  \n x"])


    def test_sentencepiece_bpe(self):
        from tokenizers import models, normalizers, processors, trainers

        trained = Tokenizer(models.BPE())
        trained.train_from_iterator([text.replace(" ", "\u2581") for text in plain_texts()], trainers.BpeTrainer(
            vocab_size=1500, show_progress=False))
        special = ["<unk>", "<s>", "</s>"]
        tokens = special + [f"<0x{i:02X}>" for i in range(256)] + sorted(trained.get_vocab(), key=trained.get_vocab().get)
        vocab = {token: i for i, token in enumerate(tokens)}
        merges = [(token[:cut], token[cut:]) for token in tokens[259:] for cut in range(1, len(token))
                  if vocab.get(token[:cut], 0) >= 259 and vocab.get(token[cut:], 0) >= 259]
        tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
        tokenizer.add_special_tokens(special)
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tokenizer.json"
            tokenizer.save(str(path))
            self.ids_equal(path, "default")


class Real(unittest.TestCase):
    """all-MiniLM-L6-v2 in the file types of F32 and Q8_0."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.original = Model(MINILM, max_tokens=128)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def converted(self, type_name):
        path = Path(self.folder.name) / f"{type_name}.gguf"
        convert(MINILM, path, type_name)
        return Model(path, max_tokens=128)

    def test_f32_gives_the_same_bits(self):
        model, some = self.converted("F32"), texts()
        for text in some:
            self.assertEqual(list(model.tokenize(text).ids), list(self.original.tokenize(text).ids), text)
        got, want = model.encode(some, normalize_embeddings=True), self.original.encode(some)
        np.testing.assert_array_equal(got, want)

    def test_q8_0_keeps_the_direction(self):
        some = texts()
        got = self.converted("Q8_0").encode(some, normalize_embeddings=True)
        self.assertGreater((got * self.original.encode(some)).sum(1).min(), 0.999)


class Refused(unittest.TestCase):
    def test_the_message_says_what_was_seen_and_the_way_out(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, words in (("x.onnx", "ONNX"), ("y.gguf", "does not begin with \"GGUF\"")):
                path = Path(folder) / name
                path.write_bytes(b"anything at all")
                with self.assertRaises(GpuserveError) as caught:
                    Model(path)
                self.assertIn(words, str(caught.exception))
                self.assertIn(name, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
