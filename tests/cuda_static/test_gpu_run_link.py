#!/usr/bin/env python3
"""benchmarks/gpu/run.sh links and loads on a machine without a GPU what it measures on one, and goes on after a failure."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = ROOT / "benchmarks" / "gpu" / "run.sh"
STAGES = ["environment", "build_base", "build_plugin", "build_tests", "build_encoder", "build_probes", "load"]


def run(**variables):
    """The exit status, and the stages' lines of the results file, all of which are on standard output too."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([RUN, "--link"], env={**os.environ, "BUILD": BUILD, "OUT": folder, **variables},
                              capture_output=True, text=True, timeout=500, check=False)
        [results] = pathlib.Path(folder).iterdir()
        lines = results.read_text(encoding="utf-8").splitlines()
    shown = done.stdout.splitlines()
    missing = [line for line in lines if line not in shown]
    assert not missing, missing
    ended = [line for line in map(json.loads, lines) if "seconds" in line]
    return done, {line["stage"]: line.get("failed", 0) for line in ended}


class Link(unittest.TestCase):
    maxDiff = None

    def test_links_and_loads(self):
        done, stages = run()
        self.assertEqual(stages, dict.fromkeys(STAGES, 0), done.stdout + done.stderr)
        self.assertEqual(done.returncode, 0)

    def test_a_failed_stage_does_not_end_the_others(self):
        done, stages = run(NVCC="false")
        self.assertEqual(list(stages), STAGES, done.stdout + done.stderr)
        self.assertEqual([name for name, failed in stages.items() if failed], ["build_plugin", "build_probes", "load"])
        self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
