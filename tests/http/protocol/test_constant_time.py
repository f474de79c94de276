"""The comparison of API keys takes constant time (T14).

Valgrind's memcheck treats the keys' bytes as undefined (tests/http/protocol/constant_time.c); then each branch
and each address that depends on them is one of its errors. Comparisons that do depend must be found.
Exits 77, which means "not run", where there is no valgrind.
"""
import os
import shutil
import subprocess
import sys
import unittest

FOUND = 99
REPORT = "epends on uninitialised value"


def run(name, *before):
    return subprocess.run([*before, os.environ["GPUSERVE_KEYS_" + name]], capture_output=True, text=True, check=False)


def memcheck(name):
    return run(name, "valgrind", "--error-exitcode=%d" % FOUND)


class ConstantTime(unittest.TestCase):
    def test_all_find_the_keys(self):
        """Outside valgrind the three programs do the same."""
        for name in ("FIND", "MEMCMP", "UNTIL"):
            done = run(name)
            self.assertEqual((done.returncode, done.stdout), (0, "without valgrind, all found\n"), name)

    def test_the_servers_own(self):
        done = memcheck("FIND")
        self.assertEqual((done.returncode, done.stdout), (0, "on valgrind, all found\n"), done.stderr)
        self.assertIn("ERROR SUMMARY: 0 errors", done.stderr)

    def test_comparisons_that_end_early_are_reported(self):
        for name in ("MEMCMP", "UNTIL"):
            done = memcheck(name)
            self.assertEqual(done.returncode, FOUND, (name, done.stderr))
            self.assertIn(REPORT, done.stderr)
            self.assertIn(": gsv_keys_find (", done.stderr)


if __name__ == "__main__":
    if not shutil.which("valgrind"):
        print("there is no valgrind: nothing was tried", file=sys.stderr)
        sys.exit(77)
    if run("FIND").returncode == 77:
        print("built without valgrind/memcheck.h: nothing was tried", file=sys.stderr)
        sys.exit(77)
    unittest.main()
