"""Every path that takes a body, field by field: the right form is answered, each wrong form of each
field is refused in the words of its dialect, and so are bodies that are no JSON, nested too deep,
too many, too long, or for a model that is not there."""
import http.client
import json
import os

from serving import MINILM, Served, main, model

from common import ROOT

NAME = "all-MiniLM-L6-v2"
KSERVE = "/v2/models/%s/infer" % NAME
LONG = "long " * 1000  # more tokens than the model takes
MAX_ROWS = 2048  # --max-client-batch-size

# What a field of each kind must not be. None is as if it were not there.
FLAG = [1, 0, "true", [], {}]
COUNT = [0, -1, 1.5, "2", True, [], 1 << 40]
TEXT = [7, True, ["a"], {}, "a\0b"]
CHOICE = [*TEXT, "neither"]
FORMAT = [*TEXT, "hex"]
MODEL = [*TEXT, "other", "", "../" + NAME, NAME + "/..", NAME + "\n"]
PROMPT = [*TEXT, "query", ""]
TEXTS = [None, 7, 1.5, True, {}, "", [], [""], ["a", ""], ["a", 7], [7.5], ["a", None], [["a"]], ["a"] * (MAX_ROWS + 1)]
ONLY_TEXTS = [*TEXTS, [7], [[7]]]
OR_IDS = [*TEXTS, [-1], [1 << 40], [30522], [[]], [[7], []], [[7], "b", 7], [[7, "a"]], [7, "a"]]
LLAMA = [one for one in OR_IDS if one not in ([[7, "a"]], [7, "a"], {})] + [[7, None], [7, 1.5, "a"], ["a", {}], {"content": "a"}]
LIST = [None, 7, True, {}, "a", [], [7], [None], [["a"]], ["a"] * (MAX_ROWS + 1)]
QUERY = [None, 7, True, [], ["a"], {}, ""]
IDS = [None, 7, True, "a", {}, [], ["a"], [1.5], [-1], [30522], [[]], [["a"]], [[7], 7]]
PAIRS = [None, 7, True, {}, "", [], [7], [""], ["a", "b", "c"], [["a", "b", "c"]], [["a"], [7, "b"]], [["a", 7]], [[]],
         [["a"]] * (MAX_ROWS + 1)]
PROMPT_TEXT = [None, 7, True, [], ["a"], {}]

OPTIONS = [7, True, "a", [], *({"num_ctx": wrong} for wrong in [*COUNT, 2, 257])]

TRUNCATION = {"truncate": FLAG, "truncation_direction": CHOICE}
VECTOR = {"normalize": FLAG, "dimensions": [*COUNT, 385]}


def by(*fields):
    """A body of what the fields are in a right one."""
    right = {"input": "a", "inputs": "a", "texts": ["a"], "documents": ["a", {"text": "b"}], "query": "q",
             "ids": [101], "tokens": [101], "content": "a", "prompt": "a", "instances": ["a", {"b": "c"}],
             "examples": [{"b": "c"}]}
    return {field: right[field] for field in fields}


# path, dialect, a right body, the wrong forms of its fields
ROWS = [
    ("/v1/embeddings", "openai", by("input"),
     {"input": LLAMA, "model": MODEL, "encoding_format": FORMAT, "dimensions": [*COUNT, 385], "user": TEXT,
      **TRUNCATION}),
    ("/embed", "tei", by("inputs"), {"model": MODEL, "inputs": OR_IDS, "prompt_name": PROMPT, **TRUNCATION, **VECTOR}),
    ("/embed_all", "tei", by("inputs"), {"model": MODEL, "inputs": OR_IDS, "prompt_name": PROMPT, **TRUNCATION}),
    ("/predict", "tei", by("inputs"), {"model": MODEL, "inputs": PAIRS, "raw_scores": FLAG, **TRUNCATION}),
    ("/rerank", "tei", by("query", "texts"),
     {"model": MODEL, "query": QUERY, "texts": LIST, "raw_scores": FLAG, "return_text": FLAG, "top_n": COUNT[:-1],
      **TRUNCATION}),
    ("/similarity", "tei", {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
     {"model": MODEL, "inputs": [None, 7, "a", [], {}, {"source_sentence": "a"}, {"sentences": ["a"]},
                 *({"source_sentence": wrong, "sentences": ["a"]} for wrong in QUERY),
                 *({"source_sentence": "a", "sentences": wrong} for wrong in LIST)]}),
    ("/tokenize", "tei", by("inputs"),
     {"model": MODEL, "inputs": ONLY_TEXTS, "add_special_tokens": FLAG, "prompt_name": PROMPT}),
    ("/decode", "tei", by("ids"), {"model": MODEL, "ids": IDS, "skip_special_tokens": FLAG}),
    ("/", "tei", by("inputs"), {"model": MODEL, "inputs": ONLY_TEXTS, "parameters": [
        *({"top_k": wrong} for wrong in COUNT), *({"function_to_apply": wrong} for wrong in CHOICE),
        *({"truncate": wrong} for wrong in FLAG), {"candidate_labels": 7}, {"candidate_labels": []},
        {"candidate_labels": ["a"], "multi_label": 1}, {"candidate_labels": ["a"], "hypothesis_template": 7}]}),
    # llama.cpp, Jina
    ("/tokenize", "openai", by("content"), {"model": MODEL, "content": [7, True, [], {}], "add_special": FLAG,
                                            "with_pieces": FLAG, "parse_special": [*FLAG, False]}),
    ("/detokenize", "openai", by("tokens"), {"model": MODEL, "tokens": IDS}),
    ("/rerank", "openai", by("query", "documents"),
     {"query": QUERY, "documents": LIST[1:], "model": MODEL, "top_n": COUNT[:-1], "return_documents": FLAG}),
    ("/reranking", "openai", by("query", "documents"), {"model": MODEL, "query": QUERY, "top_n": COUNT[:-1]}),
    # Cohere
    *((path, dialect, by("query", "documents"),
       {"query": QUERY, "documents": LIST, "model": MODEL, "top_n": COUNT[:-1], "return_documents": FLAG})
      for path, dialect in (("/v1/rerank", "jina"), ("/v2/rerank", "cohere"), ("/v1/reranking", "jina"))),
    *((path, "cohere", by("texts"),
       {"texts": [*ONLY_TEXTS[:4], *ONLY_TEXTS[6:]], "model": MODEL, "input_type": [*CHOICE, "image"],
        "truncate": CHOICE, "output_dimension": [*COUNT, 385],
        "embedding_types": [7, True, "float", {}, ["int3"], [7], ["float", None]]})
      for path in ("/v1/embed", "/v2/embed")),
    # Ollama: an empty text is one there
    ("/api/embed", "kserve", by("input"),
     {"input": [None, 7, True, {}, [], ["a", 7], [7], [["a"]], ["a"] * (MAX_ROWS + 1)], "model": MODEL,
      "truncate": FLAG, "dimensions": [*COUNT[1:], 385], "options": OPTIONS}),
    ("/api/embeddings", "kserve", by("prompt"), {"prompt": PROMPT_TEXT, "model": MODEL, "options": OPTIONS}),
    # TensorFlow Serving
    ("/v1/models/%s:predict" % NAME, "kserve", by("instances"),
     {"instances": [*LIST[:8], [{"a": "b", "c": "d"}], [{}], [{"a": 7}], ["a"] * (MAX_ROWS + 1)]}),
    ("/v1/models/%s:classify" % NAME, "kserve", by("examples"),
     {"examples": [*LIST[:8], [{"a": "b", "c": "d"}], [{}], [{"a": 7}], ["a"] * (MAX_ROWS + 1)]}),
    # KServe: test_refused.py and test_kserve.py have its tensors
    (KSERVE, "kserve", {"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]}]},
     {"inputs": [None, 7, "a", {}, [], [7], [{}]], "id": TEXT, "outputs": [7, "a", {}, [7], [{}]],
      "parameters": [*({"timeout": wrong} for wrong in (-1, 1.5, "soon", True)),
                     *({"priority": wrong} for wrong in (-1, 1.5, "high", 1 << 40)),
                     *({"truncate": wrong} for wrong in FLAG), *({"sequence_id": wrong} for wrong in (1, "a", True)),
                     {"binary_data_output": 1}]}),
]
# The keys of an error, by dialect.
ERRORS = {"tei": {"error", "error_type"}, "kserve": {"error"}, "cohere": {"message"}, "jina": {"message", "detail"},
          "openai": {"error"}}
NOT_JSON = [b"", b"{", b"[]", b"7", b"null", b'{"a":1,"a":2}', b'{"a":"\xff"}', b'{"a":"\\ud800"}', b'{"a":01}',
            b"{} {}", b"{'a':1}", b'{"a":NaN}', b'\xef\xbb\xbf{"a":1}', b'{"a":' + b"[" * 40 + b"]" * 40 + b"}"]
WITHOUT_LIMIT = ("/tokenize", "/decode", "/detokenize")  # of tokens
# Long texts are cut, as there; TEI's /rerank and the others refuse them unless they shall be cut.
CUT = ("/v1/rerank", "/v2/rerank", "/v1/reranking", "/reranking", "/v1/embed", "/v2/embed", "/api/embed", "/api/embeddings")


class Asking(Served):
    """Over one connection, which no refusal ends."""

    def setUp(self):
        self.connection = self.server.connect()

    def tearDown(self):
        self.connection.close()

    def ask(self, path, body):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            self.connection.request("POST", path, body)
            reply = self.connection.getresponse()
        except http.client.RemoteDisconnected:
            self.fail("no answer: %s %.300r" % (path, body))
        return reply.status, reply.read()

    def good(self, path, body):
        status, text = self.ask(path, body)
        self.assertEqual(status, 200, (path, body, text[:300]))
        return json.loads(text)

    def bad(self, path, dialect, body, statuses=(400, 422)):
        status, text = self.ask(path, body)
        told = (path, str(body)[:300], text[:300])
        self.assertIn(status, statuses, told)
        error = json.loads(text)
        self.assertEqual(set(error), ERRORS[dialect], told)
        if dialect == "openai":
            self.assertEqual(set(error["error"]), {"message", "type", "param", "code"}, told)
        return error

    def check_row(self, path, dialect, right, wrong):
        for field, values in wrong.items():
            for value in values:
                statuses = (400, 404, 422) if field == "model" else (400, 413, 422, 501)
                self.bad(path, dialect, {**right, field: value}, statuses)
        self.good(path, right)

    def check_json(self, path, dialect):
        for body in NOT_JSON:
            self.bad(path, dialect, body, (400, 413, 422))
        self.bad(path, dialect, b"[" * 100000, (413,))


class Rows(Asking):
    arguments = (MINILM, "--head", os.path.join(ROOT, "share/heads/sentiment.safetensors"))

    def test_right_forms(self):
        for path, _, right, wrong in ROWS:
            self.good(path, right)
            # nothing is asked of a field that is null or not known
            self.good(path, {**right, "unheard_of": {"a": [1]}})
            for field in set(wrong) - set(right):
                self.good(path, {**right, field: None})

    def test_each_field(self):
        for row in ROWS:
            self.check_row(*row)

    def test_what_is_said_of_it(self):
        """Where without the check something else would be refused, in words that explain less."""
        models = "/v1/models/%s:" % NAME
        for path, body, words in (
                ("/predict", {"inputs": [["a", 7]]}, "input 0 is neither a string nor a list of one or two strings"),
                (models + "predict", {"instances": 7}, "`instances` is not a list"),
                (models + "classify", {"examples": ["a", 7]}, "item 1 is neither a string nor an object with one string")):
            status, text = self.ask(path, body)
            self.assertEqual((status // 100, words in text.decode()), (4, True), (path, text))

    def test_models_that_are_not_there(self):
        for path, dialect, right, wrong in ROWS:
            if "model" in wrong:
                error = self.bad(path, dialect, {**right, "model": "other"}, (404,))
                self.assertIn(NAME, json.dumps(error))
        for path in ("/v1/models/other:predict", "/v1/models/other:classify", "/v2/models/other/infer",
                     "/v2/models/%s/versions/2/infer" % NAME):
            self.bad(path, "kserve", {"instances": ["a"], "examples": ["a"], "inputs": []}, (404,))
        self.bad("/models/other", "tei", {"inputs": "a"}, (404,))

    def test_what_is_no_json(self):
        for path, dialect, _, _ in ROWS:
            # A path of two dialects: only the body's fields tell them apart.
            self.check_json(path, "tei" if path in ("/rerank", "/reranking", "/tokenize") else dialect)

    def test_a_text_that_is_too_long(self):
        for path, dialect, right, _ in ROWS:
            body = json.dumps(right).replace('"a"', '"%s"' % LONG).replace('"c"', '"%s"' % LONG)
            if path in WITHOUT_LIMIT:
                self.good(path, body.encode())
            elif path in CUT or "documents" in right:
                self.good(path, body.encode())
            else:
                self.check_length(path, body, self.bad(path, dialect, body.encode()))
        for path, dialect, body in (("/api/embed", "kserve", {"input": LONG, "truncate": False}),
                                    ("/v1/embed", "cohere", {"texts": [LONG], "truncate": "NONE"}),
                                    ("/v2/embed", "cohere", {"texts": [LONG], "truncate": "NONE"})):
            self.check_length(path, body, self.bad(path, dialect, body))

    def check_length(self, path, body, error):
        """The length, the limit in the words that clients look for, and a remedy that is the client's and works."""
        told = error.get("error", error.get("message"))
        told = told["message"] if isinstance(told, dict) else told
        self.assertRegex(told, r"has 100\d tokens \(\d of them special\)", path)
        self.assertIn("maximum context length is 256 tokens: send a shorter text", told, path)
        self.assertNotIn("--", told, path)
        body = json.loads(body) if isinstance(body, str) else body
        if "`truncate`: \"END\"" in told:
            self.good(path, {**body, "truncate": "END"})
        elif "`truncate`: true in `parameters`" in told:
            self.good(path, {**body, "parameters": {"truncate": True}})
        elif "`truncate`: true" in told:
            self.good(path, {**body, "truncate": True})
        else:
            self.assertIn("/v1/models/", path)  # TensorFlow Serving: its clients cannot ask for it

    def test_what_each_reply_says(self):
        """The space, the device, how long it took, and whether a text was cut: of whatever dialect."""
        for path, dialect, right, _ in ROWS:
            if path in WITHOUT_LIMIT:
                continue
            reply = self.server.post(path, right)
            for name in ("x-compute-time", "x-total-time", "x-tokenization-time", "x-queue-time", "x-inference-time",
                         "x-compute-characters", "x-compute-tokens", "x-gpuserve-truncated"):
                self.assertGreaterEqual(int(reply.headers[name]), 0, (path, name))
            self.assertEqual((reply.headers["x-compute-type"], reply.headers["x-gpuserve-dtype"],
                              reply.headers["x-gpuserve-products-dtype"]), ("cpu", "float32", "float32"), path)
            space = reply.headers["x-gpuserve-space"]
            self.assertEqual(self.server.post(path, right, {"x-gpuserve-space": space}).status, 200)
            other = self.server.post(path, right, {"x-gpuserve-space": "0" * 32})
            self.assertEqual((other.status, set(other.json())), (409, ERRORS[dialect]), path)
            self.assertIn("embed the stored texts again", other.body.decode())

    def test_how_many_texts_were_cut(self):
        exact = "a " * 254  # with its special tokens as many as the model takes
        for path, inputs, cut in (("/embed", [LONG, "a", LONG], 2), ("/embed_all", [LONG, "a", LONG], 2),
                                  ("/embed_all", [exact, exact + "a"], 1), ("/embed", [exact, exact + "a"], 1),
                                  ("/embed_all", [[101], "a"], 0), ("/predict", [[LONG], ["a"]], 1)):
            reply = self.server.post(path, {"inputs": inputs, "truncate": True})
            self.assertEqual(int(reply.headers["x-gpuserve-truncated"]), cut, (path, inputs))

    def test_ids_of_another_tokenizer(self):
        for path, field in (("/v1/embeddings", "input"), ("/embed", "inputs")):
            _, text = self.ask(path, {field: [99999]})
            self.assertIn(b"check_embedding_ctx_length=False", text)

    def test_figures_of_tei(self):
        self.good("/embed", {"inputs": "a"})
        self.good("/predict", {"inputs": "a"})
        text = self.server.get("/metrics").body.decode()
        for kind in ("te_request_", "te_embed_", "te_predict_"):
            for name in ("count", "success", "duration_bucket", "tokenization_duration_sum",
                         "queue_duration_count", "inference_duration_sum"):
                self.assertIn("\n" + kind + name, text)
        for name in ("te_request_failure", "te_request_input_length_sum", "te_queue_size",
                     "te_batch_next_size_sum", "te_batch_next_tokens_sum"):
            self.assertIn("\n" + name, text)

    def test_health_of_kserve(self):
        for path, want in (("live", {"live": True}), ("ready", {"ready": True})):
            self.assertEqual(self.server.get("/v2/health/" + path).json(), want)


class Sparse(Asking):
    """/embed_sparse needs a masked language model."""
    arguments = (model("splade-tiny"),)

    def test_its_row(self):
        self.check_row("/embed_sparse", "tei", by("inputs"),
                       {"inputs": OR_IDS, "prompt_name": PROMPT, **TRUNCATION})
        self.check_json("/embed_sparse", "tei")
        for path, dialect, body in (("/predict", "tei", {"inputs": "a"}),
                                    ("/v1/models/splade-tiny:classify", "kserve", {"examples": ["a"]})):
            self.assertIn("has no classifier", self.bad(path, dialect, body, (422, 501))["error"])


class Labels(Asking):
    """A model that only labels tokens neither embeds nor classifies texts."""
    arguments = ("ner=" + os.path.join(ROOT, "tests/data/models/bert-tokens"),)

    def test_other_paths(self):
        self.good("/", {"inputs": "w1"})
        for path, body, words in (
                ("/embed", {"inputs": "w1"}, "makes no embeddings"), ("/predict", {"inputs": "w1"}, "use the route /"),
                ("/similarity", {"inputs": {"source_sentence": "w1", "sentences": ["w2"]}}, "makes no embeddings"),
                ("/rerank", {"query": "w1", "texts": ["w2"]}, "does not support reranking")):
            self.assertIn(words, self.bad(path, "tei", body)["error"])
        self.check_row("/", "tei", {"inputs": "w1"}, {"inputs": ONLY_TEXTS, "parameters": [
            *({"aggregation_strategy": wrong} for wrong in [*CHOICE, "maximum"]),
            {"ignore_labels": "O"}, {"ignore_labels": [7]}, {"ignore_labels": {}}]})


if __name__ == "__main__":
    main(__name__)
