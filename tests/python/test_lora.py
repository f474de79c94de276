#!/usr/bin/env python3
"""LoRA adapters in PEFT's format: a directory with adapter_config.json loads as its base model with the adapter. The
numbers are PEFT's in float64 (tests/data/lora, written by tools/fixtures/make_lora_adapters.py)."""
import json
import os
import shutil

import numpy as np

from common import ROOT, Case, main

from gpuserve import Context, Model, Tokenizer, convert
from gpuserve.errors import FormatError, InvalidError, NotFoundError, TooLargeError, UnsupportedError

LORA = os.path.join(ROOT, "tests", "data", "lora")
MODELS = os.path.join(ROOT, "tests", "data", "models")
with open(os.path.join(LORA, "expected.json"), encoding="utf-8") as file:
    EXPECTED = json.load(file)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def text_of(ids):
    """The text of these ids, which begin with [CLS] and end with [SEP]."""
    return " ".join("w%d" % one for one in ids[1:-1])


class Lora(Case):
    def base(self, name, folder=None):
        """A model of tests/data/models, with a vocabulary."""
        folder = shutil.copytree(os.path.join(MODELS, name), folder or self.path("base-" + name), dirs_exist_ok=True)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            n = json.load(file)["vocab_size"]
        with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8") as file:
            file.write("\n".join(WORDS + ["w%d" % i for i in range(len(WORDS), n)]) + "\n")
        return folder

    def adapter(self, name, base=None, **changes):
        """An adapter of tests/data/lora, of a base in the folder `base`."""
        folder = shutil.copytree(os.path.join(LORA, name), self.path(name), dirs_exist_ok=True)
        path = os.path.join(folder, "adapter_config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        config["base_model_name_or_path"] = base or self.base(EXPECTED[name]["base"])
        config.update(changes)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        return folder

    def check(self, name, folder, bound=2e-6, **options):
        rows = EXPECTED[name]
        with Model(folder, device="cpu", **options) as model:
            got = model.encode([text_of(ids) for ids in rows["ids"]], normalize_embeddings=True)
            self.assertLess(np.abs(got - np.array(rows["output"])).max(), bound)
            merged = os.path.join(folder, "adapter_model." + ("bin" if name == "modern" else "safetensors"))
            self.assertEqual(model.info()["merged_adapter"], merged if os.path.isfile(merged) else None)
        return got

    def test_embeddings(self):
        for name in ("attention", "all", "words", "modern", "relative", "decoder", "magnitudes", "gated"):
            with self.subTest(name):
                folder = self.adapter(name)
                self.check(name, folder)
                self.check(name, folder, bound=4e-2, dtype="bfloat16")
                with Model(self.base(EXPECTED[name]["base"]), device="cpu") as model:
                    plain = model.encode([text_of(EXPECTED[name]["ids"][0])], normalize_embeddings=True)
                self.assertGreater(np.abs(plain - np.array(EXPECTED[name]["output"][0])).max(), 0.05)

    def test_classes(self):
        rows = EXPECTED["classes"]
        with Model(self.adapter("classes"), device="cpu") as model:
            self.assertEqual(model.labels, ["LABEL_0", "LABEL_1", "LABEL_2"])
            for ids, logits in zip(rows["ids"], rows["output"]):
                wanted = np.exp(logits - np.max(logits))
                got = {one["label"]: one["score"] for one in model.classify(text_of(ids), top_k=3)}
                for i, score in enumerate(wanted / wanted.sum()):
                    self.assertAlmostEqual(got["LABEL_%d" % i], score, delta=2e-6)

    def test_tokens(self):
        rows = EXPECTED["tokens"]
        with Model(self.adapter("tokens"), device="cpu") as model:
            self.assertEqual(len(model.labels), 4)
            for ids, logits in zip(rows["ids"], rows["output"]):
                found = model.label_tokens(text_of(ids), score="raw")
                scores = np.array(found.scores)
                self.assertLess(np.abs(scores - np.array(logits)).max(), 2e-5)

    def test_the_base_is_found_by_its_name(self):
        cache = self.path("cache")
        repository = os.path.join(cache, "models--org--bert")
        os.makedirs(os.path.join(repository, "refs"))
        for revision in ("main", "v2"):
            with open(os.path.join(repository, "refs", revision), "w") as file:
                file.write("1234")
        self.base("bert", os.path.join(repository, "snapshots", "1234"))
        for revision in (None, "v2"):
            folder = self.adapter("all", "org/bert", revision=revision)
            with Context(cache_dir=cache) as context:
                self.check("all", folder, context=context)
                with Tokenizer(folder, context=context) as tokenizer:
                    self.assertEqual(list(tokenizer.encode("w7")[0]), [2, 7, 3])
        with Context(cache_dir=self.path("empty")) as context, \
                self.assertRaisesRegex(NotFoundError, 'base model: org/bert: revision "v2" is not in the cache') as caught:
            Model(folder, context=context)
        self.assertIn("gpuserve pull --revision v2 org/bert", caught.exception.hint)

    def test_converted_it_is_an_ordinary_model(self):
        folder = self.adapter("all")
        merged = self.path("merged")
        convert(folder, merged, dtype="float32")
        self.assertNotIn("adapter_config.json", os.listdir(merged))
        wanted = self.check("all", folder)
        shutil.rmtree(folder)
        shutil.rmtree(self.path("base-bert"))
        self.assertEqual(np.abs(self.check("all", merged) - wanted).max(), 0)
        with self.assertRaisesRegex(UnsupportedError, "the LoRA adapter of a classifier"):
            convert(self.adapter("classes"), self.path("never"), "float16")

    def test_adapters_by_request(self):
        """Several adapters on one base, chosen by request, in one batch of the queue."""
        for base, names in (("bert", ("attention", "words")), ("qwen3", ("decoder",)), ("modernbert", ("modern",))):
            folder = self.base(base)
            texts = [text_of(ids) for ids in EXPECTED[names[0]]["ids"]]
            with self.subTest(base), Model(folder, device="cpu", adapters={name: self.adapter(name, folder) for name in names}) as model, \
                    Model(folder, device="cpu") as alone:
                plain = model.encode(texts, normalize_embeddings=True)
                self.assertEqual(np.abs(plain - alone.encode(texts, normalize_embeddings=True)).max(), 0)
                self.assertEqual(model.info()["adapters"], list(names))
                futures = [(name, model.submit(texts, prompt_name=name, normalize_embeddings=True))
                           for _ in range(20) for name in (None, *names)]
                for name, future in futures:
                    got = np.array(future.result())
                    wanted = np.array(EXPECTED[name]["output"]) if name else plain
                    self.assertLess(np.abs(got - wanted).max(), 3e-6, name)
                    self.assertEqual(np.abs(got - model.encode(texts, prompt_name=name, normalize_embeddings=True)).max(), 0)
                self.assertNotEqual(model.fingerprint, alone.fingerprint)
            with Model(folder, device="cpu", dtype="bfloat16", adapters={name: self.adapter(name, folder) for name in names}) as model:
                futures = [(name, model.submit(texts, prompt_name=name, normalize_embeddings=True))
                           for _ in range(5) for name in (*names, None)]
                for name, future in futures:
                    got = np.array(future.result())
                    if name:  # one text of the random ModernBERT: 0.042 where a CPU rounds the weights alone
                        self.assertLess(np.abs(got - np.array(EXPECTED[name]["output"])).max(), 6e-2)
                    self.assertEqual(np.abs(got - model.encode(texts, prompt_name=name, normalize_embeddings=True)).max(), 0)

    def test_adapters_by_request_that_are_refused(self):
        folder = self.base("bert")
        attention = self.adapter("attention", folder)
        for adapters, error, words in (
                ({"a": self.adapter("all", folder)}, UnsupportedError, "whole tensors"),
                ({"a": self.adapter("classes", folder)}, UnsupportedError, "whole tensors"),
                ({"a": self.adapter("magnitudes", folder)}, UnsupportedError, '"use_dora" is not supported by request'),
                ({"a": folder}, NotFoundError, "adapter_config.json: no such file"),
                ({"a": self.path("absent")}, NotFoundError, "adapters: "),
                ({"": attention}, InvalidError, "is not NAME=DIRECTORY"),
                ({"a": attention, "b": self.adapter("decoder", folder)}, FormatError, "which the base model does not have"),
                ({"%d" % i: attention for i in range(65)}, TooLargeError, "over 64")):
            with self.assertRaises(error) as caught:
                Model(folder, device="cpu", adapters=adapters)
            self.assertIn(words, str(caught.exception))
        with self.assertRaisesRegex(ValueError, "line break"):
            Model(folder, adapters={"a": "x\ny"})
        with Model(folder, device="cpu", adapters={"a": attention}) as model, \
                self.assertRaisesRegex(InvalidError, 'unknown prompt "b": the model has "a"'):
            model.encode("w7", prompt_name="b")
        with self.assertRaisesRegex(UnsupportedError, "disentangled"):
            base = self.base("deberta-v3")
            Model(base, device="cpu", adapters={"a": self.adapter("relative", base)})

    def test_the_fingerprint_is_that_of_the_sum(self):
        prints = set()
        for alpha in (8, 8, 16):
            with Model(self.adapter("attention", lora_alpha=alpha), device="cpu") as model:
                prints.add(model.fingerprint)
        self.assertEqual(len(prints), 2)

    def test_what_is_refused(self):
        for changes, words in (
                ({"use_qalora": True}, '"use_qalora" is not supported'),
                ({"peft_type": "IA3"}, '"peft_type" = "IA3"'),
                ({"init_lora_weights": "pissa"}, '"init_lora_weights" = "pissa"'),
                ({"layer_replication": [[0, 1]]}, '"layer_replication"'),
                ({"alpha_pattern": {"layer.*query": 3}}, 'alpha_pattern" = "layer.*query"'),
                ({"task_type": "SEQ_2_SEQ_LM"}, '"task_type" is "SEQ_2_SEQ_LM"')):
            with self.assertRaises(UnsupportedError) as caught:
                Model(self.adapter("attention", **changes), device="cpu")
            self.assertIn(words, str(caught.exception))
        for changes in ({"lora_alpha": "8"}, {"base_model_name_or_path": ""}, {"base_model_name_or_path": None},
                        {"base_model_name_or_path": "x" * 5000}, {"revision": 3}):
            with self.assertRaises(FormatError, msg=changes):
                Model(self.adapter("attention", **changes), device="cpu")
        with self.assertRaisesRegex(FormatError, "or their magnitudes, is missing"):
            Model(self.adapter("attention", use_dora=True), device="cpu")
        with self.assertRaisesRegex(UnsupportedError, "magnitude_vector' is not one of a LoRA adapter"):
            Model(self.adapter("magnitudes", use_dora=False), device="cpu")
        with self.assertRaisesRegex(FormatError, "base model"):  # a base of other shapes
            Model(self.adapter("attention", self.base("deberta-v3")), device="cpu")
        with self.assertRaisesRegex(UnsupportedError, "the base model is a LoRA adapter itself"):
            Model(self.adapter("all", self.adapter("attention")), device="cpu")
        with self.assertRaisesRegex(UnsupportedError, "is random"):
            Model(self.adapter("attention", "random:bert-tiny"), device="cpu")
        folder = self.adapter("attention")
        shutil.copy(os.path.join(self.path("base-bert"), "model.safetensors"), folder)
        with self.assertRaisesRegex(UnsupportedError, "both a model, model.safetensors, and a LoRA adapter"):
            Model(folder, device="cpu")
        os.remove(os.path.join(folder, "model.safetensors"))
        os.remove(os.path.join(folder, "adapter_model.safetensors"))
        with self.assertRaisesRegex(NotFoundError, "adapter_model.safetensors: no such file"):
            Model(folder, device="cpu")

    def test_magnitudes_of_another_number_are_refused(self):
        path = os.path.join(folder := self.adapter("magnitudes"), "adapter_model.safetensors")
        with open(path, "rb") as file:
            data = file.read()
        begin = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:begin])
        one, other = ("base_model.model.encoder.layer.0.%s.dense.lora_magnitude_vector" % part for part in ("attention.output", "intermediate"))
        header[one], header[other] = header[other], header[one]
        text = json.dumps(header).encode()
        with open(path, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text + data[begin:])
        with self.assertRaisesRegex(FormatError, r"\d+ magnitudes of 'encoder\.layer\.0\.attention\.output\.dense\.weight', expected 32"):
            Model(folder, device="cpu")

    def test_a_factor_that_is_a_view_of_columns_is_refused(self):
        path = os.path.join(folder := self.adapter("modern"), "adapter_model.bin")
        with open(path, "rb") as file:
            pickled = file.read()
        strides, transposed = b"K\x20K\x01\x86", b"K\x01K\x02\x86"  # of the first factor, [2, 32]
        self.assertIn(strides, pickled)
        with open(path, "wb") as file:
            file.write(pickled.replace(strides, transposed, 1))
        with self.assertRaisesRegex(UnsupportedError, r"adapter_model\.bin: tensor '.*Wo\.lora_A\.weight' is not contiguous") as caught:
            Model(folder, device="cpu")
        self.assertIn("tensor.contiguous()", caught.exception.hint)

    def test_a_file_of_the_base_is_named_in_its_own_directory(self):
        base = self.base("bert")
        folder = self.adapter("attention", base)
        for name, text, words in (("vocab.txt", b"\xff\n", "vocab.txt"), ("model.safetensors", b"x", "model.safetensors"),
                                  ("config.json", b'{"model_type": "bert"}', "vocab_size"),
                                  ("config.json", b"{", "config.json"), ("config.json", b"", "config.json")):
            with open(os.path.join(base, name), "wb") as file:
                file.write(text)
                if not text:
                    file.truncate(1 << 30)
            with self.subTest(name, text=text), self.assertRaises((FormatError, TooLargeError)) as caught:
                Model(folder, device="cpu")
            self.assertIn(words, str(caught.exception))
            self.assertTrue(str(caught.exception).startswith(base), str(caught.exception))
            shutil.copytree(os.path.join(MODELS, "bert"), base, dirs_exist_ok=True)
            self.base("bert", base)


if __name__ == "__main__":
    main(__name__)
