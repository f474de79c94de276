#!/usr/bin/env python3
"""Random models in every command, and the tables of `gpuserve bench`, which need no model files."""
import json
import os
import re
import subprocess
import unittest
import urllib.request
import xml.etree.ElementTree as ET

from common import PROGRAM, Case, INSTRUMENTED, environment, gpuserve, main

TINY = "bert-tiny,seed=1"


class Random(Case):
    def test_the_footprint_is_told_before_anything_is_loaded(self):
        done = self.works("inspect", "--random", "bert-large", "--dtype", "float16", "--json")
        facts = json.loads(done.out)
        self.assertEqual(facts["parameters"], 334092288)
        self.assertEqual(facts["weights_format"], "random")
        # Two bytes for each weight of a matrix or table, four for biases and norms.
        self.assertGreater(facts["footprint"]["weights_bytes"], 2 * facts["parameters"])
        self.assertLess(facts["footprint"]["weights_bytes"], 2.4 * facts["parameters"])
        huge = json.loads(self.works("inspect", "--random", "layers=512,hidden=16384", "--json").out)
        self.assertFalse(huge["footprint"]["fits"])
        self.assertEqual(huge["footprint"]["max_batch_tokens"], 0)

    def test_a_seed_gives_the_same_vectors(self):
        first, again = (self.works("embed", "--random", TINY, "a text").out for _ in range(2))
        self.assertEqual(first, again)
        self.assertEqual(first, self.works("embed", "-m", "random:" + TINY, "a text").out)
        self.assertNotEqual(first, self.works("embed", "--random", "bert-tiny,seed=2", "a text").out)

    def test_a_text_has_ordinary_tokens(self):
        done = self.works("tokenize", "--random", "bert-base", "--no-special", "The cat, 3 dogs")
        ids = json.loads(done.out)["ids"]
        self.assertEqual(len(ids), 6)    # the cat , 3 dog ##s
        self.assertNotIn(1, ids)

    def test_bad_shapes(self):
        self.fails(1, "heads is 7, which does not divide hidden, 768", "embed", "--random", "heads=7", "x")
        self.fails(1, "\"bert-huge\" is not the name of a shape", "inspect", "--random", "bert-huge")
        self.fails(1, "layers is 513, outside 1 to 512", "bench", "--random", "layers=513")
        self.fails(2, "--model and --random exclude each other", "embed", "-m", "x", "--random", "bert-tiny", "x")
        self.fails(2, "longer than", "embed", "--random", "x" * 400, "x")
        self.fails(2, "inspect needs one model", "inspect", "x", "--random", "bert-tiny")

    def test_a_directory_of_it_is_the_same_model(self):
        self.works("convert", "random:" + TINY, self.path("out"), "--dtype", "float32")
        self.assertEqual(sorted(os.listdir(self.path("out"))), [
            "config.json", "gpuserve-convert.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"])
        self.assertEqual(self.works("embed", "-m", self.path("out"), "a text").out,
                         self.works("embed", "--random", TINY, "a text").out)

    @unittest.skipIf("HTTP server cannot be loaded" in gpuserve("serve").err, "no HTTP in this build")
    def test_it_is_served(self):
        for arguments, name in ((["--random", TINY], "random-bert-tiny-seed-1"), (["tiny=random:" + TINY], "tiny"),
                                (["random:" + TINY], None)):
            sandbox = ["--no-sandbox"] if INSTRUMENTED else []  # it refuses what a search for leaks needs
            server = subprocess.Popen([PROGRAM, "serve", *arguments, "--port", "0", *sandbox], env=environment(),
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                address = server.stdout.readline().strip()
                body = {"input": "a text"}
                if name:
                    body["model"] = name
                request = urllib.request.Request(address + "/v1/embeddings", json.dumps(body).encode(),
                                                 {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=60) as response:
                    self.assertEqual(len(json.load(response)["data"][0]["embedding"]), 128)
            finally:
                server.terminate()
                server.communicate()
            self.assertEqual(server.returncode, 0)


@unittest.skipIf(INSTRUMENTED, "times")
class Tables(Case):
    def test_compute_types(self):
        done = self.works("bench", "--random", "bert-tiny", "--dtypes", "--seconds", "0.01", "--json")
        rows = json.loads(done.out)["dtypes"]
        self.assertEqual([r["dtype"] for r in rows], ["float32", "tf32", "bfloat16", "float16", "int8"])
        self.assertEqual(rows[0]["cosine_min"], 1)
        self.assertGreater(rows[0]["texts_per_s"], 0)
        for row in rows[1:]:
            if "unsupported" in row:
                self.assertIn("does not support " + row["dtype"], row["unsupported"])
            else:
                self.assertGreater(row["cosine_min"], 0.99)
                self.assertLess(row["weights_bytes"], rows[0]["weights_bytes"])
        text = self.works("bench", "--random", "bert-tiny", "--dtypes", "--seconds", "0.01").out
        self.assertEqual(len(text.splitlines()), 6)
        self.assertRegex(text, r"(?m)^float32 +[0-9.]+ +1\.00 ")

    def test_batch_sizes(self):
        done = self.works("bench", "--random", "layers=1,hidden=32", "--batches", "--seconds", "0.01", "--json")
        rows = json.loads(done.out)["batches"]
        self.assertEqual([r["texts"] for r in rows], [2**i for i in range(9)])
        for row in rows:
            self.assertAlmostEqual(row["text_ms"] * row["texts"], row["batch_ms"], 6)

    def test_sharing(self):
        plot = self.path("share.svg")
        done = self.works("bench", "--random", "bert-tiny", "--share", "3", "--rate", "40", "--seconds", "0.5",
                          "--plot", plot, "--json")
        facts = json.loads(done.out)
        self.assertEqual(facts["device"], "cpu")
        self.assertEqual(facts["rate"], 40)
        for n, row in enumerate(facts["share"], 1):
            self.assertEqual((row["models"], row["offered_per_s"]), (n, 40 * n))
            self.assertGreater(row["answered_per_s"], 0)
            self.assertGreater(row["utilization"], 0)
            self.assertLessEqual(row["p50_ms"], row["p99_ms"])
        self.assertEqual(len(facts["share"]), 3)
        root = ET.parse(plot).getroot()
        lines = root.findall("{http://www.w3.org/2000/svg}polyline")
        self.assertEqual([len(line.get("points").split()) for line in lines], [3, 3, 3])
        numbers = [float(x) for line in lines for x in re.split("[ ,]", line.get("points"))]
        self.assertTrue(all(0 <= x <= 520 for x in numbers))

    def test_models_over_the_budget_are_refused_with_the_numbers(self):
        self.fails(1, "the context's memory budget is 150000000 bytes", "bench", "--random", "bert-mini", "--share", "9",
                   "--seconds", "0.01", "--memory-budget", "150MB")

    def test_bad_options(self):
        for arguments, says in ((("--share", "65"), "outside 1 to 64"), (("--share", "0"), "outside 1 to 64"),
                                (("--share", "2", "--rate", "-1"), "outside 0 to"),
                                (("--dtypes", "--workload", "W2"), "--workload are not valid"),
                                (("--dtypes", "--dtype", "int8"), "--dtype are not valid")):
            self.fails(2, says, "bench", "--random", "bert-tiny", *arguments)
        self.fails(1, "/nowhere", "bench", "--random", "bert-tiny", "--share", "1", "--seconds", "0.01", "--plot",
                   "/nowhere/x.svg")
        self.fails(2, "the model is missing", "bench", "--share", "2")


if __name__ == "__main__":
    main(__name__)
