"""tei-client, unmodified: text-embeddings-inference's own client reads /info first and follows it."""
import asyncio
import os

from serving import Served, embed, main, use_clients

use_clients()

import tei_client  # noqa: E402

from common import ROOT  # noqa: E402

TEXTS = ["a dog", "a puppy", "the bill of the restaurant"]
TINY = os.path.join(ROOT, "tests/data/models")


class Embedder(Served):
    def client(self):
        return tei_client.HttpClient(self.server.url, timeout=60)

    def test_info(self):
        info = self.client().info()
        self.assertEqual((info.server_model_id, info.server_model_type),
                         ("all-MiniLM-L6-v2", tei_client.ModelType.Embedding))
        self.assertTrue(self.client().health())

    def test_embed(self):
        want = embed(TEXTS)
        client = self.client()
        for got in (client.embed(TEXTS), asyncio.run(client.async_embed(TEXTS))):
            for row, vector in zip(got, want, strict=True):
                self.assertVector(row, vector)
        self.assertVector(client.embed(TEXTS[0])[0], want[0])
        self.assertEqual([len(rows) for rows in client.embed_all(TEXTS[:2])], [4, 4])

    def test_tokens(self):
        client = self.client()
        tokens = client.tokenize("a dog")
        self.assertIn("dog", str(tokens))
        self.assertEqual(client.decode([[101, 1037, 3899, 102]]), ["a dog"])
        self.assertEqual(client.prompt_names(), [])

    def test_wrong_task(self):
        with self.assertRaises(Exception):
            self.client().rerank("a", TEXTS)
        self.assertTrue(self.client().health())


class Prompts(Served):
    arguments = (os.path.join(TINY, "st-dense"),)

    def test_names(self):
        """It asks for one that there is not, and reads the answer."""
        client = tei_client.HttpClient(self.server.url, timeout=60)
        self.assertEqual(client.prompt_names(), ["query", "passage"])
        by_name, other = (client.embed("w1 w2", prompt_name=name)[0] for name in ("query", "passage"))
        self.assertEqual(by_name, client.embed("w1 w2")[0])
        self.assertNotEqual(by_name, other)


class Reranker(Served):
    arguments = (os.path.join(TINY, "bert-cross-encoder"),)

    def test_rerank(self):
        client = tei_client.HttpClient(self.server.url, timeout=60)
        self.assertEqual(client.info().server_model_type, tei_client.ModelType.Reranker)
        texts = ["w4 w5", "w3 w2 w1"]
        got = client.rerank("w1 w2 w3", texts)
        scores = [one["score"] for one in self.server.post(
            "/rerank", {"query": "w1 w2 w3", "texts": texts}).json()]
        self.assertEqual([one.score for one in got.ranks], scores)
        self.assertEqual([one.index for one in got.ranks], [0, 1])


if __name__ == "__main__":
    main(__name__)
