#!/usr/bin/env python3
"""`gpuserve embed --chunking`: the vectors of tests/data/long-texts, formats, spans of JSON lines, and what is refused."""
import json
import os

from common import ROOT, Case, main

FOLDER = os.path.join(ROOT, "tests", "data", "long-texts")
MODEL = os.path.join(FOLDER, "model")
LONG = "The quick brown fox runs. It was red! " * 20


class LongTexts(Case):
    def lines(self, *arguments):
        done = self.works("embed", "-m", MODEL, "-d", "cpu", "-q", *arguments)
        return [json.loads(line) for line in done.out.splitlines()]

    def test_equal_the_reference(self):
        with open(os.path.join(FOLDER, "reference.json"), encoding="utf-8") as file:
            cases = json.load(file)
        for case in cases:
            path = self.write("in.jsonl", json.dumps({"text": case["text"], "spans": case.get("spans", [])}) + "\n")
            options = ["--chunking", case["method"], "-i", path]
            for key in ("chunk_by", "chunk_tokens", "window_tokens", "stride", "prompt_name"):
                if case.get(key):
                    options += ["--" + key.replace("_", "-"), str(case[key])]
            found = self.lines(*options)
            if case["method"] == "late":
                self.assertEqual([one["span"] for one in found], case["want_spans"])
                self.assertTrue(all(one["n_tokens"] > 0 for one in found))
            else:
                self.assertEqual(found[0]["spans"], case["want_spans"])
            self.assertEqual(len(found), len(case["vectors"]))
            for one, want in zip(found, case["vectors"]):
                self.assertEqual(one["index"], 0)
                self.assertLess(max(abs(a - b) for a, b in zip(one["embedding"], want)), 1e-6)

    def test_several_texts(self):
        path = self.write("in.txt", "A dog.\n" + LONG + "\n\nA cat.\n")
        found = self.lines("--chunking", "late", "--chunk-by", "sentence", "-i", path, "--batch", "2")
        self.assertEqual([one["index"] for one in found], [0] + 40 * [1] + [2, 3])
        windows = self.lines("--chunking", "window", "-i", path)
        self.assertEqual([one["index"] for one in windows], [0, 1, 2, 3])
        self.assertEqual(windows[0]["spans"], [[0, 6]])
        self.assertGreater(len(windows[1]["spans"]), 5)
        plain = self.lines("A dog.")[0]["embedding"]
        for one in (found[0], windows[0]):
            self.assertLess(max(abs(a - b) for a, b in zip(one["embedding"], plain)), 1e-6)

    def test_formats(self):
        path = self.path("out.npy")
        self.works("embed", "-m", MODEL, "--chunking", "late", "--chunk-tokens", "10", "--precision", "int8", "-o", path, LONG)
        with open(path, "rb") as file:
            self.assertIn(b"'shape': (20, 32)", file.read(128))
        text = self.works("embed", "-m", MODEL, "-q", "--chunking", "window", "--format", "text", "--dimensions", "3", LONG).out
        self.assertEqual(len(text.split()), 3)

    def test_refused(self):
        for words, options in (("need --chunking", ["--stride", "4"]), ("need --chunking late", ["--chunking", "window", "--chunk-tokens", "4"]),
                               ("--chunking excludes", ["--chunking", "late", "--sparse"]),
                               ("--chunking excludes", ["--chunking", "late", "--truncate", "right"]),
                               ("--chunking excludes --outputs", ["--chunking", "window", "--outputs", "dense"]),
                               ("--chunk-by spans excludes", ["--chunking", "late", "--chunk-by", "spans", "--chunk-tokens", "4"])):
            self.fails(2, words, "embed", "-m", MODEL, *options, "A dog")
        self.fails(1, "text 1: stride is 23, more than the 22 tokens", "embed", "-m", MODEL, "--chunking", "window", "--stride", "23", LONG)
        self.fails(1, "needs JSON lines with a field \"spans\"", "embed", "-m", MODEL, "--chunking", "late", "--chunk-by", "spans", "A dog")
        path = self.write("in.jsonl", json.dumps({"text": "A dog", "spans": [[0, 1]]}) + "\n" + json.dumps({"text": "A dog", "spans": [[0, 9]]}) + "\n")
        self.fails(1, "text 2: spans[0] is bytes 0 to 9, the text has 5 bytes", "embed", "-m", MODEL, "--chunking", "late",
                   "--chunk-by", "spans", "-i", path)


if __name__ == "__main__":
    main(__name__)
