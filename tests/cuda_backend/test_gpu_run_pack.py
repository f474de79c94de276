#!/usr/bin/env python3
"""benchmarks/gpu/run.sh makes a pack on this machine, and runs it on the emulator with no compiler in PATH."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = ROOT / "benchmarks" / "gpu" / "run.sh"
TOOLS = ("sh bash python3 mktemp rm mkdir date cat tail head sed grep timeout cut cp ln ls tr xargs sort nproc dirname basename "
         "chmod env du sleep git tar gzip").split()
STAGES = ["environment", "use_pack", "kernel_tests", "checks", "probe", "oracle", "outputs", "encoder", "chain", "lstm", "backends", "transfer", "http",
          "random", "cudnn"]


def run(*arguments, **variables):
    return subprocess.run([RUN, *arguments], env={**os.environ, "BUILD": BUILD, **variables}, capture_output=True, text=True,
                          timeout=400, check=False)


def tools_without_compilers(folder):
    """A PATH of links to what a run of a pack may use."""
    os.mkdir(folder)
    for name in TOOLS:
        os.symlink(sys.executable if name == "python3" else shutil.which(name), f"{folder}/{name}")
    return folder


class Pack(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def test_runs_without_compilers(self):
        pack, out = f"{self.folder}/pack", f"{self.folder}/out"
        made = run("--pack", pack, "--dry")
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        self.assertEqual(os.listdir(pack), ["pack.tar.gz"])
        done = run("--prebuilt", pack, "--dry", PATH=tools_without_compilers(f"{self.folder}/tools"), OUT=out, BUILD="/nonexistent",
                   MODEL="/nonexistent", PYTHONPATH=str(pathlib.Path(numpy.__file__).parents[1]))
        [results] = pathlib.Path(out).iterdir()
        lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
        ended = {line["stage"]: line.get("failed", 0) for line in lines if "seconds" in line}
        self.assertEqual(ended, dict.fromkeys(STAGES, 0), done.stdout + done.stderr)
        # The emulator's NVRTC is the compiler of this machine: without one chains are interpreted.
        checked = [line for line in lines if "ok" in line and line["stage"] != "chain_cache"]
        self.assertGreater(len(checked), 10)
        self.assertGreater(len([line for line in checked if line["stage"] == "outputs"]), 10)
        self.assertEqual([line for line in checked if not line["ok"]], [])

    def test_a_pack_has_a_limit(self):
        made = run("--pack", f"{self.folder}/pack", "--dry", PACK_MIB="0")
        self.assertNotEqual(made.returncode, 0, made.stdout)
        self.assertRegex(made.stdout, r"the pack has \d+ MiB, the limit is 0")

    def test_bad_arguments_are_named(self):
        for arguments, word in ((["--prebuilt", self.folder], "holds no pack"), (["--pack"], "--pack needs a value"),
                                (["--fast"], "unknown option --fast")):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
