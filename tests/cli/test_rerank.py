#!/usr/bin/env python3
"""`gpuserve rerank`, and `similarity` by MaxSim, against reference data made by other software."""
import json
import math
import os

from common import Case, ROOT, cosine, lines, main, model

MINILM = "all-MiniLM-L6-v2"
TINY = os.path.join(ROOT, "tests", "data", "models")


class Rerank(Case):
    def test_by_embeddings(self):
        documents = ["the price of oil", "cats eat mice", "my dog is fed twice a day"]
        found = lines(self.works("rerank", "-m", model(MINILM), "-d", "cpu", "what do cats eat",
                                 *documents).out)
        self.assertEqual([documents[one["index"]] for one in found], [one["text"] for one in found])
        self.assertEqual([one["index"] for one in found], [1, 2, 0])
        rows = [one["embedding"] for one in lines(self.works(
            "embed", "-m", model(MINILM), "-d", "cpu", "what do cats eat", *documents).out)]
        for one in found:
            self.assertAlmostEqual(one["score"], cosine(rows[0], rows[1 + one["index"]]), places=5)
        source = self.write("d.txt", "\n".join(documents))
        text = self.works("rerank", "-m", model(MINILM), "-d", "cpu", "what do cats eat", "-i",
                          source, "--top", 2, "--format", "text").out.splitlines()
        self.assertEqual([line[10:] for line in text], [one["text"] for one in found[:2]])

    def test_by_max_sim(self):
        folder = os.path.join(TINY, "st-multi-vector")
        with open(os.path.join(folder, "expected.json"), encoding="utf-8") as file:
            want = json.load(file)
        texts = want["texts"]
        for query, scores in zip(texts, want["maxsim"]):
            found = lines(self.works("rerank", "-m", folder, "-d", "cpu", "--raw", "--method", "max-sim", query, *texts).out)
            self.assertEqual([one["index"] for one in found], sorted(range(len(texts)), key=lambda i: -scores[i]))
            for one in found:
                self.assertAlmostEqual(one["score"], scores[one["index"]], delta=1e-5)
        rows = lines(self.works("similarity", "-m", folder, "-d", "cpu", *texts).out)
        self.assertEqual(len(rows), len(texts))
        for row, scores in zip(rows, want["maxsim"]):
            for x, y in zip(row["similarity"], scores):
                self.assertAlmostEqual(x, y, delta=1e-5)
        source = self.write("pairs.csv", "text,pair\n" + "".join("%s,%s\n" % (texts[1], text) for text in texts))
        pairs = lines(self.works("similarity", "-m", folder, "-d", "cpu", "--pairs", "-i", source).out)
        self.assertEqual(len(pairs), len(texts))
        for one, score in zip(pairs, want["maxsim"][1]):
            self.assertAlmostEqual(one["similarity"], score, delta=1e-5)
        self.fails(1, "cosine", "rerank", "-m", folder, "--method", "cosine", "q", "d")

    def test_by_a_cross_encoder(self):
        tiny = os.path.join(TINY, "bert-cross-encoder")
        with open(os.path.join(tiny, "pairs.json"), encoding="utf-8") as file:
            rows = [row for row in json.load(file) if row["text"] == "w1 w2 w3" and row["pair"]]
        documents = [row["pair"] for row in rows]
        best = sorted(range(len(rows)), key=lambda i: -rows[i]["logits"][0])
        for options, of in (((), lambda x: 1 / (1 + math.exp(-x))), (("--raw",), lambda x: x)):
            found = lines(self.works("rerank", "-m", tiny, "-d", "cpu", *options, "w1 w2 w3",
                                     *documents).out)
            self.assertEqual([one["index"] for one in found], best)
            for one in found:
                self.assertAlmostEqual(one["score"], of(rows[one["index"]]["logits"][0]), places=5)
        facts = json.loads(self.works("inspect", tiny, "--json").out)
        self.assertEqual(facts["rerank"], "cross_encoder")

    def test_wrong_use(self):
        tiny = os.path.join(TINY, "bert-pairs")
        self.fails(1, "not a cross-encoder", "rerank", "-m", model(MINILM), "--method", "cross-encoder", "q", "d")
        self.fails(2, "max-sim", "rerank", "-m", tiny, "--method", "other", "q", "d")
        self.fails(2, "the query is missing", "rerank", "-m", tiny)
        self.fails(2, "npy", "rerank", "-m", tiny, "q", "d", "--format", "npy")
        self.fails(1, "3 labels", "rerank", "-m", tiny, "q", "d")
        self.fails(1, "no documents", "rerank", "-m", model(MINILM), "q", stdin="")


if __name__ == "__main__":
    main(__name__)
