"""Paths without a client of their own here: TEI's text and rank paths, Jina, llama.cpp, TensorFlow
Serving; and several models behind one port."""
import json
import math
import os

from serving import MINILM, Served, cosine, embed, main, model

from common import ROOT

TEXTS = ["the bill of the restaurant", "a dog", "cats and dogs"]
TINY = os.path.join(ROOT, "tests/data/models/bert-cross-encoder")
RERANKERS = os.path.join(ROOT, "tests/data/rerankers")
SENTIMENT = os.path.join(ROOT, "share/heads/sentiment.safetensors")


class Text(Served):
    def test_tokenize(self):
        got = self.server.post("/tokenize", {"inputs": ["Ünï dogs", "a"]}).json()
        self.assertEqual([one["id"] for one in got[1]], [101, 1037, 102])
        self.assertEqual(got[1][0], {"id": 101, "text": "[CLS]", "special": True, "start": None,
                                     "stop": None})
        word = got[0][-2]
        self.assertEqual((word["text"], word["start"], word["stop"]), ("dogs", 4, 8))
        plain = self.server.post("/tokenize", {"inputs": "a", "add_special_tokens": False}).json()
        self.assertEqual([one["id"] for one in plain[0]], [1037])
        self.refused(400, "empty", "/tokenize", {"inputs": ""})
        self.refused(422, "neither", "/tokenize", {"inputs": 1})

    def test_decode(self):
        ids = [101, 1037, 3899, 102]
        for given, want in ((ids, ["a dog"]), ([ids, ids[1:2]], ["a dog", "a"])):
            self.assertEqual(self.server.post("/decode", {"ids": given}).json(), want)
        kept = self.server.post("/decode", {"ids": ids, "skip_special_tokens": False}).json()
        self.assertEqual(kept, ["[CLS] a dog [SEP]"])
        for wrong in ({}, {"ids": "a"}, {"ids": [["a"]]}, {"ids": [99999999]}, {"ids": ["a"]}):
            self.refused(422, "ids", "/decode", wrong)

    def test_llama_cpp(self):
        got = self.server.post("/tokenize", {"content": "a dog"}).json()
        self.assertEqual(got, {"tokens": [1037, 3899]})
        self.assertEqual(self.server.post("/detokenize", got).json(), {"content": "a dog"})
        got = self.server.post("/tokenize", {"content": "Ünï dogs", "with_pieces": True, "add_special": True,
                                             "parse_special": True}).json()["tokens"]
        self.assertEqual([one["piece"] for one in (got[0], got[-2], got[-1])], ["[CLS]", "dogs", "[SEP]"])
        self.assertEqual("".join(one["piece"] for one in got[1:-1]), "Ünïdogs")
        self.assertEqual([one["id"] for one in got], self.server.post(
            "/tokenize", {"content": "Ünï dogs", "add_special": True}).json()["tokens"])
        self.refused(400, "`parse_special`: false", "/tokenize", {"content": "a [SEP]", "parse_special": False})

    def test_similarity(self):
        vectors = embed(["a puppy", *TEXTS])
        got = self.server.post("/similarity", {
            "inputs": {"source_sentence": "a puppy", "sentences": TEXTS}, "parameters": {}}).json()
        self.assertVector(got, [cosine(vectors[0], one) for one in vectors[1:]], 1e-5)
        self.refused(422, "sentences", "/similarity", {"inputs": {"source_sentence": "a"}})
        self.refused(400, "empty", "/similarity",
                     {"inputs": {"source_sentence": "", "sentences": ["a"]}})


class Rank(Served):
    def test_tei(self):
        vectors = embed(["a puppy", *TEXTS])
        want = sorted(((cosine(vectors[0], one), i) for i, one in enumerate(vectors[1:])),
                      reverse=True)
        got = self.server.post("/rerank", {"query": "a puppy", "texts": TEXTS, "raw_scores": True,
                                           "return_text": True})
        self.assertEqual(got.headers["x-gpuserve-rerank-method"], "cosine")
        for one, (score, index) in zip(got.json(), want):
            self.assertEqual((one["index"], one["text"]), (index, TEXTS[index]))
            self.assertAlmostEqual(one["score"], score, places=5)
        for one in self.server.post("/rerank", {"query": "a", "texts": TEXTS}).json():
            self.assertTrue(0 <= one["score"] <= 1)
        every = self.server.post("/rerank", {"query": "a puppy", "texts": TEXTS}).json()
        for n in (1, 2, 3, 9):
            some = self.server.post("/rerank", {"query": "a puppy", "texts": TEXTS, "top_n": n}).json()
            self.assertEqual(some, every[:n])
        self.refused(400, "empty", "/rerank", {"query": "", "texts": ["a"]})
        self.refused(400, "empty", "/rerank", {"query": "a", "texts": []})
        self.refused(422, "texts", "/rerank", {"query": "a", "texts": [1]})

    def test_alone_and_one_after_another(self):
        """Two jobs in a row by the thread that read them, while clients come and go."""
        asked = {"query": "a puppy", "texts": TEXTS}
        want = self.server.post("/rerank", asked).json()
        for _ in range(300):
            self.assertEqual(self.server.post("/rerank", asked).json(), want)

    def test_jina_and_llama_cpp(self):
        for path in ("/rerank", "/v1/rerank", "/reranking", "/v1/reranking"):
            got = self.server.post(path, {"model": "all-MiniLM-L6-v2", "query": "a puppy", "top_n": 2,
                                          "documents": [TEXTS[0], {"text": TEXTS[1]}, TEXTS[2]],
                                          "return_documents": True}).json()
            self.assertEqual([one["index"] for one in got["results"]], [1, 2])
            self.assertEqual(got["results"][0]["document"], {"text": "a dog"})
            self.assertGreater(got["usage"]["total_tokens"], 10)
            self.assertEqual(got["model"], "all-MiniLM-L6-v2")


    def test_members_of_rankings(self):
        asked = {"query": "a puppy", "documents": TEXTS}
        for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
            best = self.server.post(path, {**asked, "top_k": 2}).json()["results"]
            self.assertEqual([one["index"] for one in best], [1, 2])
            # The form that voyageai reads, whose requests have `truncation` always.
            self.assertNotIn("data", self.server.post(path, {**asked, "top_n": 2}).json())
            for fields in ({"top_k": 2}, {"truncation": True, "top_n": 2}):
                self.assertEqual(self.server.post(path, {**asked, **fields}).json()["data"], best)
            voyage = self.server.post(path, {**asked, "top_k": 1, "return_documents": True}).json()["data"]
            self.assertEqual([one["document"] for one in voyage], [TEXTS[1]])
            self.assertEqual(len(self.server.post(path, {**asked, "top_k": 2, "top_n": 1}).json()["results"]), 1)
            for same in ({"max_chunks_per_doc": 1}, {"rank_fields": ["text"]}, {"max_tokens_per_doc": 4096}, {"truncation": True},
                         {"rank_fields": None}):
                self.assertEqual(self.server.post(path, {**asked, **same, "top_k": 2}).json()["results"], best, same)
            for name, value in (("max_chunks_per_doc", 10), ("rank_fields", ["title", "text"]), ("rank_fields", "text"),
                                ("instruction", "find"), ("truncate_prompt_tokens", 5), ("max_tokens_per_query", 5)):
                self.refused(400, "`%s`" % name, path, {**asked, name: value})
            self.refused(400, "`truncation`: true to have it cut", path,
                         {"query": "a", "documents": ["w " * 400], "truncation": False})

    def test_documents_are_cut(self):
        long = [text + " and much more of it" for text in ("cats", "dogs")]
        got = self.server.post("/v2/rerank", {"query": "a puppy", "documents": long, "max_tokens_per_doc": 1,
                                              "return_documents": True})
        self.assertEqual(got.headers["x-gpuserve-truncated"], "2")
        short = self.server.post("/v2/rerank", {"query": "a puppy", "documents": ["cats", "dogs"]}).json()
        for one, want in zip(got.json()["results"], short["results"]):
            self.assertEqual((one["index"], one["relevance_score"]), (want["index"], want["relevance_score"]))
            self.assertEqual(one["document"], {"text": long[one["index"]]})


class LanguageModel(Served):
    """A reranker that answers yes or no takes an instruction."""
    arguments = ("causal=" + os.path.join(RERANKERS, "causal"),)

    def test_instruction(self):
        with open(os.path.join(RERANKERS, "expected.json"), encoding="utf-8") as file:
            rows = json.load(file)
        for instruction in (None, rows[-1]["instruction"]):
            some = [row for row in rows if row["instruction"] == instruction]
            asked = {"query": some[0]["query"], "documents": [row["document"] for row in some], "instruction": instruction}
            for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
                got = self.server.post(path, asked)
                self.assertEqual(got.headers["x-gpuserve-rerank-method"], "cross-encoder")
                for one in got.json()["results"]:
                    self.assertAlmostEqual(one["relevance_score"], some[one["index"]]["score"], places=5)
        for wrong, status in ((7, 400), ("a\0b", 400)):
            self.refused(status, "`instruction`", "/rerank", {**asked, "instruction": wrong})


class CrossEncoder(Served):
    """A classifier of pairs with one label ranks by itself; its scores are those of the reference."""
    arguments = ("tiny=" + TINY,)

    def setUp(self):
        with open(os.path.join(TINY, "pairs.json"), encoding="utf-8") as file:
            rows = [row for row in json.load(file) if row["text"] == "w1 w2 w3" and row["pair"]]
        self.documents = [row["pair"] for row in rows]
        self.logits = [row["logits"][0] for row in rows]
        self.best = sorted(range(len(rows)), key=lambda i: -self.logits[i])
        self.assertGreater(len(self.best), 1)

    def check(self, found, key, of=lambda x: 1 / (1 + math.exp(-x))):
        self.assertEqual([one["index"] for one in found], self.best)
        for one in found:
            self.assertAlmostEqual(one[key], of(self.logits[one["index"]]), places=5)

    def test_tei(self):
        asked = {"query": "w1 w2 w3", "texts": self.documents}
        got = self.server.post("/rerank", asked)
        self.assertEqual(got.headers["x-gpuserve-rerank-method"], "cross-encoder")
        self.check(got.json(), "score")
        self.check(self.server.post("/rerank", {**asked, "raw_scores": True}).json(), "score",
                   lambda x: x)
        self.assertIn("reranker", self.server.get("/info").json()["model_type"])

    def test_jina_and_cohere(self):
        for path in ("/v1/rerank", "/v2/rerank"):
            got = self.server.post(path, {"model": "tiny", "query": "w1 w2 w3",
                                          "documents": self.documents})
            self.assertEqual(got.status, 200, got.body)
            self.check(got.json()["results"], "relevance_score")
        top = self.server.post("/v2/rerank", {"model": "tiny", "query": "w1 w2 w3", "top_n": 1,
                                              "documents": self.documents}).json()["results"]
        self.assertEqual([one["index"] for one in top], self.best[:1])

    def test_it_does_not_embed(self):
        self.assertIn(self.server.post("/v1/embeddings", {"input": "w1"}).status, (400, 424, 501))
        self.assertEqual(self.server.get("/health").status, 200)


class Ollama(Served):
    """What its own client does not show: vectors of another length than 1, and `options`."""
    arguments = (model("splade-tiny"),)

    def vector(self, text, **more):
        return self.server.post("/api/embed", {"input": text, **more}).json()["embeddings"][0]

    def test_raw_vectors(self):
        raw = self.server.post("/api/embeddings", {"prompt": "a dog"}).json()["embedding"]
        plain = self.server.post("/embed", {"inputs": "a dog", "normalize": False}).json()[0]
        self.assertVector(raw, plain)
        length = math.sqrt(sum(x * x for x in raw))
        self.assertGreater(abs(length - 1), 0.01)
        self.assertVector(self.vector("a dog"), [x / length for x in raw])
        self.assertEqual(self.server.post("/api/embeddings", {"prompt": ""}).json(), {"embedding": []})

    def test_num_ctx(self):
        """Cuts where it says, below the model's own limit; other options have no effect there either."""
        most = self.server.get("/v1/models/splade-tiny").json()["max_tokens"]
        for options, want in (({"num_ctx": 4}, "a a"), ({"num_ctx": 4, "temperature": 1, "none": []}, "a a"),
                              ({"num_ctx": most}, "a a b b"), ({"num_ctx": None}, "a a b b"), (None, "a a b b"),
                              ({}, "a a b b")):
            self.assertVector(self.vector("a a b b", options=options), self.vector(want))
        old = {"prompt": "a a b b", "options": {"num_ctx": 4}}
        self.assertVector(self.server.post("/api/embeddings", old).json()["embedding"],
                          self.server.post("/api/embeddings", {"prompt": "a a"}).json()["embedding"])
        for text, cut in (("a a b b", "1"), ("a a", "0"), ("", "0")):
            reply = self.server.post("/api/embed", {"input": text, "options": {"num_ctx": 4}})
            self.assertEqual((reply.status, reply.headers["x-gpuserve-truncated"]), (200, cut), reply.body)
        for path, field in (("/api/embed", "input"), ("/api/embeddings", "prompt")):
            for wrong in (most + 1, 2, 0, -1, 1.5, "4", True):
                self.refused(400, "`num_ctx` is", path, {field: "a", "options": {"num_ctx": wrong}})
            for wrong in (7, "num_ctx", [], True):
                self.refused(400, "`options` is not an object", path, {field: "a", "options": wrong})
        error = self.refused(400, "`num_ctx` is 4", "/api/embed",
                             {"input": "a a b b", "truncate": False, "options": {"num_ctx": 4}})
        self.assertIn("input 0 has 6 tokens", error["error"])
        self.assertIn("`truncate`: true", error["error"])


class Several(Served):
    arguments = ("minilm=" + MINILM, "splade=" + model("splade-tiny"), "tiny=" + TINY,
                 "--alias", "two=splade", "--alias", "ada")

    def test_names(self):
        names = [one["id"] for one in self.server.get("/v1/models").json()["data"]]
        self.assertEqual(names, ["minilm", "ada", "splade", "two", "tiny"])
        for name, dim in (("minilm", 384), ("ada", 384), ("splade", 128), ("two", 128)):
            got = self.server.post("/v1/embeddings", {"model": name, "input": "a"}).json()
            self.assertEqual(len(got["data"][0]["embedding"]), dim, name)
        self.assertEqual(len(self.server.post("/embed", {"inputs": "a"}).json()[0]), 384)
        self.refused(404, "splade", "/v1/embeddings", {"model": "three", "input": "a"})
        for name in ("../minilm", "", "a/../b", "%2e%2e"):
            self.assertEqual(self.server.get("/v2/models/%s/ready" % name).status, 404)

    def test_paths_without_a_name_take_one_in_the_body(self):
        """TEI, llama.cpp and Hugging Face: each reply is of the space of the model that is named."""
        spaces = {name: self.server.get("/v1/models/" + name).json()["space"] for name in ("minilm", "splade")}
        ranked = {"query": "a", "texts": ["b"]}
        for path, body in (
                ("/embed", {"inputs": "a"}), ("/embed_all", {"inputs": "a"}), ("/rerank", ranked),
                ("/rerank", {"query": "a", "documents": ["b"]}), ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}}),
                ("/", {"inputs": "a"})):
            for name, space in (("minilm", "minilm"), ("two", "splade"), ("splade", "splade"), (None, "minilm")):
                reply = self.server.post(path, {**body, "model": name})
                self.assertEqual((reply.status, reply.headers["x-gpuserve-space"]), (200, spaces[space]), path)
        # Its vocabulary is another one: 59 is "w1" there, a word that has no id in the others.
        for path, body, words in (("/tokenize", {"inputs": "w1"}, '"id":59,'), ("/tokenize", {"content": "w1"}, "[59]"),
                                  ("/decode", {"ids": [59]}, "w1"), ("/detokenize", {"tokens": [59]}, "w1")):
            self.assertIn(words, self.server.post(path, {**body, "model": "tiny"}).body.decode())
            self.assertNotIn(words, self.server.post(path, body).body.decode())
        self.assertEqual(self.server.post("/embed_sparse", {"inputs": "a", "model": "splade"}).status, 200)
        self.refused(422, "minilm", "/embed_sparse", {"inputs": "a", "model": "minilm"})
        self.refused(422, "splade", "/predict", {"inputs": "a", "model": "splade"})
        self.refused(404, "splade", "/predict", {"inputs": "a", "model": "three"})


class TensorFlow(Served):
    arguments = ("m=" + MINILM, "--head", SENTIMENT)

    def test_predict_and_classify(self):
        got = self.server.post("/v1/models/m:predict",
                               {"instances": ["a fine film", {"text": "a dull film"}]}).json()
        self.assertEqual(len(got["predictions"]), 2)
        self.assertAlmostEqual(sum(got["predictions"][0]), 1, places=5)
        got = self.server.post("/v1/models/m/versions/1:classify",
                               {"examples": [{"text": "a fine film"}]}).json()
        self.assertEqual(got["result"][0][0][0], "positive")
        self.refused(422, "`return_all_scores`", "/", {"inputs": "a", "parameters": {"return_all_scores": True}})
        self.refused(400, "instances", "/v1/models/m:predict", {})
        self.refused(400, "item 0", "/v1/models/m:predict", {"instances": [[1]]})
        self.refused(404, "unknown model", "/v1/models/other:predict", {"instances": ["a"]})

    def test_one_version_and_one_signature(self):
        for verb, body in (("predict", {"instances": ["a"]}), ("classify", {"examples": [{"text": "a"}]})):
            good = {**body, "signature_name": "serving_default"}
            self.assertEqual(self.server.post("/v1/models/m/versions/1:" + verb, good).status, 200)
            self.refused(404, "Specific(m, 2)", "/v1/models/m/versions/2:" + verb, body)
            self.refused(400, "Unrecognized servable version label: stable", "/v1/models/m/labels/stable:" + verb, body)
            self.refused(400, 'name: \\"other\\" not found', "/v1/models/m:" + verb, {**body, "signature_name": "other"})
            self.refused(400, "signature_name", "/v1/models/m:" + verb, {**body, "signature_name": 7})


class HuggingFace(Served):
    arguments = ("minilm=" + MINILM, "tokens=" + os.path.join(ROOT, "tests/data/models/bert-tokens"),
                 "tiny=" + os.path.join(ROOT, "tests/data/models/st-dense"))

    def test_feature_extraction_takes_parameters(self):
        """In the body, as InferenceClient sends them, or in `parameters`."""
        for options in ({"dimensions": 4}, {"normalize": False}, {"truncate": True, "normalize": True}):
            want = self.server.post("/", {"inputs": "a dog", **options}).json()
            got = self.server.post("/", {"inputs": "a dog", "parameters": options, "options": {"wait_for_model": True}})
            self.assertEqual(got.json(), want)
        self.assertEqual(len(self.server.post("/", {"inputs": "a", "parameters": {"dimensions": 4}}).json()[0]), 4)
        self.assertEqual(len(self.server.post("/", {"inputs": "w " * 400, "parameters": {"truncate": True}}).json()), 1)

    def test_unknown_parameters(self):
        pair = {"source_sentence": "a", "sentences": ["b"]}
        for path, inputs, known in (("/", "a", {"normalize": True}), ("/", pair, {"truncate": True}),
                                    ("/", "a", {"candidate_labels": ["b"]}), ("/similarity", pair, {}),
                                    ("/models/tokens", "w1", {"aggregation_strategy": "none"})):
            self.assertEqual(self.server.post(path, {"inputs": inputs, "parameters": {**known, "stride": None}}).status, 200)
            self.refused(422, "`stride`", path, {"inputs": inputs, "parameters": {**known, "stride": 1}})
        self.refused(422, "`parameters` is not an object", "/", {"inputs": "a", "parameters": [1]})
        self.refused(422, "encoding_format", "/", {"inputs": "a", "encoding_format": "base64"})


if __name__ == "__main__":
    main(__name__)
