#!/usr/bin/env python3
"""Compact vectors: every bit as quantize_embeddings() of sentence-transformers made it
(tools/fixtures/make_compact_vectors.py), in numpy's float16, and through a model."""
import asyncio
import os

import numpy as np

import gpuserve
from common import ROOT, Case, main, model
from gpuserve import Model, calibration_texts, quantize_embeddings, vector_ranges

REFERENCE = os.path.join(ROOT, "tests", "data", "compact-vectors.npz")
DIMS = (1, 7, 8, 19, 384)
TEXTS = ["A man is eating food.", "", "Ein Käse, 食べ物 🙂", "a" * 3000]


class Arithmetic(Case):
    @classmethod
    def setUpClass(cls):
        cls.reference = np.load(REFERENCE)

    def test_bits_equal_sentence_transformers(self):
        for dim in DIMS:
            vectors, ranges = self.reference[f"vectors_{dim}"], self.reference[f"ranges_{dim}"]
            for precision in ("int8", "uint8", "binary", "ubinary"):
                for name, limits in ((f"{precision}_{dim}", ranges), (f"own_{precision}_{dim}", None)):
                    made = quantize_embeddings(vectors, precision, ranges=limits)
                    want = self.reference[name]
                    self.assertEqual((made.dtype, made.shape), (want.dtype, want.shape), name)
                    self.assertTrue((made == want).all(), name)

    def test_float16_equals_numpy(self):
        bits = np.random.default_rng(3).integers(0, 1 << 32, size=1 << 20, dtype=np.uint32)
        edges = np.array([65503.9, 65504, 65519.9, 65520, 1e30, 5.96e-8, 2.98e-8, 2.99e-8, 6.1e-5, 0.0, -0.0], np.float32)
        vectors = np.concatenate([bits.view(np.float32), edges, -edges])[None, :]
        with np.errstate(over="ignore", invalid="ignore"):
            want = vectors.astype(np.float16)
        made = quantize_embeddings(vectors, "float16")
        is_nan = np.isnan(want)
        self.assertTrue((np.isnan(made) == is_nan).all())
        self.assertTrue((made.view(np.uint16) == want.view(np.uint16))[~is_nan].all())

    def test_ranges(self):
        vectors = self.reference["vectors_19"]
        ranges = vector_ranges(vectors)
        self.assertTrue((ranges == np.vstack((vectors.min(axis=0), vectors.max(axis=0)))).all())
        wide = vector_ranges(vectors, margin=0.5)
        width = ranges[1] - ranges[0]
        self.assertLess(np.abs(wide - (ranges + np.outer([-0.5, 0.5], width))).max(), 1e-5)
        calibrated = quantize_embeddings(vectors, "uint8", calibration_embeddings=vectors[:5])
        self.assertTrue((calibrated == quantize_embeddings(vectors, "uint8", ranges=vector_ranges(vectors[:5]))).all())

    def test_nan_and_infinity(self):
        odd = np.array([[np.nan, np.inf, -np.inf]], np.float32)
        ranges = np.array([[0, 0, 0], [1, 1, 1]], np.float32)
        self.assertEqual(quantize_embeddings(odd, "uint8", ranges=ranges).tolist(), [[0, 255, 0]])
        self.assertEqual(quantize_embeddings(odd, "ubinary").tolist(), [[0b01000000]])

    def test_bad_input_is_named(self):
        vectors = np.zeros((3, 4), np.float32)
        for arguments, words in (
                ((vectors, "int3"), "known are"),
                ((vectors[0], "int8"), "1 dimensions"),
                ((vectors, "int8", np.zeros((2, 5), np.float32)), "(2, 5)"),
                ((vectors, "int8", np.full((2, 4), np.nan, np.float32)), "dimension 0"),
                ((vectors, "uint8", np.array([[0, 0, 2, 0], [1, 1, 1, 1]], np.float32)), "dimension 2"),
                ((vectors[:1], "int8"), "at least 2")):
            with self.assertRaises(ValueError) as caught:
                quantize_embeddings(*arguments)
            self.assertIn(words, str(caught.exception))
        with self.assertRaises(gpuserve.errors.GpuserveError) as caught:
            vector_ranges(np.array([[1, 2], [3, np.inf]], np.float32))
        self.assertIn("vector 1", str(caught.exception))
        self.assertIn("dimension 1", str(caught.exception))
        with self.assertRaises(ValueError):
            vector_ranges(vectors, margin=2)

    def test_nothing_gives_nothing(self):
        for precision in ("int8", "ubinary", "float16"):
            self.assertEqual(len(quantize_embeddings(np.zeros((0, 8), np.float32), precision)), 0)


class Models(Case):
    @classmethod
    def setUpClass(cls):
        cls.model = Model(model("all-MiniLM-L6-v2"))

    @classmethod
    def tearDownClass(cls):
        cls.model.close()

    def test_calls_share_ranges(self):
        """A text has the same bytes in any call, near to the float vector."""
        whole = self.model.encode(TEXTS)
        many = self.model.encode(TEXTS, precision="int8")
        for i, text in enumerate(TEXTS):
            self.assertTrue((self.model.encode(text, precision="int8") == many[i]).all())
        ranges = vector_ranges(self.model.encode(calibration_texts()), margin=0.25)
        back = (many.astype(np.float32) + 128.5) * (ranges[1] - ranges[0]) / 255 + ranges[0]
        cosines = (back * whole).sum(axis=1) / np.linalg.norm(back, axis=1)
        self.assertGreater(cosines.min(), 0.99)
        self.assertTrue((self.model.encode(TEXTS, precision="uint8").astype(int) - 128 == many).all())

    def test_every_call_has_precisions(self):
        with Model(model("all-MiniLM-L6-v2")) as opened:
            given = vector_ranges(opened.encode(calibration_texts()))
            texts = TEXTS[:3]
            for precision, ranges in (("int8", None), ("uint8", given), ("binary", None), ("float16", None)):
                options = {"precision": precision, "ranges": ranges}
                want = opened.encode(texts, **options)
                made = {"stream": np.concatenate(list(opened.encode_stream(texts, batch_size=2, **options))),
                        "multi": opened.encode_multi(texts, ["dense"], **options)["dense"],
                        "submit": opened.submit(texts, **options).result(),
                        "async": asyncio.run(opened.encode_async(texts, **options)),
                        "long": np.stack([one.vectors for one in opened.encode_long(texts, **options)])}
                for name, rows in made.items():
                    self.assertEqual((rows.dtype, rows.shape), (want.dtype, want.shape), (name, precision))
                    self.assertTrue((rows == want).all(), (name, precision))
                self.assertTrue((opened.submit(texts[0], **options).result() == want[0]).all())
                self.assertTrue((opened.encode_multi(texts[0], ["dense"], **options)["dense"] == want[0]).all())
                late = opened.encode_long("One sentence. Another one.", "late", chunk_by="sentence", **options).vectors
                self.assertEqual((late.dtype, late.shape), (want.dtype, (2, want.shape[1])))
            for call in (opened.encode, opened.submit, opened.encode_long, opened.encode_multi):
                with self.assertRaisesRegex(gpuserve.errors.InvalidError, 'precision "int3" is unknown'):
                    call("a", precision="int3")

    def test_given_ranges_and_dimensions(self):
        vectors = self.model.encode(TEXTS, truncate_dim=64)
        ranges = vector_ranges(vectors)
        made = self.model.encode(TEXTS, truncate_dim=64, precision="uint8", ranges=ranges)
        self.assertTrue((made == quantize_embeddings(vectors, "uint8", ranges=ranges)).all())
        self.assertEqual(self.model.encode(TEXTS[0], truncate_dim=64, precision="int8").shape, (64,))
        self.assertEqual(self.model.encode(TEXTS, precision="float16").dtype, np.float16)


if __name__ == "__main__":
    main(__name__)
