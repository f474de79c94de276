#!/usr/bin/env python3
"""gpuserve.sentence_transformers: signatures and results are those of sentence-transformers (its version and numbers
are in tests/data/sentence-transformers.json, written by tools/fixtures/make_sentence_transformers_reference.py)."""
import copy
import inspect
import json
import os
import shutil
import tempfile
import unittest
from unittest import mock

import numpy as np

from common import ROOT, main, model
from gpuserve import Model
from gpuserve.errors import GpuserveError, InvalidError, NotFoundError, UnsupportedError
from gpuserve.sentence_transformers import (
    CrossEncoder, SentenceTransformer, SimilarityFunction, SparseEncoder, _base, _tensors, util,
)

MODELS = os.path.join(ROOT, "tests", "data", "models")
with open(os.path.join(ROOT, "tests", "data", "sentence-transformers.json"), encoding="utf-8") as reference:
    REFERENCE = json.load(reference)
CLASSES = {"SentenceTransformer": SentenceTransformer, "CrossEncoder": CrossEncoder, "SparseEncoder": SparseEncoder}
#: Properties of torch modules, which a model of the library does not have.
MODULES = {"config", "dtype", "model", "processor", "transformers_model", "splade_pooling_chunk_size",
           "default_activation_function"}
#: Decided by the library's own rules: model_card_data_class and the default activation.
OTHERS = {"model_card_data_class", "get_default_activation_fn", "can_merge"}


class Identity:
    """torch.nn.Identity by the name of its class."""

    def __call__(self, scores):
        return scores


class Sigmoid(Identity):
    """torch.nn.Sigmoid by the name of its class; the library computes it."""


class Tanh:
    """An activation that the library does not know."""

    def __call__(self, scores):
        return _tensors.tensor(np.tanh(_tensors.array(scores)))


class Case(unittest.TestCase):
    def close(self, got, wanted, delta=2e-5):
        got, wanted = _tensors.array(got), np.asarray(wanted)
        self.assertEqual(got.shape, wanted.shape)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=delta)

    def refused(self, word, function, *arguments, kind=InvalidError, **options):
        with self.assertRaises(kind) as caught:
            function(*arguments, **options)
        self.assertIn(word, str(caught.exception))


class Signatures(Case):
    def check(self, what, wanted, function):
        """Their parameters are ours, with the same names, kinds and defaults; ours may have more, by name."""
        found = inspect.signature(function).parameters
        for name, kind, default in wanted:
            if kind == "VAR_POSITIONAL":
                continue
            self.assertIn(name, found, f"{what} has no {name}")
            ours = found[name]
            self.assertEqual(ours.kind.name, kind, f"{what}({name})")
            if ours.default is not ours.empty and not str(default).startswith("<"):
                self.assertEqual(ours.default, default, f"{what}({name})")
            self.assertEqual(ours.default is ours.empty, default == "<none>", f"{what}({name})")
        for name in set(found) - {row[0] for row in wanted}:
            self.assertIn(found[name].kind, (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD),
                          f"{what}({name})")

    def test_methods_take_the_same_arguments(self):
        for kind, rows in REFERENCE["signatures"].items():
            for name, wanted in rows.items():
                if kind == "util":
                    self.check(name, wanted, getattr(util, name))
                elif isinstance(wanted, str):
                    if name not in MODULES:
                        ours = inspect.getattr_static(CLASSES[kind], name)
                        self.assertIsInstance(ours, property)
                        if wanted.startswith("settable") and name != "tokenizer":
                            self.assertIsNotNone(ours.fset, name)
                elif name in _base.REFUSED:
                    self.refused(name, getattr(CLASSES[kind], name), kind=UnsupportedError)
                elif name not in OTHERS:
                    self.check(f"{kind}.{name}", wanted, getattr(CLASSES[kind], name))


class Dense(Case):
    @classmethod
    def setUpClass(cls):
        cls.wanted, cls.texts = REFERENCE["dense"], REFERENCE["texts"]
        cls.model = SentenceTransformer(os.path.join(MODELS, "st-dense"), device="cpu", prompts={"mine": "w9 "})
        cls.addClassCleanup(cls.model.close)

    def test_vectors(self):
        encode, wanted = self.model.encode, self.wanted
        self.close(encode(self.texts), wanted["encode"])
        self.close(encode(self.texts[0]), wanted["encode"][0])
        self.close(encode(sentences=self.texts), wanted["encode"])
        self.close(self.model.encode_query(self.texts), wanted["query"])
        self.close(self.model.encode_document(self.texts), wanted["document"])
        self.close(encode(self.texts, prompt="w5 "), wanted["prompt"])
        self.close(encode(self.texts, prompt_name="mine"), wanted["prompt_name"])
        self.close(encode(self.texts, truncate_dim=4, normalize_embeddings=True), wanted["truncate_dim"])
        with self.model.truncate_embeddings(4):
            self.assertEqual(self.model.get_sentence_embedding_dimension(), 4)
            self.close(encode(self.texts, normalize_embeddings=True), wanted["truncate_dim"])
        self.assertEqual(encode([]).shape, (0,))
        self.close(encode(self.texts, convert_to_numpy=False), wanted["encode"])

    def test_pools(self):
        for options in ({"device": ["cpu", "cpu"]}, {"device": ["cpu"] * 3, "chunk_size": 1}, {"device": "cpu"}):
            self.close(self.model.encode(self.texts, **options), self.wanted["encode"])
        pool = self.model.start_multi_process_pool(["cpu", "cpu"])
        self.close(self.model.encode(self.texts, pool=pool, chunk_size=4), self.wanted["encode"])
        self.close(self.model.encode_multi_process(self.texts, pool), self.wanted["encode"])
        for got, wanted in zip(self.model.encode(self.texts, pool=pool, output_value="token_embeddings"),
                               self.wanted["tokens"]):
            self.close(got, wanted)
        self.model.stop_multi_process_pool(pool)
        self.refused("pool", self.model.encode, self.texts, pool=pool)

    def test_token_vectors_and_features(self):
        for got, wanted in zip(self.model.encode(self.texts, output_value="token_embeddings"), self.wanted["tokens"]):
            self.close(got, wanted)
        for one, ids, vector in zip(self.model.encode(self.texts, output_value=None), self.wanted["token_ids"],
                                    self.wanted["encode"]):
            self.assertEqual(list(_tensors.array(one["input_ids"])), ids)
            self.close(one["sentence_embedding"], vector)

    def test_compact_vectors(self):
        for precision in ("int8", "uint8", "binary", "ubinary"):
            got = self.model.encode(self.texts, precision=precision)
            wanted = np.array(self.wanted[precision])
            # A value at the edge of a step may round to its neighbour.
            steps = 1 if "int8" in precision else 0
            self.assertLessEqual(np.abs(got.astype(int) - wanted).max(), steps)
            self.assertLess((got != wanted).mean(), 0.02)
        ranges = np.stack([np.full(got.shape[1] * 8, -1, np.float32), np.full(got.shape[1] * 8, 1, np.float32)])
        narrow = self.model.encode(self.texts, precision="int8", ranges=ranges)
        vectors = np.array(self.wanted["encode"])
        self.assertLessEqual(np.abs(narrow - np.clip(np.floor((vectors + 1) / (2 / 255)) - 128, -128, 127)).max(), 1)
        calibrated = self.model.encode(self.texts[:1], precision="int8", calibration_embeddings=vectors)
        self.close(calibrated[0], self.wanted["int8"][0], delta=1)
        self.refused("2", self.model.encode, self.texts[:1], precision="int8", kind=GpuserveError)

    def test_similarity(self):
        vectors = np.array(self.wanted["encode"], dtype=np.float32)
        self.assertEqual(self.model.similarity_fn_name, "cosine")
        self.addCleanup(setattr, self.model, "similarity_fn_name", None)
        for name in SimilarityFunction.possible_values():
            self.model.similarity_fn_name = name
            self.close(self.model.similarity(vectors, list(vectors[:2])), self.wanted[name])
            self.close(self.model.similarity_pairwise(vectors, vectors[::-1]), self.wanted[name + "_pairwise"])
        for i, (got, wanted) in enumerate(zip(util.semantic_search(vectors, vectors, top_k=3, query_chunk_size=4,
                                                                   corpus_chunk_size=2),
                                              self.wanted["semantic_search"])):
            self.assertEqual(got[0]["corpus_id"], i)
            self.close([hit["score"] for hit in got], [hit["score"] for hit in wanted])
        mined = util.paraphrase_mining(self.model, self.texts, top_k=2)
        self.assertEqual([pair[1:] for pair in mined], [pair[1:] for pair in self.wanted["paraphrase_mining"]])

    def test_token_limit(self):
        with SentenceTransformer(os.path.join(MODELS, "st-dense"), device="cpu") as short:
            self.assertGreater(short.max_seq_length, 4)
            short.max_seq_length = 4
            self.assertEqual((short.max_seq_length, short.get_max_seq_length()), (4, 4))
            self.close(short.encode(self.texts), self.wanted["max_seq_length"])
        with SentenceTransformer(os.path.join(MODELS, "st-dense"), processor_kwargs={"model_max_length": 4}) as short:
            self.close(short.encode(self.texts), self.wanted["max_seq_length"])

    def test_tokenizer(self):
        tokenizer = self.model.tokenizer
        ids = self.wanted["token_ids"]  # with the model's default prompt
        texts = [self.model.prompts["query"] + text for text in self.texts]
        for text, wanted in zip(texts, ids):
            self.assertEqual(tokenizer.encode(text, truncation=True), wanted)
        batch = tokenizer(texts, padding=True, truncation=True)
        self.assertEqual([sum(one) for one in batch["attention_mask"]], [len(one) for one in ids])
        self.assertEqual(_tensors.array(self.model.tokenize(texts)["input_ids"]).tolist(), batch["input_ids"])
        self.assertEqual(tokenizer.convert_ids_to_tokens(ids[0])[1:-1], tokenizer.tokenize(texts[0]))
        self.refused("return_tensors", tokenizer, texts, return_tensors="tf")

    def test_refusals(self):
        path = os.path.join(MODELS, "st-dense")
        for options in ({"modules": [1]}, {"token": "secret"}, {"backend": "onnx"}, {"config_kwargs": {"a": 1}},
                        {"model_kwargs": {"device_map": "auto"}}, {"processor_kwargs": {"padding_side": "left"}},
                        {"similarity_fn_name": "maxsim"}, {"default_prompt_name": "nowhere"}, {"surprise": 1}):
            value = next(iter(options.values()))
            word = next(iter(value)) if isinstance(value, dict) else next(iter(options))
            self.refused(word, SentenceTransformer, path, **options)
        for word, options in (("batch_size", {"batch_size": 0}), ("chunk_size", {"chunk_size": 0}),
                              ("output_value", {"output_value": "words"}), ("int4", {"precision": "int4"}),
                              ("nowhere", {"prompt_name": "nowhere"}), ("colour", {"colour": 1})):
            self.refused(word, self.model.encode, self.texts, **options)
        self.refused("input 1", self.model.encode, ["a", ["b", "c"]])
        self.refused("cuda", self.model.encode, "a", device="cuda:7", kind=GpuserveError)

    def test_without_torch(self):
        with mock.patch.object(_tensors, "torch", lambda: None):
            self.refused("convert_to_tensor", self.model.encode, "a", convert_to_tensor=True, kind=UnsupportedError)
            self.assertIsInstance(self.model.similarity(np.eye(2), np.eye(2)), np.ndarray)

    def test_names(self):
        """Names are completed as in sentence-transformers, and nothing is fetched for local files."""
        for kind, name, wanted in ((SentenceTransformer, "no-such-model", "sentence-transformers/no-such-model"),
                                   (CrossEncoder, "no-such-model", "cross-encoder/no-such-model"),
                                   (SentenceTransformer, "xlnet-base-cased", "xlnet-base-cased")):
            self.refused(wanted, kind, name, local_files_only=True, cache_folder=os.path.join(ROOT, "no-cache"),
                         kind=NotFoundError)

    def test_routes(self):
        """The route of a Router module follows the method; expected.json is of sentence-transformers too."""
        folder = os.path.join(MODELS, "st-asym")
        with open(os.path.join(folder, "expected.json"), encoding="utf-8") as file:
            wanted = json.load(file)
        with SentenceTransformer(folder, device="cpu") as routed:
            self.close(routed.encode_query(wanted["texts"]), wanted["embeddings"]["query"])
            self.close(routed.encode_document(wanted["texts"]), wanted["embeddings"]["document"])

    def test_a_copy(self):
        with copy.deepcopy(self.model) as other:
            other.prompts["mine"] = ""
            other.max_seq_length = 4
            self.close(other.encode(self.texts), self.wanted["max_seq_length"])
        self.close(self.model.encode(self.texts, prompt_name="mine"), self.wanted["prompt_name"])

    def test_an_open_model(self):
        with Model(os.path.join(MODELS, "st-dense"), device="cpu") as opened:
            with SentenceTransformer(opened) as wrapped:
                self.close(wrapped.encode(self.texts), self.wanted["encode"])
            self.assertEqual(opened.encode("w1").shape, (self.model.get_embedding_dimension(),))


class Cross(Case):
    @classmethod
    def setUpClass(cls):
        cls.wanted, cls.pairs = REFERENCE["cross"], REFERENCE["pairs"]
        cls.one = CrossEncoder(os.path.join(MODELS, "bert-cross-encoder"), device="cpu")
        cls.three = CrossEncoder(os.path.join(MODELS, "bert-pairs"), device="cpu", num_labels=3)
        cls.addClassCleanup(cls.one.close)
        cls.addClassCleanup(cls.three.close)

    def test_scores(self):
        predict, wanted = self.one.predict, self.wanted
        self.close(predict(self.pairs), wanted["one"])
        self.close(predict([tuple(pair) for pair in self.pairs], device=["cpu", "cpu"]), wanted["one"])
        self.close(predict(self.pairs[1]), wanted["one"][1])
        self.close(predict(self.pairs, activation_fct=Identity(), num_workers=2), wanted["one_raw"])
        self.close(predict(self.pairs, activation_fn=Tanh()), wanted["one_tanh"])
        self.close(self.three.predict(self.pairs), wanted["three"])
        self.close(self.three.predict(self.pairs, apply_softmax=True), wanted["three_softmax"])
        self.close(self.three.predict(self.pairs, activation_fn=Sigmoid()), wanted["three_sigmoid"])

    def test_regressions(self):
        """Models that predict a number, also for pairs over the limit. `Model` gives the number itself, as transformers'
        pipeline does; sentence-transformers its sigmoid, unless the configuration names an activation."""
        pairs = self.pairs + REFERENCE["long_pairs"]
        raw = REFERENCE["regressions"][1]["scores"]
        for row in REFERENCE["regressions"]:
            with self.subTest(**row["settings"]), tempfile.TemporaryDirectory() as folder:
                path = shutil.copytree(os.path.join(MODELS, "bert-cross-encoder"), os.path.join(folder, "model"))
                with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
                    config = json.load(file)
                with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
                    json.dump({**config, **row["settings"]}, file)
                with CrossEncoder(path, device="cpu") as encoder:
                    self.close(encoder.predict(pairs), row["scores"])
                with Model(path, device="cpu") as plain:
                    self.assertEqual(plain.labels, ["LABEL_0"])
                    self.close(plain.predict(pairs), raw)

    def test_rank(self):
        got = self.one.rank("w1 w2", [pair[1] for pair in self.pairs], return_documents=True)
        self.assertEqual([(one["corpus_id"], one["text"]) for one in got],
                         [(one["corpus_id"], one["text"]) for one in self.wanted["rank"]])
        self.close([one["score"] for one in got], [one["score"] for one in self.wanted["rank"]])
        self.assertEqual(self.one.rank("w1 w2", ["w3", "w4"], top_k=1)[0]["corpus_id"],
                         self.one.rank("w1 w2", ["w3", "w4"])[0]["corpus_id"])

    def test_instruction(self):
        """A prompt is the instruction of a reranker that is a language model: the scores of transformers."""
        folder = os.path.join(ROOT, "tests", "data", "rerankers")
        with open(os.path.join(folder, "expected.json"), encoding="utf-8") as file:
            rows = json.load(file)
        with CrossEncoder(os.path.join(folder, "logit-score"), device="cpu") as reranker:
            for some in ([row for row in rows if not row["instruction"]],
                         [row for row in rows if row["instruction"]]):
                pairs = [(row["query"], row["document"]) for row in some]
                prompt = some[0]["instruction"] or None
                self.close(reranker.predict(pairs, prompt=prompt), [row["score"] for row in some], 2e-6)

    def test_refusals(self):
        self.refused("num_labels", CrossEncoder, os.path.join(MODELS, "bert-pairs"), num_labels=2)
        self.refused("keep_in_fp32", CrossEncoder, os.path.join(MODELS, "bert-pairs"), keep_in_fp32_modules=["a"])
        self.refused("labels", CrossEncoder, os.path.join(MODELS, "st-dense"), kind=UnsupportedError)
        self.refused("num_labels=1", self.three.rank, "w1", ["w2"])
        self.refused("not a pair", self.one.predict, [["w1", "w2", "w3"]])
        self.refused("colour", self.one.predict, self.pairs, colour=1)


class Sparse(Case):
    @classmethod
    def setUpClass(cls):
        cls.wanted, cls.texts = REFERENCE["sparse"], REFERENCE["english"]
        cls.model = SparseEncoder(model("splade-tiny"), device="cpu")
        cls.addClassCleanup(cls.model.close)

    def test_vectors(self):
        rows = np.zeros((len(self.texts), self.model.get_embedding_dimension()))
        for row, weights in zip(rows, self.wanted["encode"]):
            for token, weight in weights:
                row[token] = weight
        vectors = self.model.encode(self.texts)
        self.close(vectors, rows, 1e-4)
        self.close(self.model.encode(self.texts, convert_to_sparse_tensor=False, convert_to_tensor=False,
                                     device=["cpu", "cpu"])[1], rows[1], 1e-4)
        self.close(self.model.encode_query(self.texts[0]), rows[0], 1e-4)
        for got, wanted in zip(self.model.decode(vectors, top_k=5), self.wanted["decode"]):
            self.assertEqual([token for token, _ in got], [token for token, _ in wanted])
        for got, wanted in zip(self.model.decode(self.model.encode(self.texts, max_active_dims=3)),
                               self.wanted["max_active_dims"]):
            self.assertEqual([token for token, _ in got], [token for token, _ in wanted])
        self.assertAlmostEqual(self.model.sparsity(vectors)["active_dims"], self.wanted["sparsity"]["active_dims"],
                               delta=0.5)
        scores = _tensors.array(self.model.similarity(vectors, vectors))
        np.testing.assert_allclose(scores, self.wanted["similarity"], rtol=1e-4)
        self.close(self.model.intersection(vectors[0], vectors[2]), rows[0] * rows[2], 1e-3)

    def test_refusals(self):
        self.refused("sparse", SparseEncoder, os.path.join(MODELS, "st-dense"), kind=UnsupportedError)
        self.refused("top_k", self.model.decode, self.model.encode("a"), top_k=0)


if __name__ == "__main__":
    main(__name__)
