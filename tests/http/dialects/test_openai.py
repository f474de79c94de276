"""The `openai` package, unmodified, against the server; and the errors of invalid requests."""
import base64
import os
import shutil
import struct
import subprocess
import tempfile

from serving import MINILM, Served, Server, embed, main, use_clients

use_clients()

import openai  # noqa: E402

from common import PROGRAM, ROOT  # noqa: E402

NAME = "all-MiniLM-L6-v2"
TEXTS = ["a dog", "Une phrase française.", "x" * 40, "two\nlines\tand \"quotes\" \\ \U0001F600"]


class OpenAI(Served):
    arguments = (MINILM, "--alias", "text-embedding-3-small")

    def setUp(self):
        self.client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="none",
                                    max_retries=0)

    def test_vectors_are_the_library_s(self):
        want = embed(TEXTS)
        for encoding in ("base64", "float", None):
            options = {"encoding_format": encoding} if encoding else {}
            reply = self.client.embeddings.create(model=NAME, input=TEXTS, **options)
            self.assertEqual([one.index for one in reply.data], list(range(len(TEXTS))))
            for one, vector in zip(reply.data, want):
                # Bit for bit: batches do not change a vector, and both are the shortest decimals.
                got = one.embedding
                if encoding == "base64":  # an explicit request for it gets the text
                    got = struct.unpack("<384f", base64.b64decode(got))
                self.assertVector(got, vector, 1e-7)
            self.assertEqual(reply.model, NAME)
            self.assertGreater(reply.usage.prompt_tokens, 4 * len(TEXTS) - 4)
            self.assertEqual(reply.usage.prompt_tokens, reply.usage.total_tokens)

    def test_one_text_and_dimensions(self):
        want = embed(["a dog"], "--dimensions", "16")[0]
        reply = self.client.embeddings.create(model=NAME, input="a dog", dimensions=16)
        self.assertVector(reply.data[0].embedding, want)

    def test_token_ids(self):
        want = embed(["a dog"])[0]
        for ids in ([101, 1037, 3899, 102], [[101, 1037, 3899, 102]]):
            reply = self.client.embeddings.create(model=NAME, input=ids)
            self.assertVector(reply.data[0].embedding, want)
            self.assertEqual(reply.usage.prompt_tokens, 4)

    def test_azure(self):
        azure = openai.AzureOpenAI(azure_endpoint=self.server.url, api_key="none", api_version="2024-10-21", max_retries=0)
        reply = azure.embeddings.create(model=NAME, input="a dog")
        self.assertVector(reply.data[0].embedding, embed(["a dog"])[0])
        with self.assertRaises(openai.NotFoundError):
            azure.embeddings.create(model="other", input="a dog")

    def test_models(self):
        self.assertEqual([one.id for one in self.client.models.list()],
                         [NAME, "text-embedding-3-small"])
        self.assertEqual(self.client.models.retrieve("text-embedding-3-small").object, "model")
        reply = self.client.embeddings.create(model="text-embedding-3-small", input="a dog")
        self.assertEqual(len(reply.data[0].embedding), 384)

    def test_errors_reach_the_client(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.embeddings.create(model="other", input="a dog")
        self.assertEqual(caught.exception.code, "model_not_found")
        self.assertIn(NAME, str(caught.exception))
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.embeddings.create(model=NAME, input="long " * 1000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        self.assertIn("256", str(caught.exception))
        for wrong, param in (({"input": ""}, "input"), ({"input": []}, "input"),
                             ({"input": ["a", ""]}, "input"), ({"input": [[]]}, "input"),
                             ({"input": [999999]}, "input"), ({"input": [-1]}, "input"),
                             ({"input": "a", "dimensions": 385}, "dimensions"),
                             ({"input": ["a"] * 2049}, "input")):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.client.embeddings.create(model=NAME, **wrong)
            self.assertEqual(caught.exception.param, param, wrong)

    def test_wrong_bodies(self):
        path = "/v1/embeddings"
        for status, body in ((400, b""), (400, b"{"), (400, b"[]"), (400, b"{\"input\":\"\xff\"}"),
                             (400, b"{\"input\":1}"), (400, b"{\"input\":[1.5]}"),
                             (400, b"{\"input\":[\"a\",1]}"), (400, b"{\"input\":[[1],\"\"]}"),
                             (400, b"{\"input\":\"a\",\"input\":\"b\"}"), (400, b"{}"),
                             (400, b"{\"input\":\"a\",\"encoding_format\":\"hex\"}"),
                             (400, b"{\"input\":\"a\",\"model\":7}"),
                             (413, b"[" * 1000), (413, b"[" + b"1," * 2000000 + b"1]")):
            reply = self.server.post(path, body)
            self.assertEqual(reply.status, status, (body[:60], reply.body))
            self.assertEqual(set(reply.json()["error"]), {"message", "type", "param", "code"})
        self.assertEqual(self.server.get(path).status, 405)
        self.assertEqual(self.server.get(path).headers["Allow"], "POST")
        self.assertEqual(self.server.get("/v1/nothing").status, 404)

    def test_base64_is_exact(self):
        reply = self.server.post("/v1/embeddings", {"input": "a dog", "encoding_format": "base64"})
        plain = self.server.post("/v1/embeddings", {"input": "a dog"}).json()
        values = struct.unpack("<384f", base64.b64decode(reply.json()["data"][0]["embedding"]))
        self.assertEqual(values, tuple(struct.unpack("f", struct.pack("f", x))[0]
                                       for x in plain["data"][0]["embedding"]))

    def test_truth_in_headers(self):
        reply = self.server.post("/v1/embeddings", {"input": ["a dog", "a"]})
        self.assertEqual(reply.headers["x-compute-tokens"], "7")
        self.assertEqual(reply.headers["x-gpuserve-truncated"], "0")
        space = reply.headers["x-gpuserve-space"]
        self.assertRegex(space, "^[0-9a-f]{32}$")
        good = self.server.post("/v1/embeddings", {"input": "a"}, {"x-gpuserve-space": space})
        self.assertEqual(good.status, 200)
        self.refused(409, space, "/v1/embeddings", {"input": "a"}, {"x-gpuserve-space": "0" * 32})


class Members(Served):
    """Members that other services have on this path: honoured, or refused by name."""
    arguments = (MINILM, "dense=" + os.path.join(ROOT, "tests/data/models/st-dense"))

    def vector(self, text, **members):
        reply = self.server.post("/v1/embeddings", {"input": text, **members})
        self.assertEqual(reply.status, 200, (members, reply.body))
        return reply.json()["data"][0]["embedding"]

    def test_long_texts(self):
        """Jina, NVIDIA NIM, Voyage and vLLM each have a member of their own."""
        long = "a dog " + "w " * 400
        want = embed([long])[0]
        for cut in ({"truncate": True}, {"truncate": "END"}, {"truncation": True}, {"truncate_prompt_tokens": -1}):
            self.assertVector(self.vector(long, **cut), want)
        for strict in ({"truncate": False}, {"truncate": "NONE"}, {"truncation": False}, {}):
            error = self.refused(400, "256", "/v1/embeddings", {"input": long, **strict})
            # voyageai reads `detail`; its requests have `truncation` always.
            self.assertEqual(error.get("detail"), error["error"]["message"] if "truncation" in strict else None)
        self.assertVector(self.vector(long + "cats", truncate="START"), embed(["w " * 253 + "cats"])[0])

    def test_truncate_prompt_tokens(self):
        dog, cats = embed(["a dog", "and cats"])
        self.assertVector(self.vector(" a dog and cats", truncate_prompt_tokens=4), dog)
        self.assertVector(self.vector("a dog and cats", truncate_prompt_tokens=4, truncate="START"), cats)
        self.assertVector(self.vector("a dog", truncate_prompt_tokens=4), dog)
        self.assertVector(self.vector([101, 1037, 3899, 102], truncate_prompt_tokens=4), dog)
        reply = self.server.post("/v1/embeddings", {"input": ["a dog and cats", "a"], "truncate_prompt_tokens": 4})
        self.assertEqual((reply.headers["x-gpuserve-truncated"], reply.json()["usage"]["prompt_tokens"]), ("1", 7))
        for words, members in (("but the model adds 2 special tokens", {"truncate_prompt_tokens": 2}),
                               ("outside -1 to 256", {"truncate_prompt_tokens": 257}),
                               ("input 0 has 6 tokens", {"truncate_prompt_tokens": 4, "truncate": False}),
                               ("never cut", {"truncate_prompt_tokens": 3, "input": [101, 1037, 3899, 102]})):
            self.refused(400, words, "/v1/embeddings", {"input": "a dog and cats", **members})

    def test_truncation_keeps_the_tokens(self):
        """A word cut in the middle keeps its subword tokens: the rest is not tokenized again."""
        ids = [token["id"] for token in self.server.post("/tokenize", {"inputs": "unbelievably"}).json()[0]]
        self.assertGreater(len(ids), 3)
        for truncate, kept in (("START", ids[-2]), ("END", ids[1])):
            self.assertVector(self.vector("unbelievably", truncate_prompt_tokens=3, truncate=truncate),
                              self.vector([ids[0], kept, ids[-1]]))

    def test_what_a_text_is_for(self):
        asked = {"model": "dense"}
        query, passage = (self.vector("w1 w2", **asked, prompt_name=name) for name in ("query", "passage"))
        self.assertNotEqual(query, passage)
        for member, name, want in (("input_type", "query", query), ("input_type", "passage", passage), ("input_type", "document", passage),
                                   ("task", "retrieval.query", query), ("task", "retrieval.passage", passage), ("task", None, query)):
            self.assertEqual(self.vector("w1 w2", **asked, **{member: name}), want, name)
        self.refused(400, "`task`", "/v1/embeddings", {**asked, "input": "a", "task": "clustering"})
        self.refused(400, "prompt_name", "/v1/embeddings", {**asked, "input": "a", "prompt_name": "none"})
        plain = self.vector("a dog")
        for name in ("query", "document", "clustering"):  # a model without prompts
            self.assertEqual(self.vector("a dog", input_type=name), plain)
        self.refused(400, "`input_type`", "/v1/embeddings", {"input": "a", "input_type": "image"})

    def test_form_of_the_vector(self):
        for dimension in ({"dimensions": 16}, {"output_dimension": 16}, {"dimensions": 16, "output_dimension": 16}):
            vector = self.vector("a dog", **dimension)
            self.assertEqual(len(vector), 16)
            self.assertAlmostEqual(sum(x * x for x in vector), 1, places=5)
        for flag in ("normalize", "normalized"):
            plain = self.vector("a dog", **{flag: False})
            self.assertGreater(abs(sum(x * x for x in plain) - 1), 0.01)
            self.assertVector(self.vector("a dog", **{flag: True}), embed(["a dog"])[0])
        self.refused(400, "`output_dimension` is 8, but `dimensions` is 16", "/v1/embeddings",
                     {"input": "a", "dimensions": 16, "output_dimension": 8})
        self.assertIsInstance(self.vector("a dog", embedding_type="base64"), str)

    def test_what_is_not_offered(self):
        plain = self.vector("a dog")
        for same in ({"late_chunking": False}, {"output_dtype": "float"}, {"embed_dtype": "float32"}, {"endianness": "little"},
                     {"modality": "text"}, {"add_special_tokens": True}, {"user": "me"}, {"priority": 1}, {"output_dtype": None}):
            self.assertEqual(self.vector("a dog", **same), plain)
        for name, value in (("output_dtype", "int3"), ("embed_dtype", "bfloat16"), ("output_dtype", "base64"), ("endianness", "big"),
                            ("modality", "image"), ("add_special_tokens", False), ("embedding_type", "hex"), ("encoding_format", "float16"),
                            ("messages", [{"role": "user", "content": "a"}]), ("instruction", "find"), ("truncation_side", "left"),
                            ("truncate", 1), ("task", 7)):
            error = self.refused(400, "`%s`" % name, "/v1/embeddings", {"input": "a", name: value})["error"]
            self.assertEqual(error["param"], name)


class Compact(Served):
    """Element types of Jina, Voyage, Mixedbread and vLLM on OpenAI's path; the program makes the same bytes."""

    def asked(self, **fields):
        reply = self.server.post("/v1/embeddings", {"input": "a dog", **fields}).json()
        self.assertEqual(reply["usage"], {"prompt_tokens": 4, "total_tokens": 4})
        return reply["data"][0]["embedding"]

    def test_types_are_numbers_or_base64(self):
        for precision, letter in (("int8", "b"), ("uint8", "B"), ("binary", "b"), ("ubinary", "B")):
            want = [int(value) for value in embed(["a dog"], "--precision", precision)[0]]
            for field in ("encoding_format", "embedding_type", "output_dtype", "embed_dtype"):
                self.assertEqual(self.asked(**{field: precision}), want, (precision, field))
            packed = base64.b64decode(self.asked(output_dtype=precision, encoding_format="base64"))
            self.assertEqual(list(struct.unpack("%d%s" % (len(packed), letter), packed)), want)
        halves = base64.b64decode(self.asked(embed_dtype="float16", encoding_format="base64"))
        for got, value in zip(struct.unpack("<384e", halves), embed(["a dog"])[0]):
            self.assertLess(abs(got - value), 1e-4)

    def test_the_client_receives_bytes(self):
        client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="none")
        for precision in ("int8", "uint8", "binary", "ubinary"):
            want = [[int(value) for value in row] for row in embed(TEXTS, "--precision", precision)]
            got = client.embeddings.create(model=NAME, input=TEXTS, encoding_format="float", extra_body={"embed_dtype": precision})
            self.assertEqual([one.embedding for one in got.data], want, precision)

    def test_dimensions_have_ranges_of_their_own(self):
        want = embed(["a dog"], "--precision", "int8", "--dimensions", "16")[0]
        self.assertEqual(self.asked(dimensions=16, output_dtype="int8"), [int(value) for value in want])
        self.assertNotEqual(self.asked(output_dtype="int8")[:16], self.asked(dimensions=16, output_dtype="int8"))

    def test_two_types_are_refused(self):
        self.refused(400, "but another field names another type", "/v1/embeddings",
                     {"input": "a", "embedding_type": "binary", "output_dtype": "int8"})


class Ranges(Served):
    """--ranges: the bytes are those of the program with the same file."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.paths = {}
        for dimensions in (384, 16):
            cls.paths[dimensions] = os.path.join(cls.folder, "%d.npy" % dimensions)
            subprocess.run([PROGRAM, "calibrate", "-q", "-m", MINILM, "--dimensions", str(dimensions), "-o", cls.paths[dimensions],
                            "a dog", "two cats", "Ein Satz.", "?", "the price of oil"], check=True, timeout=300)
        cls.arguments = ("whole=" + MINILM, "short=" + MINILM, "own=" + MINILM, "--ranges", cls.paths[384],
                         "--ranges", "short=" + cls.paths[16])
        super().setUpClass()

    def test_bytes_equal_the_program(self):
        for model, options in (("whole", ("--ranges", self.paths[384])), ("own", ()),
                               ("short", ("--ranges", self.paths[16], "--dimensions", "16"))):
            fields = {"dimensions": 16} if model == "short" else {}
            for precision in ("int8", "uint8"):
                want = [int(value) for value in embed(["a dog"], "--precision", precision, *options)[0]]
                reply = self.server.post("/v1/embeddings", {"model": model, "input": "a dog", "embed_dtype": precision, **fields})
                self.assertEqual(reply.json()["data"][0]["embedding"], want, (model, precision))
        self.refused(400, "have 16 dimensions, which its ranges were given for (--ranges), not 384", "/v1/embeddings",
                     {"model": "short", "input": "a", "embed_dtype": "int8"})

    def test_wrong_ranges_are_refused_at_the_start(self):
        for arguments, words in ((("--ranges", "other=" + self.paths[16]), 'no model argument has the name "other"'),
                                 (("--ranges", os.path.join(self.folder, "none")), "No such file"),
                                 (("--ranges", self.paths[16], "--ranges", self.paths[16]), "has ranges already")):
            with self.assertRaises(AssertionError) as caught:
                Server(MINILM, *arguments)
            self.assertIn(words, str(caught.exception))


class Limits(Served):
    arguments = (MINILM, "--auto-truncate", "--max-body-bytes", 1000, "--max-client-batch-size", 3)

    def test_limits_are_named(self):
        self.refused(413, "1000", "/v1/embeddings", {"input": "a" * 1001})
        self.refused(400, "--max-client-batch-size", "/v1/embeddings", {"input": ["a"] * 4})

    def test_cut_texts_are_told(self):
        reply = self.server.post("/v1/embeddings", {"input": "w " * 400})
        self.assertEqual(reply.status, 200, reply.body)
        self.assertEqual(reply.headers["x-gpuserve-truncated"], "1")
        self.assertEqual(reply.json()["usage"]["prompt_tokens"], 256)


class Start(Served):
    def test_port_in_use(self):
        with self.assertRaises(AssertionError) as caught:
            Server(MINILM, "--port", self.server.port)
        self.assertIn("Address already in use", str(caught.exception))
        self.assertIn("port %d is in use by gpuserve (process %d)" % (
            self.server.port, self.server.process.pid), str(caught.exception))

    def test_other_machines_need_consent(self):
        with self.assertRaises(AssertionError) as caught:
            Server(MINILM, "--host", "0.0.0.0")
        self.assertIn("--insecure", str(caught.exception))
        server = Server(MINILM, "--host", "0.0.0.0", "--insecure")
        self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    main(__name__)
