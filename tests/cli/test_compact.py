#!/usr/bin/env python3
"""`gpuserve calibrate` and `embed --precision`: files of numpy, ranges, what is refused. The bits are in
tests/python/test_quantization.py."""
import array
import json
import struct

from common import Case, gpuserve, main, model

MINILM = "all-MiniLM-L6-v2"
TEXTS = ["a dog", "two cats", "Ein Satz.", "?"]


def header(path):
    """(descr, shape, bytes of the rows) of a .npy file."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:6] == b"\x93NUMPY"
    size = struct.unpack("<H", data[8:10])[0]
    facts = eval(data[10:10 + size], {})  # pylint: disable=eval-used
    return facts["descr"], facts["shape"], data[10 + size:]


class Compact(Case):
    def embedded(self, *options):
        done = self.works("embed", "-m", model(MINILM), "-q", *options, *TEXTS)
        return [json.loads(line)["embedding"] for line in done.out.splitlines()]

    def test_ranges_are_the_extremes(self):
        path = self.path("ranges.npy")
        done = self.works("calibrate", "-m", model(MINILM), "--output", path, *TEXTS)
        self.assertIn("4 texts are few", done.err)
        descr, shape, rows = header(path)
        self.assertEqual((descr, shape), ("<f4", (2, 384)))
        values = array.array("f", rows)
        columns = list(zip(*self.embedded()))
        for i, column in enumerate(columns):
            self.assertAlmostEqual(values[i], min(column), 6)
            self.assertAlmostEqual(values[384 + i], max(column), 6)
        for row in (min, max):  # the extremes are the ends of the 256 buckets
            made = list(zip(*self.embedded("--precision", "uint8", "--ranges", path)))
            self.assertEqual({row(column) for column in made} - {254}, {0 if row is min else 255})

    def test_types_of_files(self):
        for precision, descr, columns in (("float16", "<f2", 384), ("int8", "|i1", 384), ("uint8", "|u1", 384),
                                          ("binary", "|i1", 48), ("ubinary", "|u1", 48), ("float32", "<f4", 384)):
            path = self.path(precision + ".npy")
            self.works("embed", "-m", model(MINILM), "--precision", precision, "--output", path, *TEXTS)
            found = header(path)
            self.assertEqual(found[:2], (descr, (4, columns)))
            if precision in ("int8", "ubinary"):
                numbers = array.array("b" if precision == "int8" else "B", found[2]).tolist()
                self.assertEqual(sum(self.embedded("--precision", precision), []), numbers)
        text = self.works("embed", "-m", model(MINILM), "-q", "--precision", "binary", "--format", "text", *TEXTS).out
        self.assertEqual([[int(value) for value in line.split()] for line in text.splitlines()],
                         self.embedded("--precision", "binary"))

    def test_suffixes(self):
        """The name of the output means what it says."""
        want = self.embedded("--precision", "binary")
        for suffix, separator in ((".tsv", "\t"), (".csv", ","), (".txt", " ")):
            path = self.path("vectors" + suffix)
            self.works("embed", "-m", model(MINILM), "--precision", "binary", "-o", path, *TEXTS)
            with open(path, encoding="utf-8") as file:
                self.assertEqual([[int(value) for value in line.split(separator)] for line in file], want)
        for command in ("classify", "similarity", "tokenize", "rerank"):
            for suffix in (".parquet", ".tsv", ".csv", ".npy"):
                self.fails(2, f"{suffix}: {command} writes .json .jsonl .txt", command, "-m", model(MINILM), "-o",
                           self.path("x" + suffix), "a", "b")
        self.works("similarity", "-m", model(MINILM), "-o", self.path("x.jsonl"), "a", "b")
        self.works("rerank", "-m", model(MINILM), "-o", self.path("x.txt"), "a", "b")
        with open(self.path("x.txt"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r"^ +[0-9.]+  b\n$")
        self.fails(2, ".parquet: embed writes", "embed", "-m", model(MINILM), "-o", self.path("x.parquet"), "a")
        self.works("embed", "-m", model(MINILM), "-o", self.path("x.parquet"), "--format", "json", "a")

    def test_dimensions(self):
        self.assertEqual({len(row) for row in self.embedded("--precision", "ubinary", "--dimensions", "19")}, {3})
        path = self.path("ranges.npy")
        self.works("calibrate", "-q", "-m", model(MINILM), "--dimensions", "19", "--output", path, *TEXTS)
        self.assertEqual({len(row) for row in self.embedded("--precision", "int8", "--dimensions", "19", "--ranges", path)}, {19})
        self.fails(1, "the shape is (2, 19), the vectors need ranges of shape (2, 384)", "embed", "-m", model(MINILM),
                   "--precision", "int8", "--ranges", path, "a")

    def test_bad_ranges(self):
        right = self.path("right.npy")
        self.works("calibrate", "-q", "-m", model(MINILM), "--output", right, *TEXTS)
        with open(right, "rb") as file:
            data = file.read()
        nan = data[:-4] + struct.pack("<f", float("nan"))
        for name, wrong, words in (
                ("empty", b"", "not a .npy file"), ("other", b"PK\3\4" + data, "not a .npy file"),
                ("cut", data[:-1], "ends before its last value"), ("long", data + b"\0", "more bytes"),
                ("header", data[:40], "header is cut"), ("version", data[:6] + b"\x09" + data[7:], "unknown version"),
                ("type", data.replace(b"<f4", b"<f8"), "not an array of two rows of float32"),
                ("order", data.replace(b"False", b"True "), "not an array of two rows"),
                ("huge", data[:6] + b"\x02\x00\xff\xff\xff\x7f" + data[10:], "longer than 4095"),
                ("nan", nan, "dimension 383")):
            path = self.path(name)
            with open(path, "wb") as file:
                file.write(wrong)
            self.fails(1, words, "embed", "-m", model(MINILM), "--precision", "int8", "--ranges", path, "a")
        self.fails(1, "No such file", "embed", "-m", model(MINILM), "--precision", "int8", "--ranges", "/none", "a")

    def test_misuse(self):
        name = model(MINILM)
        self.fails(2, "--precision int8 or uint8", "embed", "-m", name, "--ranges", "x", "a")
        self.fails(2, "needs a .npy file", "embed", "-m", name, "--precision", "float16", "a")
        self.fails(2, "int8", "embed", "-m", name, "--precision", "int3", "a")
        self.fails(2, "--precision and --ranges are not valid", "embed", "-m", name, "--sparse", "--precision", "int8", "a")
        self.fails(2, "calibrate needs --output", "calibrate", "-m", name, "a", "b")
        self.fails(1, "at least 2 texts", "calibrate", "-m", name, "--output", self.path("one"), "a")
        self.assertIn("--ranges", gpuserve("embed", "--help").out)


if __name__ == "__main__":
    main(__name__)
