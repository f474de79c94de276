"""The paths of text-embeddings-inference, as its clients use them."""
from serving import MINILM, Served, cosine, embed, main, model

from common import gpuserve, lines

TEXTS = ["a dog", "a puppy", "the bill of the restaurant"]


class Embedder(Served):
    def test_embed(self):
        want = embed(TEXTS)
        got = self.server.post("/embed", {"inputs": TEXTS, "truncate": True, "prompt_name": None,
                                          "truncation_direction": "Right"}).json()
        for one, vector in zip(got, want):
            self.assertVector(one, vector)
        one = self.server.post("/embed", {"inputs": TEXTS[0]}).json()
        self.assertVector(one[0], want[0])
        mixed = self.server.post("/embed", {"inputs": [TEXTS[1], [101, 1037, 3899, 102]]}).json()
        self.assertVector(mixed[0], want[1])
        self.assertVector(mixed[1], want[0])

    def test_options(self):
        raw = self.server.post("/embed", {"inputs": "a dog", "normalize": False}).json()[0]
        self.assertVector(raw, embed(["a dog"], "--no-normalize")[0], 1e-5)
        short = self.server.post("/embed", {"inputs": "a dog", "dimensions": 8}).json()[0]
        self.assertVector(short, embed(["a dog"], "--dimensions", "8")[0])
        text = " ".join(str(i) for i in range(400))
        left, right = (self.server.post("/embed", {
            "inputs": text, "truncate": True, "truncation_direction": side}).json()[0]
            for side in ("left", "Right"))
        self.assertVector(left, embed([text], "--truncate", "left")[0])
        self.assertLess(cosine(left, right), 0.99)

    def test_embed_all(self):
        got = self.server.post("/embed_all", {"inputs": ["a dog", "a"]}).json()
        self.assertEqual([len(rows) for rows in got], [4, 3])
        mean = [sum(column) / 4 for column in zip(*got[0])]
        self.assertGreater(cosine(mean, embed(["a dog"])[0]), 0.99999)

    def test_info(self):
        info = self.server.get("/info").json()
        self.assertEqual(info["model_id"], "all-MiniLM-L6-v2")
        self.assertEqual(info["model_type"], {"embedding": {"pooling": "mean"}})
        self.assertEqual(info["max_input_length"], 256)
        self.assertIs(info["deterministic"], True)  # on a CPU always
        for key in ("model_sha", "model_dtype", "served_model_name", "max_concurrent_requests",
                    "max_batch_tokens", "max_batch_requests", "max_client_batch_size",
                    "auto_truncate", "tokenization_workers", "version", "sha", "docker_label"):
            self.assertIn(key, info)

    def test_health(self):
        for path in ("/health", "/ping", "/readyz", "/livez", "/healthz"):
            self.assertEqual(self.server.get(path).status, 200)
        self.assertEqual(self.server.request("HEAD", "/health").status, 200)

    def test_errors(self):
        self.assertEqual(self.refused(400, "empty", "/embed", {"inputs": ""})["error_type"], "Empty")
        self.assertEqual(self.refused(400, "empty", "/embed", {"inputs": []})["error_type"], "Empty")
        for words, wrong in (("256", {"inputs": "a " * 500}), ("missing", {}),
                             ("neither", {"inputs": 1}), ("normalize", {"inputs": "a", "normalize": 1}),
                             ("direction", {"inputs": "a", "truncation_direction": "up"}),
                             ("the model has no prompts", {"inputs": "a", "prompt_name": "query"}),
                             ("dimensions", {"inputs": "a", "dimensions": 0}),
                             ("item 1", {"inputs": ["a", None]})):
            error = self.refused(422, words, "/embed", wrong)
            self.assertEqual(error["error_type"], "Validation", wrong)
        self.refused(422, "no classifier", "/predict", {"inputs": "a"})


class Sparse(Served):
    arguments = (model("splade-tiny"),)

    def test_embed_sparse(self):
        done = gpuserve("embed", "-m", model("splade-tiny"), "--quiet", "--sparse", "a dog", "a bill")
        got = self.server.post("/embed_sparse", {"inputs": ["a dog", "a bill"]}).json()
        for row, want in zip(got, lines(done.out)):
            self.assertEqual([one["index"] for one in row], want["indices"])
            self.assertVector([one["value"] for one in row], want["values"])
            self.assertGreater(len(row), 3)


class Metrics(Served):
    def test_metrics(self):
        self.server.post("/embed", {"inputs": ["a dog", "a"]})
        reply = self.server.get("/metrics")
        self.assertTrue(reply.headers["Content-Type"].startswith("text/plain; version=0.0.4"))
        text = reply.body.decode()
        for name in ("gpuserve_http_requests_total", "gpuserve_http_ready 1", "te_request_count"):
            self.assertIn(name, text)
        self.refused(422, "sparse", "/embed_sparse", {"inputs": "a"})


    def test_no_client_adds_a_series(self):
        """What clients choose, such as models, paths, methods and ids, names none."""
        def series():
            return {line.rsplit(" ", 1)[0] for line in self.server.get("/metrics").body.decode().splitlines()}

        self.refused(404, "other", "/v1/embeddings", {"model": "other", "input": "a"})
        self.server.post("/embed", {"inputs": ""})
        before = series()
        for i in range(50):
            self.server.post("/v1/embeddings", {"model": "m%d" % i, "input": "a", "user": "u%d" % i})
            self.server.request("BREW" + "A" * (i % 10), "/path%d?q=%d" % (i, i))
            self.server.post("/v2/models/m%d/infer" % i, {}, {"x-request-id": "id-%d" % i, "Host": "h%d" % i})
            self.server.post("/embed", {"inputs": "text %d" % i, "dimensions": 1 + i}, {
                "Authorization": "Bearer key-%d" % i, "User-Agent": "agent-%d" % i, "Origin": "http://o%d" % i,
                "traceparent": "00-%032x-%016x-01" % (i + 1, i + 1)})
        self.assertEqual(series(), before)


class Classifier(Served):
    arguments = (MINILM, "--head", "share/heads/sentiment.safetensors")

    @classmethod
    def setUpClass(cls):
        import os
        from common import ROOT
        cls.arguments = (MINILM, "--head", os.path.join(ROOT, "share/heads/sentiment.safetensors"))
        super().setUpClass()

    def test_predict(self):
        one = self.server.post("/predict", {"inputs": "a fine film"}).json()
        self.assertEqual(one[0]["label"], "positive")
        self.assertGreater(one[0]["score"], one[1]["score"])
        self.assertAlmostEqual(sum(row["score"] for row in one), 1, places=5)
        many = self.server.post("/predict", {"inputs": [["a fine film"], ["a dull film"]]}).json()
        self.assertEqual([rows[0]["label"] for rows in many], ["positive", "negative"])
        raw = self.server.post("/predict", {"inputs": "a fine film", "raw_scores": True}).json()
        self.assertNotAlmostEqual(sum(row["score"] for row in raw), 1, places=2)

    def test_wrong_inputs(self):
        self.refused(400, "empty", "/predict", {"inputs": ""})
        self.refused(422, "neither", "/predict", {"inputs": [["a", "b", "c"]]})
        self.refused(422, "input 1 is neither", "/predict", {"inputs": [["a"], ["a", "b", "c"]]})
        self.refused(400, "input 1 is an empty", "/predict", {"inputs": [["a"], ["", "b"]]})
        self.refused(422, "neither", "/predict", {})


if __name__ == "__main__":
    main(__name__)
