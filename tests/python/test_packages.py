#!/usr/bin/env python3
"""Real models of packages: the vectors of sentence-transformers and model2vec (tests/data/oracle/packages, written by
tools/fixtures/make_package_vectors.py), also of texts over the limit. The large ones are tested where `./dev models NAME`
has fetched them, as CI does; tests/model/test_model_real.c has others."""
import contextlib
import os
import unittest

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from common import ORACLE, main, model, oracle_texts
from gpuserve import Model
from gpuserve.errors import TooLargeError


def fetched(name):
    try:
        return os.path.isdir(model(name))
    except AssertionError:
        return False


def unit(rows):
    """A text without tokens has the vector 0."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)


class Packages(unittest.TestCase):
    def check(self, name, limit, special=True, characters=None, **options):
        """`characters`: how many model2vec keeps of a text."""
        reference = load_file(os.path.join(ORACLE, "packages", name + ".safetensors"))
        lines = oracle_texts()
        texts = [lines[row]["text"] for row in reference["row"]]
        texts += [" ".join(line["text"] for line in lines[begin:end]) for begin, end in reference["joined"]]
        texts += [reference["words"].tobytes().decode()] if characters else []
        tokenizer = Tokenizer.from_file(os.path.join(model(name), "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        cut = [len(tokenizer.encode(options.get("prompt", "") + text, add_special_tokens=special).ids) > limit
               or characters is not None and len(text) > characters for text in texts]
        self.assertGreater(sum(cut), 3)
        with Model(model(name), device="cpu", dtype="float32") as loaded:
            self.assertEqual(loaded.max_seq_length, limit)
            together, items = loaded.encode(texts, return_items=True, **options)
            alone = np.stack([loaded.encode(text, **options) for text in texts])
            for text, is_cut in zip(texts, cut):
                with self.assertRaisesRegex(TooLargeError, "the limit is") if is_cut else contextlib.nullcontext():
                    loaded.encode(text, truncation="strict", **options)
        self.assertEqual(items.truncated.tolist(), cut)
        self.assertEqual(alone.tobytes(), together.tobytes())
        self.assertLess(np.abs(unit(alone) - unit(reference["vectors"])).max(), 1e-5)

    def test_static(self):
        self.check("tokenlearn-static", 512, special=False, characters=512 * 6)

    @unittest.skipUnless(fetched("paraphrase-MiniLM-L3-v2"), "./dev models paraphrase-MiniLM-L3-v2")
    def test_three_layers(self):
        self.check("paraphrase-MiniLM-L3-v2", 128)

    @unittest.skipUnless(fetched("multilingual-e5-small"), "./dev models multilingual-e5-small")
    def test_multilingual(self):
        self.check("multilingual-e5-small", 512, prompt="query: ")


if __name__ == "__main__":
    main(__name__)
