#!/usr/bin/env python3
"""`gpuserve convert`: its output, its options, and what a signal leaves. The numbers are in tests/python."""
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time

from common import PROGRAM, ROOT, Case, environment, gpuserve, main, model

MODELS = os.path.join(ROOT, "tests/data/models")
MINILM = "all-MiniLM-L6-v2"


class Program(Case):
    def test_the_command(self):
        source = os.path.join(MODELS, "st-dense")
        done = self.works("convert", source, self.path("out"), "--dtype", "int8", "--json")
        facts = json.loads(done.out)
        with open(os.path.join(self.path("out"), "gpuserve-convert.json"), encoding="utf-8") as file:
            stored = json.load(file)
        for key in ("dtype", "compared", "probes", "bytes_before", "bytes_after", "tensors", "tensors_int8"):
            self.assertEqual(facts[key], stored[key], key)
        self.assertAlmostEqual(facts["cosine_min"], stored["cosine_min"], 6)
        self.fails(1, "the output exists", "convert", source, self.path("out"), "--dtype", "float16")
        text = self.works("convert", source, self.path("out"), "--dtype", "float16", "--force").out
        for word in ("cosine_mean", "cosine_min", "bytes_before", "bytes_after", "seconds"):
            self.assertIn(word, text)
        self.fails(2, "--dtype is missing", "convert", source, self.path("x"))
        self.fails(2, "convert needs a model and an output", "convert", source, "--dtype", "int8")
        self.fails(2, "tf32", "convert", source, self.path("x"), "--dtype", "tf32")
        self.assertIn("--max-shard-size", gpuserve("convert", "--help").out)

    def test_pruning(self):
        source = "random:bert-tiny"
        done = self.works("prune", source, self.path("out"), "--percent", "30", "--seconds", "0.01", "--json")
        facts = json.loads(done.out)
        self.assertEqual((facts["dtype"], facts["pruning"]), ("float32", "30 %"))
        self.assertEqual(facts["tensors_pruned"], 2 * 6)    # of two layers
        self.assertEqual(facts["pruned_values"], 2 * 12 * 128 * 128)
        # Rounded down for each matrix.
        self.assertEqual(facts["zero_values"], 2 * (4 * (128 * 128 * 30 // 100) + 2 * (4 * 128 * 128 * 30 // 100)))
        self.assertEqual(facts["bytes_after"], facts["bytes_before"])
        self.assertEqual(facts["bytes_without_zeros"],
                         facts["bytes_after"] - 4 * facts["zero_values"] + facts["pruned_values"] // 8)
        self.assertTrue(0 < facts["cosine_min"] <= facts["cosine_mean"] < 1)
        self.assertGreater(facts["texts_per_s_before"], 0)
        self.assertGreater(facts["texts_per_s_after"], 0)
        text = self.works("prune", source, self.path("half"), "--pattern", "2:4", "--dtype", "float16",
                          "--seconds", "0.01").out
        self.assertRegex(text, r"(?m)^pruning: +2:4$")
        self.fails(1, "the output exists", "prune", source, self.path("half"), "--percent", "5")
        self.fails(2, "outside 1 to 95", "prune", source, self.path("x"), "--percent", "96")
        self.fails(2, "outside 1 to 95", "prune", source, self.path("x"), "--percent", "0")
        self.fails(2, "unknown value \"1:2\"", "prune", source, self.path("x"), "--pattern", "1:2")
        self.fails(2, "--percent or --pattern is missing", "prune", source, self.path("x"))
        self.fails(2, "prune needs a model and an output", "prune", source, "--percent", "10")

    def test_a_signal_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            for delay in (0.0, 0.1, 0.3):
                child = subprocess.Popen([PROGRAM, "convert", model(MINILM), self.path("out"), "--dtype", "bfloat16"],
                                         env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                until = time.monotonic() + 60
                while not os.listdir(self.folder) and child.poll() is None and time.monotonic() < until:
                    time.sleep(0.001)
                time.sleep(delay)
                child.send_signal(number)
                child.stderr.read()
                child.stderr.close()
                code = child.wait()
                if code == 0:    # it was faster
                    shutil.rmtree(self.path("out"))
                else:
                    self.assertEqual(code, -number)
                self.assertEqual(os.listdir(self.folder), [])

    def test_what_a_killed_process_leaves_is_removed_by_the_next(self):
        child = subprocess.Popen([PROGRAM, "convert", model(MINILM), self.path("out"), "--dtype", "bfloat16"],
                                 env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while not os.listdir(self.folder) and child.poll() is None and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(0.05)
        child.kill()
        self.assertEqual(child.wait(), -signal.SIGKILL)
        left = os.listdir(self.folder)
        self.assertEqual(len(left), 1, left)
        self.assertTrue(left[0].startswith(f".out.partial-{child.pid}-"), left)
        self.works("convert", os.path.join(MODELS, "st-dense"), self.path("out"), "--dtype", "float16")
        self.assertEqual(os.listdir(self.folder), ["out"])

    def test_other_directories_stay(self):
        others = [".out.partial-1-0-old", ".out.partial-1-", ".out.partial--1", ".out.partial-x-0", ".out2.partial-1-0", ".ou.partial-1-0",
                  "out.partial-1-0"]
        for name in [*others, ".out.partial-1-0", ".out.partial-1-1"]:
            os.makedirs(os.path.join(self.folder, name, "1_Pooling"))
            with open(os.path.join(self.folder, name, "config.json"), "w", encoding="utf-8"):
                pass
        os.symlink("out2", self.path(".out.partial-1-2"))
        with open(self.path(".out.partial-1-3"), "w", encoding="utf-8"):
            pass
        used = os.open(self.path(".out.partial-1-1"), os.O_RDONLY)
        self.addCleanup(os.close, used)
        fcntl.flock(used, fcntl.LOCK_EX)
        stay = sorted([*others, ".out.partial-1-1", ".out.partial-1-2", ".out.partial-1-3", "out"])
        convert = ["convert", os.path.join(MODELS, "st-dense"), self.path("out"), "--dtype", "float16"]
        self.works(*convert)
        self.assertEqual(sorted(os.listdir(self.folder)), stay)
        fcntl.flock(used, fcntl.LOCK_UN)
        self.works(*convert, "--force")
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(set(stay) - {".out.partial-1-1"}))


if __name__ == "__main__":
    main(__name__)
