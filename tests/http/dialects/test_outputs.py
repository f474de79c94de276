#!/usr/bin/env python3
"""The field `outputs` of /v1/embeddings and /embed on a small BGE-M3 (tests/data/late-heads), and reranking by MaxSim:
replies compared with FlagEmbedding's arithmetic in float64."""
import base64
import json
import os
import shutil
import struct
import subprocess
import tempfile

from serving import Served, main

from common import PROGRAM, ROOT, safetensors

DATA = os.path.join(ROOT, "tests", "data")
EVERY = ["dense", "sparse", "colbert"]


class Outputs(Served):
    @classmethod
    def setUpClass(cls):
        cls.made = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.made)
        folder = os.path.join(cls.made, "m3")
        shutil.copytree(os.path.join(DATA, "models", "st-xlm-roberta"), folder)
        for name in ("sparse_linear.pt", "colbert_linear.pt"):
            shutil.copy(os.path.join(DATA, "late-heads", name), folder)
        with open(os.path.join(DATA, "late-heads", "expected.json"), encoding="utf-8") as file:
            cls.rows = [row for row in json.load(file) if row["text"]]
        cls.texts = [row["text"] for row in cls.rows]
        with open(os.path.join(DATA, "models", "st-multi-vector", "expected.json"), encoding="utf-8") as file:
            cls.late = json.load(file)
        cls.arguments = ("m3=" + folder, "late=" + os.path.join(DATA, "models", "st-multi-vector"))
        super().setUpClass()

    def ask(self, path, **body):
        reply = self.server.post(path, body)
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json()

    def check(self, got, row, names):
        self.assertEqual({"dense": "embedding"}.get(names[0], names[0]) in got, True)
        self.assertEqual("embedding" in got, "dense" in names)
        if "dense" in names:
            self.assertVector(got["embedding"], row["dense"], 1e-5)
        self.assertEqual("sparse" in got, "sparse" in names)
        if "sparse" in names:
            self.assertEqual([str(token) for token in got["sparse"]["indices"]], list(row["sparse"]))
            self.assertVector(got["sparse"]["values"], list(row["sparse"].values()), 1e-5)
        self.assertEqual("colbert" in got, "colbert" in names)
        if "colbert" in names:
            self.assertEqual(len(got["colbert"]), len(row["colbert"]))
            for vector, want in zip(got["colbert"], row["colbert"]):
                self.assertVector(vector, want, 1e-5)

    def test_any_set(self):
        for names in (EVERY, ["sparse", "dense"], ["colbert"], ["sparse"], ["colbert", "sparse"]):
            reply = self.ask("/v1/embeddings", model="m3", input=self.texts, outputs=names)
            for i, (got, row) in enumerate(zip(reply["data"], self.rows)):
                self.assertEqual(got["index"], i)
                self.check(got, row, names)
            for got, row in zip(self.ask("/embed", inputs=self.texts, outputs=names), self.rows):
                self.check(got, row, names)

    def test_without_the_field_nothing_changes(self):
        data = self.ask("/v1/embeddings", input=self.texts)["data"]
        self.assertEqual(set(data[0]), {"object", "index", "embedding"})
        self.assertEqual(self.ask("/v1/embeddings", input=self.texts, outputs=None)["data"], data)
        self.assertEqual(self.ask("/embed", inputs=self.texts), [one["embedding"] for one in data])
        both = self.ask("/v1/embeddings", input=self.texts, outputs=EVERY)["data"]
        self.assertEqual([one["embedding"] for one in both], [one["embedding"] for one in data])

    def test_ids_and_mixed_inputs(self):
        reply = self.ask("/v1/embeddings", input=[self.rows[0]["ids"], self.texts[1]], outputs=EVERY)
        for got, row in zip(reply["data"], self.rows):
            self.check(got, row, EVERY)

    def test_base64_and_dimensions(self):
        reply = self.ask("/v1/embeddings", input=self.texts[:1], outputs=EVERY, encoding_format="base64", dimensions=8)
        got, row = reply["data"][0], self.rows[0]
        self.assertEqual(len(base64.b64decode(got["embedding"])), 32)
        rows = [struct.unpack("<24f", base64.b64decode(one)) for one in got["colbert"]]
        for vector, want in zip(rows, row["colbert"]):
            self.assertVector(vector, want, 1e-5)
        whole = self.ask("/v1/embeddings", input=self.texts[:1], outputs=["dense", "sparse"], encoding_format="int8")
        self.assertEqual({type(x) for x in whole["data"][0]["embedding"]}, {int})
        self.check({**whole["data"][0], "embedding": row["dense"]}, row, ["dense", "sparse"])

    def test_refused(self):
        for body, words in (({"outputs": ["dens"]}, 'item 0 is \\"dens\\", known are dense, sparse, colbert, labels'),
                            ({"outputs": ["dense", "labels"]},
                             'item 1 is \\"labels\\", which model \\"m3\\" does not have: it has dense, sparse, colbert'),
                            ({"outputs": []}, "not a list of one or more"), ({"outputs": "dense"}, "not a list of one or more"),
                            ({"outputs": [1]}, "item 0 is not a string"),
                            ({"outputs": ["sparse", "sparse"]}, 'item 1 is \\"sparse\\" again'),
                            ({"outputs": ["sparse"], "dimensions": 3}, "`dimensions` is of the dense output"),
                            ({"outputs": ["sparse"], "encoding_format": "int8"}, "does not have the dense output"),
                            ({"outputs": ["dense", "sparse"], "chunking": {"method": "window"}},
                             "`outputs` is not supported with `chunking`"),
                            # The token vectors are those of the head, not those that pooling reads.
                            ({"chunking": {"method": "late"}}, "late chunking"),
                            ({"outputs": ["sparse"], "model": "late"}, "does not have: it has colbert")):
            reply = self.server.post("/v1/embeddings", {"input": "d", **body})
            self.assertIn(reply.status, (400, 422), body)
            self.assertIn(words, reply.body.decode())
        long = "world " * 60
        self.assertEqual(self.server.post("/v1/embeddings", {"input": long, "outputs": ["colbert"]}).status, 400)
        cut = self.ask("/v1/embeddings", input=long, outputs=["colbert"], truncate=True)
        self.assertEqual(len(cut["data"][0]["colbert"]), 39)

    def late_vectors(self, texts, role):
        reply = self.ask("/v1/embeddings", model="late", input=texts, outputs=["colbert"], prompt_name=role,
                         truncate=True)
        return [one["colbert"] for one in reply["data"]]

    def assert_near(self, got, want):
        self.assertEqual([len(one) for one in got], [len(one) for one in want])
        for rows, others in zip(got, want):
            for row, other in zip(rows, others):
                for x, y in zip(row, other):
                    self.assertAlmostEqual(x, y, delta=1e-5)

    def test_vectors_of_queries_and_documents(self):
        want = self.late
        self.assert_near(self.late_vectors(want["texts"], "document"), want["document"])
        self.assert_near(self.late_vectors(want["texts"][:2], "query"), want["query"])
        for role, texts in (("query", want["texts"][:2]), ("document", want["texts"])):
            reply = self.ask("/embed_all", model="late", inputs=texts, prompt_name=role, truncate=True)
            self.assert_near(reply, want[role])

    def test_max_sim_ranks(self):
        texts = self.late["texts"]
        for query, sums, vectors in zip(texts, self.late["maxsim"], self.late["query"]):
            for raw in (True, False):
                reply = self.server.post("/rerank", {"model": "late", "query": query, "texts": texts, "raw_scores": raw,
                                                     "method": "max-sim", "truncate": True})
                self.assertEqual(reply.status, 200, reply.body)
                self.assertEqual(reply.headers["x-gpuserve-rerank-method"], "max-sim")
                self.assertEqual([one["index"] for one in reply.json()], sorted(range(len(texts)), key=lambda i: -sums[i]))
                for one in reply.json():
                    want = sums[one["index"]] if raw else (1 + sums[one["index"]] / len(vectors)) / 2
                    self.assertAlmostEqual(one["score"], want, delta=1e-5)

    def test_score_is_max_sim(self):
        texts, sums = self.late["texts"], self.late["maxsim"]
        reply = self.ask("/score", model="late", text_1=texts[0], text_2=texts, truncate_prompt_tokens=-1)
        for one, want in zip(reply["data"], sums[0]):
            self.assertAlmostEqual(one["score"], want, delta=1e-5)
        reply = self.ask("/score", model="late", queries=texts[:2], documents=texts[2:4])
        for one, want in zip(reply["data"], (sums[0][2], sums[1][3])):
            self.assertAlmostEqual(one["score"], want, delta=1e-5)

    def test_method_of_rerank(self):
        for model, method, words in (("late", "cosine", "does not support"), ("late", "cross-encoder", "does not support"),
                                     ("m3", "bm25", "bm25")):
            reply = self.server.post("/rerank", {"model": model, "query": "w1", "texts": ["w2"], "method": method})
            self.assertIn(reply.status, (400, 422))
            self.assertIn(words, reply.body.decode())
        for method in ("cosine", "max-sim"):  # BGE-M3 has both
            reply = self.server.post("/rerank", {"model": "m3", "query": "w1", "texts": ["w2", "w1"], "method": method})
            self.assertEqual(reply.status, 200, reply.body)
            self.assertEqual(reply.headers["x-gpuserve-rerank-method"], method)


class Adapters(Served):
    """LoRA adapters of Jina v3 by the name of the task: ids as in the reference, texts as the program."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.folder = os.path.join(folder, "lora")
        shutil.copytree(os.path.join(DATA, "models", "jina-v3-hub-lora"), cls.folder)
        words = "[PAD] [UNK] [CLS] [SEP] [MASK] represent the query for retrieving evidence documents : document retrieval".split()
        with open(os.path.join(cls.folder, "vocab.txt"), "w", encoding="utf-8") as file:
            file.write("".join(word + "\n" for word in words + ["w%d" % i for i in range(len(words), 48)]))
        cls.reference = safetensors(os.path.join(cls.folder, "reference.safetensors"))
        cls.arguments = (cls.folder, "--default-prompt-name", "separation")
        super().setUpClass()

    def test_ids_have_the_default_adapter(self):
        n_tokens, ids, lists = self.reference["n_tokens"][1], self.reference["ids"][1], []
        for n in n_tokens:
            first = sum(map(len, lists))
            lists.append(list(ids[first:first + n]))
        rows = self.server.post("/v1/embeddings", {"input": lists}).json()["data"]
        want = self.reference["embedding_separation_f64"][1]
        width = len(want) // len(lists)
        for i, row in enumerate(rows):
            unit = want[i * width:(i + 1) * width]
            norm = sum(x * x for x in unit) ** 0.5
            self.assertVector(row["embedding"], [x / norm for x in unit], 1e-5)

    def test_a_task_chooses_the_adapter(self):
        text, seen = "w20 w21 w22", []
        for name in ("retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"):
            done = subprocess.run([PROGRAM, "embed", "-q", "-d", "cpu", "-m", self.folder, "--prompt-name", name, text],
                                  check=True, capture_output=True, timeout=300)
            want = json.loads(done.stdout)["embedding"]
            for field in ("task", "prompt_name", "input_type"):
                reply = self.server.post("/v1/embeddings", {"input": text, field: name})
                self.assertEqual(reply.status, 200, reply.body)
                self.assertVector(reply.json()["data"][0]["embedding"], want, 1e-6)
            self.assertNotIn(want, seen)
            seen.append(want)
        self.refused(400, "unknown", "/v1/embeddings", {"input": text, "prompt_name": "other"})


if __name__ == "__main__":
    main(__name__)
