#!/usr/bin/env python3
"""`gpuserve eval` against tests/data/eval.json: what scipy, scikit-learn and sentence-transformers compute from the
program's own similarities and vectors (tools/make_eval_reference.py)."""
import json
import os

from common import Case, ROOT, lines, main

PROMPTS = os.path.join(ROOT, "tests", "data", "models", "embeddinggemma")  # of queries and of documents
TINY = os.path.join(ROOT, "tests", "data", "models", "st-weighted-layers")
with open(os.path.join(ROOT, "tests", "data", "eval.json"), encoding="utf-8") as opened:
    WANT = json.load(opened)


class Eval(Case):
    def rows(self, task, *options):
        column = "score" if task == "sts" else "label"
        source = self.write(task + ".jsonl", "".join(
            json.dumps({"text": a, "pair": b, column: row}) + "\n" for (a, b), row in zip(WANT["texts"], WANT[column])))
        return json.loads(self.works("eval", TINY, "--task", task, "-i", source, "-d", "cpu", "--json", *options).out)["rows"]

    def test_similarities_are_those_of_the_reference(self):
        source = self.write("pairs.jsonl", "".join(json.dumps({"text": a, "pair": b}) + "\n" for a, b in WANT["texts"]))
        found = lines(self.works("similarity", TINY, "--pairs", "-i", source, "-d", "cpu").out)
        for row, want in zip(found, WANT["similarity"], strict=True):
            self.assertAlmostEqual(row["similarity"], want, delta=1e-5)

    def test_scores(self):
        for task in ("sts", "pairs"):
            row, = self.rows(task)
            for name, want in WANT[task].items():
                self.assertAlmostEqual(row[name], want, delta=1e-5, msg=name)

    def test_dtypes(self):
        rows = self.rows("sts", "--dtypes", "float32,bfloat16")
        self.assertEqual([row["dtype"] for row in rows], ["float32", "bfloat16"])
        self.assertAlmostEqual(rows[0]["spearman"], WANT["sts"]["spearman"], delta=1e-5)

    def retrieval(self, rows, *options):
        source = self.write("retrieval.jsonl", "".join(json.dumps({"text": a, "pair": b}) + "\n" for a, b in rows))
        row, = json.loads(self.works("eval", PROMPTS, "--task", "retrieval", "-i", source, "-d", "cpu", "--json", *options).out)["rows"]
        return row

    def test_retrieval(self):
        want = WANT["retrieval"]
        row = self.retrieval(want["rows"])
        self.assertEqual((row["n"], row["documents"]), (want["n"], want["documents"]))
        for name, score in want["scores"].items():
            self.assertAlmostEqual(row[name], score, delta=1e-9, msg=name)
        self.assertEqual(self.retrieval(want["rows"], "--prompt-name", "query"), row)
        self.assertNotEqual(self.retrieval(want["rows"], "--prompt", "w9 w9 "), row)
        self.assertNotEqual(self.retrieval(want["rows"], "--dimensions", "2"), row)

    def test_retrieval_counts_equal_texts_once(self):
        row = self.retrieval([["w1", "w2 w3"], ["w4", "w2 w3"], ["w1", "w2 w3"]])
        self.assertEqual((row["n"], row["documents"], row["ndcg@10"], row["accuracy@1"]), (2, 1, 1, 1))
        self.fails(1, "two or more", "eval", PROMPTS, "--task", "retrieval", "-i", self.write("one.csv", "text,pair\nw1,w2\n"))

    def test_wrong_use(self):
        self.fails(2, "--task", "eval", TINY)
        source = self.write("bad.csv", "text,pair,label\nw1,w2,0\nw1,w3,2\n")
        self.fails(1, "line 3", "eval", TINY, "--task", "pairs", "-i", source)
        self.fails(1, "not a number", "eval", TINY, "--task", "sts", "-i", self.write("s.csv", "text,pair,score\nw1,w2,x\n"))
        self.fails(1, "needs both", "eval", TINY, "--task", "pairs", "-i", self.write("o.csv", "text,pair,label\nw1,w2,1\nw2,w3,1\n"))
        self.fails(2, "reads no labels", "eval", TINY, "--task", "retrieval", "-i", source, "--label-column", "label")
        self.fails(2, "unknown value", "eval", TINY, "--task", "sts", "-i", source, "--dtypes", "float32,other")


if __name__ == "__main__":
    main(__name__)
