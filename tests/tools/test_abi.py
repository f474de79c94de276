#!/usr/bin/env python3
"""tools/abi.py on copies of the headers: it finds each kind of change of the binary interface."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPIED = ("include", "lib/libgpuserve.map", "lib/http/libgpuserve-http.map", "lib/base/generated/min_sizes.h", "meson.build", "packaging/abi",
          "tools/abi.py")


class Abi(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in COPIED:
            to = self.root / name
            to.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, to)

    def change(self, name, before, after):
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        self.assertIn(before, text)
        path.write_text(text.replace(before, after, 1), encoding="utf-8")

    def abi(self, what):
        return subprocess.run([sys.executable, str(self.root / "tools/abi.py"), what], capture_output=True, text=True, check=False)

    def assert_found(self, *words):
        done = self.abi("check")
        self.assertEqual(done.returncode, 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stdout)

    def test_this_tree(self):
        done = self.abi("check")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_a_number(self):
        self.change("include/gpuserve/types.h", "GPUSERVE_DTYPE_INT8 = 5", "GPUSERVE_DTYPE_INT8 = 6")
        self.assert_found("GPUSERVE_DTYPE_INT8", "from value '5' to '6'")

    def test_a_field(self):
        self.change("include/gpuserve/run.h", "uint32_t no_special;", "uint64_t no_special;")
        self.assert_found("gpuserve_tokenize_options::no_special", "type size changed from 128 to 192")

    def test_a_parameter(self):
        self.change("include/gpuserve/retrieval.h", "gpuserve_dot(const float *a, const float *b, size_t n)",
                    "gpuserve_dot(const float *a, const float *b, uint32_t n)")
        self.assert_found("parameter 3", "size_t to uint32_t")

    def test_a_function_that_is_gone(self):
        self.change("include/gpuserve/http.h", "GPUSERVE_API void gpuserve_http_stop(gpuserve_http **server);", "")
        self.assert_found("1 Removed function", "gpuserve_http_stop")

    def test_a_shorter_struct_is_named_without_the_dump(self):
        self.change("include/gpuserve/model.h", "uint32_t    allow;", "")
        self.change("include/gpuserve/model.h", "const char *fingerprint;", "uint32_t fingerprint;")
        self.assert_found("gpuserve_swap_options has 8 bytes, the least size in it is 16")

    def test_sizes_of_a_release_are_kept(self):
        before = (self.root / "lib/base/generated/min_sizes.h").read_text(encoding="utf-8")
        self.change("include/gpuserve/run.h", "    uint32_t truncation;  /**< gpuserve_truncation */\n} gpuserve_tokenize_options;",
                    "    uint32_t truncation;\n    uint64_t later;\n} gpuserve_tokenize_options;")
        self.change("meson.build", "version: '0.2.0'", "version: '0.3.0'")
        for _ in range(2):
            self.assertEqual(self.abi("write").returncode, 0)
            self.assertEqual((self.root / "lib/base/generated/min_sizes.h").read_text(encoding="utf-8"), before)
            self.assertEqual(self.abi("check").returncode, 0)

    def test_sizes_before_a_release_are_renewed(self):
        self.change("include/gpuserve/run.h", "    uint32_t truncation;  /**< gpuserve_truncation */\n} gpuserve_tokenize_options;",
                    "    uint32_t truncation;\n    uint64_t later;\n} gpuserve_tokenize_options;")
        self.assertEqual(self.abi("write").returncode, 0)
        self.assertIn('"gpuserve_tokenize_options", 24', (self.root / "lib/base/generated/min_sizes.h").read_text(encoding="utf-8"))


def main():
    if not shutil.which("abidiff"):
        print("no abidiff: apt-get install abigail-tools")
        return 77
    if os.uname().machine != "x86_64":
        print("the dumps are of x86-64")
        return 77
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromTestCase(Abi))
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
