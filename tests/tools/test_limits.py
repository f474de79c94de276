#!/usr/bin/env python3
"""tools/limits itself: it finds every kind of check, and what it switches off is off.

Each function below is a way to refuse that the library uses. A finder that missed one would call the
code well tested that no test looks at.
"""
import os
import struct
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "limits"), str(ROOT / "tests" / "cli")]

import cache_keys                                             # noqa: E402
import kernel_faults                                          # noqa: E402
from cases import cases_in                                    # noqa: E402
from checks import find_checks, sources, write_switchable    # noqa: E402
from common import main                                       # noqa: E402
from run import chosen                                        # noqa: E402

SAMPLE = r"""
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
typedef int gpuserve_status;
enum { GPUSERVE_OK, GPUSERVE_E_INVALID, GPUSERVE_E_NOMEM };
#define MAX_SIZE 8 /* if (this) is no code, nor "is ( this" */

static gpuserve_status gsv_fail(void *error, gpuserve_status status, const char *format, ...)
{
    (void)error, (void)format;
    return status;
}

/* always refuses, and so is a refusal itself */
static gpuserve_status broken(int at)
{
    return gsv_fail(NULL, GPUSERVE_E_INVALID, "byte %d", at);
}

static bool is_even(int n)
{
    if (n < 0)
        return false;
    return n % 2 == 0 && n != 100;
}

gpuserve_status each_operand(int a, int b)
{
    if (a > 5 || (b > 5 || !(b > -5)))
        return gsv_fail(NULL, GPUSERVE_E_INVALID, "too far");
    if (!malloc(1))
        return gsv_fail(NULL, GPUSERVE_E_NOMEM, "of the machine, not of the input");
    return GPUSERVE_OK;
}

gpuserve_status by_question_mark(int a)
{
    return a < 3 ? GPUSERVE_OK : broken(a);
}

gpuserve_status in_a_block(int a)
{
    gpuserve_status st = GPUSERVE_OK;

    for (int i = 0; i < 2; i++) {
        if (a == i) {
            puts("");
            st = broken(a);
        }
    }
    return st;
}

gpuserve_status asks(int n)
{
    if (!is_even(n))
        return broken(n);
    return GPUSERVE_OK;
}

gpuserve_status falls_through(int n)
{
    for (int i = 0; i < 3; i++)
        if (i == n)
            return GPUSERVE_OK;
    return broken(n);
}

int clamps(int n)
{
    if (n > MAX_SIZE)
        n = MAX_SIZE;
    return n;
}

int main(int argc, char **argv)
{
    const int a = atoi(argv[argc - 1]);

    printf("%d %d %d %d %d %d\n", each_operand(a, 0), by_question_mark(a), in_a_block(a), asks(a),
           falls_through(a), clamps(a));
    return 0;
}
"""
FOUND = [
    ("is_even", "n < 0"), ("is_even", "n % 2 == 0"), ("is_even", "n != 100"),
    ("each_operand", "a > 5"), ("each_operand", "b > 5"), ("each_operand", "b > -5"),
    ("by_question_mark", "a < 3"), ("in_a_block", "a == i"), ("asks", "!is_even(n)"),
    ("falls_through", "broken(n)"), ("clamps", "n > MAX_SIZE"),
]


SCRIPT = """
class Asking(Served):
    def ask(self): pass
class Rows(Asking):
    def setUp(self): pass
    def test_one(self): pass
    def test_two(self): pass
class More(Rows):
    def test_two(self): pass
    def test_three(self): pass
"""


class Choice(unittest.TestCase):
    """What is switched off, and what runs."""

    def test_cases_of_a_script(self):
        self.assertEqual(cases_in(SCRIPT), ["Rows.test_one", "Rows.test_two", "More.test_one", "More.test_two",
                                            "More.test_three"])

    def test_paths_lines_and_earlier_runs(self):
        checks = [types.SimpleNamespace(path=path, line=line, function=function, text=text)
                  for path, line, function, text in (("lib/a.c", 3, "f", "x > 1"), ("lib/a.c", 30, "g", "x > 1"),
                                                     ("lib/b.c", 3, "f", "y: z"))]

        def numbers(*only, again=None):
            return chosen(checks, types.SimpleNamespace(only=only, again=again, sample=0))

        self.assertEqual(numbers(), [0, 1, 2])
        self.assertEqual(numbers("lib/a"), [0, 1])
        self.assertEqual(numbers("lib/a.c:3", "lib/b.c"), [0, 2])
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "log")
            log.write_text("lib/a.c    1 noticed   2 unnoticed\nunnoticed: lib/a.c:7 in g(): x > 1\n"
                           "unnoticed, not run to the end: lib/b.c:9 in f(): y: z\n1 noticed, 2 unnoticed\n", "utf-8")
            self.assertEqual(numbers(again=log), [1, 2])    # wherever they stand by now
            self.assertEqual(numbers("lib/b.c", again=log), [2])


class Mutations(unittest.TestCase):
    """./dev limits keys and ./dev limits kernels, which run before a release, change what the sources have."""

    def test_each_mutation_is_of_one_place(self):
        some = [*cache_keys.mutations(), *kernel_faults.faults()]
        self.assertEqual(cache_keys.unclear(some), [])
        self.assertGreater(len(some), 150)
        for key, member, path, old, new, _ in some:
            self.assertNotEqual(old, new, (key, member, path))
        key, member, path, old, new, tests = some[0]
        self.assertEqual(len(cache_keys.unclear([(key, member, path, old + "?", new, tests)])), 1)


class Limits(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        (self.root / "x.c").write_text(SAMPLE, "utf-8")
        self.checks = find_checks(self.root, ["x.c"])

    def tearDown(self):
        self.folder.cleanup()

    def number(self, function, text):
        return FOUND.index((function, text))

    def test_each_kind_is_found(self):
        self.assertEqual([(check.function, check.text) for check in self.checks], FOUND)
        lines = SAMPLE.split("\n")
        for check in self.checks:
            self.assertIn(check.text, lines[check.line - 1])

    def test_a_check_that_is_switched_off_is_off_and_the_others_are_on(self):
        write_switchable(self.root, self.checks)
        program = self.root / "x"
        subprocess.run(["cc", self.root / "x.c", ROOT / "tools/limits/switch.c", "-o", program],
                       check=True)
        page = self.root / "page"

        def run(argument, off):
            page.write_bytes(struct.pack("i", off) + bytes(len(FOUND)))
            done = subprocess.run([program, str(argument)], check=True, stdout=subprocess.PIPE,
                                  env={**os.environ, "GPUSERVE_CHECKS": str(page)})
            met = [FOUND[i] for i, byte in enumerate(page.read_bytes()[4:]) if byte]
            return [int(word) for word in done.stdout.split()], met

        self.assertEqual(run(2, -1), ([0, 0, 0, 0, 0, 2], []))
        refused, met = run(9, -1)
        self.assertEqual(refused, [1, 1, 0, 1, 1, 8])
        self.assertEqual(met, [("is_even", "n % 2 == 0"), ("each_operand", "a > 5"),
                               ("by_question_mark", "a < 3"), ("asks", "!is_even(n)"),
                               ("falls_through", "broken(n)"), ("clamps", "n > MAX_SIZE")])
        for i, off in enumerate([("each_operand", "a > 5"), ("by_question_mark", "a < 3"), None,
                                 ("asks", "!is_even(n)"), ("falls_through", "broken(n)"),
                                 ("clamps", "n > MAX_SIZE")]):
            if off:
                expected = list(refused)
                expected[i] = 9 if i == 5 else 0
                self.assertEqual(run(9, self.number(*off))[0], expected, off)
        self.assertEqual(run(9, self.number("is_even", "n % 2 == 0"))[0][3], 0)
        self.assertEqual(run(100, self.number("is_even", "n != 100"))[0][3], 0)
        self.assertEqual(run(1, self.number("in_a_block", "a == i"))[0][2], 0)
        # without a page, as when a test does not hand it on, every check acts
        done = subprocess.run([program, "9"], check=True, stdout=subprocess.PIPE)
        self.assertEqual(done.stdout.split(), b"1 1 0 1 1 8".split())

    def test_the_library_s_own_are_found(self):
        """Some of those that must never get lost, in each part that reads what comes from outside."""
        checks = {(check.path, check.function, check.text) for check in find_checks(ROOT, sources(ROOT))}
        for one in [("lib/model/formats/safetensors.c", "read_header", "header_size > MAX_HEADER_BYTES"),
                    ("lib/model/formats/safetensors.c", "check_cover", "e->begin != at"),
                    ("lib/base/json_tree.c", "gsv_json_check_limits", "++depth > limits.max_depth"),
                    ("lib/base/dir.c", "open_own", "!name_stays_inside(name)"),
                    ("lib/text/encode.c", "check_text", "valid < size"),
                    ("lib/http/net/framing.c", "take_length", "++header->n_lengths > 1"),
                    ("lib/http/protocol/content_coding.c", "inflate_all", "capacity == 0"),
                    ("lib/http/protocol/api_keys.c", "gsv_keys_admit", "!known")]:
            self.assertIn(one, checks)
        self.assertGreater(len(checks), 600)


if __name__ == "__main__":
    main(__name__)
