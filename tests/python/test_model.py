#!/usr/bin/env python3
"""Models from Python: every call, against reference data made by other software."""
import gc
import json
import os
import tempfile
import threading

import numpy as np

import gpuserve
from common import ORACLE, ROOT, Case, main, model, oracle_texts, safetensors
from gpuserve import Context, Model
from gpuserve.errors import NotFoundError

MINILM = "all-MiniLM-L6-v2"
TEXTS = ["A man is eating food.", "A man is eating a piece of bread.", "", "Ein Käse, 食べ物 🙂",
         "a" * 3000, "nul \0 inside"]


def array(tensors, key):
    shape, values = tensors[key]
    return np.frombuffer(values, dtype=values.typecode).reshape(shape)


class LabelTokens(Case):
    """transformers' own pipeline is the oracle: entities.json."""

    def test_entities_are_those_of_transformers(self):
        for name in ("bert-tokens", "distilbert-tokens"):
            folder = os.path.join(ROOT, "tests", "data", "models", name)
            with open(os.path.join(folder, "entities.json"), encoding="utf-8") as file:
                rows = [row for row in json.load(file) if row["text"]]
            with Model(folder) as tagger:
                for row in rows:
                    for strategy in ("none", "simple"):
                        self.same(tagger.entities(row["text"], aggregation_strategy=strategy),
                                  row[strategy])
                many = tagger.entities(row["text"] for row in rows)
                self.assertEqual(len(many), len(rows))
                for found, row in zip(many, rows):
                    self.same(found, row["simple"])

    def same(self, found, expected):
        self.assertEqual([{**one, "score": 0} for one in found], [{**one, "score": 0} for one in expected])
        for one, other in zip(found, expected):
            self.assertAlmostEqual(one["score"], other["score"], delta=2e-6)

    def test_scores_are_the_logits(self):
        folder = os.path.join(ROOT, "tests", "data", "models", "bert-tokens")
        with open(os.path.join(folder, "entities.json"), encoding="utf-8") as file:
            rows = [row for row in json.load(file) if row["text"]]
        with Model(folder) as tagger:
            texts = [row["text"] for row in rows]
            for found, row in zip(tagger.label_tokens(texts, score="raw"), rows):
                self.assertEqual(found.ids.tolist(), row["ids"])
                self.assertLess(np.abs(found.scores - np.array(row["logits"])).max(), 1e-4)
            alone = tagger.label_tokens(texts[0])
            self.assertLess(np.abs(alone.scores.sum(axis=1) - 1).max(), 1e-5)
            everything = tagger.entities(texts[0], ignore_labels=())
            self.assertGreaterEqual(len(everything), len(tagger.entities(texts[0])))
            self.assertEqual(tagger.label_tokens([]), [])
            with open(os.path.join(folder, "vocab.txt"), encoding="utf-8") as file:
                vocabulary = file.read().splitlines()
            self.assertEqual(tagger.convert_ids_to_tokens(alone.ids), [vocabulary[i] for i in alone.ids])
            with self.assertRaises(gpuserve.errors.InvalidError):
                tagger.convert_ids_to_tokens([1 << 20])
            with self.assertRaisesRegex(gpuserve.errors.InvalidError, "known are average, first"):
                tagger.entities(texts[0], aggregation_strategy="most")

    def test_other_models_label_no_tokens(self):
        with Model(model(MINILM)) as embedder:
            with self.assertRaisesRegex(gpuserve.errors.UnsupportedError, "not a token classifier"):
                embedder.label_tokens("a text")


class WithMiniLM(Case):
    @classmethod
    def setUpClass(cls):
        cls.model = Model(model(MINILM))

    @classmethod
    def tearDownClass(cls):
        cls.model.close()


class Encode(WithMiniLM):
    def test_vectors_are_the_reference_s(self):
        tensors = safetensors(os.path.join(ORACLE, "vectors", MINILM + ".safetensors"))
        texts = {entry["row"]: entry["text"] for entry in oracle_texts()}
        rows = array(tensors, "row").tolist()
        vectors, items = self.model.encode([texts[row] for row in rows], return_items=True)
        self.assertLess(np.abs(vectors - array(tensors, "mean_l2")).max(), 1e-5)
        self.assertEqual(items.n_tokens.tolist(), array(tensors, "n_tokens").tolist())
        self.assertTrue((items.status == 0).all())

    def test_a_result_tells_what_was_done_where_and_for_how_long(self):
        long = "word " * 600
        vectors, items, result = self.model.encode(TEXTS + [long], return_items=True, return_result=True)
        self.assertEqual((vectors == self.model.encode(TEXTS + [long])).all(), True)
        self.assertEqual(result.n_tokens, items.n_tokens.sum())
        self.assertEqual(result.n_truncated, items.truncated.sum())
        self.assertGreater(result.n_truncated, 0)
        self.assertEqual((result.dtype, result.device), ("float32", "cpu"))
        self.assertEqual(result.fingerprint, self.model.fingerprint)
        self.assertGreater(result.compute_us, 0)
        self.assertLessEqual(result.compute_us, result.total_us)
        # the same of several submissions, of one text, of none, and of a future
        _, chunked = self.model.encode(TEXTS + [long], batch_size=2, return_result=True)
        self.assertEqual(chunked[:3], result[:3])
        vector, one = self.model.encode(TEXTS[0], return_result=True)
        self.assertEqual((vector.shape, one.n_tokens), ((384,), items.n_tokens[0]))
        _, none = self.model.encode([], return_result=True)
        self.assertEqual((none.n_tokens, none.total_us, none.device), (0, 0, "cpu"))
        vectors, later = self.model.submit(TEXTS, return_result=True).result()
        self.assertEqual((len(vectors), later.n_tokens), (len(TEXTS), items.n_tokens[:-1].sum()))

    def test_the_ways_to_give_texts_are_one(self):
        vectors = self.model.encode(TEXTS)
        self.assertEqual((vectors.shape, vectors.dtype), ((len(TEXTS), 384), np.float32))
        for i, text in enumerate(TEXTS):
            one = self.model.encode(text)
            self.assertEqual(one.shape, (384,))
            self.assertTrue((one == vectors[i]).all())
            alone = self.model.encode([text])
            self.assertEqual(alone.shape, (1, 384))
            self.assertTrue((alone[0] == vectors[i]).all())
        for given in (tuple(TEXTS), iter(TEXTS), np.array(TEXTS[:2]), (text for text in TEXTS)):
            found = self.model.encode(given)
            self.assertTrue((found == vectors[:len(found)]).all())
        self.assertTrue((self.model.encode(sentences=TEXTS) == vectors).all())
        self.assertTrue((self.model.encode(TEXTS, batch_size=2) == vectors).all())
        self.assertTrue((np.stack(self.model.encode(TEXTS, convert_to_numpy=False))
                         == vectors).all())

    def test_many_texts_in_chunks_keep_their_order(self):
        texts = [f"text number {i}" for i in range(2500)]
        vectors = self.model.encode(texts, batch_size=300)
        for i in (0, 299, 300, 1777, 2499):
            self.assertTrue((vectors[i] == self.model.encode(texts[i])).all(), i)

    def test_a_stream_takes_texts_as_it_needs_them(self):
        taken = 0

        def source():
            nonlocal taken
            for i in range(1000):
                taken += 1
                yield f"text number {i}"

        stream = self.model.encode_stream(source(), batch_size=50)
        first = next(stream)
        self.assertEqual(first.shape, (50, 384))
        self.assertLessEqual(taken, 200)
        rest = list(stream)
        self.assertEqual(sum(map(len, rest)) + 50, 1000)
        self.assertTrue((rest[-1][-1] == self.model.encode("text number 999")).all())
        abandoned = self.model.encode_stream(source(), batch_size=50)
        next(abandoned)
        abandoned.close()

    def test_no_texts_are_no_rows(self):
        self.assertEqual(self.model.encode([]).shape, (0, 384))
        self.assertEqual(list(self.model.encode_stream([])), [])

    def test_the_caller_s_array_is_written(self):
        expected = self.model.encode(TEXTS)
        out = np.full((len(TEXTS), 384), np.nan, dtype=np.float32)
        self.assertIs(self.model.encode(TEXTS, out=out), out)
        self.assertTrue((out == expected).all())
        wide = np.full((len(TEXTS), 400), 7, dtype=np.float32)
        self.model.encode(TEXTS, out=wide[:, 8:392])
        self.assertTrue((wide[:, 8:392] == expected).all())
        self.assertTrue((wide[:, :8] == 7).all() and (wide[:, 392:] == 7).all())

    def test_truncate_dim_is_that_of_sentence_transformers(self):
        """After the model's modules, of which the last one made the length 1, and not normalized again."""
        whole = self.model.encode(TEXTS)
        want = whole[:, :64]
        self.assertLess(np.linalg.norm(want, axis=1).max(), 0.9)
        out = np.zeros_like(want)
        for found in (self.model.encode(TEXTS, truncate_dim=64), self.model.encode(TEXTS, truncate_dim=64, out=out), out,
                      np.concatenate(list(self.model.encode_stream(TEXTS, truncate_dim=64, batch_size=3))),
                      self.model.submit(TEXTS, truncate_dim=64).result(),
                      self.model.encode_ids([self.model.tokenize(text) for text in TEXTS], truncate_dim=64)
                      if not isinstance(self.model.tokenize(TEXTS[0]), tuple) else want):
            self.assertEqual(found.shape, want.shape)
            self.assertLess(np.abs(found - want).max(), 1e-6)
        unit = self.model.encode(TEXTS, truncate_dim=64, normalize_embeddings=True)
        again = want / np.linalg.norm(want, axis=1, keepdims=True)
        self.assertLess(np.abs(unit - again).max(), 1e-6)

    def test_dimensions_normalization_and_signs(self):
        whole = self.model.encode(TEXTS)
        cut = self.model.encode(TEXTS, truncate_dim=64, normalize_embeddings=True)
        expected = whole[:, :64] / np.linalg.norm(whole[:, :64], axis=1, keepdims=True)
        self.assertLess(np.abs(cut - expected).max(), 1e-6)
        bits = self.model.encode(TEXTS, precision="ubinary")
        self.assertTrue((bits == np.packbits(whole > 0, axis=1)).all())
        signed = self.model.encode(TEXTS, precision="binary")
        self.assertEqual(signed.dtype, np.int8)
        self.assertTrue((signed.astype(int) + 128 == bits).all())

    def test_token_vectors_pool_to_the_embedding(self):
        tokens = self.model.encode(TEXTS[0], output_value="token_embeddings")
        self.assertEqual(tokens.shape, (8, 384))
        mean = tokens.mean(axis=0)
        self.assertLess(np.abs(mean / np.linalg.norm(mean) - self.model.encode(TEXTS[0])).max(),
                        1e-6)

    def test_prompts(self):
        prompted = self.model.encode("food", prompt="query: ")
        self.assertTrue((prompted == self.model.encode("query: food")).all())
        self.assertTrue((self.model.encode_query("food") == self.model.encode("food")).all())
        with self.assertRaises(gpuserve.errors.InvalidError):
            self.model.encode("food", prompt_name="nonsense")
        with Model(model(MINILM), default_prompt="query: ") as opened:
            self.assertTrue((prompted == opened.encode("food")).all())
            self.assertNotEqual(opened.fingerprint, self.model.fingerprint)

    def test_cut_texts_are_told_and_may_be_refused(self):
        _, items = self.model.encode(["word " * 400, "word"], return_items=True)
        self.assertEqual((items.truncated.tolist(), items.n_tokens.tolist()),
                         ([True, False], [256, 3]))
        with self.assertRaises(gpuserve.errors.TooLargeError):
            self.model.encode(["word " * 400], truncation="strict")

    def test_threads_get_their_own_rows(self):
        expected = self.model.encode(TEXTS)
        wrong = []

        def work(i):
            for _ in range(20):
                if not (self.model.encode(TEXTS[i]) == expected[i]).all():
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(TEXTS))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Rest(WithMiniLM):
    def test_similarity(self):
        vectors = self.model.encode(TEXTS[:2])
        found = self.model.similarity(vectors, vectors)
        self.assertAlmostEqual(float(found[0, 1]), float(vectors[0] @ vectors[1]), places=6)
        self.assertTrue(np.allclose(self.model.similarity_pairwise(vectors, vectors), 1))

    def test_rank_of_an_embedder_is_by_similarity(self):
        ranked = self.model.rank("eating", ["A red car.", TEXTS[0]], return_documents=True)
        self.assertEqual([entry["corpus_id"] for entry in ranked], [1, 0])
        self.assertEqual(ranked[0]["text"], TEXTS[0])
        self.assertEqual(len(self.model.rank("eating", TEXTS[:2], top_k=1)), 1)
        self.assertEqual(self.model.rank("eating", []), [])
        with self.assertRaises(TypeError):
            self.model.rank("eating", "one document")

    def test_tokens_are_the_reference_s(self):
        tensors = safetensors(os.path.join(ORACLE, "tokens", "minilm-wordpiece.safetensors"))
        ids, offsets = array(tensors, "ids"), array(tensors, "offsets")
        for i, entry in enumerate(oracle_texts()[:200]):
            tokens = self.model.tokenize(entry["text"])
            self.assertEqual(tokens.ids.tolist(), ids[offsets[i]:offsets[i + 1]].tolist())
        both = self.model.tokenize(["hello world", "hello"], add_special_tokens=False)
        self.assertEqual(both[0].spans.tolist(), [[0, 5], [6, 11]])
        self.assertEqual(self.model.decode(both[0].ids), "hello world")

    def test_facts(self):
        self.assertEqual((self.model.dim, self.model.max_seq_length, self.model.device),
                         (384, 256, "cpu"))
        self.assertEqual(len(self.model.fingerprint), 32)
        self.assertEqual(self.model.info()["dtype"], "float32")
        self.assertIn(MINILM, repr(self.model))

    def test_footprint_is_what_opening_takes(self):
        footprint = Model.footprint(model(MINILM), device="cpu")
        self.assertEqual(footprint["fits"], 1)
        self.assertEqual(footprint["total_bytes"],
                         Model(model(MINILM), device="cpu").info()["memory"]["total_bytes"])

    def test_devices(self):
        self.assertEqual(gpuserve.devices()[0].selector, "cpu")

    def test_a_budget_is_kept_and_told(self):
        with Context(memory_budget=1 << 20) as context:
            with self.assertRaises(gpuserve.errors.TooLargeError) as caught:
                Model(model(MINILM), context=context)
        self.assertIn(str(1 << 20), str(caught.exception))

    def test_models_share_a_context(self):
        with Context(n_threads=1) as context:
            with Model(model(MINILM), context=context) as one, \
                    Model(model("splade-tiny"), context=context) as two:
                one.encode("a")
                two.encode("a")
                self.assertRegex(context.metrics(), r"(?m)^gpuserve_\w+")
            self.assertIn("host", context.doctor())

    def test_the_doctor_examines_another_root(self):
        with Context(n_threads=1) as context, tempfile.TemporaryDirectory() as root:
            stack = context.doctor(root=root, device="cuda:0")["stack"]
            self.assertEqual((stack["cause"], stack["exit_status"]), ("libcuda", 18))
            self.assertEqual(context.doctor(root=root)["stack"]["exit_status"], 0)
            with self.assertRaises(NotFoundError):
                context.doctor(root=root + "/nothing")

    def test_closing_gives_the_memory_back(self):
        def resident():
            with open("/proc/self/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * 4096

        for _ in range(3):
            Model(model("splade-tiny")).encode("a")
        gc.collect()
        before = resident()
        for _ in range(30):
            Model(model("splade-tiny")).encode("a")
        gc.collect()
        # 17 MB a load would be 510; what the allocator keeps for the next one is some tens.
        self.assertLess(resident() - before, 100 << 20)


class Classify(Case):
    HEAD = os.path.join(ROOT, "tests/data/heads/topic.safetensors")

    def test_labels_and_scores(self):
        with Model(model(MINILM), head=self.HEAD) as topics:
            scores = topics.predict_proba(["a bowl of soup", "a fast car"])
            self.assertEqual(scores.shape, (2, len(topics.labels)))
            self.assertTrue(np.allclose(scores.sum(axis=1), 1, atol=1e-5))
            best = topics.classify("a bowl of soup")
            self.assertEqual(best["label"], "food")
            self.assertAlmostEqual(best["score"], float(scores[0].max()), places=5)
            every = topics.classify(["a bowl of soup"], top_k=None)[0]
            self.assertEqual(len(every), len(topics.labels))
            self.assertEqual(every, sorted(every, key=lambda entry: -entry["score"]))
            raw = topics.predict_proba("a bowl of soup", score="raw")
            soft = np.exp(raw - raw.max())
            self.assertTrue(np.allclose(soft / soft.sum(), scores[0], atol=1e-5))

    def test_an_embedder_has_no_labels(self):
        with Model(model("splade-tiny")) as embedder:
            with self.assertRaises(gpuserve.errors.UnsupportedError):
                embedder.classify("a")


if __name__ == "__main__":
    main(__name__)
