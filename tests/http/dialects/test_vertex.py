"""Google Vertex AI's custom containers: {"instances", "parameters"} -> {"predictions"}.

The oracle of vectors is the library by the command line. TEI's forms are compared with the replies of TEI's own
paths, as its `vertex_compatibility` builds them (router/src/http/server.rs)."""
import os

from serving import MINILM, Served, Server, embed, main, model

from common import ROOT, environment

TEXTS = ["a dog", "a puppy", "the bill of the restaurant"]
LONG = "a " * 400
PREDICT = "/v1/endpoints/12/deployedModels/34:predict"  # Vertex AI's defaults
HEALTH = "/v1/endpoints/12/deployedModels/34"
ROUTES = {"AIP_PREDICT_ROUTE": PREDICT, "AIP_HEALTH_ROUTE": HEALTH}


class Asked(Served):
    def ask(self, instances, parameters=None, path="/vertex"):
        reply = self.server.post(path, {"instances": instances, "parameters": parameters})
        self.assertEqual(reply.status, 200, reply.body)
        self.assertEqual(list(reply.json()), ["predictions"])
        return reply.json()["predictions"]

    def assertVectors(self, got, want, tolerance=1e-6):
        self.assertEqual(len(got), len(want))
        for one, other in zip(got, want):
            self.assertVector(one, other, tolerance)


class Embedder(Asked):
    def test_texts(self):
        want = embed(TEXTS)
        for path in ("/vertex", "/predict"):
            self.assertVectors(self.ask(TEXTS, path=path), want)
            self.assertVectors(self.ask([{"text": one, "content": None, "normalize": None} for one in TEXTS], path=path), want)

    def test_parameters(self):
        self.assertVectors(self.ask(TEXTS, {"normalize": False}), embed(TEXTS, "--no-normalize"), 1e-5)
        self.assertVectors(self.ask(TEXTS, {"dimensions": 8}), embed(TEXTS, "--dimensions", "8"))
        for side in ("left", "right"):
            got = self.ask([LONG], {"truncate": True, "truncation_direction": side})
            self.assertVectors(got, embed([LONG], "--truncate", side))
        self.refused(422, "maximum context length", "/vertex", {"instances": [LONG]})
        self.refused(422, "`temperature`", "/vertex", {"instances": ["a"], "parameters": {"temperature": 0}})
        self.refused(422, "`parameters` is not an object", "/vertex", {"instances": ["a"], "parameters": [1]})

    def test_forms_of_tei(self):
        forms = ("a dog", ["a dog"], TEXTS, [101, 1037, 3899, 102], [[101, 1037, 3899, 102], "a puppy"])
        got = self.ask([{"inputs": one} for one in forms])
        self.assertEqual(got, [self.server.post("/embed", {"inputs": one}).json() for one in forms])
        options = {"normalize": False, "truncate": True, "truncation_direction": "Left"}
        got = self.ask([{"inputs": TEXTS[:2], **options}, {"inputs": LONG, **options}, "a dog"], options)
        self.assertEqual(got[:2], [self.server.post("/embed", {"inputs": one, **options}).json() for one in (TEXTS[:2], LONG)])
        self.assertVector(got[2], embed(["a dog"], "--no-normalize")[0], 1e-5)

    def test_googles_form(self):
        """Of Google's text embedding models: https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/text-embeddings-api"""
        got = self.ask([{"content": one, "task_type": "RETRIEVAL_DOCUMENT"} for one in (*TEXTS, LONG)])
        self.assertVectors([one["embeddings"]["values"] for one in got], embed([*TEXTS, LONG]))
        self.assertEqual([one["embeddings"]["statistics"] for one in got], [
            {"token_count": count, "truncated": cut} for count, cut in ((4, False), (4, False), (7, False), (256, True))])
        got = self.ask([{"content": TEXTS[0]}], {"outputDimensionality": 8})
        self.assertVector(got[0]["embeddings"]["values"], embed(TEXTS[:1], "--dimensions", "8")[0])
        self.refused(422, "maximum context length", "/vertex", {
            "instances": [{"content": LONG}], "parameters": {"autoTruncate": False}})
        self.refused(422, "`title`", "/vertex", {"instances": [{"content": "a", "title": "b"}]})
        self.refused(422, "`task_type`", "/vertex", {"instances": [{"content": "a", "task_type": "SING"}]})

    def test_ranking(self):
        queries = [{"query": "a puppy", "texts": TEXTS, "return_text": True}, {"query": "a bill", "texts": TEXTS[1:], "raw_scores": True}]
        reply = self.server.post("/vertex", {"instances": queries})
        self.assertEqual(reply.headers.get_all("x-gpuserve-rerank-method"), ["cosine"])
        self.assertEqual(reply.json(), {"predictions": [self.server.post("/rerank", one).json() for one in queries]})
        got = self.ask(queries, {"top_n": 1})
        self.assertEqual([[one["index"] for one in row] for row in got], [[1], [1]])
        many = self.ask([queries[0]] * 300)
        self.assertEqual(many, [reply.json()["predictions"][0]] * 300)
        self.refused(422, "1 of 2 have a `query`", "/vertex", {"instances": [queries[0], "a"]})
        self.refused(422, "`texts`", "/vertex", {"instances": [queries[0], {"query": "a"}]})

    def test_wrong_instances(self):
        for words, instances in (("not a list", "a"), ("not a list", {"inputs": "a"}),
                                 ("instance 1 is neither", ["a", 3]), ("instance 0 is neither", [{"txt": "a"}]),
                                 ("instance 0 is neither", [{"text": "a", "content": "b"}]),
                                 ("instance 1 is neither", ["a", {"text": ["a"]}]), ("neither", [{"inputs": 3}]),
                                 ("instance 2 has another `normalize`", ["a", {"inputs": "a", "normalize": True}, {"inputs": "b", "normalize": False}])):
            self.refused(422, words, "/vertex", {"instances": instances, "parameters": {"normalize": True}})
        for instances in ([], [""], [{"inputs": []}], ["a", {"inputs": ["b", ""]}]):
            self.refused(400, "empty", "/vertex", {"instances": instances})
        self.refused(422, "limit is 2048", "/vertex", {"instances": [{"inputs": ["a"] * 2048}, "a"]})
        self.refused(422, "not a list", "/predict", {"instances": 1})
        self.refused(422, "no classifier", "/predict", {"inputs": "a"})


class Classifier(Asked):
    arguments = (MINILM, "--head", os.path.join(ROOT, "share/heads/sentiment.safetensors"))

    def test_labels(self):
        want = self.server.post("/predict", {"inputs": [["a fine film"], ["a dull film"]]}).json()
        self.assertEqual([rows[0]["label"] for rows in want], ["positive", "negative"])
        self.assertEqual(self.ask(["a fine film", {"text": "a dull film"}], path="/predict"), want)
        self.assertEqual(self.ask([{"content": "a fine film"}]), want[:1])
        forms = ("a fine film", ["a fine film"], [["a fine film"], ["a dull film"]])
        self.assertEqual(self.ask([{"inputs": one} for one in forms]),
                         [self.server.post("/predict", {"inputs": one}).json() for one in forms])
        raw = self.server.post("/predict", {"inputs": "a fine film", "raw_scores": True}).json()
        self.assertEqual(self.ask(["a fine film"], {"raw_scores": True}), [raw])


class Pairs(Asked):
    arguments = (os.path.join(ROOT, "tests/data/models/bert-cross-encoder"),)

    def test_texts_and_pairs(self):
        forms = (["a dog", "a puppy"], [["a dog", "a puppy"], ["a dog"]], "a dog")
        self.assertEqual(self.ask([{"inputs": one} for one in forms]),
                         [self.server.post("/predict", {"inputs": one}).json() for one in forms])
        query = {"query": "a puppy", "texts": TEXTS}
        self.assertEqual(self.ask([query, query]), [self.server.post("/rerank", query).json()] * 2)


class Prompts(Asked):
    """`task_type` selects the prompts of a model for queries and documents."""
    arguments = (os.path.join(ROOT, "tests/data/models/embeddinggemma"),)

    def test_task_types(self):
        def vectors(**fields):
            return [one["embeddings"]["values"] for one in self.ask([{"content": "a dog", **fields}])]

        for task, name in (("RETRIEVAL_QUERY", "query"), ("RETRIEVAL_DOCUMENT", "document"), ("QUESTION_ANSWERING", "query")):
            want = self.server.post("/v1/embeddings", {"input": "a dog", "input_type": name}).json()
            self.assertEqual(vectors(task_type=task), [want["data"][0]["embedding"]], task)


class Sparse(Asked):
    arguments = (model("splade-tiny"),)

    def test_as_the_other_path(self):
        want = self.server.post("/invocations", {"inputs": TEXTS}).json()
        self.assertEqual(self.ask(TEXTS), want)
        self.assertEqual(self.ask([{"inputs": TEXTS}, {"inputs": TEXTS[0]}]), [want, want[:1]])


class Routes(Asked):
    """The paths and the port that Vertex AI sets in the container's environment."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(MINILM, "--api-key", "secret", env={**environment(), **ROUTES})

    def test_routes(self):
        key = {"Authorization": "Bearer secret"}
        got = self.server.post(PREDICT, {"instances": TEXTS}, key).json()["predictions"]
        self.assertVectors(got, embed(TEXTS))
        self.assertEqual(self.server.get(HEALTH).json()["status"], "ok")  # without the key, as other health checks
        self.assertEqual(self.server.post(PREDICT, {"instances": TEXTS}).status, 401)
        reply = self.server.request("GET", PREDICT, headers=key)
        self.assertEqual((reply.status, reply.headers["Allow"]), (405, "POST"))
        self.assertEqual(self.server.request("GET", PREDICT + "/", headers=key).status, 404)
        self.assertEqual(self.server.post(PREDICT, {"instances": 3}, key).json()["error_type"], "Validation")

    def test_a_path_that_exists_keeps_its_meaning(self):
        server = Server(MINILM, env={**environment(), "AIP_PREDICT_ROUTE": "/v1/embeddings", "AIP_HEALTH_ROUTE": "/ping"})
        got = server.post("/v1/embeddings", {"input": "a dog"}).json()["data"][0]["embedding"]
        self.assertVector(got, embed(["a dog"])[0])
        self.assertEqual(server.get("/ping").body, b"ready\n")
        self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    main(__name__)
