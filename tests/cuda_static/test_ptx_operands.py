#!/usr/bin/env python3
"""The inline PTX of ptx.cuh and ptx_hopper.cuh has the operands that ptx.txt says, in its order.

The emulator has functions of its own in place of these, so no other test sees a wrong register, a lost "volatile" or a
lost clobber of memory. ptx.txt was written from the PTX ISA: for each function the flags of its asm statement (v: volatile,
m: clobbers memory), and the instruction with the C expressions in place of %0, %1, ...
"""
import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = [HERE.parents[1] / "kernels" / "cuda" / "ops" / name for name in ("ptx.cuh", "ptx_hopper.cuh")]
TABLE = HERE / "ptx.txt"
FUNCTION = re.compile(r"__forceinline__ \w+ (gsv_\w+)\([^;{}]*\)\s*\{(.*?)\n\}", re.S)
ASM = re.compile(r"\basm( volatile)?\((.*?)\);(?=\n|$)", re.S)


def split_top(text, separator):
    """`text` at the separators that are in no parentheses and no string."""
    parts, depth, quoted, begin = [], 0, False, 0
    for i, c in enumerate(text):
        if c == '"':
            quoted = not quoted
        elif not quoted:
            depth += (c in "([") - (c in ")]")
            if c == separator and depth == 0:
                parts.append(text[begin:i])
                begin = i + 1
    return [*parts, text[begin:]]


def operands(section):
    """(constraint, expression) of each operand of a section."""
    return re.findall(r'"([^"]*)"\((.*)\)\s*$', "\n".join(part.strip().replace("\n", " ") for part in split_top(section, ",")), re.M)


def statement(is_volatile, text):
    """Flags and instruction of an asm statement, its operands in place of their numbers."""
    template, *sections = split_top(text, ":")
    sections += [""] * (3 - len(sections))
    words = "".join(re.findall(r'"([^"]*)"', template))
    given = operands(sections[0]) + operands(sections[1])
    inputs = len(operands(sections[0]))
    for i, (constraint, _) in enumerate(given):
        assert constraint.startswith(("=", "+")) == (i < inputs), text
    words = re.sub(r"%(\d+)", lambda found: "{}:{}".format(given[int(found.group(1))][0].strip("=+"), given[int(found.group(1))][1]), words)
    return ("v" if is_volatile else "-") + ("m" if '"memory"' in sections[2] else "-") + " " + " ".join(words.split())


def statements(source):
    """A line for each asm statement: function, flags, instruction."""
    return [f"{name} {statement(*found)}" for name, body in FUNCTION.findall(source) for found in ASM.findall(body)]


def table():
    return [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


class Operands(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.source = "".join(path.read_text(encoding="utf-8") for path in SOURCES)

    def test_operands(self):
        self.assertEqual(statements(self.source), table())
        self.assertEqual(len(table()), len(re.findall(r"\basm\b", self.source)))

    def test_each_change_is_seen(self):
        """Two neighbours exchanged, another index, no volatile, no clobber: each alone differs from the table."""
        changes = []
        for found in re.finditer(r'("[=+]?[rfl]"\(\w+\[\d\]\)), ("[=+]?[rfl]"\(\w+\[\d\]\))', self.source):
            changes.append((found, f"{found.group(2)}, {found.group(1)}"))
        changes += [(found, "asm(") for found in re.finditer(r"asm volatile\(", self.source)]
        changes += [(found, "") for found in re.finditer(r'::? ?"memory"', self.source)]
        changes += [(found, f"%{int(found.group(1)) ^ 1}") for found in re.finditer(r"%(\d)(?=.*%)", self.source)]
        self.assertGreater(len(changes), 60)
        for found, instead in changes:
            with self.subTest(self.source[found.start():found.end()]):
                self.assertNotEqual(self.try_statements(self.source[:found.start()] + instead + self.source[found.end():]), table())

    @staticmethod
    def try_statements(source):
        try:
            return statements(source)
        except (AssertionError, IndexError):
            return None


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    n_wrong = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - n_wrong} passed, {n_wrong} failed")
    sys.exit(1 if n_wrong else 0)
