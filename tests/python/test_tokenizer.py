#!/usr/bin/env python3
"""gpuserve.Tokenizer: directories of tokenizer files only, against Hugging Face tokenizers."""
import os
import pickle
import shutil
import threading

import numpy as np
from tokenizers import Tokenizer as Reference

import gpuserve
from common import ROOT, Case, main, model, oracle_texts
from gpuserve import Tokenizer

MINILM, SPLADE = "all-MiniLM-L6-v2", "splade-tiny"
TOKENIZERS = os.path.join(ROOT, "tests/data/tokenizers")


def byte_spans(text, offsets):
    """Character offsets as byte offsets."""
    at = np.cumsum([0] + [len(c.encode()) for c in text])
    return [[int(at[begin]), int(at[end])] for begin, end in offsets]


class Tokens(Case):
    def only(self, name="tokenizer.json", source=MINILM):
        """A directory with one file of a model."""
        folder = self.path("only")
        os.makedirs(folder, exist_ok=True)
        shutil.copy(os.path.join(model(source), name), folder)
        return folder

    def test_texts_and_pairs_are_as_of_tokenizers(self):
        for name in (MINILM, SPLADE):
            reference = Reference.from_file(os.path.join(model(name), "tokenizer.json"))
            reference.no_truncation()
            reference.no_padding()
            texts = [one if isinstance(one, str) else one["text"] for one in oracle_texts()][:200]
            with Tokenizer(self.only(source=name)) as tokenizer:
                for text, got in zip(texts, tokenizer.encode(texts)):
                    want = reference.encode(text)
                    self.assertEqual(got.ids.tolist(), want.ids)
                    self.assertEqual(got.type_ids.tolist(), want.type_ids)
                    self.assertEqual(got.spans.tolist(), byte_spans(text, want.offsets))
                    self.assertEqual(tokenizer.decode(got.ids), reference.decode(want.ids))
                self.assertEqual(tokenizer.count(texts), [len(reference.encode(text)) for text in texts])
                for pair in zip(texts, reversed(texts)):
                    got, want = tokenizer.encode(pair), reference.encode(*pair)
                    self.assertEqual(got.ids.tolist(), want.ids)
                    self.assertEqual(got.type_ids.tolist(), want.type_ids)
                self.assertEqual(tokenizer.vocab_size, reference.get_vocab_size())

    def test_limits(self):
        with Tokenizer(self.only()) as tokenizer:
            reference = Reference.from_file(os.path.join(model(MINILM), "tokenizer.json"))
            reference.no_padding()
            for limit in (3, 4, 5, 8):
                reference.enable_truncation(limit)
                self.assertEqual(tokenizer.encode("one two three four five", max_tokens=limit).ids.tolist(),
                                 reference.encode("one two three four five").ids)
                self.assertEqual(tokenizer.encode(("one two three", "four five"), max_tokens=limit + 1).ids.size,
                                 limit + 1 if limit < 7 else 8)
            with self.assertRaises(gpuserve.errors.TooLargeError):
                tokenizer.encode("one two three", max_tokens=3, truncation="strict")
            plain = tokenizer.encode("one two", add_special_tokens=False)
            self.assertEqual(tokenizer.convert_ids_to_tokens(plain.ids), ["one", "two"])

    def test_the_model_says_the_same(self):
        with Tokenizer(model(SPLADE)) as tokenizer, gpuserve.Model(model(SPLADE), device="cpu") as whole:
            for text in ("", "Hello world", "naïve café 中文"):
                one, other = tokenizer.encode(text), whole.tokenize(text)
                self.assertEqual(one.ids.tolist(), other.ids.tolist())
                self.assertEqual(one.spans.tolist(), other.spans.tolist())

    def test_older_formats(self):
        for name in ("cased", "accents", "roberta", "camembert", "gpt2"):
            with self.subTest(name), Tokenizer(os.path.join(TOKENIZERS, name)) as tokenizer:
                self.assertGreater(tokenizer.count("Hello world"), 0)

    def test_misuse(self):
        with self.assertRaises(gpuserve.errors.NotFoundError):
            Tokenizer(self.path("nowhere"))
        os.makedirs(self.path("empty"))
        with self.assertRaisesRegex(gpuserve.errors.NotFoundError, "neither tokenizer.json nor"):
            Tokenizer(self.path("empty"))
        tokenizer = Tokenizer(self.only())
        for wrong in (("a",), ("a", "b", "c"), ("a", 3)):
            with self.assertRaises(TypeError):
                tokenizer.encode(wrong)
        with self.assertRaises(TypeError):
            tokenizer.encode([3])
        with self.assertRaises(gpuserve.errors.InvalidError):
            tokenizer.encode("a\ud800")
        with self.assertRaises(TypeError):
            pickle.dumps(tokenizer)
        tokenizer.close()
        tokenizer.close()
        with self.assertRaises(gpuserve.errors.ClosedError):
            tokenizer.encode("a")

    def test_threads(self):
        tokenizer, results = Tokenizer(self.only()), []

        def work():
            for _ in range(100):
                results.append(tokenizer.count("a few words of text"))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(results), {7})
        self.assertEqual(len(results), 400)


if __name__ == "__main__":
    main(__name__)
