#!/usr/bin/env python3
"""The adapters with the real frameworks, the Dask recipe, and the examples. Types: ./dev lint.

The frameworks are in the environment of tests/requirements-frameworks.txt, which ./dev test
names in GPUSERVE_FRAMEWORKS_PYTHON: this script goes on in there.
"""
import asyncio
import os
import pickle
import re
import subprocess
import sys

other = os.environ.get("GPUSERVE_FRAMEWORKS_PYTHON")
if not other:
    sys.exit("GPUSERVE_FRAMEWORKS_PYTHON is not set: run this through ./dev test")
if os.path.realpath(sys.prefix) != os.path.realpath(os.path.dirname(os.path.dirname(other))):
    os.execv(other, [other, *sys.argv])

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

from common import ROOT, Case, main, model  # noqa: E402
from gpuserve import Model  # noqa: E402

TEXTS = ["a bowl of soup", "a fast car", "the stock market fell"]
PATH = model("all-MiniLM-L6-v2")


class Adapters(Case):
    @classmethod
    def setUpClass(cls):
        cls.model = Model(PATH)

    @classmethod
    def tearDownClass(cls):
        cls.model.close()

    def test_langchain(self):
        from langchain_core.vectorstores import InMemoryVectorStore

        from gpuserve.langchain import GpuserveEmbeddings

        embeddings = GpuserveEmbeddings(self.model)
        store = InMemoryVectorStore(embeddings)
        store.add_texts(TEXTS)
        self.assertEqual(store.similarity_search("food", k=1)[0].page_content, TEXTS[0])
        expected = self.model.encode(TEXTS)
        self.assertTrue((np.array(asyncio.run(embeddings.aembed_documents(TEXTS)),
                                  dtype=np.float32) == expected).all())
        self.assertEqual(asyncio.run(embeddings.aembed_query("food")),
                         self.model.encode("food").tolist())

    def test_llama_index(self):
        from gpuserve.llama_index import GpuserveEmbedding

        embedding = GpuserveEmbedding(PATH)
        expected = self.model.encode(TEXTS).tolist()
        self.assertEqual(embedding.get_text_embedding_batch(TEXTS), expected)
        self.assertEqual(embedding.get_query_embedding(TEXTS[0]), expected[0])
        self.assertEqual(asyncio.run(embedding.aget_text_embedding(TEXTS[1])), expected[1])
        self.assertEqual(asyncio.run(embedding.aget_text_embedding_batch(TEXTS)), expected)

    def test_scikit_learn(self):
        from sklearn.base import clone
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        from gpuserve.sklearn import TextEmbedder

        pipeline = make_pipeline(TextEmbedder(PATH, normalize_embeddings=True),
                                 LogisticRegression())
        pipeline.fit(pd.Series(["a fine film", "lovely", "a bad film", "awful"]), [1, 1, 0, 0])
        self.assertEqual(pipeline.predict(["delightful", "terrible"]).tolist(), [1, 0])
        again = pickle.loads(pickle.dumps(pipeline))
        self.assertEqual(again.predict(["delightful", "terrible"]).tolist(), [1, 0])
        self.assertEqual(clone(pipeline)[0].get_params()["normalize_embeddings"], True)
        framed = TextEmbedder(PATH, truncate_dim=3).set_output(transform="pandas").fit_transform(
            TEXTS)
        self.assertEqual(list(framed.columns), ["dim0", "dim1", "dim2"])

    def test_dask(self):
        import dask.dataframe

        import gpuserve.dask

        texts = [f"text number {i}" for i in range(100)]
        frame = dask.dataframe.from_pandas(pd.DataFrame({"text": texts}), npartitions=4)
        made = gpuserve.dask.embed(frame, PATH, "text").compute()
        self.assertTrue((np.stack(made["embedding"]) == self.model.encode(texts)).all())


class Parts(Case):
    """What a job on Ray does on each node, without Ray."""

    def setUp(self):
        super().setUp()
        import pyarrow as pa
        import pyarrow.parquet as pq

        from gpuserve import _parquet

        self.parquet, self.read = _parquet, pq.read_table
        texts = [f"text number {i}" for i in range(1000)]
        pq.write_table(pa.table({"text": texts, "id": range(1000)}), self.path("s.parquet"),
                       row_group_size=130)
        self.job = _parquet.Job(self.path("s.parquet"), self.path("parts"), PATH, "text",
                                "embedding", {}, {})

    def test_a_job_goes_on_where_it_stopped(self):
        with Model(PATH) as opened:
            first = self.parquet.plan(self.job, 100)
            self.assertEqual(len(first), 10)
            for unit in (first[0], first[7]):
                self.parquet.embed_unit(self.job, unit, opened)
            with self.assertRaises(FileNotFoundError):
                self.parquet.merge(self.job, self.path("o.parquet"), 100)
            rest = self.parquet.plan(self.job, 100)
            self.assertEqual([unit.number for unit in rest], [1, 2, 3, 4, 5, 6, 8, 9])
            for unit in rest:
                self.parquet.embed_unit(self.job, unit, opened)
            self.assertEqual(self.parquet.merge(self.job, self.path("o.parquet"), 100), 1000)
            made = self.read(self.path("o.parquet"))
            self.assertEqual(made["id"].to_pylist(), list(range(1000)))
            vectors = np.stack(made["embedding"].to_numpy(zero_copy_only=False))
            self.assertTrue((vectors == opened.encode(made["text"].to_pylist())).all())

    def test_another_job_s_parts_are_not_taken(self):
        self.parquet.plan(self.job, 100)
        for other_job, rows in ((self.job._replace(model="another"), 100), (self.job, 200)):
            with self.assertRaises(ValueError) as caught:
                self.parquet.plan(other_job, rows)
            self.assertIn("another job", str(caught.exception))

    def test_bad_columns_are_named(self):
        with self.assertRaises(ValueError) as caught:
            self.parquet.plan(self.job._replace(column="texts"))
        self.assertIn("its columns are text, id", str(caught.exception))
        with self.assertRaises(ValueError) as caught:
            self.parquet.texts_of(self.read(self.path("s.parquet")), "id")
        self.assertIn("row 0", str(caught.exception))
        with self.assertRaises(FileNotFoundError):
            self.parquet.plan(self.job._replace(input=self.path("none")))


class Others(Case):
    def example(self, name, *arguments):
        done = subprocess.run(
            [sys.executable, os.path.join(ROOT, "examples/python", name + ".py"),
             "--model", PATH, *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_semantic_search_finds_and_draws(self):
        out = self.example("semantic_search", "--texts", "60", "--plot", self.path("p.png"))
        self.assertRegex(out, r"(?m)^60 reviews in .* a second$")
        found = [float(score) for score in re.findall(r"(?m)^(-?\d\.\d{3})  \S", out)]
        self.assertEqual((len(found), found), (5, sorted(found, reverse=True)))
        with open(self.path("p.png"), "rb") as file:
            self.assertEqual(file.read(4), b"\x89PNG")
        self.assertGreater(os.path.getsize(self.path("p.png")), 10_000)

    def test_a_sentiment_head_learns(self):
        out = self.example("sentiment_head", "--texts", "400")
        self.assertGreater(float(re.search(r"accuracy (\d\.\d+)", out)[1]), 0.6)
        good, bad = re.findall(r"(?m)^(\d\.\d\d)  \S", out)
        self.assertGreater(float(good), float(bad))

    def test_near_duplicates_are_those_above_the_threshold(self):
        out = self.example("near_duplicates", "--texts", "60", "--threshold", "0.5")
        n = int(re.match(r"(\d+) pairs of 60 texts are at least 0.5 similar", out)[1])
        shown = [float(one) for one in re.findall(r"(?m)^(\d\.\d{3})  \d+: ", out)]
        self.assertEqual(len(shown), min(n, 5))
        self.assertGreater(n, 0)
        self.assertTrue(all(one >= 0.5 for one in shown))

    def test_a_large_file_is_streamed(self):
        source = self.write("big.txt", "".join(f"line {i}\n" for i in range(300)))
        out = self.example("stream_large_file", "--input", source, "--output", self.path("big.npy"))
        self.assertRegex(out, r"^300 vectors in .*big.npy; at most \d+ MB were in use")
        vectors = np.load(self.path("big.npy"))
        self.assertEqual(vectors.shape, (300, 384))
        with Model(PATH) as opened:
            self.assertTrue((vectors[299] == opened.encode("line 299")).all())


if __name__ == "__main__":
    main(__name__)
