"""Frameworks on top of the clients: langchain-openai and llama-index."""
from serving import Served, embed, main, use_clients

use_clients("GPUSERVE_FRAMEWORKS_PYTHON")

import langchain_openai  # noqa: E402
import openai  # noqa: E402
from llama_index.embeddings.text_embeddings_inference import (  # noqa: E402
    TextEmbeddingsInference)

NAME = "all-MiniLM-L6-v2"
TEXTS = ["a dog", "a puppy", "the bill of the restaurant"]


class Frameworks(Served):
    def test_langchain_openai(self):
        client = langchain_openai.OpenAIEmbeddings(
            model=NAME, base_url=self.server.url + "/v1", api_key="none",
            check_embedding_ctx_length=False)
        for row, vector in zip(client.embed_documents(TEXTS), embed(TEXTS)):
            self.assertVector(row, vector)
        self.assertVector(client.embed_query(TEXTS[0]), embed(TEXTS[:1])[0])
        wrong = langchain_openai.OpenAIEmbeddings(model="other", base_url=self.server.url + "/v1", api_key="none", check_embedding_ctx_length=False)
        with self.assertRaises(openai.NotFoundError) as caught:
            wrong.embed_query("a")
        self.assertEqual((caught.exception.code, caught.exception.param), ("model_not_found", "model"))

    def test_langchain_azure_openai(self):
        client = langchain_openai.AzureOpenAIEmbeddings(
            azure_deployment=NAME, azure_endpoint=self.server.url, api_version="2024-10-21", api_key="none", check_embedding_ctx_length=False)
        for row, vector in zip(client.embed_documents(TEXTS), embed(TEXTS)):
            self.assertVector(row, vector)
        with self.assertRaisesRegex(openai.BadRequestError, "`input` cannot be empty"):
            client.embed_documents([""])

    def test_llama_index(self):
        client = TextEmbeddingsInference(model_name=NAME, base_url=self.server.url)
        for row, vector in zip(client.get_text_embedding_batch(TEXTS), embed(TEXTS)):
            self.assertVector(row, vector)


if __name__ == "__main__":
    main(__name__)
