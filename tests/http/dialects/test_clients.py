"""Real clients, unmodified: huggingface_hub, tritonclient, cohere and ollama. Every answer is compared
with the library's own vectors."""
import json
import os

from serving import MINILM, Served, Server, cosine, embed, main, use_clients

use_clients()

import cohere  # noqa: E402
import huggingface_hub  # noqa: E402
import numpy  # noqa: E402
import ollama  # noqa: E402
import tritonclient.http as triton  # noqa: E402

from common import ROOT  # noqa: E402

NAME = "all-MiniLM-L6-v2"
TEXTS = ["a dog", "a puppy", "the bill of the restaurant"]


class HuggingFace(Served):
    def client(self):
        return huggingface_hub.InferenceClient(model=self.server.url)

    def test_feature_extraction(self):
        want = embed(TEXTS[:1])[0]
        for path in ("", "/embed"):
            client = huggingface_hub.InferenceClient(model=self.server.url + path)
            got = client.feature_extraction(TEXTS[0], normalize=True, truncate=True,
                                            truncation_direction="right")
            self.assertVector(got[0], want)

    def test_sentence_similarity(self):
        got = self.client().sentence_similarity(TEXTS[0], other_sentences=TEXTS[1:])
        vectors = embed(TEXTS)
        self.assertVector(got, [cosine(vectors[0], one) for one in vectors[1:]], 1e-5)

    def test_zero_shot(self):
        got = self.client().zero_shot_classification("my dog ate the sofa", ["animals", "finance"])
        self.assertEqual(got[0].label, "animals")
        self.assertAlmostEqual(sum(one.score for one in got), 1, places=5)
        got = self.client().zero_shot_classification("my dog ate the sofa", ["animals", "finance"],
                                                     multi_label=True)
        self.assertEqual([one.label for one in got], ["animals", "finance"])


class HuggingFaceClassifier(Served):
    arguments = (MINILM, "--head", os.path.join(ROOT, "share/heads/sentiment.safetensors"))

    def test_text_classification(self):
        client = huggingface_hub.InferenceClient(model=self.server.url)
        got = client.text_classification("a fine film")
        self.assertEqual(got[0].label, "positive")
        self.assertGreater(got[0].score, got[1].score)
        self.assertEqual(len(client.text_classification("a fine film", top_k=1)), 1)


class HuggingFaceNli(Served):
    """Zero-shot classification by entailment: transformers' pipeline is the oracle (tests/data/nli)."""
    model, order = "deberta-v3", "first"
    arguments = (os.path.join(ROOT, "tests/data/nli", model), "--auto-truncate")

    def test_as_transformers(self):
        client = huggingface_hub.InferenceClient(model=self.server.url)
        with open(os.path.join(ROOT, "tests/data/nli/expected.json"), encoding="utf-8") as file:
            rows = [row for row in json.load(file)["rows"] if (row["model"], row["order"]) == (self.model, self.order)]
        self.assertTrue(rows)
        for row in rows:
            got = client.zero_shot_classification(row["text"], row["labels"], multi_label=row["multi_label"],
                                                  hypothesis_template=row["template"])
            want = sorted(zip(row["scores"], row["labels"]), reverse=True)
            self.assertEqual([one.label for one in got], [label for _, label in want])
            for one, (score, _) in zip(got, want):
                self.assertAlmostEqual(one.score, score, delta=2e-6)

    def test_refused(self):
        def asked(text="a", labels=("b", "c"), **more):
            return {"inputs": text, "parameters": {"candidate_labels": list(labels), **more}}
        self.refused(422, "item 1 is not a string", "/", asked(labels=["b", 3]))
        self.refused(422, "with {} in it", "/", asked(hypothesis_template="x"))
        self.refused(413, "times 30 labels", "/", asked("a" * 1_500_000, ["b"] * 30))


class HuggingFaceBart(HuggingFaceNli):
    model, order = "bart", "last"
    arguments = (os.path.join(ROOT, "tests/data/nli", model), "--auto-truncate")


class HuggingFaceOtherClassifier(Served):
    arguments = (os.path.join(ROOT, "tests/data/models/bert-tokens"),)

    def test_refused(self):
        self.refused(422, 'begins with \\"entail\\"', "/", {"inputs": "a", "parameters": {"candidate_labels": ["b"]}})


class Triton(Served):
    arguments = ("org/model=" + MINILM, "--model-control")

    def setUp(self):
        self.client = triton.InferenceServerClient(self.server.url.split("//")[1])

    def ask(self, texts=TEXTS, binary=True, shape=None, **options):
        tensor = triton.InferInput("TEXT", shape or [len(texts)], "BYTES")
        tensor.set_data_from_numpy(numpy.array([one.encode() for one in texts], dtype=object)
                                   .reshape(shape or [len(texts)]), binary_data=binary)
        return self.client.infer("org/model", [tensor], **options)

    def test_health_and_metadata(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("org/model", "1"))
        self.assertEqual(self.client.get_server_metadata()["name"], "gpuserve")
        about = self.client.get_model_metadata("org/model")
        self.assertEqual(about["outputs"][0]["shape"], [-1, 384])
        self.assertEqual(self.client.get_model_config("org/model")["output"][0]["name"],
                         "embedding")
        self.ask()
        stats = self.client.get_inference_statistics("org/model")
        for stats in (stats, self.client.get_inference_statistics()):
            stats = stats["model_stats"][0]
            self.assertGreater(stats["inference_count"], 0)
            self.assertEqual(sum(row["compute_infer"]["count"] for row in stats["batch_stats"]), stats["execution_count"])
            self.assertEqual(sum(row["batch_size"] * row["compute_infer"]["count"] for row in stats["batch_stats"]),
                             stats["inference_count"])
            self.assertIn(len(TEXTS), [row["batch_size"] for row in stats["batch_stats"]])
        self.assertIn("statistics", self.client.get_server_metadata()["extensions"])

    def test_inference(self):
        want = embed(TEXTS)
        for binary_in in (True, False):
            for binary_out in (True, False):
                output = triton.InferRequestedOutput("embedding", binary_data=binary_out)
                got = self.ask(binary=binary_in, outputs=[output], request_id="one")
                self.assertEqual(got.get_response()["id"], "one")
                self.assertEqual(got.as_numpy("embedding").shape, (3, 384))
                for row, vector in zip(got.as_numpy("embedding"), want):
                    self.assertVector(row, vector)
        got = self.ask(shape=[3, 1])
        self.assertVector(got.as_numpy("embedding")[2], want[2])

    def test_compressed_request(self):
        want = embed(TEXTS)
        for way in ("gzip", "deflate"):
            got = self.ask(request_compression_algorithm=way)
            self.assertVector(got.as_numpy("embedding")[1], want[1])

    def test_token_ids(self):
        ids = numpy.array([[101, 1037, 3899, 102, 0, 0]])
        mask = numpy.array([[1, 1, 1, 1, 0, 0]])
        for number in ("INT64", "INT32"):
            for binary in (True, False):
                tensors = []
                for name, values in (("input_ids", ids), ("attention_mask", mask)):
                    tensor = triton.InferInput(name, [1, 6], number)
                    tensor.set_data_from_numpy(values.astype(number.lower()), binary_data=binary)
                    tensors.append(tensor)
                got = self.client.infer("org/model", tensors)
                self.assertVector(got.as_numpy("embedding")[0], embed(["a dog"])[0])

    def test_errors(self):
        with self.assertRaisesRegex(triton.InferenceServerException, "unknown model"):
            self.client.infer("other", [triton.InferInput("TEXT", [1], "BYTES")])
        with self.assertRaisesRegex(triton.InferenceServerException, "embedding, scores"):
            self.ask(outputs=[triton.InferRequestedOutput("other")])
        with self.assertRaisesRegex(triton.InferenceServerException, "no classifier"):
            self.ask(outputs=[triton.InferRequestedOutput("scores")])
        with self.assertRaisesRegex(triton.InferenceServerException, "deadline|timeout|late"):
            self.ask(["long " * 200] * 500, timeout=1)

    def test_repository(self):
        self.assertEqual(self.client.get_model_repository_index()[0]["state"], "READY")
        self.client.unload_model("org/model")
        self.assertEqual(self.client.get_model_repository_index()[0]["state"], "UNAVAILABLE")
        self.assertFalse(self.client.is_model_ready("org/model"))
        self.assertFalse(self.client.is_server_ready())
        with self.assertRaisesRegex(triton.InferenceServerException, "not loaded"):
            self.ask()
        self.client.load_model("org/model")
        self.assertTrue(self.client.is_server_ready())
        self.assertEqual(self.ask().as_numpy("embedding").shape, (3, 384))

    def test_control_needs_consent(self):
        server = Server(MINILM)
        client = triton.InferenceServerClient(server.url.split("//")[1])
        with self.assertRaisesRegex(triton.InferenceServerException, "--model-control"):
            client.unload_model(NAME)
        client.close()
        self.assertEqual(server.stop()[0], 0)


class TritonClassifier(Served):
    arguments = (MINILM, "--head", os.path.join(ROOT, "share/heads/sentiment.safetensors"))

    def test_scores_and_labels(self):
        client = triton.InferenceServerClient(self.server.url.split("//")[1])
        tensor = triton.InferInput("TEXT", [2], "BYTES")
        tensor.set_data_from_numpy(numpy.array(["a fine film", "a dull film"], dtype=object))
        for binary in (True, False):
            got = client.infer(NAME, [tensor], outputs=[
                triton.InferRequestedOutput("scores", binary_data=binary),
                triton.InferRequestedOutput("labels", binary_data=binary)])
            self.assertEqual([one if isinstance(one, str) else one.decode()
                              for one in got.as_numpy("labels")], ["positive", "negative"])
            self.assertVector(got.as_numpy("scores").sum(axis=1), [1, 1])
        got = client.infer(NAME, [tensor], outputs=[
            triton.InferRequestedOutput("scores", class_count=1)])
        self.assertRegex(got.as_numpy("scores")[0][0].decode(), r"^0\.8\d*:\d:positive$")


class Cohere(Served):
    def test_embed(self):
        want = embed(TEXTS)
        two = cohere.ClientV2(api_key="none", base_url=self.server.url)
        got = two.embed(model=NAME, texts=TEXTS, input_type="search_document",
                        embedding_types=["float"])
        for row, vector in zip(got.embeddings.float, want):
            self.assertVector(row, vector)
        self.assertEqual(got.texts, TEXTS)
        one = cohere.Client(api_key="none", base_url=self.server.url)
        got = one.embed(model=NAME, texts=TEXTS, input_type="classification")
        self.assertVector(got.embeddings[0], want[0])

    def test_v1_by_type(self):
        """As langchain-cohere asks: with `embedding_types` the reply of v1 is keyed by type, too."""
        want = embed(TEXTS)
        got = cohere.Client(api_key="none", base_url=self.server.url).embed(
            model=NAME, texts=TEXTS, input_type="search_document", embedding_types=["float"])
        self.assertEqual(got.response_type, "embeddings_by_type")
        for row, vector in zip(got.embeddings.float_, want):
            self.assertVector(row, vector)

    def test_max_tokens(self):
        client = cohere.ClientV2(api_key="none", base_url=self.server.url)
        asked = {"model": NAME, "texts": ["a dog and cats", "a dog"], "input_type": "classification",
                 "embedding_types": ["float"]}
        for truncate, kept in (("END", "a dog"), ("START", "and cats")):
            got = client.embed(**asked, truncate=truncate, max_tokens=4)
            for row, vector in zip(got.embeddings.float, embed([kept, "a dog"])):
                self.assertVector(row, vector)
            self.assertEqual(got.texts, asked["texts"])
        with self.assertRaises(cohere.errors.BadRequestError) as caught:
            client.embed(**asked, truncate="NONE", max_tokens=4)
        self.assertIn("input 0 has 6 tokens, `max_tokens` is 4", str(caught.exception.body))

    def test_rerank(self):
        vectors = embed([TEXTS[1], TEXTS[2], TEXTS[0]])
        for client in (cohere.ClientV2, cohere.Client):
            client = client(api_key="none", base_url=self.server.url)
            got = client.rerank(model=NAME, query=TEXTS[1], documents=[TEXTS[2], TEXTS[0]])
            self.assertEqual([one.index for one in got.results], [1, 0])
            for one, vector in zip(got.results, (vectors[2], vectors[1])):
                self.assertAlmostEqual(one.relevance_score, (1 + cosine(vectors[0], vector)) / 2,
                                       places=5)
            self.assertEqual(len(client.rerank(model=NAME, query="a", documents=TEXTS,
                                               top_n=1).results), 1)
        one = cohere.Client(api_key="none", base_url=self.server.url)
        got = one.rerank(model=NAME, query=TEXTS[1], documents=[{"text": TEXTS[0]}],
                         return_documents=True)
        self.assertEqual(got.results[0].document.text, TEXTS[0])

    def test_errors(self):
        client = cohere.ClientV2(api_key="none", base_url=self.server.url)
        with self.assertRaises(cohere.errors.NotFoundError) as caught:
            client.rerank(model="other", query="a", documents=["b"])
        self.assertIn(NAME, str(caught.exception.body))
        with self.assertRaises(cohere.errors.BadRequestError) as caught:
            client.embed(model=NAME, texts=["a"], input_type="search_query",
                         embedding_types=["int3"])
        self.assertIn("int3", str(caught.exception.body))

    def test_compact_types(self):
        client = cohere.ClientV2(api_key="none", base_url=self.server.url)
        got = client.embed(model=NAME, texts=TEXTS, input_type="search_document",
                           embedding_types=["float", "int8", "uint8", "binary", "ubinary"]).embeddings
        for row, vector in zip(got.float_, embed(TEXTS)):
            self.assertVector(row, vector)
        for precision in ("int8", "uint8", "binary", "ubinary"):
            self.assertEqual(getattr(got, precision),
                             [[int(value) for value in row] for row in embed(TEXTS, "--precision", precision)])


class Ollama(Served):
    def test_show_ps_and_generate(self):
        client = ollama.Client(host=self.server.url)
        shown = client.show(NAME)
        self.assertEqual(shown.capabilities, ["embedding"])
        self.assertEqual(shown.modelinfo["bert.embedding_length"], 384)
        self.assertEqual(shown.details.family, "bert")
        self.assertEqual([one.name for one in client.ps().models], [NAME])
        for call in (client.generate, client.chat):
            with self.assertRaises(ollama.ResponseError) as caught:
                call(model=NAME)
            self.assertIn("does not support " + call.__name__, caught.exception.error)
            self.assertEqual(caught.exception.status_code, 400)

    def test_embed(self):
        client = ollama.Client(host=self.server.url)
        got = client.embed(model=NAME, input=TEXTS)
        for row, vector in zip(got.embeddings, embed(TEXTS)):
            self.assertVector(row, vector)
        self.assertGreater(got.total_duration, 0)
        self.assertEqual(got.prompt_eval_count, 4 + 4 + 7)
        got = client.embed(model=NAME + ":latest", input="a dog", dimensions=16)
        self.assertEqual(len(got.embeddings[0]), 16)
        self.assertVector(client.embed(model=NAME, input="a dog ran", options={"num_ctx": 4}).embeddings[0], embed(["a dog"])[0])
        raw = client.embeddings(model=NAME, prompt="a dog").embedding
        length = sum(x * x for x in raw) ** 0.5
        self.assertGreater(abs(length - 1), 0.01)
        self.assertVector([x / length for x in raw], embed(["a dog"])[0])
        with self.assertRaisesRegex(ollama.ResponseError, "`num_ctx` is 8192, outside 1 to 256"):
            client.embed(model=NAME, input="a", options={"num_ctx": 8192})
        listed = client.list().models
        self.assertEqual([(one.model, one.details.family, one.details.parameter_size) for one in listed], [(NAME, "bert", "22.6M")])
        self.assertEqual(listed[0].digest, client.ps().models[0].digest)
        self.assertEqual(listed[0].modified_at.timestamp(), os.stat(MINILM).st_mtime // 1)
        size = os.path.getsize(os.path.join(MINILM, "model.safetensors"))  # the weights, and a header
        self.assertTrue(0.99 * size < listed[0].size <= size, (size, listed[0].size))
        with self.assertRaisesRegex(ollama.ResponseError, "unknown model"):
            client.embed(model="other", input="a")


if __name__ == "__main__":
    main(__name__)
