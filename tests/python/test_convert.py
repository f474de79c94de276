#!/usr/bin/env python3
"""Weights of other types: reading float8, converting directories, and what is refused.

The references are numpy's: float16 by astype, bfloat16 and float8 by their definitions (F8_CODES are the values
of torch 2.15, tests/data/float8.json).
"""
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file

import gpuserve
from common import ROOT, Case, main, model
from gpuserve import Model, convert
from gpuserve.errors import (CancelledError, FormatError, GpuserveError, InvalidError, NotFoundError, TooLargeError,
                             UnsupportedError)

sys.path.insert(0, os.path.join(ROOT, "tests/model"))
import torch_bytes    # pylint: disable=wrong-import-position

MODELS = os.path.join(ROOT, "tests/data/models")
PICKLES = os.path.join(ROOT, "tests/data/pickle")
MINILM = "all-MiniLM-L6-v2"
TOKENIZERS = {"tokenizer.json", "vocab.txt", "sentencepiece.bpe.model", "vocab.json"}
TEXTS = ["a b c", "1 2 3", "c", "", "a a a a 3"]
NUMPY = {"F32": "f4", "F16": "f2", "BF16": "u2", "I8": "i1", "I64": "i8", "F8_E4M3": "u1", "F8_E5M2": "u1", "U8": "u1",
         "F64": "f8"}


def write_tensors(path, tensors, metadata=None):
    """A safetensors file of {name: (type name, array)}."""
    header, data = {"__metadata__": metadata or {"format": "pt"}}, b""
    for name, (kind, array) in tensors.items():
        block = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(block)]}
        data += block
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def read_tensors(path):
    """({name: (type name, array of its bits)}, metadata) of a file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    metadata = header.pop("__metadata__", None)
    found = {}
    for name, info in header.items():
        begin, end = info["data_offsets"]
        found[name] = info["dtype"], np.frombuffer(data[begin:end], NUMPY[info["dtype"]]).reshape(info["shape"])
    return found, metadata


def bfloat16(values):
    """Bits, rounded to nearest even."""
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


class Directories(Case):
    def copy(self, name, to="model"):
        shutil.copytree(os.path.join(MODELS, name), self.path(to))
        if not TOKENIZERS.intersection(os.listdir(self.path(to))):    # most test models have none
            with open(os.path.join(self.path(to), "config.json"), encoding="utf-8") as file:
                size = json.load(file).get("vocab_size", 32)
            # Id 4 is the end token of models that have one; BART's classifier reads its vector.
            words = ["[PAD]", "[UNK]", "[CLS]", "[MASK]", "[SEP]", *"abc123", *(f"w{i}" for i in range(size))]
            with open(os.path.join(self.path(to), "vocab.txt"), "w", encoding="utf-8") as file:
                file.write("\n".join(words[:size]) + "\n")
        return self.path(to)

    def out(self, name="out"):
        return self.path(name)

    def nothing_remains(self, *but):
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(but))

    def weights(self, folder):
        """Path of the weights; those of int8 have a name that other programs do not read."""
        int8 = os.path.join(folder, "model.int8.safetensors")
        return int8 if os.path.exists(int8) else os.path.join(folder, "model.safetensors")

    def replace_weights(self, folder, change):
        """Rewrite the weights by change(name, array): (type name, array)."""
        path = self.weights(folder)
        write_tensors(path, {name: change(name, array) for name, array in load_file(path).items()})

    def vectors(self, folder, **options):
        with Model(folder, device="cpu", dtype="float32", **options) as opened:
            return opened.encode(TEXTS)


class Float8(Directories):
    def codes(self, name):
        with open(os.path.join(ROOT, "tests/data/float8.json"), encoding="utf-8") as file:
            values = json.load(file)[name]
        return np.array([np.nan if value is None else float(value) for value in values], np.float32)

    def check(self, kind):
        values = self.codes(kind)
        finite = np.flatnonzero(np.isfinite(values))
        order = finite[np.argsort(values[finite], kind="stable")]

        def narrow(_name, array):
            at = np.clip(np.searchsorted(values[order], array), 0, len(order) - 1)
            return kind, order[at].astype(np.uint8)

        folder, wide = self.copy("bert"), self.copy("bert", "wide")
        self.replace_weights(folder, narrow)
        self.replace_weights(wide, lambda name, array: ("F32", values[narrow(name, array)[1]]))
        np.testing.assert_array_equal(self.vectors(folder), self.vectors(wide))
        return folder

    def test_e4m3_is_read_as_weights(self):
        self.check("F8_E4M3")

    def test_e5m2_is_read_as_weights(self):
        self.check("F8_E5M2")

    def test_a_float8_checkpoint_converts_without_loss(self):
        folder = self.check("F8_E4M3")
        report = convert(folder, self.out(), "float16")
        self.assertEqual(report.cosine_min, 1.0)
        np.testing.assert_array_equal(self.vectors(folder), self.vectors(self.out()))

    def test_every_code_has_torch_s_value(self):
        """All 256 codes, by a conversion to float32; NaN and infinity are refused."""
        for kind in ("F8_E4M3", "F8_E5M2"):
            values = self.codes(kind)
            finite = np.flatnonzero(np.isfinite(values)).astype(np.uint8)
            folder = self.copy("bert", kind)
            tensors = {name: ("F32", array) for name, array in load_file(self.weights(folder)).items()}
            write_tensors(self.weights(folder), {**tensors, "lm_head.codes": (kind, finite)})
            convert(folder, self.out("out" + kind), "float32")
            got = load_file(self.weights(self.out("out" + kind)))["lm_head.codes"]
            np.testing.assert_array_equal(got.view(np.uint32), values[finite].view(np.uint32))
            for code in set(range(256)) - set(finite.tolist()):
                write_tensors(self.weights(folder), {**tensors, "lm_head.codes": (kind, np.array([1, code], np.uint8))})
                what = "not a number" if np.isnan(values[code]) else "infinite"
                with self.assertRaisesRegex(FormatError, f"'lm_head.codes': element 1 is {what}"):
                    convert(folder, self.out(), "float32")

    def test_a_nan_in_a_weight_is_refused(self):
        folder = self.check("F8_E4M3")
        tensors, _ = read_tensors(self.weights(folder))
        kind, array = tensors["embeddings.word_embeddings.weight"]
        array = array.copy()
        array[3, 5] = 0xFF
        write_tensors(self.weights(folder), {**tensors, "embeddings.word_embeddings.weight": (kind, array)})
        with self.assertRaisesRegex(FormatError, "'embeddings.word_embeddings.weight'.*not a number"):
            Model(folder, device="cpu")

    def test_scales_of_block_quantized_weights_are_refused_by_name(self):
        folder = self.check("F8_E4M3")
        tensors, _ = read_tensors(self.weights(folder))
        for ending in ("weight_scale_inv", "weight_scale", "input_scale", "scale_weight"):
            name = "encoder.layer.0.output.dense." + ending
            write_tensors(self.weights(folder), {**tensors, name: ("F32", np.ones(1, np.float32))})
            with self.assertRaisesRegex(UnsupportedError, f"tensor '{name}': the weights are quantized"):
                Model(folder, device="cpu")

    def test_integer_weights_are_refused_by_name(self):
        for kind in ("I8", "U8"):
            folder = self.copy("bert", kind)
            self.replace_weights(folder, lambda name, array, kind=kind: (
                (kind, np.zeros(array.shape, NUMPY[kind])) if name.endswith("query.weight") else ("F32", array)))
            with self.assertRaisesRegex(UnsupportedError, f"'encoder.layer.0.*query.weight' is {kind}, and the file "
                                                          "names no quantized format"):
                Model(folder, device="cpu")


class Unreadable(Directories):
    def test_weights_of_other_programs_are_named(self):
        for files, says, way_out in (
                (["model.onnx"], r"model.onnx \(ONNX\)", "take the PyTorch model"),
                (["onnx/model.onnx"], r"onnx \(ONNX\)", "take the PyTorch model"),
                (["tf_model.h5"], r"tf_model.h5 \(TensorFlow\)", "from_tf=True"),
                (["flax_model.msgpack"], r"flax_model.msgpack \(Flax\)", "from_flax=True"),
                (["rust_model.ot", "tf_model.h5"], r"rust_model.ot \(rust-bert\), tf_model.h5 \(TensorFlow\)",
                 "model.safetensors")):
            folder = self.copy("bert", says.replace("\\", "").replace("/", " "))
            os.remove(self.weights(folder))
            for name in files:
                os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(b"x")
            with self.assertRaisesRegex(UnsupportedError, "no weights that gpuserve reads; the directory has " + says
                                        ) as caught:
                Model(folder, device="cpu")
            self.assertIn(way_out, caught.exception.hint)
            self.assertIn("pytorch_model.bin", caught.exception.hint)

    def test_nothing_at_all(self):
        folder = self.copy("bert")
        os.remove(self.weights(folder))
        with self.assertRaisesRegex(NotFoundError, "model.safetensors: no such file, and no pytorch_model.bin"):
            Model(folder, device="cpu")

    def test_pytorch_files_are_read_not_refused_by_name(self):
        folder = self.copy("bert")
        os.remove(self.weights(folder))
        for name in ("tf_model.h5", "pytorch_model.bin"):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(b"x")
        with self.assertRaisesRegex(FormatError, "pytorch_model.bin: "):
            Model(folder, device="cpu")
        shutil.copy(os.path.join(PICKLES, "state-dict", "pytorch_model.bin"), folder)
        Model(folder, device="cpu").close()


class Types(Directories):
    def test_float16_and_bfloat16_are_rounded_to_nearest_even(self):
        rng = np.random.default_rng(1)
        bits = rng.integers(0, 2**32, 60000, dtype=np.uint32)
        values = bits.view(np.float32)
        halves = np.arange(65536, dtype=np.uint16).view(np.float16)
        halves = halves[np.isfinite(halves)].astype(np.float32)
        ties = (halves[:-1] + halves[1:]) / 2    # halfway between neighbours, and next to it
        values = np.concatenate([values[np.isfinite(values)], halves, ties, np.nextafter(ties, np.float32(np.inf)),
                                 np.nextafter(ties, np.float32(-np.inf)), np.float32([0.0, -0.0, 1e-45, -1e-45])])
        folder = self.copy("bert")
        for dtype, limit, reference in (("float16", 65504.0, lambda v: v.astype(np.float16).view(np.uint16)),
                                        ("bfloat16", 3.3895313892515355e38, bfloat16)):
            kept = values[np.abs(values) <= limit]
            tensors = {name: ("F32", array) for name, array in load_file(os.path.join(
                MODELS, "bert", "model.safetensors")).items()}
            write_tensors(self.weights(folder), {**tensors, "lm_head.values": ("F32", kept)})
            convert(folder, self.out(dtype), dtype)
            found, metadata = read_tensors(self.weights(self.out(dtype)))
            self.assertEqual(metadata, {"format": "pt"})
            np.testing.assert_array_equal(found["lm_head.values"][1].view(np.uint16), reference(kept))

    def test_float16_overflow_is_refused_by_name(self):
        folder = self.copy("bert")
        for value, passes in ((65504.0, True), (65504.004, False), (-65505.0, False), (1e30, False)):
            self.replace_weights(folder, lambda name, array, value=value: (
                "F32", np.concatenate([array[:-1], np.float32([value])])
                if name == "encoder.layer.1.output.LayerNorm.bias" else array))
            if passes:
                convert(folder, self.out(), "float16")
                shutil.rmtree(self.out())
                continue
            with self.assertRaisesRegex(FormatError, "'encoder.layer.1.output.LayerNorm.bias': element 31 is .*, the "
                                                     "largest float16 is 65504"):
                convert(folder, self.out(), "float16")
            convert(folder, self.out(), "bfloat16")
            shutil.rmtree(self.out())
        self.nothing_remains("model")

    def test_int8_is_as_documented(self):
        convert(model(MINILM), self.out(), "int8")
        before = load_file(os.path.join(model(MINILM), "model.safetensors"))
        after, metadata = read_tensors(self.weights(self.out()))
        self.assertEqual(metadata, {"format": "gpuserve-int8-rows-1"})
        n_int8 = 0
        for name, array in before.items():
            kind, found = after.pop(name)
            if array.ndim == 2 and array.size >= 4096 and name.endswith(".weight"):
                scales = after.pop(name + "_scale")
                self.assertEqual((kind, scales[0], scales[1].shape), ("I8", "F32", (len(array),)))
                want = np.abs(array).max(1) / np.float32(127)
                np.testing.assert_array_equal(scales[1], np.where(want == 0, np.float32(1), want))
                codes = np.clip(np.rint(array / scales[1][:, None]), -127, 127)
                np.testing.assert_array_equal(found, codes.astype(np.int8))
                n_int8 += 1
            elif array.dtype == np.float32:
                self.assertEqual(kind, "F32")
                np.testing.assert_array_equal(found, array)
            else:
                np.testing.assert_array_equal(found, array)
        self.assertEqual(after, {})
        self.assertGreater(n_int8, 30)

    def test_int8_is_read_as_code_times_scale(self):
        report = convert(model(MINILM), self.out(), "int8")
        self.assertLess(report.bytes_after, report.bytes_before / 3.9)
        self.assertGreater(report.cosine_min, 0.99)
        tensors, _ = read_tensors(self.weights(self.out()))
        shutil.copytree(self.out(), self.out("wide"))
        os.remove(self.weights(self.out("wide")))
        self.assertNotIn("model.safetensors", os.listdir(self.out()))
        write_tensors(self.weights(self.out("wide")), {
            name: ("F32", array.astype(np.float32) * tensors[name + "_scale"][1][:, None])
            if kind == "I8" else (kind, array)
            for name, (kind, array) in tensors.items() if not name.endswith("_scale")})
        np.testing.assert_array_equal(self.vectors(self.out()), self.vectors(self.out("wide")))
        convert(self.out(), self.out("back"), "float32")    # any input that is read
        np.testing.assert_array_equal(self.vectors(self.out()), self.vectors(self.out("back")))
        convert(self.out(), self.out("again"), "int8")
        self.assertGreater(convert(self.out("again"), self.out("third"), "float32").cosine_min, 0.999999)

    def test_damaged_int8_files_are_refused(self):
        source = self.copy("bert")
        wide = np.random.default_rng(2).standard_normal((64, 96)).astype(np.float32)
        self.replace_weights(source, lambda name, array: ("F32", array))
        tensors, _ = read_tensors(self.weights(source))
        write_tensors(self.weights(source), {**tensors, "lm_head.extra.weight": ("F32", wide)})
        convert(source, self.out(), "int8")
        good, metadata = read_tensors(self.weights(self.out()))
        self.assertEqual(good["lm_head.extra.weight"][0], "I8")
        kind, scales = good["lm_head.extra.weight_scale"]

        def refused(change, says):
            write_tensors(self.weights(self.out()), {**good, **change}, metadata)
            with self.assertRaisesRegex(GpuserveError, says):
                Model(self.out(), device="cpu")

        refused({"lm_head.extra.weight_scale": (kind, scales[:-1])}, "'lm_head.extra.weight_scale' is F32 of rank 1 with 63 elements, "
                                                             r"expected F32 of shape \[64\]")
        refused({"lm_head.extra.weight_scale": ("F16", scales.astype("f2"))}, "'lm_head.extra.weight_scale' is F16")
        refused({"lm_head.extra.weight_scale": (kind, scales[:, None])}, "of rank 2")
        refused({"lm_head.extra.weight": ("I8", np.zeros(64, "i1"))}, "is I8 of rank 1")
        less = dict(good)
        del less["lm_head.extra.weight_scale"]
        write_tensors(self.weights(self.out()), less, metadata)
        with self.assertRaisesRegex(FormatError, "'lm_head.extra.weight_scale' is missing: the scales of 'lm_head.extra.weight'"):
            Model(self.out(), device="cpu")
        write_tensors(self.weights(self.out()), good, {"format": "pt"})
        with self.assertRaisesRegex(UnsupportedError, "'lm_head.extra.weight"):
            Model(self.out(), device="cpu")

    def test_a_damaged_scale_is_refused_by_the_weight_s_name(self):
        convert(model(MINILM), self.out(), "int8")
        tensors, metadata = read_tensors(self.weights(self.out()))
        name = "encoder.layer.0.attention.self.key.weight_scale"
        scales = tensors[name][1].copy()
        scales[2] = np.inf
        write_tensors(self.weights(self.out()), {**tensors, name: ("F32", scales)}, metadata)
        with self.assertRaisesRegex(FormatError, "'encoder.layer.0.attention.self.key.weight': element"):
            Model(self.out(), device="cpu")


class Conversions(Directories):
    def test_every_kind_of_model(self):
        """All test models that are supported: unchanged as float32, and close as int8 and float16."""
        n = 0
        for name in sorted(os.listdir(MODELS)):
            if not os.path.isfile(os.path.join(MODELS, name, "config.json")):
                continue
            source = self.copy(name, name)
            try:
                Model(source, device="cpu").close()
            except (UnsupportedError, NotFoundError, FormatError):
                continue    # tests of these are elsewhere
            n += 1
            for dtype, least in (("float32", 1.0), ("float16", 0.999), ("int8", 0.95)):
                with self.subTest(f"{name} {dtype}"):
                    try:
                        report = convert(source, self.out(name + dtype), dtype)
                    except UnsupportedError as error:    # a Router: refused by name
                        self.assertIn("convert does not support", str(error))
                        continue
                    self.assertGreaterEqual(report.cosine_min, least)
                    if dtype == "float32":
                        self.assertEqual(report.score_difference, 0.0)
                    if os.path.exists(os.path.join(source, "2_Dense/model.safetensors")):
                        kinds = {kind for kind, _ in read_tensors(os.path.join(
                            self.out(name + dtype), "2_Dense/model.safetensors"))[0].values()}
                        self.assertEqual(kinds, {"F16" if dtype == "float16" else "F32"})
        self.assertGreaterEqual(n, 25)

    def test_files_are_copied_and_weights_of_others_left_out(self):
        folder = self.copy("st-dense")
        for name in ("pytorch_model.bin", "tf_model.h5", "onnx/model.onnx", "onnx/config.json", ".hidden.json",
                     "model.safetensors.index.json", "gpuserve-convert.json", "training/optimizer.pt"):
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "wb") as file:
                file.write(b"{}")
        for name in ("LICENSE", "README.md", "1_Pooling/notes.txt"):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(name.encode())
        convert(folder, self.out(), "float16")
        got = sorted(os.path.relpath(os.path.join(base, name), self.out())
                     for base, _, names in os.walk(self.out()) for name in names)
        source = [os.path.relpath(os.path.join(base, name), os.path.join(MODELS, "st-dense"))
                  for base, _, names in os.walk(os.path.join(MODELS, "st-dense")) for name in names]
        text = [name for name in source if name.endswith((".json", ".txt"))]
        self.assertEqual(got, sorted([*text, "model.safetensors", "2_Dense/model.safetensors", "LICENSE", "README.md",
                                      "1_Pooling/notes.txt", "gpuserve-convert.json"]))
        for name in [*text, "LICENSE"]:
            with open(os.path.join(folder, name), "rb") as one, open(os.path.join(self.out(), name), "rb") as other:
                self.assertEqual(one.read(), other.read(), name)

    def test_shards(self):
        report = convert(model(MINILM), self.out(), "float16", max_shard_size=10_000_000)
        shards = sorted(name for name in os.listdir(self.out()) if name.endswith(".safetensors"))
        with open(os.path.join(self.out(), "model.safetensors.index.json"), encoding="utf-8") as file:
            index = json.load(file)
        self.assertEqual(shards, [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))])
        self.assertGreater(len(shards), 3)
        self.assertEqual(index["metadata"]["total_size"], report.bytes_after)
        self.assertEqual(sorted(set(index["weight_map"].values())), shards)
        for shard in shards:
            names = {name for name, file in index["weight_map"].items() if file == shard}
            with safe_open(os.path.join(self.out(), shard), "np") as file:
                self.assertEqual(set(file.keys()), names)
        convert(model(MINILM), self.out("one"), "float16")
        np.testing.assert_array_equal(self.vectors(self.out()), self.vectors(self.out("one")))
        convert(model(MINILM), self.out("int8"), "int8", max_shard_size=5_000_000)
        self.assertEqual(self.vectors(self.out("int8")).shape, (len(TEXTS), 384))

    def test_the_report_says_what_is_measured(self):
        report = convert(os.path.join(MODELS, "st-dense"), self.out(), "bfloat16")
        with open(os.path.join(self.out(), "gpuserve-convert.json"), encoding="utf-8") as file:
            stored = json.load(file)
        self.assertEqual(stored["dtype"], "bfloat16")
        self.assertEqual((stored["compared"], stored["probes"]), ("embeddings", report.n_probes))
        for key in ("cosine_mean", "cosine_min", "bytes_before", "bytes_after"):
            self.assertAlmostEqual(stored[key], getattr(report, key), 6)
        single = self.copy("bert-single")
        self.assertEqual(convert(single, self.out("single"), "bfloat16").compared,
                         "token vectors")
        self.assertGreater(convert(single, self.out("scores"), "bfloat16"
                                   ).score_difference, 0)

    def test_weights_that_change_the_vectors_are_measured(self):
        """The cosine is that of the vectors, not a constant."""
        report = convert(model(MINILM), self.out(), "int8")
        texts = ["the ", "yes", "How do I reset the password of my account?"]
        with Model(model(MINILM), device="cpu") as one, Model(self.out(), device="cpu", dtype="float32") as other:
            cosines = np.sum(one.encode(texts) * other.encode(texts), axis=1)
        self.assertLess(report.cosine_mean, 0.9999)
        self.assertGreater(cosines.min(), report.cosine_min - 1e-3)

    def test_equal_input_gives_equal_files(self):
        for name in ("one", "two"):
            convert(os.path.join(MODELS, "st-dense"), self.out(name), "int8")
        with open(self.weights(self.out("one")), "rb") as one, open(self.weights(self.out("two")), "rb") as two:
            self.assertEqual(one.read(), two.read())


class Pickles(Directories):
    """PyTorch files as the input of a conversion."""

    def pickled(self, fixture):
        """(a directory with these PyTorch files, the same model in safetensors)"""
        with open(os.path.join(PICKLES, fixture, "MODEL"), encoding="utf-8") as file:
            source = self.copy(file.read().strip(), fixture + "-safe")
        shutil.copytree(source, self.path(fixture), ignore=shutil.ignore_patterns("*.safetensors*"))
        shutil.copytree(os.path.join(PICKLES, fixture), self.path(fixture), dirs_exist_ok=True)
        return self.path(fixture), source

    def more(self, tensors, storages=None):
        """A sharded directory with one more file of these (name, bytes that push the tensor)."""
        folder, _ = self.pickled("sharded")
        index = os.path.join(folder, "pytorch_model.bin.index.json")
        with open(index, encoding="utf-8") as file:
            content = json.load(file)
        content["weight_map"].update({name: "more.bin" for name, _ in tensors})
        with open(index, "w", encoding="utf-8") as file:
            json.dump(content, file)
        with open(os.path.join(folder, "more.bin"), "wb") as file:
            file.write(torch_bytes.saved(torch_bytes.state_dict(*tensors), storages=storages))
        return folder

    def all_tensors(self, folder):
        """{(folder, name): (type name, array of its bits)} of a directory; names without a wrapper's prefix."""
        found = {}
        for base, _, names in os.walk(folder):
            for name in names:
                if name.startswith("model") and name.endswith(".safetensors"):
                    found.update({(os.path.relpath(base, folder), key.removeprefix("model.")): value
                                  for key, value in read_tensors(os.path.join(base, name))[0].items()})
        return found

    def test_every_layout_converts_bit_by_bit(self):
        extra = {("embeddings.position_ids", "I64"), ("lm_head.weight", "F32")}
        for fixture in sorted(os.listdir(PICKLES)):
            with self.subTest(fixture):
                folder, source = self.pickled(fixture)
                before = self.all_tensors(source)
                kinds = {kind for kind, _ in before.values()}
                dtype = "float16" if kinds == {"F16"} else "bfloat16" if kinds == {"BF16"} else "float32"
                self.assertEqual(convert(folder, self.out("of" + fixture), dtype).cosine_min, 1.0)
                after = self.all_tensors(self.out("of" + fixture))
                self.assertEqual([name for _, _, names in os.walk(self.out("of" + fixture)) for name in names if ".bin" in name], [])
                self.assertLessEqual({(name, after[part, name][0]) for part, name in set(after) - set(before)}, extra)
                for key, (kind, array) in before.items():
                    wanted = ("F32", array.astype(np.float32)) if kind == "F64" else (kind, array)
                    self.assertEqual((after[key][0], after[key][1].tobytes()), (wanted[0], wanted[1].tobytes()), key)

    def test_narrow_types_are_those_of_the_safetensors_files(self):
        folder, source = self.pickled("parameters")
        for dtype in ("float16", "int8"):
            convert(folder, self.out("one" + dtype), dtype)
            convert(source, self.out("two" + dtype), dtype)
            with open(self.weights(self.out("one" + dtype)), "rb") as one, \
                    open(self.weights(self.out("two" + dtype)), "rb") as two:
                self.assertEqual(one.read(), two.read())

    def test_views_and_integers_are_copied(self):
        data = np.arange(16, dtype=np.int64)
        folder = self.more([("ids", torch_bytes.tensor((3, 2), (2, 1), 5, torch_bytes.storage(kind="LongStorage"))),
                            ("none", torch_bytes.tensor((0, 5), (5, 1), 0, torch_bytes.storage(kind="LongStorage")))],
                           {"0": data.tobytes()})
        convert(folder, self.out(), "float16")
        found, _ = read_tensors(self.weights(self.out()))
        self.assertEqual((found["ids"][0], found["ids"][1].tolist()), ("I64", data[5:11].reshape(3, 2).tolist()))
        self.assertEqual(found["none"][1].shape, (0, 5))

    def test_what_cannot_be_written_is_refused_by_name(self):
        for tensors, error, says in (
                ([("lm_head.turned", torch_bytes.tensor((4, 4), (1, 4)))], UnsupportedError, "more.bin: tensor 'lm_head.turned' is not contiguous"),
                ([("lm_head.wide", torch_bytes.tensor((10**6, 10**6), (0, 0)))], UnsupportedError, "'lm_head.wide' is not contiguous"),
                ([("__metadata__", torch_bytes.tensor())], UnsupportedError, "'__metadata__' belongs to no part"),
                ([("lm_head.deep", torch_bytes.tensor((1, 1, 1, 1, 16), (16, 16, 16, 16, 1)))], UnsupportedError,
                 "'lm_head.deep' has rank 5, the limit is 4"),
                ([("lm_head.a.weight_scale", torch_bytes.tensor())], UnsupportedError, "'lm_head.a.weight_scale': the weights are quantized"),
                ([("lm_head.a.weight", torch_bytes.tensor((4, 4), (4, 1), 0, torch_bytes.storage(count=64, kind="CharStorage")))],
                 UnsupportedError, "'lm_head.a.weight' is I8, and the file names no quantized format")):
            with self.assertRaisesRegex(error, says):
                convert(self.more(tensors), self.out(), "float32")
            shutil.rmtree(self.path("sharded"))
            shutil.rmtree(self.path("sharded-safe"))
            self.nothing_remains()

    def test_many_views_of_one_storage_do_not_fill_the_disk(self):
        size = 1 << 18
        source = torch_bytes.storage(count=size)
        for n, passes in ((14, True), (40, False)):
            folder = self.more([(f"lm_head.view{i}", torch_bytes.tensor((size,), (1,), 0, source)) for i in range(n)],
                               {"0": bytes(4 * size)})
            if passes:
                convert(folder, self.out(), "float16")
            else:
                with self.assertRaisesRegex(TooLargeError, "the tensors have more than 16 times the bytes of their files"):
                    convert(folder, self.out(), "float16", force=True)
            shutil.rmtree(folder)
            shutil.rmtree(self.path("sharded-safe"))


class Atomic(Directories):
    def test_an_existing_directory_is_kept_without_force(self):
        source = self.copy("bert")
        convert(source, self.out(), "float16")
        with open(self.weights(self.out()), "rb") as file:
            before = file.read()
        with self.assertRaisesRegex(InvalidError, "the output exists"):
            convert(source, self.out(), "bfloat16")
        with open(self.weights(self.out()), "rb") as file:
            self.assertEqual(file.read(), before)
        convert(source, self.out(), "bfloat16", force=True)
        self.assertEqual({kind for kind, _ in read_tensors(self.weights(self.out()))[0].values()}, {"BF16"})
        convert(source, self.out() + "//", "float32", force=True)
        self.nothing_remains("model", "out")

    def test_force_replaces_only_models(self):
        source = self.copy("bert")
        os.makedirs(self.path("work"))
        self.write("work/thesis.txt", "years")
        self.write("file", "x")
        os.symlink(self.path("work"), self.path("link"))
        for output, says in (("work", "not a model's"), ("file", "is no directory"), ("link", "is no directory"),
                             ("model", "is the model's"), ("", "contains it")):
            with self.assertRaisesRegex(InvalidError, says):
                convert(source, self.path(output), "float16", force=True)
        with self.assertRaisesRegex(NotFoundError, "nowhere"):
            convert(source, self.path("nowhere/at/all"), "float16")
        os.makedirs(self.path("empty"))
        convert(source, self.path("empty"), "float16", force=True)
        self.nothing_remains("model", "work", "file", "link", "empty")

    def test_nothing_remains_after_a_failure(self):
        folder = self.copy("bert")
        self.replace_weights(folder, lambda name, array: (
            "F32", np.full_like(array, 1e9) if name == "pooler.dense.bias" else array))
        tensors, _ = read_tensors(self.weights(folder))
        write_tensors(self.weights(folder), {**tensors, "lm_head.z": ("F32", np.float32([1e9]))})
        with self.assertRaises(FormatError):
            convert(folder, self.out(), "float16")
        self.nothing_remains("model")

    def test_a_file_that_cannot_be_written(self):
        """As on a full disk: writing fails in the middle of the weights."""
        code = ("import resource, sys, gpuserve\n"
                "resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, resource.RLIM_INFINITY))\n"
                "try:\n    gpuserve.convert(sys.argv[1], sys.argv[2], 'float16')\n"
                "except gpuserve.errors.ReadError as error:\n    print('refused', error)\n")
        done = subprocess.run([sys.executable, "-c", code, model(MINILM), self.out()], capture_output=True, text=True,
                              check=False)
        self.assertIn("refused", done.stdout, done.stderr)
        self.assertIn("out/model.safetensors: File too large", done.stdout)
        self.nothing_remains()

    def test_a_progress_that_cancels_leaves_nothing(self):
        seen = []

        def cancel(stage, done, total):
            seen.append((stage, done, total))
            return not (stage == "convert" and done > total / 2)

        with self.assertRaises(CancelledError):
            convert(model(MINILM), self.out(), "float16", progress=cancel)
        self.nothing_remains()
        self.assertLessEqual({"weights", "convert"}, {stage for stage, *_ in seen})
        with self.assertRaises(ZeroDivisionError):
            convert(model(MINILM), self.out(), "float16", progress=lambda *_: 1 / 0)
        self.nothing_remains()

    def test_arguments(self):
        source = self.copy("bert")
        with self.assertRaisesRegex(InvalidError, "tf32"):
            convert(source, self.out(), "tf32")
        with self.assertRaises(NotFoundError):
            convert(self.path("nowhere"), self.out(), "float16")
        with self.assertRaisesRegex(InvalidError, "empty"):
            convert(source, "", "float16")
        os.rename(os.path.join(source, "config.json"), self.path("config.json"))
        with self.assertRaisesRegex(NotFoundError, "config.json: no such file; the output needs a copy") as caught:
            convert(source, self.out(), "float16")
        self.assertIn("a model directory holds config.json", caught.exception.hint)
        os.rename(self.path("config.json"), os.path.join(source, "config.json"))
        os.makedirs(self.path("gguf"))
        self.write("gguf/config.json", "{}")
        self.write("gguf/any.gguf", "x")
        for path in (self.path("gguf"), self.path("gguf/any.gguf")):
            with self.assertRaisesRegex(UnsupportedError, "the model is a GGUF file, without the config.json"):
                convert(path, self.out(), "float16")
        with gpuserve.Context() as context:
            convert(source, self.out(), "float16", context=context)
            self.assertEqual(context.models(), [])

    def test_ctrl_c_in_python_leaves_nothing(self):
        def interrupt(stage, _done, _total):
            if stage == "convert":
                signal.raise_signal(signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            convert(model(MINILM), self.out(), "float16", progress=interrupt)
        self.nothing_remains()


if __name__ == "__main__":
    main(__name__)
