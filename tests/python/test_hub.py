#!/usr/bin/env python3
"""Models that are fetched at first use, from a stand-in for the hub.

`./dev wheel` runs this file with an installed wheel in a clean environment too: it needs the standard library, the
package and tests/cli only.
"""
import contextlib
import io
import os
import subprocess
import sys
import sysconfig

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from common import Case, main, model  # noqa: E402
from hub import Hub  # noqa: E402

import gpuserve  # noqa: E402
from gpuserve.errors import DownloadError, LibraryError, NotFoundError  # noqa: E402

NAME = "org/tiny"
TEXTS = ["A man is eating food.", "A man is eating a piece of bread."]
# Not set: the program is that of the wheel.
PROGRAM = os.environ.get("GPUSERVE_PROGRAM")


def model_files():
    folder, found = model("all-MiniLM-L6-v2"), {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


FILES = model_files()


class FirstUse(Case):
    def setUp(self):
        super().setUp()
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        for name in [name for name in os.environ if name.startswith("HF_") or name.lower().endswith("_proxy")]:
            del os.environ[name]
        self.hub = Hub(FILES, NAME)
        self.addCleanup(self.hub.close)
        os.environ.update(HF_HOME=self.folder, HF_ENDPOINT=self.hub.url)
        self.shown = io.StringIO()
        quiet = contextlib.redirect_stderr(self.shown)
        quiet.__enter__()
        self.addCleanup(quiet.__exit__, None, None, None)

    def paths(self):
        return [path for _, path, _, _ in self.hub.requests]

    def test_the_model_comes_at_first_use(self):
        with gpuserve.Model(NAME, device="cpu") as opened:
            vectors = opened.encode(TEXTS)
        self.assertAlmostEqual(float(vectors[0] @ vectors[1]), 0.755, places=3)
        self.assertTrue([path for path in self.paths() if path.endswith("/model.safetensors")])
        self.assertIn(NAME, self.shown.getvalue())
        self.hub.requests.clear()
        with gpuserve.Model(NAME, device="cpu") as opened:
            self.assertEqual(opened.encode("again").shape, (384,))
        self.assertEqual(self.hub.requests, [], "the second time nothing is asked")

    def test_a_revision(self):
        with gpuserve.Model(NAME + "@refs/pr/1", device="cpu") as opened:
            self.assertEqual(opened.dim, 384)
        self.assertIn("/api/models/org/tiny/revision/refs%2Fpr%2F1?blobs=true", self.paths())

    def test_the_cache_of_a_context(self):
        cache = self.path("elsewhere")
        with gpuserve.Context(cache_dir=cache) as context, gpuserve.Model(NAME, device="cpu", context=context) as opened:
            self.assertEqual(opened.dim, 384)
        self.assertEqual(os.listdir(cache), ["models--org--tiny"])

    def test_pull(self):
        folder = gpuserve.pull(NAME)
        self.assertTrue(os.path.isfile(os.path.join(folder, "model.safetensors")))
        self.assertEqual(gpuserve.pull(NAME), folder)

    def test_no_bar_where_it_is_not_wanted(self):
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
        gpuserve.pull(NAME)
        self.assertEqual(self.shown.getvalue(), "")

    def test_without_a_network(self):
        os.environ["HF_ENDPOINT"] = "http://127.0.0.1:1"
        with self.assertRaisesRegex(DownloadError, "http://127.0.0.1:1: org/tiny: ") as caught:
            gpuserve.Model(NAME)
        self.assertIn("check the network", caught.exception.hint)

    def test_a_model_that_is_not_there(self):
        with self.assertRaisesRegex(DownloadError, "status 404"):
            gpuserve.Model("org/other")

    def test_offline(self):
        for variable in ("HF_HUB_OFFLINE", "GPUSERVE_OFFLINE"):
            os.environ[variable] = "1"
            with self.assertRaisesRegex(NotFoundError, f"not in the cache, and {variable} is set"):
                gpuserve.Model(NAME)
            del os.environ[variable]
        self.assertEqual(self.hub.requests, [])

    def test_what_is_no_name_is_not_asked_for(self):
        for path in ("/nowhere/at/all", "./org/tiny", "nowhere", "a/b/c", "org/tiny@../x"):
            with self.assertRaises(gpuserve.GpuserveError):
                gpuserve.Model(path)
        self.assertEqual(self.hub.requests, [])

    if PROGRAM:
        def test_without_the_program(self):
            del os.environ["GPUSERVE_PROGRAM"]
            os.environ["PATH"] = "/nowhere"
            with self.assertRaises(NotFoundError):
                gpuserve.Model(NAME)
            with self.assertRaisesRegex(LibraryError, "the program gpuserve is missing"):
                gpuserve.pull(NAME)
    else:
        def test_the_program_of_the_wheel(self):
            program = os.path.join(sysconfig.get_path("scripts"), "gpuserve")

            def run(*arguments):
                return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout

            self.assertTrue(os.path.isfile(os.path.join(run("pull", NAME).strip(), "model.safetensors")))
            self.assertEqual(len(run("embed", NAME, "a text").splitlines()), 1)
            self.assertIn(gpuserve.__version__, run("--version"))


if __name__ == "__main__":
    main(__name__)
