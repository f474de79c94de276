#!/usr/bin/env python3
"""Several outputs of one pass over the Python package and the program: BGE-M3's three outputs are those of FlagEmbedding's
arithmetic in float64 (tests/data/late-heads, written by tools/fixtures/make_late_heads.py), and have the bits of separate calls."""
import json
import os
import shutil
import tempfile
import unittest

import numpy as np

from common import ROOT, gpuserve

from gpuserve.errors import FormatError, InvalidError, UnsupportedError
from gpuserve import Model

DATA = os.path.join(ROOT, "tests", "data")
HEADS = os.path.join(DATA, "late-heads")
EVERY = ["dense", "sparse", "colbert"]


def expected():
    with open(os.path.join(HEADS, "expected.json"), encoding="utf-8") as file:
        return json.load(file)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class Multi(unittest.TestCase):
    def setUp(self):
        self.rows = expected()
        self.texts = [row["text"] for row in self.rows]
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.folder = os.path.join(folder, "bge-m3")
        shutil.copytree(os.path.join(DATA, "models", "st-xlm-roberta"), self.folder)
        for name in ("sparse_linear.pt", "colbert_linear.pt"):
            shutil.copy(os.path.join(HEADS, name), self.folder)

    def check(self, made, rows, delta=1e-5):
        for i, row in enumerate(rows):
            np.testing.assert_allclose(made["dense"][i], row["dense"], atol=delta)
            sparse = made["sparse"][i]
            self.assertEqual([str(token) for token in sparse.ids], list(row["sparse"]))
            np.testing.assert_allclose(sparse.weights, list(row["sparse"].values()), atol=delta)
            np.testing.assert_allclose(made["colbert"][i], row["colbert"], atol=delta)

    def test_the_three_outputs_are_the_references(self):
        with Model(self.folder) as model:
            self.check(model.encode_multi(self.texts), self.rows)
            alone = model.encode_multi(self.texts[1])
            self.check({name: [value] for name, value in alone.items()}, self.rows[1:2])
            self.assertEqual(list(alone), EVERY)
            facts = model.info()
            self.assertEqual((facts["late_interaction"], facts["first_vector"], facts["token_dim"]), (True, 1, 24))
            self.assertEqual(facts["tasks"], ["embed", "sparse", "token_vectors"])

    def test_bits_are_those_of_separate_calls(self):
        """Any order and subset, in float32 and int8, alone and in company."""
        for dtype in ("float32", "int8"):
            with Model(self.folder, dtype=dtype) as model:
                dense, sparse = model.encode(self.texts), model.encode_sparse(self.texts)
                vectors = [rows[1:] for rows in model.encode(self.texts, output_value="token_embeddings")]
                for names in (EVERY, EVERY[::-1], ["sparse", "dense"], ["colbert"], ["dense", "colbert"]):
                    made = model.encode_multi(self.texts, names)
                    self.assertEqual(list(made), names)
                    for i in range(len(self.texts)):
                        if "dense" in names:
                            self.assertTrue(same(made["dense"][i], dense[i]))
                        if "sparse" in names:
                            self.assertTrue(same(made["sparse"][i].ids, sparse[i].ids))
                            self.assertTrue(same(made["sparse"][i].weights, sparse[i].weights))
                        if "colbert" in names:
                            self.assertTrue(same(made["colbert"][i], vectors[i]))

    def test_dense_vectors_do_not_depend_on_the_heads(self):
        with Model(self.folder) as model, Model(os.path.join(DATA, "models", "st-xlm-roberta")) as plain:
            self.assertTrue(same(model.encode(self.texts), plain.encode(self.texts)))
            short = model.encode_multi(self.texts, ["dense", "sparse"], truncate_dim=7, normalize_embeddings=True)
            self.assertTrue(same(short["dense"], plain.encode(self.texts, truncate_dim=7, normalize_embeddings=True)))

    def test_the_cache_keeps_sets_apart(self):
        with Model(self.folder, cache_bytes=1 << 22) as model:
            for _ in range(2):
                for names in (["dense"], EVERY, ["sparse"], ["sparse", "colbert"]):
                    made = model.encode_multi(self.texts, names, cache="on")
                    for i, row in enumerate(self.rows):
                        if "sparse" in names:
                            np.testing.assert_allclose(made["sparse"][i].weights, list(row["sparse"].values()), atol=1e-5)
                        if "dense" in names:
                            np.testing.assert_allclose(made["dense"][i], row["dense"], atol=1e-5)
                        if "colbert" in names:
                            np.testing.assert_allclose(made["colbert"][i], row["colbert"], atol=1e-5)

    def test_max_sim(self):
        with Model(self.folder) as model:
            vectors = model.encode_multi(self.texts, ["colbert"])["colbert"]
            scores = model.max_sim(vectors[0], vectors) / len(vectors[0])
            np.testing.assert_allclose(scores, [row["score"] for row in self.rows], atol=1e-5)
            with self.assertRaisesRegex(InvalidError, "document 1 has vectors of 3 numbers, the query of 24"):
                model.max_sim(vectors[0], [vectors[1], np.zeros((2, 3))])
            with self.assertRaisesRegex(InvalidError, "query has 1 dimensions"):
                model.max_sim(vectors[0][0], [])

    def test_roles_of_late_interaction(self):
        folder = os.path.join(DATA, "models", "st-multi-vector")
        with open(os.path.join(folder, "expected.json"), encoding="utf-8") as file:
            want = json.load(file)
        with Model(folder, device="cpu") as model:
            for role, encode in (("query", model.encode_query), ("document", model.encode_document)):
                rows = want[role]
                made = encode(want["texts"][:len(rows)], output_value="token_embeddings")
                several = model.encode_multi(want["texts"][:len(rows)], ["colbert"], prompt_name=role)["colbert"]
                for one, other, row in zip(made, several, rows):
                    self.assertEqual(one.shape, np.shape(row))
                    np.testing.assert_allclose(one, row, atol=1e-5)
                    np.testing.assert_allclose(other, row, atol=1e-5)
            for query, scores, vectors in zip(want["texts"], want["maxsim"], want["query"]):
                for method in ("default", "max-sim"):
                    ranked = model.rank(query, want["texts"], method=method)
                    self.assertEqual([one["corpus_id"] for one in ranked], np.argsort(-np.array(scores), kind="stable").tolist())
                    np.testing.assert_allclose([one["score"] * len(vectors) for one in ranked], sorted(scores, reverse=True),
                                               atol=1e-5 * len(vectors))
            with self.assertRaisesRegex(UnsupportedError, "cosine"):
                model.rank("w1", ["w2"], method="cosine")
            with self.assertRaisesRegex(InvalidError, 'method "bm25" is unknown'):
                model.rank("w1", ["w2"], method="bm25")

    def test_one_head_alone(self):
        os.remove(os.path.join(self.folder, "colbert_linear.pt"))
        with Model(self.folder) as model:
            self.assertEqual(list(model.encode_multi("d")), ["dense", "sparse"])
            self.assertEqual(model.encode_multi("d", ["colbert"])["colbert"].shape[1], 32)
        os.remove(os.path.join(self.folder, "sparse_linear.pt"))
        with Model(self.folder) as model:
            self.assertEqual(list(model.encode_multi("d")), ["dense"])
            with self.assertRaisesRegex(UnsupportedError, r'outputs\[1\] is "sparse", which the model does not have'):
                model.encode_multi("d", ["dense", "sparse"])

    def test_no_token_around_a_text_has_a_weight(self):
        path = os.path.join(self.folder, "tokenizer.json")
        with open(path, encoding="utf-8") as file:
            tokenizer = json.load(file)
        begin, text, end = tokenizer["post_processor"]["single"]
        tokenizer["post_processor"]["single"] = [begin] * 9 + [text, end]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(tokenizer, file)
        with Model(self.folder) as model:
            for text in self.texts:
                self.assertFalse({0, 2} & set(model.encode_multi(text, ["sparse"])["sparse"].ids.tolist()), text)

    def test_wrong_sets_are_refused(self):
        with Model(self.folder) as model:
            for names, words in ((["dens"], r'outputs\[0\] is "dens"'), ([], "outputs is empty"),
                                 (["dense", "dense"], r'outputs\[1\] is "dense" again')):
                with self.assertRaisesRegex(InvalidError, words):
                    model.encode_multi("d", names)
            with self.assertRaisesRegex(UnsupportedError, '"labels", which the model does not have'):
                model.encode_multi("d", ["labels"])
            with self.assertRaisesRegex(InvalidError, "are of dense vectors"):
                model.encode_multi("d", ["sparse"], truncate_dim=3)
            with self.assertRaises(TypeError):
                model.encode_multi("d", "dense")

    def test_damaged_heads_are_refused_by_name(self):
        for name, other in (("sparse_linear.pt", "colbert_linear.pt"), ("colbert_linear.pt", "config.json")):
            path = os.path.join(self.folder, name)
            with open(path, "rb") as file:
                good = file.read()
            shutil.copy(os.path.join(self.folder, other), path)
            with self.assertRaisesRegex((FormatError, UnsupportedError), name):
                Model(self.folder)
            with open(path, "wb") as file:
                file.write(good)

    def test_converted_models_keep_their_heads(self):
        target = os.path.join(os.path.dirname(self.folder), "bf16")
        done = gpuserve("convert", self.folder, target, "--dtype", "bfloat16", "-q")
        self.assertEqual(done.returncode, 0, done.err)
        with Model(target) as model:
            self.check(model.encode_multi(self.texts, EVERY), self.rows, 0.05)

    def test_program(self):
        texts = "".join(json.dumps({"text": text}) + "\n" for text in self.texts)
        for names in (EVERY, ["colbert", "sparse"]):
            done = gpuserve("embed", "-m", self.folder, "-q", "--outputs", ",".join(names), "--input-format", "jsonl",
                            stdin=texts)
            self.assertEqual(done.returncode, 0, done.err)
            lines = [json.loads(line) for line in done.out.splitlines()]
            self.assertEqual([line["index"] for line in lines], list(range(len(self.rows))))
            for line, row in zip(lines, self.rows):
                self.assertEqual("embedding" in line, "dense" in names)
                if "dense" in names:
                    np.testing.assert_allclose(line["embedding"], row["dense"], atol=1e-5)
                self.assertEqual([str(token) for token in line["sparse"]["indices"]], list(row["sparse"]))
                np.testing.assert_allclose(line["sparse"]["values"], list(row["sparse"].values()), atol=1e-5)
                np.testing.assert_allclose(line["colbert"], row["colbert"], atol=1e-5)

    def test_program_refuses(self):
        for options, words in ((("--outputs", "dense,dens"), '"dens" is not one of'),
                               (("--outputs", "dense,dense"), '"dense" is given twice'),
                               (("--outputs", "sparse", "--dimensions", "3"), "are of the dense output"),
                               (("--outputs", "dense", "--sparse"), "are not valid"),
                               (("--head", "x"), "--head needs --outputs")):
            done = gpuserve("embed", "-m", self.folder, *options, "d")
            self.assertEqual(done.returncode, 2, done.err)
            self.assertIn(words, done.err)
        done = gpuserve("embed", "-m", self.folder, "--outputs", "labels", "d")
        self.assertIn('"labels", which the model does not have: it has dense, sparse, colbert', done.err)


class Labels(unittest.TestCase):
    """The scores of a head file, with the vectors that it reads."""

    def test_dense_and_labels(self):
        folder = os.path.join(DATA, "models", "st-xlm-roberta")
        with tempfile.TemporaryDirectory() as made:
            head = os.path.join(made, "head.safetensors")
            weight = np.arange(64, dtype=np.float32).reshape(2, 32) / 64
            header = json.dumps({
                "__metadata__": {"format": "gpuserve-head", "labels": '["no","yes"]', "activation": "softmax"},
                "weight": {"dtype": "F32", "shape": [2, 32], "data_offsets": [0, 256]},
                "bias": {"dtype": "F32", "shape": [2], "data_offsets": [256, 264]}}).encode()
            with open(head, "wb") as file:
                file.write(len(header).to_bytes(8, "little") + header + weight.tobytes() + bytes(8))
            with Model(folder, head=head) as model:
                made = model.encode_multi(["hello world", "d"], ["labels", "dense"])
                self.assertTrue(same(made["labels"], model.predict_proba(["hello world", "d"])))
                self.assertTrue(same(made["dense"], model.encode(["hello world", "d"])))
            done = gpuserve("embed", "-m", folder, "--head", head, "-q", "--outputs", "dense,labels", "hello world")
            self.assertEqual(done.returncode, 0, done.err)
            self.assertEqual([one["label"] for one in json.loads(done.out)["labels"]], ["no", "yes"])


class Late(unittest.TestCase):
    """A multi-vector model ranks by MaxSim."""

    def test_rank(self):
        with Model(os.path.join(DATA, "models", "st-multi-vector")) as model:
            texts = ["w20 w21", "w21 w22 w20", "w30"]
            query = model.encode_multi(texts[0], prompt_name="query")["colbert"]
            documents = model.encode_multi(texts, prompt_name="document")["colbert"]
            self.assertEqual(model.info()["rerank"], "max_sim")
            want = [float((query @ other.T).max(1).mean()) for other in documents]
            got = {one["corpus_id"]: one["score"] for one in model.rank(texts[0], texts)}
            np.testing.assert_allclose([got[i] for i in range(3)], want, atol=1e-5)
            np.testing.assert_allclose(model.max_sim(query, documents) / len(query), want, atol=1e-5)
        done = gpuserve("rerank", "-m", os.path.join(DATA, "models", "st-multi-vector"), "-q", "--format", "json", *texts[:1],
                        stdin="\n".join(texts) + "\n")
        self.assertEqual(done.returncode, 0, done.err)
        for one in map(json.loads, done.out.splitlines()):
            self.assertAlmostEqual(one["score"], want[one["index"]], delta=1e-5)


if __name__ == "__main__":
    unittest.main()
