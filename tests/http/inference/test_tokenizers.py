#!/usr/bin/env python3
"""/tokenize and /decode by byte pairs and by Unigram, as Hugging Face's tokenizers have it."""
import json
import os
import random
import shutil
import struct
import tempfile
import unittest

from tokenizers import Tokenizer

from serving import Server, main

from common import ROOT

MODELS = os.path.join(ROOT, "tests/data/models")


class OtherTokenizers(unittest.TestCase):
    TEXTS = ["Hello  wörld \U0001f642, don't", " a", "naïve   café\n\n東京 ", "x"]

    def test_pieces(self):
        for name in ("roberta-texts", "st-xlm-roberta"):
            folder = os.path.join(MODELS, name)
            oracle = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
            oracle.no_truncation()
            oracle.no_padding()
            server = Server(folder)
            for text in self.TEXTS:
                want = oracle.encode(text)
                rows = server.post("/tokenize", {"inputs": text}).json()[0]
                self.assertEqual([row["id"] for row in rows], want.ids, (name, text))
                for row, (begin, end), special in zip(rows, want.offsets, want.special_tokens_mask):
                    self.assertEqual(row["special"], bool(special), (name, text, row))
                    if not special:
                        self.assertEqual((row["start"], row["stop"], row["text"]),
                                         (begin, end, text[begin:end]), (name, text))
                for skip in (True, False):
                    self.assertEqual(server.post("/decode", {"ids": want.ids, "skip_special_tokens": skip}).json(),
                                     [oracle.decode(want.ids, skip_special_tokens=skip)], (name, text))
            self.assertEqual(server.stop()[0], 0)

    def test_characters_of_several_tokens(self):
        """Each token's place is told in characters, and takes no longer the farther it is from the beginning."""
        server = Server(os.path.join(MODELS, "roberta-texts"))
        n = 300_000
        reply = server.post("/tokenize", {"inputs": "\u20ac" * n})
        self.assertEqual(reply.status, 200)
        last = json.loads(b"{" + reply.body.rpartition(b",{")[0].rpartition(b",{")[2])  # before the closing special one
        self.assertEqual((last["text"], last["start"], last["stop"]), ("\u20ac", n - 1, n))
        self.assertEqual(server.stop()[0], 0)


def tensors_of(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    head.pop("__metadata__", None)
    return {name: (one["dtype"], one["shape"], data[8 + size + one["data_offsets"][0]:8 + size + one["data_offsets"][1]])
            for name, one in head.items()}


def write_tensors(path, tensors):
    head, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


class Words(unittest.TestCase):
    """Of token classification: what transformers calls `word` is the token of the vocabulary, and of several what the
    tokenizer's decoder makes of them; what is in no vocabulary is told by the text."""
    LABELS = ["O", "B-A", "I-A", "B-B-C", "D"]
    TEXTS = ["Hello  w\u00f6rld \U0001f642, don't", " a", "na\u00efve   caf\u00e9\n\n\u6771\u4eac ", "x", "\u0416 x \u0416\u0416y"]

    def setUp(self):
        self.folder = tempfile.mkdtemp()

    def tearDown(self):
        shutil.rmtree(self.folder)

    def make(self, name, kind, chosen=None):
        """A classifier of tokens from an encoder: random, or always of one label."""
        folder = os.path.join(self.folder, name + str(chosen))
        os.mkdir(folder)
        shutil.copy(os.path.join(MODELS, name, "tokenizer.json"), folder)
        with open(os.path.join(MODELS, name, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        config.update(architectures=[kind + "ForTokenClassification"], id2label=dict(enumerate(self.LABELS)))
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        n, width = len(self.LABELS), config["hidden_size"]
        draw = random.Random(7)
        weight = [0.0 if chosen is not None else draw.gauss(0, 1) for _ in range(n * width)]
        bias = [float(i == chosen) for i in range(n)]
        prefix = "" if kind == "Bert" else "roberta."
        tensors = {prefix + name: one for name, one in tensors_of(os.path.join(MODELS, name, "model.safetensors")).items()
                   if not name.startswith("pooler")}
        tensors["classifier.weight"] = "F32", [n, width], struct.pack("<%df" % len(weight), *weight)
        tensors["classifier.bias"] = "F32", [n], struct.pack("<%df" % n, *bias)
        write_tensors(os.path.join(folder, "model.safetensors"), tensors)
        return folder

    def oracle(self, name, text):
        """Tokens as transformers names them, with their places."""
        oracle = Tokenizer.from_file(os.path.join(MODELS, name, "tokenizer.json"))
        oracle.no_truncation()
        oracle.no_padding()
        found = oracle.encode(text)
        model = json.loads(oracle.to_str())["model"]
        unknown = model.get("unk_id") if model["type"] == "Unigram" else oracle.token_to_id(model.get("unk_token") or "")
        return oracle, [(text[begin:end] if id_ == unknown else oracle.id_to_token(id_), begin, end)
                        for id_, (begin, end), special in zip(found.ids, found.offsets, found.special_tokens_mask) if not special]

    def test_words(self):
        for name, kind in (("roberta-texts", "Roberta"), ("st-xlm-roberta", "XLMRoberta")):
            server = Server(self.make(name, kind), "--auto-truncate")
            whole = Server(self.make(name, kind, chosen=4), "--auto-truncate")
            labels = set()
            for text in self.TEXTS:
                oracle, want = self.oracle(name, text)
                ask = {"inputs": text, "parameters": {"aggregation_strategy": "none", "ignore_labels": []}}
                got = server.post("/", ask).json()
                self.assertEqual([(one["word"], one["start"], one["end"]) for one in got], want, (name, text))
                labels |= {one["entity"] for one in got}
                found = whole.post("/", {"inputs": text}).json()
                self.assertEqual([(one["entity_group"], one["word"]) for one in found],
                                 [("D", oracle.decoder.decode([word for word, _, _ in want]))], (name, text))
            self.assertGreater(len(labels), 1)
            nul = server.post("/", {"inputs": "x\0 y", "parameters": {"ignore_labels": []}})
            self.assertEqual((nul.status, nul.json()[-1]["end"]), (200, 4), nul.body)
            for one in (server, whole):
                self.assertEqual(one.stop()[0], 0)


if __name__ == "__main__":
    main(__name__)
