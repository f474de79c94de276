#!/usr/bin/env python3
"""The aarch64 program under QEMU: the instruction set chosen on processors of each kind, and vectors equal
to those of this machine's program (GPUSERVE_NATIVE).

QEMU_CPU names the processor that QEMU emulates. MESON_EXE_WRAPPER is the command that runs the program.
"""
import json
import os
import shlex
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import common  # noqa: E402

PROGRAM = sys.argv.pop(1)
WRAPPER = shlex.split(os.environ["MESON_EXE_WRAPPER"])
NATIVE = os.environ.get("GPUSERVE_NATIVE")
ISAS = ("generic", "neon", "neon_dotprod", "neon_i8mm", "neon_bf16")
FIXTURES = os.path.join(common.ROOT, "tests", "data", "models")
MODELS = [common.model("all-MiniLM-L6-v2")] + [
    os.path.join(FIXTURES, name) for name in ("embeddinggemma", "st-newer", "st-weighted-layers", "st-xlm-roberta")]
SMALL = MODELS[2]
TEXTS = ["a dog", "She baked a cake, \u00e4nd ate it.", "\u6f22\u8a9e \U0001F600", "word " * 60]
LARGEST = 1e-6  # of one element of a float32 vector of length 1


def run(command, *arguments, **changes):
    done = subprocess.run([*command, *arguments], input="\n".join(TEXTS), capture_output=True, text=True,
                          env=common.environment(**changes), timeout=300, check=False)
    if done.returncode != 0:
        raise AssertionError("%s: %s" % (command, done.stderr))
    return done.stdout


def emulated(cpu, *arguments, **changes):
    """The program on an emulated processor; the wrapper's own -cpu, which would win over QEMU_CPU, is replaced."""
    command = list(WRAPPER)
    command[command.index("-cpu") + 1] = cpu
    return run([*command, PROGRAM], *arguments, **changes)


def isa(cpu, **changes):
    return json.loads(emulated(cpu, "devices", "--json", **changes))["devices"][0]["isa"]


def embed(runner, folder, dtype):
    output = runner("embed", "-m", folder, "--dtype", dtype, "--device", "cpu", "--format", "json", "-i", "-")
    return [json.loads(line) for line in output.splitlines()]


def vectors(rows):
    return [row["embedding"] if isinstance(row, dict) else row for row in rows]


class Processors(unittest.TestCase):
    """A processor without an extension gets no instruction of it: the program answers, by the right table."""

    def test_the_best_table_of_each_processor_is_chosen(self):
        for cpu, best in (("cortex-a72", "neon"), ("neoverse-n1", "neon_dotprod"), ("max", "neon_bf16")):
            with self.subTest(cpu=cpu):
                self.assertEqual(isa(cpu), best)

    def test_the_environment_limits_it(self):
        for name in ISAS:
            with self.subTest(isa=name):
                self.assertEqual(isa("max", GPUSERVE_MAX_ISA=name), name)
        self.assertEqual(isa("cortex-a72", GPUSERVE_MAX_ISA="neon_i8mm"), "neon")

    def test_older_processors_compute(self):
        for cpu in ("cortex-a72", "neoverse-n1"):
            for dtype in ("float32", "int8"):
                with self.subTest(cpu=cpu, dtype=dtype):
                    rows = embed(lambda *words: emulated(cpu, *words), SMALL, dtype)
                    self.assertEqual(len(rows), len(TEXTS))


@unittest.skipUnless(NATIVE, "GPUSERVE_NATIVE names no program of this machine")
class Results(unittest.TestCase):
    def compare(self, folder, name):
        here = vectors(embed(lambda *words: run([NATIVE], *words), folder, "float32"))
        there = vectors(embed(lambda *words: emulated("max", *words, GPUSERVE_MAX_ISA=name), folder, "float32"))
        difference = max(abs(a - b) for x, y in zip(here, there, strict=True) for a, b in zip(x, y, strict=True))
        print("%s, %s: %.2g" % (os.path.basename(folder), name, difference))
        self.assertLessEqual(difference, LARGEST)

    def test_float32_vectors_equal_those_of_this_machine(self):
        for folder in MODELS:
            for name in ISAS:
                with self.subTest(model=os.path.basename(folder), isa=name):
                    self.compare(folder, name)


if __name__ == "__main__":
    common.main(__name__)
