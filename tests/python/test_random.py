#!/usr/bin/env python3
"""Random models and pruning: the weights against a generator written here, the zeros against numpy.

A random model's directory, as convert() writes it, shows its weights.
"""
import os

import numpy as np
from safetensors.numpy import load_file

from common import Case, main
from gpuserve import Compute, Context, Model, Tokenizer, convert
from gpuserve.errors import InvalidError, TooLargeError, UnsupportedError

SHAPE = "random:layers=2,hidden=64,heads=4,intermediate=200,vocab=300,positions=40"
LIMIT = np.float32(0.034641016) * np.float32(2.0**-31)


def philox(seed, n):
    """The first n outputs: Philox4x32-10 in the order of cuRAND's default."""
    block = np.arange((n + 3) // 4, dtype=np.uint64)
    zero = np.zeros_like(block)
    counter = [block >> 16 & 0xffffffff, block >> 48, block & 0xffff, zero]
    keys = [np.uint64(seed & 0xffffffff), np.uint64(seed >> 32)]
    for _ in range(10):
        a, b = counter[0] * np.uint64(0xD2511F53), counter[2] * np.uint64(0xCD9E8D57)
        counter = [b >> 32 ^ counter[1] ^ keys[0], b & 0xffffffff, a >> 32 ^ counter[3] ^ keys[1], a & 0xffffffff]
        keys = [(keys[0] + np.uint64(0x9E3779B9)) & np.uint64(0xffffffff),
                (keys[1] + np.uint64(0xBB67AE85)) & np.uint64(0xffffffff)]
    return np.stack(counter, axis=1).reshape(-1)[:n].astype(np.uint32)


class Directories(Case):
    def tensors(self, path=SHAPE, name="model", **options):
        convert(path, self.path(name), "float32", **options)
        return load_file(os.path.join(self.path(name), "model.safetensors"))


class Random(Directories):
    def test_the_weights_are_the_generator_s(self):
        for seed in (0, 2**40 + 3):
            found = self.tensors(f"{SHAPE},seed={seed}", f"model{seed}")
            # The sequence begins with the tables: 300 words, 40 positions, 2 types.
            expected = philox(seed, 342 * 64).astype(np.int32).astype(np.float32) * LIMIT
            tables = np.concatenate([found[f"embeddings.{name}_embeddings.weight"].reshape(-1)
                                     for name in ("word", "position", "token_type")])
            np.testing.assert_array_equal(tables, expected)
        self.assertTrue((found["embeddings.LayerNorm.weight"] == 1).all())
        self.assertFalse(found["encoder.layer.1.output.dense.bias"].any())
        matrix = found["encoder.layer.1.intermediate.dense.weight"]
        self.assertEqual(matrix.shape, (200, 64))
        self.assertAlmostEqual(float(matrix.std()), 0.02, 3)

    def test_the_generator_is_curand_s(self):
        # Of curandGenerate() in cuRAND 10.3.10, CURAND_RNG_PSEUDO_PHILOX4_32_10.
        outputs = philox(0x123456789, 262145)
        self.assertEqual([hex(x) for x in outputs[[0, 1, 5, 262143, 262144]]],
                         ["0x5aa1da32", "0xb611012a", "0xe0c755e6", "0xf6c7cb05", "0x43d5dacf"])

    def test_raw_numbers(self):
        with Compute("cpu") as compute:
            numbers = compute.random_numbers(1000, seed=2**40 + 3)
            np.testing.assert_array_equal(numbers, philox(2**40 + 3, 1000))
            np.testing.assert_array_equal(compute.random_numbers(10, seed=2**40 + 3, first=400), numbers[400:410])
            self.assertEqual(compute.took.variant, "auto")
            with self.assertRaisesRegex(UnsupportedError, "a CPU has no cuRAND"):
                compute.random_numbers(4, variant="curand")
            with self.assertRaisesRegex(InvalidError, "first is 2, not a multiple of 4"):
                compute.random_numbers(4, first=2)

    def test_every_call_takes_it(self):
        with Model(SHAPE, device="cpu") as opened:
            vectors = opened.encode(["a cat", "a dog"])
            self.assertEqual(vectors.shape, (2, 64))
            with Model(SHAPE, device="cpu", dtype="int8") as quantized:
                self.assertEqual(quantized.encode(["a cat"]).shape, (1, 64))
        self.assertTrue(Model.footprint(SHAPE, device="cpu")["fits"])
        self.assertEqual(Model.inspect(SHAPE)["weights_format"], "random")
        with Tokenizer(SHAPE) as tokenizer:
            self.assertGreater(len(tokenizer.encode("a cat")), 2)
        with self.assertRaisesRegex(InvalidError, "heads is 5, which does not divide hidden, 64"):
            Model("random:hidden=64,heads=5")

    def test_two_models_on_a_budget_for_one(self):
        needed = Model.footprint(SHAPE, device="cpu")["total_bytes"]
        with Context(memory_budget=int(1.5 * needed)) as context:
            with Model(SHAPE, device="cpu", context=context):
                with self.assertRaisesRegex(TooLargeError, f"needs {needed} bytes"):
                    Model(SHAPE + ",seed=1", device="cpu", context=context)


class Pruning(Directories):
    def setUp(self):
        super().setUp()
        self.before = self.tensors(name="before")
        self.matrices = [name for name, values in self.before.items() if name.startswith("encoder") and values.ndim == 2]

    def check_others(self, after):
        for name, values in self.before.items():
            if name not in self.matrices:
                np.testing.assert_array_equal(after[name], values, name)

    def test_magnitudes(self):
        for percent in (1, 10, 50, 95):
            after = self.tensors(name=f"out{percent}", prune=percent)
            for name in self.matrices:
                values = self.before[name].reshape(-1)
                n = values.size * percent // 100
                expected = values.copy()
                expected[np.argsort(np.abs(values), kind="stable")[:n]] = 0
                np.testing.assert_array_equal(after[name].reshape(-1), expected, name)
            self.check_others(after)

    def test_equal_magnitudes(self):
        self.tensors(name="a", prune=60)
        after = load_file(os.path.join(self.path("a"), "model.safetensors"))
        convert(self.path("a"), self.path("b"), "float32", prune=30)    # zeros are the smallest: nothing changes
        again = load_file(os.path.join(self.path("b"), "model.safetensors"))
        for name, values in after.items():
            np.testing.assert_array_equal(again[name], values, name)

    def test_two_of_four(self):
        report = convert(SHAPE, self.path("out"), "float16", prune="2:4")
        after = load_file(os.path.join(self.path("out"), "model.safetensors"))
        for name in self.matrices:
            groups = self.before[name].reshape(-1, 4)
            expected = groups.copy()
            np.put_along_axis(expected, np.argsort(np.abs(groups), axis=1, kind="stable")[:, :2], 0, axis=1)
            np.testing.assert_array_equal(after[name].reshape(-1, 4), expected.astype(np.float16), name)
        values = sum(self.before[name].size for name in self.matrices)
        self.assertEqual((report.n_pruned, report.pruned_values, report.zero_values), (12, values, values // 2))
        self.assertLess(report.cosine_min, report.cosine_mean)

    def test_rows_that_are_no_multiple_of_four_stay_dense(self):
        report = convert("random:layers=1,hidden=66,heads=6,intermediate=200,vocab=300", self.path("out"), "float32",
                         prune="2:4")
        self.assertEqual(report.n_pruned, 1)    # output.dense has rows of 200 values, the others of 66

    def test_bad_values(self):
        for prune in (96, 0x203, 2**32 - 1):
            with self.assertRaisesRegex(InvalidError, f"prune is {prune}: it is a percentage from 1 to 95"):
                convert(SHAPE, self.path("out"), "float32", prune=prune)
        with self.assertRaises(InvalidError):
            convert(SHAPE, self.path("out"), "float32", prune=-1)
        with self.assertRaisesRegex(ValueError, "1:2"):
            convert(SHAPE, self.path("out"), "float32", prune="1:2")
        self.assertFalse(os.path.exists(self.path("out")))


if __name__ == "__main__":
    main(__name__)
