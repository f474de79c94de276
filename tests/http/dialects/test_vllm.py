#!/usr/bin/env python3
"""vLLM's and llama.cpp's paths, SageMaker's, Azure's: replies word by word, with the program's own numbers."""
import base64
import json
import os
import struct

from serving import MINILM, Served, cosine, embed, main

from common import ROOT, gpuserve

NAME = "all-MiniLM-L6-v2"
HEAD = os.path.join(ROOT, "share/heads/sentiment.safetensors")
TEXTS = ["a dog", "Une phrase française."]
USAGE = {"prompt_tokens": int, "total_tokens": int, "completion_tokens": 0, "prompt_tokens_details": None}
LIST = {"id": str, "object": "list", "created": int, "model": NAME}


def ask(server, path, body):
    reply = server.post(path, body)
    assert reply.status == 200, (reply.status, reply.body)
    return reply.json()


class Embedder(Served):
    def listed(self, reply):
        self.assertEqual(set(reply), {"id", "object", "created", "model", "data", "usage"})
        self.assertEqual((reply["object"], reply["model"]), ("list", NAME))
        self.assertEqual(set(reply["usage"]), set(USAGE))
        self.assertEqual(reply["usage"]["prompt_tokens"], reply["usage"]["total_tokens"])
        return reply["data"]

    def test_pooling(self):
        data = self.listed(ask(self.server, "/pooling", {"model": NAME, "input": TEXTS}))
        for i, (one, vector) in enumerate(zip(data, embed(TEXTS))):
            self.assertEqual((one["index"], one["object"]), (i, "pooling"))
            self.assertVector(one["data"], vector)
        packed = self.listed(ask(self.server, "/pooling", {"input": TEXTS[0], "encoding_format": "base64"}))
        self.assertVector(struct.unpack("<384f", base64.b64decode(packed[0]["data"])), embed(TEXTS)[0])

    def test_scores_are_cosines(self):
        first, second = embed(TEXTS)
        for path in ("/score", "/v1/score"):
            for one, many, want in ((TEXTS[0], TEXTS, [1, cosine(first, second)]), (TEXTS, TEXTS, [1, 1]),
                                    ([TEXTS[1]], TEXTS[0], [cosine(first, second)])):
                data = self.listed(ask(self.server, path, {"text_1": one, "text_2": many}))
                self.assertEqual([row["index"] for row in data], list(range(len(want))))
                self.assertEqual({row["object"] for row in data}, {"score"})
                self.assertVector([row["score"] for row in data], want, 1e-5)
        same = ask(self.server, "/score", {"queries": TEXTS[0], "documents": TEXTS})
        self.assertEqual(len(same["data"]), 2)

    def test_embedding_of_llama_cpp(self):
        rows = ask(self.server, "/embedding", {"content": TEXTS})
        self.assertEqual([row["index"] for row in rows], [0, 1])
        for row, vector in zip(rows, embed(TEXTS)):
            self.assertVector(row["embedding"][0], vector)
        raw = ask(self.server, "/embedding", {"content": TEXTS[0], "embd_normalize": -1})
        self.assertVector(raw[0]["embedding"][0], embed(TEXTS[:1], "--no-normalize")[0])
        for body in ({"input": TEXTS}, {"content": [TEXTS[0], {"prompt_string": TEXTS[1], "multimodal_data": []}]}):
            self.assertEqual(ask(self.server, "/embedding", body), rows)
        self.assertEqual(ask(self.server, "/embedding", {"content": {"prompt_string": TEXTS[0]}})[0]["embedding"], rows[0]["embedding"])

    def test_aliases_of_openai(self):
        want = ask(self.server, "/v1/embeddings", {"input": "a dog"})
        for path in ("/embeddings", "/openai/deployments/%s/embeddings?api-version=2024-10-21" % NAME):
            self.assertEqual(ask(self.server, path, {"input": "a dog"}), want)
        models = self.server.get("/models").json()
        self.assertEqual([one.pop("stats") for one in models["data"]], [{"results_pending": 0}])  # infinity's
        self.assertEqual(models, self.server.get("/v1/models").json())
        self.refused(404, "unknown model", "/openai/deployments/other/embeddings", {"input": "a dog"})

    def test_invocations(self):
        self.assertEqual(ask(self.server, "/invocations", {"inputs": TEXTS}), ask(self.server, "/embed", {"inputs": TEXTS}))
        body = {"query": TEXTS[0], "texts": TEXTS}
        self.assertEqual(ask(self.server, "/invocations", body), ask(self.server, "/rerank", body))

    def test_bad_input(self):
        for path, body, words in (
                ("/score", {"text_1": ["a", "b", "c"], "text_2": ["a", "b"]}, "3 texts"),
                ("/score", {"text_1": "a"}, "`text_2` is neither"),
                ("/score", {"text_1": 7, "text_2": "a"}, "`text_1` is neither"),
                ("/score", {"text_1": "a", "text_2": ["", "b"]}, "`text_2` cannot be empty"),
                ("/score", {"text_1": "a", "text_2": []}, "text_2"),
                ("/classify", {"input": "a"}, "classif"),
                ("/pooling", {"input": "a", "encoding_format": "bytes"}, "encoding_format"),
                ("/embedding", {"content": "a", "embd_normalize": 1}, "`embd_normalize` is 1"),
                ("/embedding", {"prompt": "a"}, "content"), ("/embedding", {"content": {"text": "a"}}, "prompt_string"),
                ("/embedding", {"input": ["a", {"prompt_string": "a", "multimodal_data": ["x"]}]}, "multimodal_data")):
            self.refused(400, words, path, body)


class Classifier(Served):
    arguments = (MINILM, "--head", HEAD)

    def test_classify(self):
        want = [json.loads(line)["scores"] for line in gpuserve(
            "classify", "-m", MINILM, "--head", HEAD, "-q", *TEXTS).out.splitlines()]
        for path in ("/classify", "/v1/classify"):
            data = ask(self.server, path, {"input": TEXTS})["data"]
            for i, (one, scores) in enumerate(zip(data, want)):
                best = max(scores, key=scores.get)
                self.assertEqual((one["index"], one["label"], one["num_classes"]), (i, best, len(scores)))
                self.assertVector(one["probs"], list(scores.values()))
        raw = ask(self.server, "/classify", {"input": TEXTS[0], "activation": False})["data"][0]
        self.assertNotAlmostEqual(sum(raw["probs"]), 1, 3)

    def test_invocations(self):
        self.assertEqual(ask(self.server, "/invocations", {"inputs": TEXTS[0]}), ask(self.server, "/predict", {"inputs": TEXTS[0]}))


class Reranker(Served):
    arguments = (os.path.join(ROOT, "tests/data/models/bert-cross-encoder"),)

    def test_scores_are_the_classifier_s(self):
        body = {"query": "a dog", "texts": TEXTS}
        want = {row["index"]: row["score"] for row in ask(self.server, "/rerank", body)}
        data = ask(self.server, "/score", {"text_1": "a dog", "text_2": TEXTS})["data"]
        for row in data:
            self.assertAlmostEqual(row["score"], want[row["index"]], 6)


if __name__ == "__main__":
    main(__name__)
