"""Replies and errors word by word: the members that each dialect's clients read, no fewer and no
others, in the types they read them as."""
import base64
import json
import os
import shutil
import signal
import socket
import struct
import tempfile
import time

from serving import MINILM, PATIENCE, Served, Server, embed, main, wait_until

from common import ROOT

NAME = "all-MiniLM-L6-v2"
HEAD = os.path.join(ROOT, "share/heads/sentiment.safetensors")
TINY = os.path.join(ROOT, "tests/data/models")
MODEL = "/v2/models/" + NAME
INFO = {"model_id", "model_sha", "model_dtype", "served_model_name", "model_type", "max_concurrent_requests",
        "max_input_length", "max_batch_tokens", "max_batch_requests", "max_client_batch_size", "auto_truncate",
        "tokenization_workers", "version", "sha", "docker_label"}
OURS = {"device", "deterministic", "space", "poolings"}  # in addition to them
ANY = object()


def binary(*texts):
    return b"".join(struct.pack("<I", len(one)) + one for one in texts)


class Forms(Served):
    def assertForm(self, got, want, where="reply"):
        """`want` is a type, a tuple of types, ANY, a list of one form for all items, a record of forms, or
        the value itself."""
        if want is ANY:
            return
        if isinstance(want, (type, tuple)):
            self.assertIsInstance(got, want, where)
        elif isinstance(want, list):
            self.assertIsInstance(got, list, where)
            self.assertGreater(len(got), 0, where)
            for i, one in enumerate(got):
                self.assertForm(one, want[0], "%s[%d]" % (where, i))
        elif isinstance(want, dict):
            self.assertEqual(set(got), set(want), where)
            for name, form in want.items():
                self.assertForm(got[name], form, "%s.%s" % (where, name))
        else:
            self.assertEqual(got, want, where)


class Words(Forms):
    arguments = (MINILM, "--head", HEAD)

    def form(self, path, body, want, headers=None):
        reply = self.server.post(path, body, headers)
        self.assertEqual(reply.status, 200, (path, reply.body[:300]))
        self.assertEqual(reply.headers["Content-Type"], "application/json", path)
        self.assertForm(reply.json(), want, path)
        return reply.json()

    def test_openai(self):
        usage = {"prompt_tokens": int, "total_tokens": int}
        for encoding, kind in (("float", [float]), ("base64", str)):
            got = self.form("/v1/embeddings", {"input": ["a dog"], "encoding_format": encoding, "user": "me"}, {
                "object": "list", "model": NAME, "usage": usage,
                "data": [{"object": "embedding", "index": 0, "embedding": kind}]})
        raw = base64.b64decode(got["data"][0]["embedding"])
        self.assertVector(struct.unpack("<384f", raw), embed(["a dog"])[0])
        self.assertForm(self.server.get("/v1/models").json(), {"object": "list", "data": [
            {"id": str, "object": "model", "created": int, "owned_by": str}]})

    def test_errors_of_openai(self):
        space = {"x-gpuserve-space": "0" * 32}
        for status, kind, code, param, body, headers in (
                (400, "invalid_request_error", "invalid_json", None, b"{", None),
                (400, "invalid_request_error", "empty_input", "input", {"input": ""}, None),
                (400, "invalid_request_error", "invalid_value", "input", {"input": [99999999]}, None),
                (400, "invalid_request_error", "invalid_value", "dimensions", {"input": "a", "dimensions": 0}, None),
                (400, "invalid_request_error", "too_many_inputs", "input", {"input": ["a"] * 2049}, None),
                (400, "invalid_request_error", "context_length_exceeded", None, {"input": "a " * 999}, None),
                (404, "invalid_request_error", "model_not_found", "model", {"input": "a", "model": "b"}, None),
                (409, "invalid_request_error", "vector_space_differs", None, {"input": "a"}, space),
                (415, "invalid_request_error", "unsupported_media_type", None, {"input": "a"}, {"Content-Encoding": "br"}),
                (504, "server_error", "deadline_exceeded", None, {"input": "a"}, {"Request-Timeout": "0"})):
            reply = self.server.post("/v1/embeddings", body, headers)
            self.assertEqual(reply.status, status, reply.body)
            self.assertForm(reply.json(), {"error": {"message": str, "type": kind, "param": param, "code": code}})

    def test_what_cannot_become_better_is_not_repeated(self):
        """The openai package repeats 409 unless it is told not to."""
        reply = self.server.post("/v1/embeddings", {"input": "a"}, {"x-gpuserve-space": "0" * 32})
        self.assertEqual((reply.status, reply.headers["x-should-retry"]), (409, "false"))
        for status, body, headers in ((200, {"input": "a"}, None), (504, {"input": "a"}, {"Request-Timeout": "0"})):
            reply = self.server.post("/v1/embeddings", body, headers)
            self.assertEqual((reply.status, reply.headers["x-should-retry"]), (status, None))

    def test_tei(self):
        token = {"id": int, "text": str, "special": bool, "start": ANY, "stop": ANY}
        label = {"score": float, "label": str}
        for path, body, want in (
                ("/embed", {"inputs": "a"}, [[float]]), ("/embed", {"inputs": [101, 102]}, [[float]]),
                ("/embed", {"inputs": ["a", [101, 102], "b"]}, [[float]]), ("/embed_all", {"inputs": "a"}, [[[float]]]),
                ("/predict", {"inputs": "a"}, [label]), ("/predict", {"inputs": ["a"]}, [label]),
                ("/predict", {"inputs": ["a", "b"]}, [label]), ("/predict", {"inputs": [["a"], ["a", "b"]]}, [[label]]),
                ("/rerank", {"query": "a", "texts": ["b", "c"]}, [{"index": int, "score": float}]),
                ("/rerank", {"query": "a", "texts": ["b"], "return_text": True}, [{"index": 0, "score": float, "text": "b"}]),
                ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}, "parameters": {}}, [float]),
                ("/tokenize", {"inputs": "a", "prompt_name": None}, [[token]]),
                ("/decode", {"ids": [101, 1037]}, ["a"]), ("/decode", {"ids": [[1037], [3899]]}, [str])):
            self.form(path, body, want)
        self.assertEqual(set(self.server.get("/info").json()), INFO | OURS)

    def test_texts_and_pairs_in_one_batch(self):
        """Each is answered as if it were alone, in the order of the request."""
        inputs = [["a fine film"], ["a dull film", "b"], ["a dull film"], ["c", "a fine film"], ["d"]]
        together = self.server.post("/predict", {"inputs": inputs})
        alone = [self.server.post("/predict", {"inputs": one}).json() for one in inputs]
        self.assertEqual(together.json(), alone)
        self.assertEqual(len({json.dumps(one) for one in alone}), len(inputs))
        counts = [int(self.server.post("/predict", {"inputs": one}).headers["x-compute-tokens"]) for one in inputs]
        self.assertEqual(int(together.headers["x-compute-tokens"]), sum(counts))
        raw = self.server.post("/predict", {"inputs": inputs, "raw_scores": True}).json()
        self.assertEqual([[one["label"] for one in row] for row in raw], [[one["label"] for one in row] for row in alone])
        self.assertNotEqual(raw, alone)

    def test_errors_of_tei(self):
        self.refused(422, "the model has no prompts", "/tokenize", {"inputs": "a", "prompt_name": "query"})
        for status, kind, path, body in (
                (400, "Empty", "/embed", {"inputs": ""}), (400, "Empty", "/embed", {"inputs": []}),
                (400, "Empty", "/predict", {"inputs": [["a"], [""]]}), (400, "Empty", "/rerank", {"query": "a", "texts": []}),
                (422, "Validation", "/embed", {"inputs": 7}), (422, "Validation", "/embed", {"inputs": "a " * 999}),
                (422, "Validation", "/embed", {"inputs": ["a"] * 2049}), (422, "Validation", "/decode", {"ids": ["a"]}),
                (422, "Validation", "/tokenize", {"inputs": "a", "prompt_name": "query"}),
                # what only the tokenizer knows: which ids there are
                (422, "Tokenizer", "/decode", {"ids": [30522]}), (422, "Tokenizer", "/decode", {"ids": [[101], [101, -1]]}),
                (422, "Tokenizer", "/embed", {"inputs": [[30522]]}),
                (422, "Tokenizer", "/embed", {"inputs": ["a", [30522]]}), (422, "Tokenizer", "/embed_all", {"inputs": [30522]})):
            reply = self.server.post(path, body)
            self.assertEqual(reply.status, status, (path, body, reply.body))
            self.assertForm(reply.json(), {"error": str, "error_type": kind}, path)

    def test_kserve(self):
        text = {"name": "TEXT", "shape": [2, 1], "datatype": "BYTES", "data": ["a fine film", "a dull film"]}
        scores = {"name": "scores", "datatype": "FP32", "shape": [2, 2], "data": [float]}
        labels = {"name": "labels", "datatype": "BYTES", "shape": [2], "data": [str]}
        head = {"model_name": NAME, "model_version": "1"}
        got = self.form(MODEL + "/infer", {"id": "mine", "inputs": [text], "parameters": {"priority": 1, "timeout": 60000000}},
                        {"id": "mine", **head, "outputs": [ANY]})
        for one, want in zip(got["outputs"], (scores, labels), strict=True):
            self.assertForm(one, want)
        self.assertEqual(got["outputs"][1]["data"], ["positive", "negative"])
        for priority in (0, 1, 2, 3):
            self.form(MODEL + "/versions/1/infer", {"inputs": [text], "parameters": {"priority": priority}}, {**head, "outputs": [ANY]})
        got = self.form(MODEL + "/infer", {"inputs": [text], "outputs": [
            {"name": "labels"}, {"name": "scores", "parameters": {"classification": 1}}]}, {**head, "outputs": [ANY]})
        self.assertEqual([one["name"] for one in got["outputs"]], ["labels", "scores"])
        self.assertRegex(got["outputs"][1]["data"][0], r"^0\.\d+:\d:positive$")
        for path, want in (("/v2", {"name": "gpuserve", "version": str, "extensions": [str]}),
                           ("/v2/health/live", {"live": True}), ("/v2/health/ready", {"ready": True}),
                           (MODEL + "/ready", {"ready": True}), (MODEL + "/versions/1/ready", {"ready": True}),
                           (MODEL, {"name": NAME, "versions": ["1"], "platform": str,
                                    "inputs": [{"name": str, "datatype": str, "shape": [int]}],
                                    "outputs": [{"name": str, "datatype": str, "shape": [int]}]})):
            self.assertForm(self.server.get(path).json(), want, path)

    def test_binary_tensors_of_kserve(self):
        """Texts in, vectors and labels out: JSON first, then the tensors in the order they are listed in."""
        tail = binary(b"a fine film", b"a dull film")
        head = json.dumps({"inputs": [{"name": "TEXT", "shape": [2], "datatype": "BYTES",
                                       "parameters": {"binary_data_size": len(tail)}}],
                           "outputs": [{"name": "labels", "parameters": {"binary_data": True}},
                                       {"name": "scores", "parameters": {"binary_data": True}}]}).encode()
        reply = self.server.post(MODEL + "/infer", head + tail, {"Inference-Header-Content-Length": str(len(head))})
        self.assertEqual((reply.status, reply.headers["Content-Type"]), (200, "application/octet-stream"))
        size = int(reply.headers["Inference-Header-Content-Length"])
        got, rest = json.loads(reply.body[:size]), reply.body[size:]
        sizes = [one["parameters"]["binary_data_size"] for one in got["outputs"]]
        self.assertEqual([one["name"] for one in got["outputs"]], ["labels", "scores"])
        self.assertEqual(rest[:sizes[0]], binary(b"positive", b"negative"))
        self.assertEqual(sizes, [24, 16])
        rows = struct.unpack("<4f", rest[sizes[0]:])
        self.assertAlmostEqual(rows[0] + rows[1], 1, places=5)

    def test_errors_of_kserve(self):
        for status, method, path, body in (
                (400, "POST", MODEL + "/infer", b"{"), (404, "POST", "/v2/models/none/infer", b"{}"), (404, "GET", "/v2/nothing", None),
                (405, "GET", MODEL + "/infer", None), (501, "POST", "/v2/repository/models/%s/unload" % NAME, b"{}"),
                (405, "GET", "/api/embed", None), (400, "POST", "/api/embed", b"{}"), (400, "POST", "/v1/models/%s:predict" % NAME, b"{}")):
            reply = self.server.request(method, path, body)
            self.assertEqual(reply.status, status, (path, reply.body))
            self.assertForm(reply.json(), {"error": str}, path)

    def test_rankings(self):
        body = {"model": NAME, "query": "a puppy", "documents": ["a bill", {"text": "a dog"}, "a cat"], "top_n": 2}
        meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}, "method": "cosine"}
        one = {"index": int, "relevance_score": float}
        want = {"id": str, "model": NAME, "object": "list", "results": [one], "usage": {"prompt_tokens": int, "total_tokens": int},
                "meta": meta}
        got = self.form("/v2/rerank", body, want)
        self.assertEqual([one["index"] for one in got["results"]], [1, 2])
        self.assertEqual([0 <= one["relevance_score"] <= 1 for one in got["results"]], [True] * 2)
        self.assertGreater(*[one["relevance_score"] for one in got["results"]])
        want["results"] = [{**one, "document": {"text": str}}]
        want["meta"] = {**meta, "api_version": {"version": "1"}}
        for path in ("/v1/rerank", "/rerank"):
            self.form(path, {**body, "return_documents": True}, want)
        # Cohere v1 reads one member of an error, Jina the other
        for path in ("/v1/rerank", "/v1/reranking"):
            error = self.server.post(path, {"query": "a"}).json()
            self.assertForm(error, {"message": str, "detail": error["message"]})
        self.assertForm(self.server.post("/v2/rerank", {"query": "a"}).json(), {"message": str})

    def test_cohere_embed(self):
        body = {"model": NAME, "texts": ["a dog"], "input_type": "search_query", "embedding_types": ["float", "base64"]}
        meta = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": 4}}
        got = self.form("/v2/embed", body, {"id": str, "embeddings": {"float": [[float]], "base64": [str]}, "texts": ["a dog"],
                                            "meta": meta, "response_type": "embeddings_by_type"})
        self.assertVector(got["embeddings"]["float"][0], embed(["a dog"])[0])
        self.form("/v1/embed", {"texts": ["a dog"]}, {
            "id": str, "embeddings": [[float]], "texts": ["a dog"], "response_type": "embeddings_floats",
            "meta": {**meta, "api_version": {"version": "1"}}})

    def test_ollama_hugging_face_and_tensorflow(self):
        self.form("/api/embed", {"model": NAME, "input": ["a", ""], "truncate": True, "dimensions": 2}, {
            "model": NAME, "embeddings": [[float]], "total_duration": int, "load_duration": int, "prompt_eval_count": 5})
        label = {"score": float, "label": str}
        self.form("/", {"inputs": "a", "parameters": {}}, [[label]])
        self.form("/", {"inputs": "a", "parameters": {"candidate_labels": ["b", "c"], "multi_label": True}}, [label])
        self.form("/", {"inputs": {"source_sentence": "a", "sentences": ["b"]}, "parameters": {}}, [float])
        self.form("/v1/models/%s:predict" % NAME, {"instances": ["a", {"b": "c"}]}, {"predictions": [[float]]})
        got = self.form("/v1/models/%s:classify" % NAME, {"examples": ["a fine film"]}, {"result": [[list]]})
        self.assertEqual([type(part) for part in got["result"][0][0]], [str, float])


class Prompts(Served):
    arguments = (os.path.join(TINY, "st-dense"), "tokens=" + os.path.join(TINY, "bert-tokens"))

    def test_a_prompt_that_there_is_not(self):
        """In the words that tei-client looks for."""
        for path in ("/embed", "/embed_all", "/tokenize", "/similarity"):
            body = {"inputs": "w1", "prompt_name": "none"}
            if path == "/similarity":
                body = {"inputs": {"source_sentence": "w1", "sentences": ["w2"]}, "parameters": {"prompt_name": "none"}}
            error = self.refused(422, 'Available prompts: [\\"query\\", \\"passage\\"]', path, body)
            self.assertEqual(error["error_type"], "Validation")

    def tokens(self, text):
        """The ids of a text alone: this path of llama.cpp knows no prompts."""
        return self.server.post("/tokenize", {"content": text, "add_special": True}).json()["tokens"]

    def test_the_prompt_of_a_text(self):
        """By its name, or the model's default: on each path, alone and with lists of ids."""
        for name, prompt in (("passage", "passage: "), ("query", "query: "), (None, "query: ")):
            ids = self.tokens(prompt + "w1 w2")
            for path in ("/embed", "/embed_all"):
                want = self.server.post(path, {"inputs": [ids]}).json()
                for inputs in ("w1 w2", ["w1 w2"], ["w1 w2", ids]):
                    got = self.server.post(path, {"inputs": inputs, "prompt_name": name}).json()
                    self.assertEqual(got, want * len(got), (path, name, inputs))
            self.assertEqual([one["id"] for one in self.server.post("/tokenize", {"inputs": "w1 w2", "prompt_name": name}).json()[0]], ids)
        got = self.server.post("/v1/embeddings", {"input": ["w1 w2", ids]}).json()["data"]
        self.assertEqual(got[0]["embedding"], got[1]["embedding"])
        self.assertNotEqual(*[self.server.post("/embed", {"inputs": "w1 w2", "prompt_name": one}).json()
                              for one in ("query", "passage")])

    def test_long_texts_beside_ids(self):
        """Are cut where the request says so, and refused else."""
        long = "w1 " * 100
        want = self.server.post("/embed", {"inputs": long, "truncate": True}).json()[0]
        got = self.server.post("/embed", {"inputs": [long, [1, 2]], "truncate": True})
        self.assertEqual((got.status, got.json()[0]), (200, want), got.body)
        for path, inputs in (("/embed", [long, [1, 2]]), ("/embed_all", [long, "w1"]), ("/models/tokens", [long, "w1"]),
                             ("/embed", [long, "w1"])):
            for text, n in ((long, "1"), ("w1", "0")):
                body = {"inputs": [text, *inputs[1:]], "truncate": True, "parameters": {"truncate": True}}
                got = self.server.post(path, body)
                self.assertEqual((got.status, got.headers["x-gpuserve-truncated"]), (200, n), (path, got.body[:200]))
        for inputs in ([long, [1, 2]], [long, "w1"]):
            error = self.refused(422, "maximum context length is ", "/embed", {"inputs": inputs})["error"]
            self.assertIn("0: the text has ", error)
            self.assertIn("`truncate`: true to have it cut", error)
        error = self.refused(422, "maximum context length is ", "/embed", {"inputs": [[1] * 600], "truncate": True})
        self.assertIn("item 0 has 600 ids", error["error"])
        self.assertIn("send fewer ids, as ids are never cut", error["error"])


class Refusals(Served):
    """What is refused before it is a request, in the words of whom it was for, with the limit and its flag."""
    arguments = (MINILM, "--max-body-bytes", 1000, "--header-timeout", 1, "--body-timeout", 1, "--min-body-rate", 1,
                 "--max-address-connections", 5)
    MESSAGE = {"openai": lambda error: error["error"]["message"], "tei": lambda error: error["error"],
               "kserve": lambda error: error["error"], "cohere": lambda error: error["message"],
               "jina": lambda error: error["detail"]}
    KEYS = {"openai": {"error"}, "tei": {"error", "error_type"}, "kserve": {"error"}, "cohere": {"message"},
            "jina": {"message", "detail"}}
    PATHS = {"/v1/embeddings": "openai", "/embed": "tei", "/v2/models/org/name/infer": "kserve", "/v1/models/org/name:predict": "kserve",
             "/api/embed": "kserve", "/v2/rerank": "cohere", "/v2/embed?a=b": "cohere", "/v1/rerank": "jina"}
    # that take no body, or are not there
    OTHERS = {"/v1/models/a": "openai", "/v1/nothing?a": "openai", "/nowhere": "tei", "/" + "a" * 300: "tei"}

    def raw(self, sent, status, dialect="tei"):
        """The message of the only answer."""
        with socket.create_connection((self.server.host, self.server.port), timeout=PATIENCE) as client:
            client.sendall(sent)
            got = b""
            while more := client.recv(65536):
                got += more
        head, body = got.split(b"\r\n\r\n", 1)
        self.assertEqual(int(head.split()[1]), status, got)
        error = json.loads(body)
        self.assertEqual(set(error), self.KEYS[dialect], got)
        return self.MESSAGE[dialect](error)

    def test_each_dialect(self):
        for path, dialect in {**self.PATHS, **self.OTHERS}.items():
            head = b"POST %s HTTP/1.1\r\nHost: localhost\r\n" % path.encode()
            self.assertEqual(self.raw(head + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, dialect), "more than one Content-Length header")
            if path in self.PATHS:
                sent = head + b"Transfer-Encoding: chunked\r\n\r\nfff\r\n"
                self.assertIn("1000 bytes (--max-body-bytes)", self.raw(sent, 413, dialect))
        error = self.server.post("/v1/embeddings", {"input": "a"}, {"Host": "a b"}).json()["error"]
        self.assertEqual((error["type"], error["code"]), ("invalid_request_error", "bad_request"))

    def test_one_answer_to_one_request(self):
        """It is refused by its path or its method, and then its body is wrong as well."""
        for path, status in (("/nowhere", 404), ("/health", 405), ("/v1/models", 405)):
            sent = b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" % path.encode()
            for body in (b"xyz\r\n", b"fff\r\n"):
                with socket.create_connection((self.server.host, self.server.port), timeout=PATIENCE) as client:
                    client.sendall(sent + body)
                    got = b""
                    while more := client.recv(65536):
                        got += more
                self.assertEqual(got.count(b"HTTP/1.1 "), 1, got)
                self.assertTrue(got.startswith(b"HTTP/1.1 %d " % status), got)

    def test_limits_and_their_flags(self):
        get = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"
        for status, words, sent, dialect in (
                (431, "the limit is 16384 bytes", get + b"X: " + b"a" * 17000 + b"\r\n\r\n", "tei"),
                (431, "the limit is 100 in total", get + b"X: a\r\n" * 100 + b"\r\n", "openai"),
                (413, "1000 bytes (--max-body-bytes)", get + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", "openai"),
                (408, "1000 ms (--header-timeout)", get, "tei"),
                (408, "1000 ms (--body-timeout)", get + b"Content-Length: 9\r\n\r\n", "openai")):
            self.assertIn(words, self.raw(sent, status, dialect))
        held = [socket.create_connection((self.server.host, self.server.port)) for _ in range(5)]
        self.assertIn("5 (--max-address-connections)", self.raw(b"", 429))
        for client in held:
            client.close()
        wait_until(lambda: self.server.get("/v1/models").status != 429)  # until the server has seen it


class NoUnknown(Forms):
    """A tokenizer that has no token for what it does not know: some texts it cannot make into tokens."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        model = os.path.join(cls.folder, "model")
        shutil.copytree(os.path.join(TINY, "st-newer"), model)
        tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
                     "post_processor": None, "decoder": None, "model": {"type": "Unigram", "unk_id": None, "byte_fallback": False,
                                                                        "vocab": [["a", -1.0], ["b", -2.0], ["ab", -2.5]]}}
        with open(os.path.join(model, "tokenizer.json"), "w", encoding="utf-8") as file:
            json.dump(tokenizer, file)
        cls.arguments = (model,)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        shutil.rmtree(cls.folder)

    def test_its_errors_are_told_as_such(self):
        for path, field in (("/embed", "inputs"), ("/embed_all", "inputs"), ("/tokenize", "inputs"), ("/", "inputs"),
                            ("/v1/embeddings", "input"), ("/api/embed", "input")):
            for inputs in ("abc", ["ab", "abc"], ["ab" * 8] * 20 + ["abc"]):
                self.assertEqual(self.server.post(path, {field: "abab"}).status, 200)
                reply = self.server.post(path, {field: inputs})
                self.assertIn(b"has no unknown token", reply.body, (path, inputs))
                if field == "inputs":
                    self.assertEqual(reply.status, 422)
                    self.assertForm(reply.json(), {"error": str, "error_type": "Tokenizer"})
                else:
                    self.assertEqual(reply.status, 400)


class Busy(Forms):
    """A full queue, in everybody's words, with the time to come again."""
    arguments = (MINILM, "--queue-tokens", 2, "--threads", 1)

    def test_each_dialect(self):
        body = json.dumps({"inputs": ["text %d " % i + "of many words " * 60 for i in range(2000)]}).encode()
        head = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        holding = [socket.create_connection((self.server.host, self.server.port), timeout=PATIENCE) for _ in range(2)]
        for client in holding:  # each counts as half of the queue
            client.sendall(head + body)
        wait_until(lambda: b"\nte_queue_size 2\n" in self.server.get("/metrics").body)
        text = {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]}
        rank = {"query": "a", "documents": ["b"]}
        for path, asked, status, want in (
                ("/embed", {"inputs": "a"}, 429, {"error": str, "error_type": "Overloaded"}),
                ("/embed_all", {"inputs": "a"}, 429, {"error": str, "error_type": "Overloaded"}),
                ("/", {"inputs": "a"}, 429, {"error": str, "error_type": "Overloaded"}),
                ("/v1/embeddings", {"input": "a"}, 429, {"error": {"message": str, "type": "rate_limit_error", "param": None,
                                                                   "code": "rate_limit_exceeded"}}),
                (MODEL + "/infer", {"inputs": [text]}, 503, {"error": str}), ("/api/embed", {"input": "a"}, 503, {"error": str}),
                ("/v1/models/%s:predict" % NAME, {"instances": ["a"]}, 503, {"error": str}),
                ("/v1/rerank", rank, 429, {"message": str, "detail": str}), ("/v2/rerank", rank, 429, {"message": str})):
            reply = self.server.post(path, asked)
            self.assertEqual(reply.status, status, (path, reply.body))
            self.assertForm(reply.json(), want, path)
            self.assertIn(b"--queue-tokens", reply.body)
            ms = int(reply.headers["retry-after-ms"])
            self.assertEqual(int(reply.headers["Retry-After"]), (ms + 999) // 1000)
        self.assertEqual(self.server.get("/health").status, 200)
        for client in holding:
            client.close()


class Several(Served):
    arguments = ("one=" + MINILM, "two=" + os.path.join(TINY, "st-newer"))

    def stats(self, name):
        got = self.server.get("/v2/models/%s/stats" % name).json()["model_stats"]
        self.assertEqual(len(got), 1)
        kinds = got[0]["inference_stats"]
        return got[0]["inference_count"], kinds["success"]["count"], kinds["fail"]["count"], kinds["compute_infer"]["ns"]

    def test_statistics_are_of_the_model_that_is_asked_for(self):
        self.assertEqual((self.stats("one"), self.stats("two")), ((0, 0, 0, 0), (0, 0, 0, 0)))
        self.server.post("/v1/embeddings", {"model": "one", "input": ["a", "b", "c"]})
        self.server.post("/v1/embeddings", {"model": "one", "input": "a"}, {"timeout": "0"})
        self.server.post("/v1/embeddings", {"model": "two", "input": "w1"})
        self.assertEqual((self.stats("one")[:3], self.stats("two")[:3]), ((3, 1, 1), (1, 1, 0)))
        self.assertGreater(self.stats("one")[3], 0)
        stats = self.server.get("/v2/models/stats").json()["model_stats"]
        self.assertEqual([(one["name"], one["inference_count"], one["batch_stats"][0]["batch_size"]) for one in stats],
                         [("one", 3, 3), ("two", 1, 1)])


class Executions(Served):
    """As Triton tells them: how many texts were computed, and in how many batches."""
    arguments = (os.path.join(TINY, "st-newer"), "--threads", 1, "--batch-tokens", 40)

    def stats(self):
        return self.server.get("/v2/models/st-newer/stats").json()["model_stats"][0]

    def batches(self):
        """How many there were of each number of texts, which is what the totals are made of."""
        stats = self.stats()
        rows = {row["batch_size"]: row["compute_infer"]["count"] for row in stats["batch_stats"]}
        self.assertEqual(list(rows), sorted(rows))
        self.assertEqual((sum(rows.values()), sum(size * n for size, n in rows.items())),
                         (stats["execution_count"], stats["inference_count"]))
        return rows

    def counted(self, inputs, status=200, headers=None):
        """What a request adds: inferences and executions."""
        before = self.stats()
        reply = self.server.post("/v1/embeddings", {"input": inputs}, headers)
        self.assertEqual(reply.status, status, reply.body)
        after = self.stats()
        return tuple(after[name] - before[name] for name in ("inference_count", "execution_count"))

    def test_executions_are_batches_and_inferences_what_was_computed(self):
        began = time.time()
        self.assertEqual(self.counted("w1"), (1, 1))
        self.assertEqual(self.counted(["w1 w%d" % i for i in range(2, 8)]), (6, 1))
        self.assertEqual(self.counted(["w%d " % i + "w1 " * 30 for i in range(2, 5)]), (3, 3), "40 tokens hold one of them")
        self.assertEqual(self.counted(["w1", "w2", "w1", "w1"]), (2, 1), "equal ones are computed once")
        self.assertEqual(self.counted("w1", 504, {"timeout": "0"}), (0, 0))
        stats = self.stats()
        self.assertLess(abs(stats["last_inference"] / 1000 - began), 60)
        kinds = stats["inference_stats"]
        self.assertEqual((kinds["success"]["count"], kinds["fail"]["count"]), (4, 1))
        for kind in ("queue", "compute_input", "compute_infer", "compute_output"):  # perf_analyzer reads all of them
            self.assertEqual(kinds[kind]["count"], 4, kind)
        self.assertEqual(self.batches(), {1: 4, 2: 1, 6: 1})
        for row in stats["batch_stats"]:
            self.assertGreater(row["compute_infer"]["ns"], 0)
            for kind in ("compute_input", "compute_output"):
                self.assertEqual(row[kind]["count"], row["compute_infer"]["count"])
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.stats()["inference_stats"]["success"]["count"] == 0)  # a new model begins anew
        self.assertEqual(self.batches(), {})
        self.assertEqual((self.stats()["inference_count"], self.stats()["execution_count"]), (0, 0), "it was tried before")


class Figures(Served):
    arguments = (MINILM, "--head", HEAD)

    def test_te_figures_count_what_was_done(self):
        def figures():
            rows = [line.rsplit(" ", 1) for line in self.server.get("/metrics").body.decode().splitlines() if line.startswith("te_")]
            return {name: float(value) for name, value in rows}

        before = figures()
        for path, body in (("/embed", {"inputs": ["a dog", "a"]}), ("/embed", {"inputs": "a"}), ("/predict", {"inputs": "a dog"}),
                           ("/embed", {"inputs": "a " * 999})):
            self.server.post(path, body)
        self.server.post("/embed", {"inputs": "a"}, {"timeout": "0"})
        after = figures()
        told = {name: after[name] - before[name] for name in after}
        for name, n in (("te_request_count", 5), ("te_request_success", 3), ("te_embed_count", 5), ("te_embed_success", 3),
                        ("te_predict_count", 1), ("te_predict_success", 1), ("te_request_input_length_count", 4),
                        ("te_request_input_length_sum", 4 + 3 + 3 + 4), ('te_request_failure{err="validation"}', 1),
                        ('te_request_failure{err="cancelled"}', 1), ("te_queue_size", 0), ("te_batch_next_tokens_sum", 14)):
            self.assertEqual(told[name], n, name)
        for kind in ("request", "embed", "predict"):
            for name in ("duration", "tokenization_duration", "queue_duration", "inference_duration"):
                self.assertEqual(told["te_%s_%s_count" % (kind, name)], told["te_%s_success" % kind], name)


class Kinds(Served):
    """What /info calls each kind of model."""
    arguments = (os.path.join(TINY, "bert-pairs-multi"),)

    def test_classifier(self):
        kind = self.server.get("/info").json()["model_type"]["classifier"]
        self.assertEqual(set(kind), {"id2label", "label2id"})
        self.assertEqual({str(i): name for name, i in kind["label2id"].items()}, kind["id2label"])

    def test_poolings(self):
        """Clients refuse those that TEI does not have; all others exist."""
        for arguments, told, all_of_them in (
                ((os.path.join(TINY, "st-newer"), "--pooling", "last"), "last_token", ["last"]),
                ((os.path.join(TINY, "st-newer"), "--pooling", "cls"), "cls", ["cls"]),
                ((os.path.join(TINY, "st-newer"), "--pooling", "max"), "mean", ["max"]),
                ((os.path.join(TINY, "st-dense"),), "mean", ["max", "mean"])):
            server = Server(*arguments)
            info = server.get("/info").json()
            self.assertEqual((info["model_type"], info["poolings"]), ({"embedding": {"pooling": told}}, all_of_them))
            self.assertEqual(server.stop()[0], 0)

    def test_reranker(self):
        server = Server(os.path.join(TINY, "bert-cross-encoder"))
        kind = server.get("/info").json()["model_type"]["reranker"]
        self.assertEqual(set(kind), {"id2label", "label2id"})
        query = {"query": "w" * 16384, "truncate": True}  # read with each text: 2,048 of them are as much as a body may have
        self.assertEqual(server.post("/rerank", {**query, "texts": ["a"] * 2048}).status, 200)
        reply = server.post("/rerank", {**query, "query": "w" * 16385, "texts": ["a"] * 2048})
        self.assertEqual(reply.status, 413)
        self.assertIn("16385 bytes, times 2048 documents 33556480 bytes, the limit is 33554432 (--max-body-bytes)", reply.json()["error"])
        self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    main(__name__)
