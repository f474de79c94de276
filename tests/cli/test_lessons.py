#!/usr/bin/env python3
"""The commands of docs/lessons.md at small sizes, and the outputs of `gpuserve bench --chain` and `--lstm`."""
import json
import os
import re
import shlex
import subprocess
import unittest

from common import PROGRAM, ROOT, Case, INSTRUMENTED, environment, main

EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(PROGRAM)), "examples")
SENTIMENT = os.path.join(ROOT, "share", "models", "lstm-sentiment")
REVIEWS = """text,label,source
"A wonderful film, moving and funny; the acting is superb.",1,imdb
"The best movie I have seen in years. I loved it.",1,imdb
"Boring, badly written and far too long. A waste of time.",0,imdb
"The worst film of the year: awful acting and a terrible plot.",0,imdb
"The worst film of the year: awful acting and a terrible plot.",1,elsewhere
"""
NAMES = ("--label-name", "0=negative", "--label-name", "1=positive")
TINY = "gpuserve bench --random bert-tiny --seconds 0.01 "
NO_PLUGIN = (1, "the plugin is missing")

# Each command of the page: what runs in its place, the exit status, and a part of its output. A command with
# the same words at a size that costs nothing runs as it is.
SMALL = {
    "gpuserve inspect --random bert-large --dtype float16": (None, 0, "total_bytes"),
    "build/examples/two_models_one_device": (
        "build/examples/two_models_one_device random:bert-tiny random:bert-tiny,seed=2", 0, "GPUSERVE_E_TOO_LARGE"),
    "build/examples/two_models_one_device 1:64": (
        "build/examples/two_models_one_device random:bert-tiny,seed=3 random:bert-tiny,seed=4", 0, "large answers"),
    "build/examples/two_models_one_device 1:1 cuda": (None, *NO_PLUGIN),
    "gpuserve bench MODEL --device cuda:0": (TINY + "--device cuda:0", *NO_PLUGIN),
    "gpuserve bench MODEL --device cuda:0 --stream-weights --device-budget 4G": (
        TINY + "--device cuda:0 --stream-weights --device-budget 4G", *NO_PLUGIN),
    "gpuserve bench --random layers=24,hidden=2048 --device cuda:0 --dtype fp16 --stream-weights --device-budget 2G": (None, *NO_PLUGIN),
    "gpuserve bench MODEL --device 'cuda:*' --pipeline": (TINY + "--device 'cuda:*' --pipeline", *NO_PLUGIN),
    "gpuserve bench MODEL --share 8 --plot share.svg": (TINY + "--share 2 --plot share.svg", 0, "utilization"),
    "gpuserve bench --random bert-base --share 8 --rate 5": (TINY + "--share 2 --rate 200", 0, "200.0"),
    "gpuserve doctor": (None, 0, "processor"),
    "gpuserve doctor --root /proc/1234/root": ("gpuserve doctor --root /", None, "program"),
    "gpuserve serve -m MODEL --tokens-per-second 20000 --memory-budget 4G": (
        "gpuserve serve --random bert-tiny --tokens-per-second 20000 --memory-budget 4G --check-config", 0, ""),
    "gpuserve devices --select 'cuda:*'": (None, 1, ""),
    "gpuserve bench MODEL --device 'cuda:*'": (TINY + "--device 'cuda:*'", *NO_PLUGIN),
    "mkdir -p broken/proc/driver/nvidia": (None, 0, ""),
    "echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06' > broken/proc/driver/nvidia/version": (None, 0, ""),
    "gpuserve doctor --root broken": (None, 18, "libcuda: libcuda.so.1 is in no folder of the loader\n"
                                      "remedy: install the NVIDIA driver with its CUDA library (on Debian libcuda1, on "
                                      "Ubuntu libnvidia-compute-VERSION)\n"),
    "build/examples/matmul_ladder": ("build/examples/matmul_ladder auto 33", 0, "GFLOP/s"),
    "build/examples/matmul_ladder cpu 256 1024": ("build/examples/matmul_ladder cpu 25 40", 0, "40 x 40"),
    "build/examples/matmul_ladder cuda:0 512 4096": (None, *NO_PLUGIN),
    "gpuserve bench --transfer": ("gpuserve bench --transfer --max-bytes 64KiB", 0, "from device, pageable"),
    "gpuserve bench --transfer --device cuda:0 --max-bytes 64MiB": (None, *NO_PLUGIN),
    "gpuserve bench sentence-transformers/all-MiniLM-L6-v2 --dtypes": (TINY + "--dtypes", 0, "int8"),
    "gpuserve bench MODEL --batches": (
        "gpuserve bench --random layers=1,hidden=32 --seconds 0.01 --batches", 0, "256"),
    "gpuserve prune all-MiniLM-L6-v2 minilm-30 --percent 30": (
        "gpuserve prune random:bert-tiny pruned-30 --percent 30 --seconds 0.01", 0, "cosine"),
    "gpuserve prune all-MiniLM-L6-v2 minilm-24 --pattern 2:4": (
        "gpuserve prune random:bert-tiny pruned-24 --pattern 2:4 --seconds 0.01", 0, "cosine"),
    "gpuserve bench --lstm": (None, 0, "step by step"),
    "gpuserve bench --lstm -m share/models/lstm-sentiment --input reviews.csv --where source=imdb "
    "--label-name 0=negative --label-name 1=positive": (None, 0, "accuracy"),
    "gpuserve bench --chain": (None, 0, "of the limit reached"),
    "gpuserve bench --chain --operations exp,tanh,sigmoid": (None, 0, "exp,tanh,sigmoid repeated"),
}


def page_commands():
    with open(os.path.join(ROOT, "docs", "lessons.md"), encoding="utf-8") as file:
        text = re.sub(r" *\\\n *", " ", file.read())
    found = re.findall(r"^    ((?:gpuserve |build/|mkdir |echo )\S.*)$", text, re.MULTILINE)
    return [re.sub(r"\s+# .*", "", line) for line in found]


class Page(Case):
    def run_line(self, line):
        words = {"gpuserve": PROGRAM,
                 "share/models/lstm-sentiment": SENTIMENT}
        for name, path in words.items():
            line = re.sub(r"(?<!\S)%s(?!\S)" % re.escape(name), lambda _, path=path: shlex.quote(path), line)
        line = line.replace("build/examples/", shlex.quote(EXAMPLES) + "/")
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, cwd=self.folder, timeout=300,
                              check=False, env=environment(PYTHON="/nonexistent", GPUSERVE_PLUGIN_DIR=self.folder))
        return done.returncode, done.stdout + done.stderr

    @unittest.skipIf(INSTRUMENTED, "the commands have tests of their own")
    def test_every_command(self):
        found = page_commands()
        self.assertEqual(found, list(SMALL), "docs/lessons.md and the table SMALL of this test have other commands")
        self.write("reviews.csv", REVIEWS)
        for command in found:
            small, status, words = SMALL[command]
            with self.subTest(command):
                got, text = self.run_line(small or command)
                self.assertTrue(status in (got, None), "status %d\n%s" % (got, text))
                self.assertIn(words, text)


class Lessons(Case):
    """Without Python's rows."""

    def setUp(self):
        super().setUp()
        self.env = environment(PYTHON="/nonexistent")

    def test_chain(self):
        chain = json.loads(self.works("bench", "--chain", "--operations", "sin,tanh", "--json", env=self.env).out)
        self.assertEqual((chain["steps"], chain["operations"]), (500, "sin,tanh"))
        self.assertGreater(chain["rows"][0]["seconds"], 0)
        self.assertEqual({row.get("skipped") for row in chain["rows"][1:]}, {"not installed"})
        self.assertNotIn("limit", chain)
        chain = json.loads(self.works("bench", "--chain", "--operations", "sin,sin,cos", "--device", "cpu", "--json",
                                      env=self.env).out)
        limit = chain["limit"]
        self.assertAlmostEqual(limit["multiply_adds_per_operation"], (334 * 6 + 166 * 5) / 500)
        # Each number is printed with nine digits.
        self.assertAlmostEqual(limit["seconds"] * limit["multiply_adds_per_second"] / (1e6 * (334 * 6 + 166 * 5)), 1, delta=1e-7)
        self.assertAlmostEqual(limit["share"], limit["seconds"] / chain["rows"][0]["seconds"], places=6)
        self.fails(2, 'operation 2, "sine", is unknown', "bench", "--chain", "--operations", "sin,sine")
        self.fails(2, "the list has no operations", "bench", "--chain", "--operations", "")
        self.fails(2, "more than 500 operations", "bench", "--chain", "--operations", ",".join(501 * ["sin"]))
        self.fails(2, "belongs to --chain", "bench", "--operations", "sin", "-m", "x")
        self.fails(2, "give one of them", "bench", "--chain", "--lstm")

    def test_lstm(self):
        path = self.write("reviews.csv", REVIEWS)
        options = ("bench", "--lstm", "-m", SENTIMENT, "--input", path, *NAMES, "--device", "cpu")
        lstm = json.loads(self.works(*options, "--threads", "2", "--json", env=self.env).out)
        rows = {row["path"]: row for row in lstm["rows"]}
        for name in ("CPU, SIMD, fused", "CPU, SIMD, step by step", "CPU, generic instructions, fused"):
            self.assertLess(rows[name]["difference"], 1e-5)
        for row in lstm["ratios"]:
            times = [rows[row[end]].get("seconds") for end in ("from", "to")]
            if None in times:
                self.assertNotIn("measured", row)
            else:
                self.assertAlmostEqual(row["measured"], times[0] / times[1], places=6)
        self.assertEqual([row.get("published") for row in lstm["ratios"]], [None, 2.1, None, 9.1, 18.8])
        devices = {row["path"]: row for row in lstm["devices"]}
        for name in ("CPU", "CPU, generic instructions"):    # the fifth label is wrong
            self.assertEqual((devices[name]["texts"], devices[name]["accuracy"], devices[name]["different"]), (5, 0.8, 0))
        self.fails(1, 'the model has no label "0"', "bench", "--lstm", "-m", SENTIMENT, "--input", path, env=self.env)
        self.fails(2, "needs --input", "bench", "--lstm", "-m", SENTIMENT, env=self.env)

    def test_transfer(self):
        command = ("bench", "--transfer", "--device", "cpu")
        found = json.loads(self.works(*command, "--max-bytes", "100KB", "--json").out)
        self.assertEqual(found["device"], "cpu")
        self.assertIn("device memory is host memory", found["copies"])
        # No pinned memory, and no size above 100 kB.
        self.assertEqual([(row["bytes"], row["direction"], row["memory"]) for row in found["rows"]],
                         [(kib * 1024, direction, "pageable") for kib in (4, 16, 64) for direction in ("to device", "from device")])
        for row in found["rows"]:
            self.assertGreater(row["seconds"], 0)
            self.assertAlmostEqual(row["bytes_per_s"] * row["seconds"] / row["bytes"], 1, delta=1e-6)
        text = self.works(*command, "--max-bytes", "4KiB").out
        self.assertIn("device memory is host memory", text)
        self.assertNotIn("device, pinned", text)
        self.assertRegex(text, r"\n +4 KiB +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+\n$")

    def test_transfer_refuses(self):
        transfer = ("bench", "--transfer")
        self.fails(1, "tpu", *transfer, "--device", "tpu")
        for options, word in ((("--workload", "W2"), "--workload"), (("--random", "bert-tiny"), "a model"), (("--input", "x"), "--input"),
                              (("--share", "2"), "--share"), (("--dtypes",), "--dtypes"), (("--batches",), "--batches"),
                              (("--plot", "x"), "--plot"), (("--seconds", "1"), "--seconds")):
            self.fails(2, word + " is not valid with it", *transfer, *options)
        self.fails(2, "give one of them", *transfer, "--chain")
        self.fails(2, "--max-bytes belongs to --transfer", "bench", "--chain", "--max-bytes", "1MiB")
        self.fails(2, "below the smallest copy, 4096 bytes", *transfer, "--max-bytes", "4095", "--device", "cpu")
        self.fails(2, "outside 1 to 1073741824 bytes", *transfer, "--max-bytes", "2GiB")


class Bench(Case):
    """`./dev bench lessons --quick`: benchmarks/lessons.py."""

    @unittest.skipIf(INSTRUMENTED, "the commands have tests of their own")
    def test_each_command_runs_or_has_a_reason(self):
        done = subprocess.run([os.path.join(ROOT, "benchmarks", "lessons.py"), "--program", PROGRAM, "--examples", EXAMPLES,
                               "--model", "random:bert-tiny", "--reviews", self.write("labelled.csv", REVIEWS), "--quick",
                               "--results", self.folder], capture_output=True, text=True, check=False, timeout=500,
                              env=environment(PYTHON="/nonexistent", GPUSERVE_PLUGIN_DIR=self.folder))
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr)
        [path] = [name for name in os.listdir(self.folder) if name.endswith("-lessons-quick.json")]
        with open(self.path(path), encoding="utf-8") as file:
            text = file.read()
        self.assertNotIn(ROOT + "/", text, "a folder of this machine")
        lessons = {lesson["title"]: lesson for lesson in json.loads(text)["lessons"]}
        entries = {entry["command"]: entry for lesson in lessons.values() for entry in lesson["commands"]}
        self.assertEqual(list(entries), page_commands())
        # Not here: without a plugin what needs a GPU, a server, and a container's process.
        self.assertEqual({command for command, entry in entries.items() if "not_run" in entry},
                         {command for command, (_, *expected) in SMALL.items() if tuple(expected) == NO_PLUGIN or
                          command.startswith(("gpuserve serve", "gpuserve devices", "gpuserve doctor --root /proc"))})
        for entry in entries.values():
            self.assertTrue(entry.get("figures") or entry.get("not_run") or entry["command"].startswith(("mkdir", "echo")), entry)
        chain, lstm = (entries["gpuserve bench --" + name]["figures"] for name in ("chain", "lstm"))
        self.assertGreater(chain["rows"][0]["seconds"], 0)
        self.assertEqual(lstm["ratios"][1]["published"], 2.1)
        self.assertEqual({row["side"] for row in entries["build/examples/matmul_ladder cpu 256 1024"]["figures"]["rows"]}, {25, 40})
        self.assertEqual(lessons["What does fusing elementwise operations save?"]["published"]["tables"],
                         [[["", "unfused", "fused", ""], ["published", "7.8 s", "0.15 s", "52x"]]])
        self.assertIn("7.8 s", done.stdout)
        self.assertIn("not run: this machine has no CUDA device", done.stdout)


if __name__ == "__main__":
    main(__name__)
