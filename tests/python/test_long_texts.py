#!/usr/bin/env python3
"""Windows and late chunking: equal to tests/data/long-texts (tools/fixtures/make_long_texts.py), to encode() where a text fits, and
what is refused."""
import json
import os

import numpy as np

from common import ROOT, Case, main
from gpuserve import LongText, Model
from gpuserve.errors import InvalidError, UnsupportedError

FOLDER = os.path.join(ROOT, "tests", "data", "long-texts")
TEXT = "The quick brown fox runs. It was red! " * 20


class LongTexts(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = Model(os.path.join(FOLDER, "model"), device="cpu", n_threads=2)

    @classmethod
    def tearDownClass(cls):
        cls.model.close()
        super().tearDownClass()

    def test_equal_the_reference(self):
        with open(os.path.join(FOLDER, "reference.json"), encoding="utf-8") as file:
            cases = json.load(file)
        for case in cases:
            text, want, spans = case.pop("text"), np.array(case.pop("vectors")), case.pop("want_spans")
            found = self.model.encode_long(text, case.pop("method"), **case)
            self.assertIsInstance(found, LongText)
            self.assertEqual(found.spans.tolist(), spans)
            self.assertLess(np.abs(np.atleast_2d(found.vectors) - want).max(), 1e-6)

    def test_one_shot(self):
        short = ["A dog.", "", "a cat, a fox"]
        want = self.model.encode(short, prompt_name="query")
        for method, options in (("window", {}), ("late", {"chunk_tokens": 99})):
            found = self.model.encode_long(short, method, prompt_name="query", **options)
            self.assertLess(np.abs(np.array([one.vectors for one in found]).reshape(3, -1) - want).max(), 1e-6)
        self.assertEqual(self.model.encode_long([]), [])

    def test_many_texts(self):
        both = self.model.encode_long([TEXT, "A dog."], "late", chunk_by="sentence")
        self.assertEqual([one.vectors.shape for one in both], [(40, 32), (1, 32)])
        alone = self.model.encode_long(TEXT, "late", chunk_by="sentence")
        self.assertLess(np.abs(alone.vectors - both[0].vectors).max(), 1e-6)
        data = TEXT.encode()
        self.assertEqual([data[b:e].decode() for b, e in alone.spans[:2]], ["The quick brown fox runs.", "It was red!"])
        self.assertEqual(alone.n_tokens[:2].tolist(), [6, 4])
        given = self.model.encode_long([TEXT, "A dog."], "late", spans=[alone.spans, [[0, 6]]])
        self.assertLess(np.abs(given[0].vectors - alone.vectors).max(), 1e-6)

    def test_shape(self):
        whole = self.model.encode_long(TEXT)
        self.assertAlmostEqual(float(np.linalg.norm(whole.vectors)), 1, 6)
        cut = self.model.encode_long(TEXT, truncate_dim=5)  # of the normalized vector, as in encode()
        self.assertLess(np.abs(cut.vectors - whole.vectors[:5]).max(), 1e-6)
        self.assertAlmostEqual(float(np.linalg.norm(self.model.encode_long(
            TEXT, truncate_dim=5, normalize_embeddings=True).vectors)), 1, 6)

    def test_bad_input(self):
        for words, options in (
                ("stride is 23, more than the 22 tokens", {"stride": 23}),
                ("window_tokens is 25, the model's limit is 24", {"window_tokens": 25}),
                ("chunk_tokens and spans need the method LATE", {"chunk_tokens": 4}),
                ("method \"late chunking\" is unknown", {"method": "late chunking"}),
                ("spans[1] begins at byte 2", {"method": "late", "spans": [[0, 3], [2, 9]]}),
                ("the text has 760 bytes", {"method": "late", "spans": [[0, 3000]]}),
                ("pairs of byte offsets", {"method": "late", "spans": [[0, 3, 4]]}),
                ("hold -1", {"method": "late", "spans": [[-1, 3]]}),
                ("`spans` needs chunk_by", {"method": "late", "chunk_by": "sentence", "spans": [[0, 3]]})):
            with self.assertRaises(InvalidError) as raised:
                self.model.encode_long(TEXT, **options)
            self.assertIn(words, str(raised.exception))
        with self.assertRaises(InvalidError):
            self.model.encode_long([TEXT, TEXT], "late", spans=[[[0, 3]]])
        with Model(os.path.join(FOLDER, "model"), device="cpu", pooling="cls") as other:
            with self.assertRaises(UnsupportedError):
                other.encode_long(TEXT, "late")


if __name__ == "__main__":
    main(__name__)
