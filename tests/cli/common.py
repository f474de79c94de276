"""What the tests of the program share: running it, its models, reading reference data, and a
runner that prints a line a test and a last line `N passed, N failed`."""
import array
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ORACLE = os.path.join(ROOT, "tests", "data", "oracle")
PROGRAM = os.path.abspath(os.environ.get("GPUSERVE", os.path.join(ROOT, "build/cli/gpuserve")))

# Seconds for what is to happen at once: only a fault takes so long, a busy machine does not.
PATIENCE = 120

# A build with a sanitizer, where what is computed takes minutes and is in the library's tests.
INSTRUMENTED = bool(os.environ.get("GPUSERVE_TEST_INSTRUMENTED"))
# How a program ends in which the sanitizer has found something; tools/dev/sanitize.sh says so to it.
FINDING = 66
numbers = unittest.skipIf(INSTRUMENTED, "numbers of a real model")


def model(name):
    """The folder of a model; a missing one fails the test that needs it."""
    base = os.environ.get("GPUSERVE_TEST_MODELS") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpuserve/models")
    folder = os.path.join(base, name)
    if not os.path.isdir(folder):
        raise AssertionError("%s is missing: run `./dev models %s`" % (folder, name))
    return folder


def environment(**changes):
    """Ours without what would lead the program elsewhere, and with the changes."""
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("HF_", "HUGGINGFACE_", "OTEL_")) and not k.lower().endswith("_proxy")}
    kept.setdefault("GPUSERVE_WEIGHTS_CACHE", "off")
    kept.update(changes)
    return kept


def gpuserve(*arguments, stdin=b"", env=None, timeout=1200 if INSTRUMENTED else 300):
    """Run the program; the result has returncode, out (text), err (text)."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    done = subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True,
                          env=env or environment(), timeout=timeout, check=False)
    done.out, done.err = done.stdout.decode(), done.stderr.decode("utf-8", "replace")
    return done


def wait_until(condition, what="it does not happen"):
    """For what is to happen soon, whenever that is on this machine."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def lines(text):
    """JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def oracle_texts():
    with open(os.path.join(ORACLE, "texts.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


TYPES = {"F32": "f", "F64": "d", "I32": "i", "I64": "q", "U32": "I"}


def safetensors(path):
    """Tensors as (shape, array)."""
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header, data = json.loads(file.read(size)), file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            tensors[name] = entry
            continue
        values = array.array(TYPES[entry["dtype"]])
        values.frombytes(data[entry["data_offsets"][0]:entry["data_offsets"][1]])
        tensors[name] = (entry["shape"], values)
    return tensors


def npy(path):
    """A float32 .npy file as (shape, array); read by the letter of the format."""
    with open(path, "rb") as file:
        assert file.read(8) == b"\x93NUMPY\x01\x00"
        size = struct.unpack("<H", file.read(2))[0]
        assert (size + 10) % 64 == 0
        header = eval(file.read(size).decode("latin1"), {"__builtins__": {}})  # a Python literal
        data = file.read()
    assert header["descr"] == "<f4" and header["fortran_order"] is False
    values = array.array("f")
    values.frombytes(data)
    return header["shape"], values


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gpuserve-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return self.path(name)

    def works(self, *arguments, **options):
        done = gpuserve(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.err)
        return done

    def fails(self, code, message, *arguments, **options):
        done = gpuserve(*arguments, **options)
        self.assertEqual(done.returncode, code, done.out[-300:] + done.err)
        self.assertIn(message, done.err)
        return done


class LineResult(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.good = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.good += 1
        print("ok    ", test.id(), flush=True)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        print("FAILED", test.id(), "\n" + self.failures[-1][1], flush=True)

    def addError(self, test, err):
        super().addError(test, err)
        print("FAILED", test.id(), "\n" + self.errors[-1][1], flush=True)

    def addSubTest(self, test, subtest, err):
        n_failures, n_errors = len(self.failures), len(self.errors)
        super().addSubTest(test, subtest, err)
        for _, text in self.failures[n_failures:] + self.errors[n_errors:]:
            print("FAILED", subtest.id(), "\n" + text, flush=True)


def main(module):
    loader = unittest.TestLoader()
    names = sys.argv[1:]
    suite = loader.loadTestsFromNames(names, sys.modules[module]) if names else \
        loader.loadTestsFromModule(sys.modules[module])
    result = LineResult()
    result.failfast = bool(os.environ.get("GPUSERVE_TEST_FAIL_FAST"))
    suite.run(result)
    bad = len(result.failures) + len(result.errors)
    print("%d passed, %d failed" % (result.good, bad))
    sys.exit(1 if bad or not result.good else 0)
