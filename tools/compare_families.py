#!/usr/bin/env python3
"""Compare the built library with transformers on the small models of every family, through the Python bindings.

    compare_families.py [--device DEVICE] [--out FILE] [--models DIR] [--jobs N] [NAME...]

NAME: only models whose name starts so; the others stay as they are in FILE.

GPUSERVE_LIBRARY names the library. Each model is loaded in float32, bfloat16 and int8, with texts of 1 token up to the
model's limit, alone and in mixed batches. Prints family, model, dtype and the largest difference; --out writes them as
JSON (tests/data/families.json, of the CPU), which tools/make_models_page.py reads. DEVICE is cpu, or cuda:0, whose bits may
depend on the batch. Needs torch and transformers for the texts of all
lengths; a model that transformers cannot load is compared with its own reference.safetensors, one of
tests/data/models/expected.txt with its expected.json.

Differences are of vectors of length 1, of probabilities, and of sparse weights divided by the largest.
"""
import argparse
import concurrent.futures
import json
import multiprocessing
import os
import shutil
import sys
import tempfile

import numpy as np
import torch
import transformers as tf
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "fixtures/make_family_models"), os.path.join(HERE, "../python")]
import gpuserve  # noqa: E402
from reference import POOLINGS, PROBABILITIES, InDouble, compute, score_of  # noqa: E402

torch.set_grad_enabled(False)
torch.set_num_threads(1)  # the models are too small to share among threads
tf.logging.set_verbosity_error()
tf.utils.logging.disable_progress_bar()
DTYPES = ("float32", "bfloat16", "float16", "int8")
DEVICE = "cpu"


def with_words(source, folder):
    """A copy of the model whose tokenizer maps the word wN to the id N and adds nothing. ColBERT looks for the names of some tokens."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    config = read_config(source)
    late = {1: "[unused0]", 2: "[unused1]", 5: "[MASK]"} if "HF_ColBERT" in (config.get("architectures") or []) else {}
    vocab = {late.get(i, f"w{i}"): i for i in range(config.get("vocab_size"))}
    write(f"{folder}/tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": None, "decoder": {"type": "WordPiece",
        "prefix": "##", "cleanup": True}, "model": {"type": "WordPiece", "unk_token": "w0", "continuing_subword_prefix": "##",
                                                    "max_input_chars_per_word": 100, "vocab": vocab}})
    write(f"{folder}/tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 100000})


def read_config(folder):
    with open(f"{folder}/config.json") as file:
        return json.load(file)


def write(path, data):
    with open(path, "w") as file:
        json.dump(data, file)


def as_words(ids):
    return " ".join(f"w{i}" for i in ids)


def limit_of(folder, config):
    if os.path.exists(f"{folder}/sentence_bert_config.json"):
        with open(f"{folder}/sentence_bert_config.json") as file:
            limit = json.load(file).get("max_seq_length")
        if limit:
            return limit
    if config["model_type"] in ("t5", "mt5", "umt5"):
        return 64
    most = config.get("max_position_embeddings") or config.get("n_positions") or 64
    after_pad = config["model_type"] in ("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "longformer", "mpnet")
    return min(most - (config["pad_token_id"] + 1 if after_pad else 0), 64)


class Reference:
    """What transformers computes in float64: of any text, or of the stored texts alone."""

    def __init__(self, folder):
        self.config = read_config(folder)
        self.limit = limit_of(folder, self.config)
        self.stored = load_file(f"{folder}/reference.safetensors")
        self.kind = next((k for k in ("embedding", "probs", "sparse", "vectors") if f"{k}_f64" in self.stored), None)
        self.pooling = self.pooling_of(folder)
        self.model = self.load(folder)

    @staticmethod
    def pooling_of(folder):
        """The mode, or None of several; older files have a key for each."""
        if not os.path.exists(f"{folder}/1_Pooling/config.json"):
            return "mean"
        with open(f"{folder}/1_Pooling/config.json") as file:
            config = json.load(file)
        older = [k.removeprefix("pooling_mode_").split("_")[0] for k, on in config.items() if k.startswith("pooling_mode_") and on]
        mode = config.get("pooling_mode") or (older[0] if len(older) == 1 else None)
        return mode if mode in POOLINGS else None

    def load(self, folder):
        name = (self.config.get("architectures") or ["?"])[0]
        if self.pooling is None or any(part[0].isdigit() and not part.endswith(("_Pooling", "_Normalize")) or part == "2_Pooling"
                                       for part in os.listdir(folder)):
            return None  # a chain: its own reference holds what it makes
        make = getattr(tf, {"T5Model": "T5EncoderModel", "Qwen3ForCausalLM": "Qwen3Model"}.get(name, name), None)
        if make is None or "auto_map" in self.config or "n_embd" in self.config:
            return None
        torch.set_default_dtype(torch.float64)
        try:
            with InDouble():
                return make.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
        finally:
            torch.set_default_dtype(torch.float32)

    def texts(self):
        if self.model is None:
            rows, at = [], 0
            for n in self.stored["n_tokens"].tolist():
                rows.append(self.stored["ids"][at:at + n].tolist())
                at += n
            return rows
        generator = torch.Generator().manual_seed(1)
        needs_eos = self.config["model_type"].startswith(("clip", "bart"))
        eos = [self.config["eos_token_id"]] if needs_eos else []
        return [torch.randint(6, self.config["vocab_size"] - 1, (n - len(eos),), generator=generator).tolist() + eos
                for n in range(1 + len(eos), self.limit + 1)]

    def both(self):
        texts = self.texts()
        return texts, self.values(texts)

    def values(self, texts):
        if self.model is None:
            rows = self.stored[f"{self.kind}_f64"]
            if self.kind == "vectors" or (self.kind == "probs" and "ForTokenClass" in self.config["architectures"][0]):
                return [part.numpy() for part in torch.split(rows, self.stored["n_tokens"].tolist())]
            return list(rows.numpy())
        return [self.value(torch.tensor([ids])).numpy() for ids in texts]

    def value(self, ids):
        out = compute(self.model if self.kind != "embedding" or hasattr(self.model, "text_projection") else self.model.base_model, ids)
        if self.kind == "embedding":
            return out.text_embeds[0] if hasattr(out, "text_embeds") else POOLINGS[self.pooling](out.last_hidden_state)[0]
        if self.kind == "sparse":
            return torch.log1p(torch.relu(out.logits[0])).max(0).values
        return (PROBABILITIES["single_label_classification"] if "ForToken" in self.config["architectures"][0]
                else score_of(self.model.config))(out.logits)[0]


def library_values(model, kind, texts, columns, by_token):
    """The library's values; `texts` are one call, so they share batches."""
    words = [as_words(ids) for ids in texts]
    if kind == "embedding":
        return list(model.encode(words, prompt="", normalize_embeddings=True).astype("float64"))
    if kind == "sparse":
        rows = np.zeros((len(words), columns))
        for row, one in zip(rows, model.encode_sparse(words)):
            row[one.ids] = one.weights
        return list(rows)
    if kind == "vectors":
        return [one.astype("float64") for one in model.encode_multi(words, ["colbert"])["colbert"]]
    if by_token:
        return [np.asarray(one.scores, "float64") for one in model.label_tokens(words)]
    return list(model.predict_proba(words).astype("float64"))


def unit(row):
    return row / max(np.linalg.norm(row), 1e-300)


def difference(kind, got, want):
    if kind == "embedding":
        want = [unit(row) for row in want]
    scale = max(1.0, max(np.abs(row).max() for row in want)) if kind == "sparse" else 1.0
    return max(float(np.abs(a - b).max()) for a, b in zip(got, want)) / scale


def least_cosine(got, want):
    """Of the texts' vectors, or of all tokens' vectors."""
    pairs = [pair for a, b in zip(got, want) for pair in zip(np.atleast_2d(a), np.atleast_2d(b))]
    return min(float(unit(a) @ unit(b)) for a, b in pairs)


def same_labels(got, want):
    """Rows, of texts or of tokens, with the same best label; and their number."""
    winners = [(np.atleast_2d(a).argmax(1), np.atleast_2d(b).argmax(1)) for a, b in zip(got, want)]
    return [int(sum((a == b).sum() for a, b in winners)), int(sum(len(a) for a, _ in winners))]


def refusal(folder, dtype="float32"):
    """Why the library does not load the model, or None; and its limit in tokens."""
    try:
        with gpuserve.Model(folder, device=DEVICE, dtype=dtype) as model:
            return None, model.max_seq_length
    except gpuserve.errors.GpuserveError as error:
        return str(error).replace(folder, ".").strip().split("\n")[0], 0


def within(limit, texts, values):
    """The texts that the library takes whole, with their values."""
    kept = [i for i, ids in enumerate(texts) if len(ids) <= limit]
    return [texts[i] for i in kept], [values[i] for i in kept]


def measure(model, reference, texts, want):
    """Texts alone and mixed against the reference."""
    by_token = "ForTokenClass" in reference.config["architectures"][0]
    values = lambda some: library_values(model, reference.kind, some, np.size(want[0]), by_token)
    alone = [values([ids])[0] for ids in texts]
    order = np.random.default_rng(1).permutation(len(texts))
    mixed = values([texts[i] for i in order])
    found = {"difference": difference(reference.kind, alone, want),
             "same_in_batch": all(np.array_equal(alone[i], row) for i, row in zip(order, mixed))}
    if reference.kind in ("embedding", "vectors"):
        found["cosine"] = least_cosine(alone, want)
    if reference.kind == "probs" and np.atleast_2d(want[0]).shape[1] > 1:
        found["labels"] = same_labels(alone, want)
    return found


def is_reranker(folder):
    return read_config(folder).get("architectures") == ["Qwen3ForCausalLM"] and not os.path.exists(f"{folder}/modules.json")


def compare(folder):
    """The measurements of one model: by dtype, or why it does not load."""
    if is_reranker(folder):
        return {"loads": True, "why": "a reranker: compared in tests/python/test_rerankers.py, with a tokenizer that has the words yes and no"}
    with tempfile.TemporaryDirectory() as copy:
        with_words(folder, copy)
        why, limit = refusal(copy)
        if why and "a reranker that answers yes or no" in why:
            return {"loads": True, "why": "a reranker: compared in tests/python/test_rerankers.py, with a tokenizer that has the words "
                                          "yes and no"}
        if why:
            return {"loads": False, "why": why}
        reference = Reference(folder)
        if reference.kind is None:
            return {"loads": True, "why": "no values that the Python bindings give"}
        texts, want = within(limit, *reference.both())
        found = {"loads": True, "value": reference.kind, "texts": len(texts), "longest": max(map(len, texts)),
                 "against": "transformers" if reference.model is not None else "reference.safetensors"}
        for dtype in DTYPES:
            why, _ = refusal(copy, dtype)
            if why:
                found[dtype] = {"why": why}
                continue
            with gpuserve.Model(copy, device=DEVICE, dtype=dtype) as model:
                found[dtype] = measure(model, reference, texts, want)
    return found


def compare_expected(folder):
    """The measurements of a model with its own tokenizer against expected.json, by dtype."""
    with open(f"{folder}/expected.json") as file:
        expected = json.load(file)
    want = expected["embeddings"]
    want = want if isinstance(want, dict) else {"": want}
    found = {"loads": True, "value": "embedding", "texts": len(expected["texts"]), "against": "expected.json"}
    for dtype in DTYPES:
        why, _ = refusal(folder, dtype)
        if why and dtype == "float32":
            return {"loads": False, "why": why}
        if why:
            found[dtype] = {"why": why}
            continue
        with gpuserve.Model(folder, device=DEVICE, dtype=dtype) as model:
            rows = [measure_expected(model, expected["texts"], prompt, np.array(one)) for prompt, one in want.items()]
        found[dtype] = {"difference": max(row["difference"] for row in rows), "cosine": min(row["cosine"] for row in rows),
                        "same_in_batch": all(row["same_in_batch"] for row in rows)}
    return found


def measure_expected(model, texts, prompt, want):
    """A text without tokens has the vector 0 on both sides."""
    encode = lambda some: [unit(row) for row in model.encode(some, prompt_name=prompt or None).astype("float64")]
    alone = [encode([text])[0] for text in texts]
    kept = [i for i, row in enumerate(want) if np.linalg.norm(row) > 0]
    return {"difference": difference("embedding", alone, want), "cosine": least_cosine([alone[i] for i in kept], want[kept]),
            "same_in_batch": all(np.array_equal(a, b) for a, b in zip(alone, encode(texts)))}


def read_list(path, compare_one):
    with open(path) as file:
        return [(*line.rstrip("\n").split("\t"), compare_one) for line in file if not line.startswith("#")]


def kept(options):
    """The models of the file that are not measured."""
    if not options.names or not os.path.exists(options.out):
        return {}
    with open(options.out) as file:
        return json.load(file)["models"]


def measure_row(folder, family, compare_one):
    return {"family": family, **compare_one(folder)}


def measured(options, rows):
    """(name, measurements) of each model, as they end."""
    if options.jobs < 2:
        for name, family, compare_one in rows:
            yield name, measure_row(f"{options.models}/{name}", family, compare_one)
        return
    with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("fork")) as pool:
        jobs = {pool.submit(measure_row, f"{options.models}/{name}", family, compare_one): name for name, family, compare_one in rows}
        for job in concurrent.futures.as_completed(jobs):
            yield jobs[job], job.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out")
    parser.add_argument("--models", default=os.path.join(HERE, "../tests/data/models"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes; texts of a model stay in one")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    global DEVICE
    DEVICE = options.device
    rows = read_list(f"{options.models}/families.txt", compare) + read_list(f"{options.models}/expected.txt", compare_expected)
    chosen = [row for row in rows if not options.names or row[0].startswith(tuple(options.names))]
    results, failed = {}, 0
    for name, one in measured(options, chosen):
        results[name] = one
        family = one["family"]
        shown = [f"{dtype} {one[dtype]['difference']:.1e}{'' if one[dtype]['same_in_batch'] else ' OTHER BITS IN A BATCH'}"
                 for dtype in DTYPES if "difference" in one.get(dtype, {})]
        failed += one["loads"] is False
        print(f"{family:22} {name:32} " + (", ".join(shown) or f"does not load: {one['why']}"), flush=True)
    print(f"{len(results) - failed} passed, {failed} failed")
    if options.out:
        others = kept(options)
        results = {name: results.get(name) or others[name] for name, *_ in rows if name in results or name in others}
        with open(options.out, "w") as file:
            json.dump({"transformers": tf.__version__, "torch": torch.__version__.split("+")[0], "models": results}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
