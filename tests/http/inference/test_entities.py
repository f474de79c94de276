"""Token classification: transformers' pipeline is the oracle, InferenceClient the client."""
import json
import os
import unittest

from serving import MINILM, Server, environment, main, use_clients

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
MODELS = os.path.join(ROOT, "tests", "data", "models")
PLUGIN = os.environ.get("GPUSERVE_EMULATED_PLUGIN", os.path.join(ROOT, "build/tests/cudaemu"))
NAMES = ("bert-tokens", "distilbert-tokens")


def rows_of(name):
    with open(os.path.join(MODELS, name, "entities.json"), encoding="utf-8") as file:
        return json.load(file)


class Entities(unittest.TestCase):
    def setUp(self):
        self.server = None

    def tearDown(self):
        if self.server:
            self.server.stop(9)

    def serve(self, *arguments, env=None):
        self.tearDown()
        self.server = Server(*arguments, "--auto-truncate", env=env)

    def ask(self, inputs, status=200, **parameters):
        reply = self.server.post("/", {"inputs": inputs, "parameters": parameters})
        self.assertEqual(reply.status, status, reply.body)
        return reply.json()

    def assertFound(self, got, want, tolerance=2e-6):
        keys = ("entity", "entity_group", "index", "word", "start", "end")
        self.assertEqual([{k: one[k] for k in keys if k in one} for one in got],
                         [{k: one[k] for k in keys if k in one} for one in want])
        for a, b in zip(got, want):
            self.assertLessEqual(abs(a["score"] - b["score"]), tolerance)

    def test_as_transformers(self):
        for name in NAMES:
            self.serve(os.path.join(MODELS, name))
            rows = [row for row in rows_of(name) if row["text"]]
            self.assertGreater(sum(len(row["simple"]) for row in rows), 40)
            for row in rows:
                for strategy in ("none", "simple"):
                    self.assertFound(self.ask(row["text"], aggregation_strategy=strategy),
                                     row[strategy])
                self.assertFound(self.ask(row["text"]), row["simple"])
            # a list: one list of entities for each text, in one request
            many = self.ask([row["text"] for row in rows])
            self.assertEqual(len(many), len(rows))
            for got, row in zip(many, rows):
                self.assertFound(got, row["simple"])

    def test_on_a_gpu(self):
        """The same on the emulator, in float16: labels that are clear are the same."""
        for name in NAMES:
            self.serve(os.path.join(MODELS, name), "--device", "cuda:0", "--warmup", "off",
                       env=environment(GPUSERVE_PLUGIN_DIR=PLUGIN))
            n = 0
            for row in rows_of(name):
                if not row["text"]:
                    continue
                want = {one["index"]: one for one in row["none"]}
                for one in self.ask(row["text"], aggregation_strategy="none"):
                    same = want.get(one["index"])
                    if same and same["score"] > 0.6:
                        self.assertEqual(one["entity"], same["entity"])
                        self.assertLessEqual(abs(one["score"] - same["score"]), 2e-2)
                        n += 1
            self.assertGreater(n, 30)

    def test_ignored_labels(self):
        self.serve(os.path.join(MODELS, "bert-tokens"))
        text = rows_of("bert-tokens")[1]["text"]
        every = self.ask(text, aggregation_strategy="none", ignore_labels=[])
        self.assertEqual([one["index"] for one in every], list(range(1, 16)))
        some = self.ask(text, aggregation_strategy="none", ignore_labels=["MISC", "O"])
        self.assertEqual(some, [one for one in every if one["entity"] not in ("MISC", "O")])
        self.assertEqual(self.ask(text, ignore_labels=["O", "MISC", "LOC", "PER"]), [])

    def test_by_the_client(self):
        from huggingface_hub import InferenceClient
        self.serve(os.path.join(MODELS, "bert-tokens"))
        client = InferenceClient(model=self.server.url)
        row = rows_of("bert-tokens")[1]
        for strategy in (None, "simple", "none"):
            found = client.token_classification(row["text"], aggregation_strategy=strategy)
            want = row[strategy or "simple"]
            self.assertEqual([(one.entity_group or one["entity"], one.word, one.start, one.end)
                              for one in found],
                             [(one.get("entity_group", one.get("entity")), one["word"],
                               one["start"], one["end"]) for one in want])

    def test_a_text_that_is_cut_is_told(self):
        self.serve(os.path.join(MODELS, "bert-tokens"))
        for text, cut in (("w1 " * 100, "1"), ("w1", "0")):
            reply = self.server.post("/", {"inputs": text, "parameters": {"truncate": True}})
            self.assertEqual(reply.headers["x-gpuserve-truncated"], cut)

    def test_wrong_questions(self):
        self.serve(os.path.join(MODELS, "bert-tokens"), MINILM)
        for status, words, inputs, parameters in (
                (422, "aggregation_strategy", "w1", {"aggregation_strategy": "median"}),
                (422, "ignore_labels", "w1", {"ignore_labels": "O"}),
                (422, "item 1 is not a string", "w1", {"ignore_labels": ["O", 1]}),
                (413, "holds 1025 labels, the limit is 1024", "w1", {"ignore_labels": ["O"] * 1025}),
                (400, "empty", "", {}), (422, "inputs", 7, {}), (422, "inputs", [[1, 2]], {})):
            self.assertIn(words, self.ask(inputs, status, **parameters)["error"])
        for path in ("/predict", "/embed"):
            reply = self.server.post(path, {"inputs": "w1"})
            self.assertEqual(reply.status, 422)
        self.assertIn("labels tokens", self.server.post("/predict", {"inputs": "w1"}).json()["error"])
        reply = self.server.post("/v2/models/bert-tokens/infer", {"inputs": [
            {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["w1"]}]})
        self.assertGreaterEqual(reply.status, 400)
        self.assertLess(reply.status, 502)
        info = self.server.get("/info").json()["model_type"]["classifier"]["id2label"]
        self.assertEqual(info["5"], "MISC")
        self.assertEqual(self.server.get("/health/deep").status, 200)


if __name__ == "__main__":
    use_clients()
    main(__name__)
