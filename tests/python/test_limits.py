#!/usr/bin/env python3
"""Texts over the token limit, on the small models of every family: cut, they give what transformers computes in float64 of the
cut ids (reference.safetensors); in strict mode they are refused with their length and the limit.

The longest reference text of a model is the whole of a cut text. Its first and last id are the special tokens of a tokenizer
that maps the word wN to the id N, so that a cut text ends in a special token, as with the tokenizers of published models.
`tokenizers` cuts the same texts with the same file.
"""
import json
import os
import shutil

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from common import ROOT, Case, main
from gpuserve import Model
from gpuserve.errors import TooLargeError

FOLDER = os.path.join(ROOT, "tests", "data", "models")
MORE = 7  # words over the limit
LATE = {1: "[unused0]", 2: "[unused1]", 5: "[MASK]"}  # names that late interaction looks for, of ids that its texts do not have
BOUND = 1e-5  # of vectors of length 1, of probabilities, of sparse weights divided by the largest


def names_of(file):
    """The lines of a list as (name, what is behind the tab)."""
    with open(os.path.join(FOLDER, file), encoding="utf-8") as lines:
        return [tuple(line.rstrip("\n").split("\t")) for line in lines if not line.startswith("#")]


def as_words(ids):
    return " ".join(f"w{i}" for i in ids)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


class Reference:
    """The longest text of a model and what transformers computes of it; `kind` is None of a model that gives none of these."""

    def __init__(self, name):
        self.folder = os.path.join(FOLDER, name)
        with open(os.path.join(self.folder, "config.json"), encoding="utf-8") as file:
            self.config = json.load(file)
        stored = load_file(os.path.join(self.folder, "reference.safetensors"))
        lengths = stored["n_tokens"]
        at = int(lengths.argmax())
        rows = slice(int(lengths[:at].sum()), int(lengths[:at + 1].sum()))
        self.ids = stored["ids"][rows].tolist()
        self.kind = next((kind for kind in ("embedding", "probs", "sparse", "vectors") if f"{kind}_f64" in stored), None)
        self.by_token = self.kind == "vectors" or self.kind == "probs" and "ForTokenClass" in self.config["architectures"][0]
        if self.kind:
            values = stored[f"{self.kind}_f64"]
            self.want = values[rows] if self.by_token else values[at]
        if self.kind == "embedding":
            self.want = unit(self.want)

    def write_tokenizer(self, folder):
        """Returns the tokenizer, which cuts at the number of tokens of the text."""
        first, last = f"w{self.ids[0]}", f"w{self.ids[-1]}"
        names = LATE if self.kind == "vectors" else {}
        vocabulary = {names.get(i, f"w{i}"): i for i in range(self.config["vocab_size"])}
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="w0"))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{first} $A {last}", pair=f"{first} $A $B {last}", special_tokens=list({first: self.ids[0], last: self.ids[-1]}.items()))
        tokenizer.save(os.path.join(folder, "tokenizer.json"))
        tokenizer.enable_truncation(len(self.ids), strategy="longest_first")
        return tokenizer

    def difference(self, got):
        scale = max(1.0, np.abs(self.want).max()) if self.kind == "sparse" else 1.0
        return np.abs(got - self.want).max() / scale

    def values(self, model, texts, **options):
        """One array for each text."""
        if self.kind == "embedding":
            return list(model.encode(texts, prompt="", normalize_embeddings=True, **options))
        if self.kind == "vectors":
            return model.encode_multi(texts, ["colbert"], **options)["colbert"]
        if self.kind == "sparse":
            rows = np.zeros((len(texts), len(self.want)), np.float32)
            for row, one in zip(rows, model.encode_multi(texts, ["sparse"], **options)["sparse"]):
                row[one.ids] = one.weights
            return list(rows)
        if self.by_token:
            return [one.scores for one in model.label_tokens(texts, **options)]
        return list(model.predict_proba(texts, **options))


class Limits(Case):
    def write_json(self, folder, name, **fields):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(fields, file)

    def open(self, reference):
        """The model with the tokenizer. Its limit is the length of the text: by its own positions or modules, else by a file."""
        folder = shutil.copytree(reference.folder, self.path(os.path.basename(reference.folder)))
        tokenizer = reference.write_tokenizer(folder)
        self.write_json(folder, "tokenizer_config.json", model_max_length=100000)
        model = Model(folder, device="cpu", dtype="float32", n_threads=1)
        self.own += model.max_seq_length == len(reference.ids)
        if model.max_seq_length != len(reference.ids):
            model.close()
            if os.path.exists(os.path.join(folder, "sentence_bert_config.json")):
                self.write_json(folder, "sentence_bert_config.json", max_seq_length=len(reference.ids))
            else:
                self.write_json(folder, "tokenizer_config.json", model_max_length=len(reference.ids))
            model = Model(folder, device="cpu", dtype="float32", n_threads=1)
        self.assertEqual(model.max_seq_length, len(reference.ids), folder)
        return model, tokenizer

    def check_text(self, name, reference, model, tokenizer):
        exact = as_words(reference.ids[1:-1])
        longer = exact + MORE * " w9"
        self.assertEqual(tokenizer.encode(longer).ids, reference.ids, name)
        whole, cut = reference.values(model, [exact, longer])
        self.assertLess(reference.difference(cut), BOUND, name)
        self.assertEqual(np.asarray(cut).tobytes(), np.asarray(whole).tobytes(), name)
        self.assertEqual(np.asarray(reference.values(model, [exact], truncation="strict")[0]).tobytes(), np.asarray(whole).tobytes(), name)
        self.refused(name, len(reference.ids), lambda: reference.values(model, [longer], truncation="strict"))

    def check_pair(self, name, reference, model, tokenizer):
        """Both texts are too long: the first keeps half of the limit, rounded down, as "longest_first" does."""
        words = reference.ids[1:-1]
        half = len(words) // 2
        one, other = (as_words(part) + MORE * " w9" for part in (words[:half], words[half:]))
        self.assertEqual(tokenizer.encode(one, other).ids, reference.ids, name)
        self.assertLess(reference.difference(model.predict_proba([one], [other])[0]), BOUND, name)
        self.refused(name, len(reference.ids), lambda: model.predict_proba([one], [other], truncation="strict"), 2 * MORE)

    def refused(self, name, limit, function, more=MORE):
        with self.assertRaises(TooLargeError, msg=name) as caught:
            function()
        self.assertIn(f"has {limit + more} tokens", str(caught.exception), name)
        self.assertIn(f"the limit is {limit}", str(caught.exception), name)

    def test_every_family(self):
        refused = dict(names_of("refused.txt"))
        families, seen, pairs, self.own = names_of("families.txt"), set(), 0, 0
        for name, family in families:
            reference = Reference(name)
            if name in refused or not reference.kind:
                continue
            model, tokenizer = self.open(reference)
            with model:
                self.check_text(name, reference, model, tokenizer)
                seen.add(family)
                if reference.kind == "probs" and not reference.by_token:
                    self.check_pair(name, reference, model, tokenizer)
                    pairs += 1
        self.assertEqual(seen, {family for _, family in families})
        self.assertGreater(self.own, 100)  # whose limit is that of their positions
        self.assertGreater(pairs, 30)


if __name__ == "__main__":
    main(__name__)
