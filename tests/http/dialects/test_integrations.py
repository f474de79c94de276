"""Frameworks and clients on top of the dialects, unmodified: each embeds or ranks as its documentation shows, and meets
one error. Vectors and scores are compared with the library's own."""
import os

from serving import Served, cosine, embed, main, use_clients

use_clients("GPUSERVE_HTTP_FRAMEWORKS_PYTHON")

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it is fetched at the import
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
os.environ["ANONYMIZED_TELEMETRY"] = "False"

import asyncio  # noqa: E402

NAME = "all-MiniLM-L6-v2"
TEXTS = ["a dog", "a puppy", "the bill of the restaurant"]
QUERY = "a young dog"


class Integrations(Served):
    """One server for all. Imports are in the tests: each package takes seconds, and a failing one fails its test alone."""

    def assertVectors(self, got, texts=None, tolerance=1e-6):
        want = embed(texts or TEXTS)
        self.assertEqual(len(got), len(want))
        for one, other in zip(got, want):
            self.assertVector(one, other, tolerance)

    def assertRanked(self, got):
        """Pairs of index and score, best first: (1 + cosine) / 2 of the query and each text."""
        vectors = embed([QUERY, *TEXTS])
        scores = [(1 + cosine(vectors[0], one)) / 2 for one in vectors[1:]]
        self.assertEqual([index for index, _ in got], sorted(range(len(TEXTS)), key=lambda i: -scores[i])[:len(got)])
        for index, score in got:
            self.assertAlmostEqual(score, scores[index], places=5)

    def test_langchain_cohere(self):
        import cohere
        from langchain_cohere import CohereEmbeddings, CohereRerank
        client = CohereEmbeddings(model=NAME, base_url=self.server.url, cohere_api_key="none")
        self.assertVectors(client.embed_documents(TEXTS))
        self.assertVectors([client.embed_query(TEXTS[0])], TEXTS[:1])
        ranked = CohereRerank(model=NAME, base_url=self.server.url, cohere_api_key="none", top_n=2).rerank(TEXTS, QUERY)
        self.assertRanked([(one["index"], one["relevance_score"]) for one in ranked])
        with self.assertRaisesRegex(cohere.errors.NotFoundError, "unknown model"):
            CohereEmbeddings(model="other", base_url=self.server.url, cohere_api_key="none", max_retries=1).embed_query("a")

    def test_langchain_ollama(self):
        import ollama
        from langchain_ollama import OllamaEmbeddings
        client = OllamaEmbeddings(model=NAME, base_url=self.server.url)
        self.assertVectors(client.embed_documents(TEXTS))
        self.assertVectors([asyncio.run(client.aembed_query(TEXTS[0]))], TEXTS[:1])
        with self.assertRaisesRegex(ollama.ResponseError, "unknown model"):
            OllamaEmbeddings(model="other", base_url=self.server.url).embed_query("a")

    def test_voyageai(self):
        import voyageai
        client = voyageai.Client(api_key="none", base_url=self.server.url + "/v1")
        got = client.embed(TEXTS, model=NAME, input_type="document")
        self.assertVectors(got.embeddings)
        self.assertEqual(got.total_tokens, 15)
        ranked = client.rerank(QUERY, TEXTS, model=NAME, top_k=2).results
        self.assertRanked([(one.index, one.relevance_score) for one in ranked])
        self.assertEqual(ranked[0].document, TEXTS[ranked[0].index])
        with self.assertRaisesRegex(voyageai.error.APIError, "unknown model"):
            client.embed(["a"], model="other")
        with self.assertRaisesRegex(voyageai.error.InvalidRequestError, "`dimensions`|output_dimension"):
            client.embed(["a"], model=NAME, output_dimension=100000)

    def test_litellm_embedding(self):
        import litellm
        v1 = self.server.url + "/v1"
        for provider, base, more in (("openai", v1, {}), ("hosted_vllm", v1, {}), ("azure", self.server.url, {"api_version": "2024-10-21"}),
                                     ("cohere", self.server.url + "/v2/embed", {}), ("jina_ai", v1, {}), ("infinity", self.server.url, {}),
                                     ("ollama", self.server.url, {}), ("voyage", v1 + "/embeddings", {})):
            with self.subTest(provider=provider):
                got = litellm.embedding(model=provider + "/" + NAME, input=TEXTS, api_base=base, api_key="none", **more)
                self.assertVectors([one["embedding"] for one in got.data])

    def test_litellm_rerank(self):
        import litellm
        for provider, base in (("cohere", self.server.url), ("jina_ai", self.server.url + "/v1/rerank"), ("infinity", self.server.url),
                               ("hosted_vllm", self.server.url)):
            with self.subTest(provider=provider):
                # Documents in the reply are objects, as Jina's and vLLM's; litellm's infinity reads texts.
                got = litellm.rerank(model=provider + "/" + NAME, query=QUERY, documents=TEXTS, top_n=2, api_base=base, api_key="none",
                                     return_documents=provider != "infinity")
                self.assertRanked([(one["index"], one["relevance_score"]) for one in got.results])

    def test_litellm_error(self):
        import litellm
        with self.assertRaisesRegex(litellm.exceptions.NotFoundError, "unknown model"):
            litellm.embedding(model="openai/other", input=TEXTS, api_base=self.server.url + "/v1", api_key="none", num_retries=0)

    def test_haystack(self):
        import openai
        from haystack import Document
        from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
        from haystack.utils import Secret
        options = {"model": NAME, "api_base_url": self.server.url + "/v1", "api_key": Secret.from_token("none")}
        self.assertVectors([OpenAITextEmbedder(**options).run(TEXTS[0])["embedding"]], TEXTS[:1])
        documents = OpenAIDocumentEmbedder(**options, progress_bar=False).run([Document(content=one) for one in TEXTS])["documents"]
        self.assertVectors([one.embedding for one in documents])
        with self.assertRaisesRegex(openai.NotFoundError, "unknown model"):
            OpenAITextEmbedder(**{**options, "model": "other"}).run("a")

    def test_llama_index_rerank(self):
        from llama_index.core.schema import NodeWithScore, TextNode
        from llama_index.postprocessor.tei_rerank import TextEmbeddingInference
        nodes = [NodeWithScore(node=TextNode(text=one, id_=str(i)), score=0) for i, one in enumerate(TEXTS)]
        got = TextEmbeddingInference(base_url=self.server.url, top_n=2, model_name=NAME).postprocess_nodes(nodes, query_str=QUERY)
        self.assertRanked([(int(one.node.node_id), one.score) for one in got])

    def test_pydantic_ai(self):
        from pydantic_ai import Embedder, exceptions
        from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
        from pydantic_ai.providers.openai import OpenAIProvider
        provider = OpenAIProvider(base_url=self.server.url + "/v1", api_key="none")
        embedder = Embedder(OpenAIEmbeddingModel(NAME, provider=provider))
        got = embedder.embed_documents_sync(TEXTS)
        self.assertVectors(got.embeddings)
        self.assertEqual(got.usage.input_tokens, 15)
        with self.assertRaisesRegex(exceptions.ModelHTTPError, "unknown model"):
            Embedder(OpenAIEmbeddingModel("other", provider=provider)).embed_query_sync("a")

    def test_infinity_client(self):
        from infinity_client import Client
        from infinity_client.api.default import embeddings, health
        from infinity_client.models import OpenAIEmbeddingInputText
        with Client(base_url=self.server.url) as client:
            got = embeddings.sync(client=client, body=OpenAIEmbeddingInputText.from_dict({"input": TEXTS, "model": NAME}))
            self.assertVectors([one.embedding for one in got.data])
            self.assertEqual(got.usage.prompt_tokens, 15)
            self.assertIn("unix", health.sync(client=client).additional_properties)
            body = OpenAIEmbeddingInputText.from_dict({"input": TEXTS, "model": "other"})
            refused = embeddings.sync_detailed(client=client, body=body)
            self.assertEqual(refused.status_code, 404)
            self.assertIn(b"unknown model", refused.content)

    def test_chromadb(self):
        """The embedding functions of a collection, for three dialects."""
        import openai
        from chromadb.utils import embedding_functions as functions
        for function in (functions.HuggingFaceEmbeddingServer(url=self.server.url + "/embed"),
                         functions.OllamaEmbeddingFunction(url=self.server.url, model_name=NAME),
                         functions.OpenAIEmbeddingFunction(api_key="none", api_base=self.server.url + "/v1", model_name=NAME)):
            with self.subTest(function=type(function).__name__):
                self.assertVectors(function(TEXTS))
        with self.assertRaisesRegex(openai.NotFoundError, "unknown model"):
            functions.OpenAIEmbeddingFunction(api_key="none", api_base=self.server.url + "/v1", model_name="other")(["a"])

    def test_qdrant_client(self):
        """qdrant-client's own search in memory, over vectors of the server."""
        import openai
        from qdrant_client import QdrantClient, models
        server = openai.OpenAI(base_url=self.server.url + "/v1", api_key="none")

        def vectors(texts):
            return [one.embedding for one in server.embeddings.create(model=NAME, input=texts).data]

        client = QdrantClient(":memory:")
        client.create_collection("texts", models.VectorParams(size=384, distance=models.Distance.COSINE))
        client.upsert("texts", [models.PointStruct(id=i, vector=one, payload={"text": TEXTS[i]}) for i, one in enumerate(vectors(TEXTS))])
        found = client.query_points("texts", query=vectors([QUERY])[0], limit=3).points
        self.assertRanked([(one.id, (1 + one.score) / 2) for one in found])
        self.assertEqual(found[0].payload, {"text": TEXTS[found[0].id]})


if __name__ == "__main__":
    main(__name__)
