"""Test cases of other servers, in own words: each passes here, or has the reason why not.

A row is (line of the peer's file, its case, a check or the reason). Sources, by commit: llama.cpp 3a0f73e5 (embedding),
2f690343 (rerank), ac18090e (tokenize), 01dca87b (security); text-embeddings-inference 02506d0b, 4d944459, 540b6299;
Ollama 01250de1; Triton 082b1866; infinity 065e6c93.
"""
import base64
import json
import os
import struct

from serving import MINILM, Served, cosine, embed, main

from common import ROOT

NAME = "all-MiniLM-L6-v2"
INFER = "/v2/models/%s/infer" % NAME
RAW = {"Inference-Header-Content-Length": "0"}
PAIRS = "tiny=" + os.path.join(ROOT, "tests", "data", "models", "bert-cross-encoder")
HEAD = os.path.join(ROOT, "share/heads/sentiment.safetensors")
LIFE = "I believe the meaning of life is"
SKY, GRASS = "why is the sky blue?", "why is the grass green?"
# Ollama's vectors of the two begin so (lines 89 and 131 of its test); cosine 0.99 is its own tolerance.
OLLAMA = ((0.010071, -0.0017594865, 0.050072223, 0.046929732), (-0.009802706, 0.060424678, 0.025257956, -0.0063643856))
DOCUMENTS = ["A machine is a device of moving parts that does work.", "Learning is how people and animals get knowledge.",
             "Machine learning is the study of algorithms that learn from data.", "Paris, capitale de la France, est une grande ville."]
POOLING = "the model's files choose its pooling; no option of the server does"
GENERATES = "needs text generation, which no encoder has"
IMAGES = "needs images, which a text encoder does not read"


class Peer(Served):
    def run_rows(self, source, *rows):
        for line, case, what in rows:
            with self.subTest(source=source, line=line, case=case):
                if callable(what):
                    what()
                else:
                    self.assertGreater(len(what.split()), 4, "a reason is a sentence")

    def ask(self, path, body, status=200, headers=None):
        reply = self.server.post(path, body, headers)
        self.assertEqual(reply.status, status, reply.body)
        return reply.json()

    def vectors(self, value, path="/v1/embeddings", **more):
        return [one["embedding"] for one in self.ask(path, {"input": value, **more})["data"]]

    def same(self, got, want):
        self.assertEqual(len(got), len(want))
        for one, other in zip(got, want):
            self.assertVector(one, other, 1e-5)

    def are_units(self, texts):
        got = self.vectors(texts)
        self.assertEqual(len(got), len(texts) if isinstance(texts, list) else 1)
        for vector in got:
            self.assertAlmostEqual(sum(x * x for x in vector), 1, places=3)


class Embedder(Peer):
    def ids(self, text, special=False):
        return self.ask("/tokenize", {"content": text, "add_special": special})["tokens"]

    def mixed_ids(self):
        """A text in a list of ids has no special tokens."""
        cls, sep = self.ids("", True)
        self.same(self.vectors([cls, "a dog", sep]), embed(["a dog"]))
        self.same(self.vectors([cls, "a", *self.ids("dog"), sep], "/embeddings"), embed(["a dog"]))
        self.same(self.ask("/embedding", {"content": [[cls, "a dog", sep]]})[0]["embedding"], embed(["a dog"]))
        self.same(self.vectors([[12, 34], [12, "string", 34]]), self.vectors([[12, 34], [12, *self.ids("string"), 34]]))
        self.same(self.vectors([[12, "string"], "a dog"])[1:], embed(["a dog"]))
        self.same(self.vectors(["string1", [12, 34, 56]])[:1], embed(["string1"]))

    def objects(self):
        text, part = {"prompt_string": "a dog"}, {"content": [{"type": "text", "text": "a "}, {"type": "text", "text": "dog"}]}
        want = embed(["a dog"])
        for path in ("/v1/embeddings", "/embeddings"):
            for value in (text, part):
                self.same(self.vectors(value, path), want)
            self.same(self.vectors(["a dog", text, part], path), want * 3)
        for value in (part, [part]):
            self.same(self.ask("/embedding", {"content": value})[0]["embedding"], want)

    def bad_input(self):
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        for value, words in (([], "cannot be empty"), ({"content": "string"}, "list `content`"), ({}, "prompt_string"),
                             ({"content": [{"type": "input_audio", "input_audio": {}}]}, "part 0 of `content`"),
                             ({"content": [{"type": "text", "text": "a"}, image]}, "part 1 of `content`"), ({"content": []}, "cannot be empty"),
                             (["a", {"prompt_string": 7}], "prompt_string"), ([12, "a", None], "`input`"), ([12, "a", 1.5], "`input`"),
                             ([12, "a", 1 << 40], "vocabulary"), (["a", 12], "not a string"), ({"content": [{"type": "text", "text": 7}]}, "part 0"),
                             ({"prompt_string": "a", "multimodal_data": ["AAAA"]}, "multimodal_data")):
            self.assertIn(words, self.ask("/v1/embeddings", {"input": value}, 400)["error"]["message"])

    def too_long(self):
        self.assertIn("tokens", self.ask("/v1/embeddings", {"input": "This is a test " * 512}, 400)["error"]["message"])

    def usage(self, value, n):
        usage = self.ask("/v1/embeddings", {"input": value})["usage"]
        self.assertEqual((usage["prompt_tokens"], usage["total_tokens"]), (n, n))

    def floats_of_base64(self, path="/v1/embeddings"):
        packed = self.vectors("Hello World", path, encoding_format="base64")[0]
        self.assertEqual(list(struct.unpack("<384f", base64.b64decode(packed))),
                         [struct.unpack("f", struct.pack("f", x))[0] for x in self.vectors("Hello World", path)[0]])

    def test_llama_cpp_embedding(self):
        self.run_rows(
            "llama.cpp/tools/server/tests/unit/test_embedding.py",
            (17, "single", lambda: self.are_units(LIFE)), (33, "multiple", lambda: self.are_units(DOCUMENTS)),
            (52, "multiple_with_fa", lambda: self.are_units(["a " * 253, "b " * 254, "c " * 252, "d " * 250])),
            (76, "empty text", "refused with 400, as OpenAI refuses it: an empty text has no meaning"),
            (78, "one prompt", self.mixed_ids), (82, "several prompts", self.mixed_ids), (87, "object entries", self.objects),
            (108, "content text same as string", self.objects), (133, "invalid input", self.bad_input),
            (140, "pooling mean", lambda: self.same(self.vectors(LIFE), embed([LIFE]))),
            (156, "pooling mean multiple", lambda: self.same(self.vectors(DOCUMENTS), embed(DOCUMENTS))),
            (174, "pooling none", POOLING), (190, "pooling none, OpenAI", POOLING),
            (203, "openai library, single", "test_openai.py has the library's own cases"),
            (213, "openai library, multiple", "test_openai.py has the library's own cases"),
            (229, "prompt too long", self.too_long), (240, "same prompt", lambda: self.same(self.vectors([LIFE] * 5), embed([LIFE]) * 5)),
            (264, "usage", lambda: self.usage(LIFE, 9)), (265, "usage", lambda: self.usage("This is a test", 6)),
            (277, "usage of two", lambda: self.usage([LIFE, LIFE], 18)), (291, "base64", self.floats_of_base64))

    def ranks(self, key="documents", score="relevance_score", path="/rerank", **more):
        got = self.ask(path, {"query": "Machine learning is", key: DOCUMENTS, **more})
        got = got["results"] if key == "documents" else got
        self.assertEqual([one["index"] for one in got][:1], [2])
        if len(got) == len(DOCUMENTS):
            self.assertEqual(got[-1]["index"], 3)
        self.assertGreater(got[0][score], got[-1][score])
        return len(got)

    def top_n(self, key, score):
        for n, want in ((2, 2), (4, 4), (99, 4)):
            self.assertEqual(self.ranks(key, score, top_n=n), want)

    def bad_documents(self):
        for path in ("/rerank", "/reranking", "/v1/rerank"):
            for value in ([], None, 123, [1, 2, 3]):
                self.assertIn("error" if path != "/v1/rerank" else "message", self.ask(path, {"query": "a", "documents": value}, 400))

    def test_llama_cpp_rerank(self):
        self.run_rows(
            "llama.cpp/tools/server/tests/unit/test_rerank.py",
            (21, "rerank", self.ranks), (44, "TEI's format", lambda: self.ranks("texts", "score")), (73, "invalid", self.bad_documents),
            (91, "usage", "counts tokens of another vocabulary, of a model with another tokenizer"),
            (113, "top_n", lambda: self.top_n("documents", "relevance_score")), (134, "top_n in TEI's format", lambda: self.top_n("texts", "score")),
            (150, "embeddings of a reranker", "Reranker.test_llama_cpp_rerank, below, has this case"))

    def round_trip(self):
        got = self.ask("/tokenize", {"content": "What is the capital of France ?"})["tokens"]
        self.assertGreater(len(got), 5)
        self.assertEqual(self.ask("/detokenize", {"tokens": got})["content"].strip(), "what is the capital of france?")

    def pieces(self):
        for one in self.ask("/tokenize", {"content": "This is a test string with unicode 媽 and emoji 🤗", "with_pieces": True})["tokens"]:
            self.assertGreater(one["id"], 0)
            self.assertTrue(one["piece"])

    def bad_tokens(self):
        for path, body in (("/tokenize", {"content": 7}), ("/tokenize", {"content": None}), ("/detokenize", {"tokens": "a"}), ("/detokenize", {}),
                           ("/detokenize", {"tokens": ["a"]}), ("/detokenize", {"tokens": [1 << 40]})):
            self.assertEqual(self.ask(path, body, 400)["error"]["type"], "invalid_request_error")

    def test_llama_cpp_tokenize(self):
        self.run_rows(
            "llama.cpp/tools/server/tests/unit/test_tokenize.py", (10, "there and back", self.round_trip),
            (27, "with BOS", lambda: self.assertEqual(self.ids("What", True)[0], 101)), (40, "with pieces", self.pieces),
            (0, "bad fields, 400 as in server.cpp", self.bad_tokens))

    def test_tei_embed(self):
        one = self.ask("/embed", {"inputs": "test"})
        self.run_rows(
            "text-embeddings-inference/router/tests/test_http_embed.rs", (20, "single", lambda: self.same(one, embed(["test"]))),
            (34, "batch", lambda: self.same(self.ask("/embed", {"inputs": ["test"] * 5}), one * 5)),
            (52, "raw", lambda: self.assertEqual([len(row) for row in self.ask("/embed_all", {"inputs": "test"})], [3])))

    def ollama(self, texts, n_tokens, path="/api/embed"):
        got = self.ask(path, {"model": NAME, "input": texts})
        self.assertEqual(got["prompt_eval_count"], n_tokens)
        for vector, begin in zip(got["embeddings"], OLLAMA):
            self.assertEqual(len(vector), 384)
            self.assertGreater(cosine(vector[:4], begin), 0.99)

    def ollama_older(self):
        got = self.ask("/api/embeddings", {"model": NAME, "prompt": SKY})["embedding"]
        self.assertEqual(len(got), 384)
        self.assertGreater(cosine(got[:4], OLLAMA[0]), 0.99)

    def ollama_cut(self):
        """Its own numbers are 1; there a limit counts without the two special tokens."""
        asked = {"model": NAME, "input": SKY, "options": {"num_ctx": 3}}
        want = self.ask("/api/embed", {"model": NAME, "input": "why"})["embeddings"]
        for body in (asked, {**asked, "truncate": True}):
            self.same(self.ask("/api/embed", body)["embeddings"], want)
        self.ask("/api/embed", {**asked, "truncate": False}, 400)

    def test_ollama(self):
        self.run_rows(
            "ollama/integration/embed_test.go", (33, "AllMiniLMEmbeddings", self.ollama_older),
            (63, "AllMiniLMEmbed; 6 tokens there, without the special ones", lambda: self.ollama(SKY, 8)),
            (101, "AllMiniLMBatchEmbed; 12 there", lambda: self.ollama([SKY, GRASS], 16)), (149, "AllMiniLMEmbedTruncate", self.ollama_cut))

    def infer(self, body, status=200, headers=None):
        reply = self.server.post(INFER, body, headers)
        self.assertEqual(reply.status, status, reply.body)
        return reply

    def raw(self, text, **headers):
        reply = self.infer(text.encode(), headers={**RAW, **headers})
        size = int(reply.headers["Inference-Header-Content-Length"])
        described = json.loads(reply.body[:size])["outputs"][0]
        self.assertEqual((described["shape"], described["parameters"]["binary_data_size"]), ([1, 384], 1536))
        self.assertVector(struct.unpack("<384f", reply.body[size:]), embed([text])[0])

    def raw_chunked(self):
        connection = self.server.connect()
        connection.request("POST", INFER, body=iter([b"a ", b"dog"]), headers=RAW, encode_chunked=True)
        reply = connection.getresponse()
        self.assertEqual(reply.status, 200, reply.read())
        connection.close()

    def tensor(self, status, words, **changes):
        one = {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"], **changes}
        self.assertIn(words, self.infer({"inputs": [one]}, status).json().get("error", ""))

    def nested(self):
        for depth, status in ((2, 200), (120, 413)):
            data = "a"
            for _ in range(depth):
                data = [data]
            self.infer({"inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": data}]}, status)

    def twice(self):
        one = {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]}
        reply = self.infer({"inputs": [one], "outputs": [{"name": "embedding"}] * 2}, 400)
        self.assertIn("requested twice", reply.json()["error"])
        self.assertEqual(self.server.get("/v2/health/live").status, 200)

    def test_triton_metrics(self):
        """"Metrics" of the guide of Triton: its names and labels, and the numbers of its statistics."""
        def page():
            rows = [line.rsplit(" ", 1) for line in self.server.get("/metrics").body.decode().splitlines() if line.startswith("nv_")]
            return {name: int(value) for name, value in rows}
        before = page()
        self.raw("a text for the metrics")
        self.ask("/v1/embeddings", {"input": ["one more", "and another"]})
        after = page()
        self.assertEqual({name.partition("{")[2] for name in after}, {'model="%s",version="1"}' % NAME})
        change = {name.partition("{")[0]: after[name] - before[name] for name in after}
        self.assertEqual((change["nv_inference_request_success"], change["nv_inference_request_failure"], change["nv_inference_count"]), (2, 0, 3))
        self.assertIn(change["nv_inference_exec_count"], (2, 3))
        self.assertGreater(change["nv_inference_request_duration_us"], change["nv_inference_queue_duration_us"])
        self.assertGreater(change["nv_inference_compute_infer_duration_us"], 0)
        stats = self.server.get("/v2/models/%s/stats" % NAME).json()["model_stats"][0]
        for name, value in (("count", stats["inference_count"]), ("exec_count", stats["execution_count"]),
                            ("request_success", stats["inference_stats"]["success"]["count"])):
            self.assertEqual(next(after[full] for full in after if full.startswith("nv_inference_%s{" % name)), value)

    def test_triton(self):
        self.assertIn("is not UTF-8", self.infer(b"a \xff", 400, RAW).json()["error"])
        self.assertIn("is empty", self.infer(b"", 400, RAW).json()["error"])
        self.run_rows(
            "triton/qa/L0_http/http_test.py", (74, "raw_binary", "a raw FP32 tensor is no input of a text model"),
            (79, "raw_binary_longer", "a raw FP32 tensor is no input of a text model"), (85, "byte", lambda: self.raw("427")),
            (106, "byte_too_many_elements", "a raw request is always one text: TEXT has no fixed shape"),
            (125, "multi_variable_dimensions", "a raw request is always one text, of shape [1]"),
            (146, "multi_inputs", "a raw request is always TEXT, the one input that needs no other"),
            (173, "content_encoding_chunked", self.raw_chunked), (193, "unsupported by the client", "tests the client: no request is sent"),
            (216, "descriptive_status_code", "test_words.py fills the queue and expects 503"),
            (240, "buffer_size_overflow", lambda: self.tensor(400, "of `shape`", shape=[16, 2**60 + 2])),
            (306, "negative_dimensions; 500 there", lambda: self.tensor(400, "of `shape`", shape=[2, -5])),
            (338, "loading_large_invalid_model", "`file:` in a load is refused, and 3 GB exceed the limit of a body"),
            (378, "json_recursion_depth_limit; here 32 levels", self.nested), (427, "duplicate_output_names", self.twice))

    def infinity_models(self):
        got = self.server.get("/models").json()["data"][0]
        self.assertEqual(got["id"], NAME)
        self.assertGreaterEqual(got["stats"]["results_pending"], 0)
        health = self.server.get("/health").json()
        self.assertEqual(health["status"], "ok")
        self.assertGreater(health["unix"], 1.6e9)

    def infinity_dimensions(self):
        for texts in ([LIFE], [LIFE, SKY]):
            self.assertEqual([len(vector) for vector in self.vectors(texts, "/embeddings", dimensions=10)], [10] * len(texts))

    def test_infinity(self):
        self.run_rows(
            "infinity/libs/infinity_emb/tests/end_to_end/test_api_with_dummymodel.py", (60, "model_route", self.infinity_models),
            (76, "embedding_max_length", "its limit is 122880 characters with 422; here it is in tokens, with 400 as OpenAI"),
            (95, "encoding_base_64", lambda: self.floats_of_base64("/embeddings")),
            (114, "embedding", lambda: self.same(self.vectors(DOCUMENTS, "/embeddings"), embed(DOCUMENTS))),
            (131, "batch_embedding", "test_fairness.py sends more at once"),
            (164, "openapi_same_as_docs_file", "compares infinity's own document with its own file"),
            (184, "matryoshka_embedding", self.infinity_dimensions),
            (207, "default dimensions", "an option of its command line that the server does not have"))


class Classifier(Peer):
    arguments = (MINILM, "--head", HEAD)

    def test_tei_predict(self):
        one = self.ask("/predict", {"inputs": "test"})
        self.assertEqual(sorted(one[0]), ["label", "score"])
        self.run_rows("text-embeddings-inference/router/tests/test_http_predict.rs", (28, "single; labels in order of score", lambda: self.assertGreater(one[0]["score"], one[-1]["score"])),
                      (44, "batch", lambda: self.assertEqual(self.ask("/predict", {"inputs": [["test"]] * 5}), [one] * 5)))


class Reranker(Peer):
    arguments = (PAIRS,)

    def rank(self):
        got = self.ask("/rerank", {"query": "w1", "texts": ["w1", "w2", "w1"], "return_text": True})
        self.assertEqual({one["index"]: one["text"] for one in got}, {0: "w1", 1: "w2", 2: "w1"})
        scores = {one["index"]: one["score"] for one in got}
        self.assertEqual(scores[0], scores[2])  # the order of equal ones is free

    def test_tei_rerank(self):
        self.run_rows("text-embeddings-inference/router/tests/test_http_rerank.rs", (19, "rerank", self.rank))

    def test_llama_cpp_rerank(self):
        def refused():
            for path in ("/embeddings", "/v1/embeddings"):
                self.assertIn("rerank", self.ask(path, {"input": "hello"}, 400)["error"]["message"])
        self.run_rows("llama.cpp/tools/server/tests/unit/test_rerank.py", (150, "embeddings of a reranker", refused))


class Keys(Peer):
    arguments = (MINILM, "--api-key", "sk-this-is-the-secret-key")

    def keys(self):
        for headers, status in (({}, 401), ({"Authorization": "Bearer invalid-key"}, 401), ({"Authorization": "Bearer sk-this-is-the-secret-key"}, 200)):
            self.ask("/embedding", {"content": LIFE}, status, headers)

    def test_llama_cpp_security(self):
        self.run_rows(
            "llama.cpp/tools/server/tests/unit/test_security.py",
            (17, "public: /health", lambda: self.assertEqual(self.server.get("/health").status, 200)),
            (17, "public: /models", "names of models need a key here, as at OpenAI"),
            (26, "static assets", lambda: self.assertEqual(self.server.get("/").status, 200)), (36, "wrong key", self.keys), (49, "right key", self.keys),
            (62, "X-Api-Key", "a header of Anthropic's chat interface, which the server does not have"), (75, "chat by the openai library", GENERATES),
            (96, "CORS", "test_origin.py: no origin is allowed unless --cors-allow-origin names it"), (119, "local media", IMAGES))


if __name__ == "__main__":
    main(__name__)
