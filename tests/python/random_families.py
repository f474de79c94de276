#!/usr/bin/env python3
"""Random models of ModernBERT, Qwen3 and DeBERTa at realistic weight scales, with channels of outliers.

    random_families.py        measures int8 on a grid of widths, outliers and peaked attention (minutes)

A model is made anew from its seed in each run, the same one always: RandomState's streams are frozen.
"""
import itertools
import json
import os
import shutil
import sys
import tempfile
from typing import NamedTuple

import numpy as np

from common import model, oracle_texts
from gpuserve import Context, Model, errors
from random_models import write_safetensors

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/models")
UNITS = ["漢", "語", "。", "ก", "ß", "😀", "?", "!", ".", "-", "_", "a", "the", "42", "no", "hello", "Paris", "(", "x y", "..."]
TIMES = [1, 2, 5, 17, 50, 94, 101, 200]
MEAN, BOUND = 0.999, 0.997


def other_texts():
    """Repeated and ordinary texts that the measurement at loading does not see."""
    return [" ".join([unit] * n) for unit in UNITS for n in TIMES] + [one["text"] for one in oracle_texts()]


class Shape(NamedTuple):
    """What a model is made of."""
    family: str
    seed: int
    hidden: int = 384
    head_size: int = 64
    layers: int = 3
    #: How many channels of the products' inputs have outliers, and how many times the others' size they have.
    n_outliers: int = 0
    outlier: float = 1
    #: About the standard deviation of attention's logits: 1 is flat, 4 looks at few tokens.
    peak: float = 1


class Tensors:
    """Tensors by name, drawn in the order of the calls."""

    def __init__(self, shape):
        self.shape, self.made = shape, {}
        self.random = np.random.RandomState(shape.seed)
        self.loud = self.random.permutation(shape.hidden)[:shape.n_outliers]
        # Of a norm's output with outliers; products divide by it, so that logits have the size that the shape says.
        self.size = np.sqrt((shape.hidden - shape.n_outliers + shape.n_outliers * shape.outlier ** 2) / shape.hidden)

    def table(self, name, rows, scale=1.0):
        self.made[name] = self.random.standard_normal((rows, self.shape.hidden)) * scale

    def linear(self, name, n, k, scale=1.0, bias=False):
        self.made[name + ".weight"] = self.random.standard_normal((n, k)) * scale / np.sqrt(k)
        if bias:
            self.made[name + ".bias"] = self.random.standard_normal(n) * 0.1

    def norm(self, name, bias=False, is_loud=True):
        gain = 1 + 0.1 * self.random.standard_normal(self.shape.hidden)
        if is_loud:
            gain[self.loud] *= self.shape.outlier
        self.made[name + ".weight"] = gain
        if bias:
            self.made[name + ".bias"] = 0.1 * self.random.standard_normal(self.shape.hidden)


def modernbert(shape, vocabulary):
    t, h, inner = Tensors(shape), shape.hidden, 3 * shape.hidden // 2
    t.table("embeddings.tok_embeddings.weight", vocabulary)
    t.norm("embeddings.norm")
    for i in range(shape.layers):
        at = f"layers.{i}."
        if i > 0:
            t.norm(at + "attn_norm")
        t.linear(at + "attn.Wqkv", 3 * h, h, 1 / t.size)
        t.made[at + "attn.Wqkv.weight"][:2 * h] *= np.sqrt(shape.peak)
        t.linear(at + "attn.Wo", h, h)
        t.norm(at + "mlp_norm")
        t.linear(at + "mlp.Wi", 2 * inner, h, 1 / t.size)
        t.linear(at + "mlp.Wo", h, inner)
    t.norm("final_norm", is_loud=False)
    heads = h // shape.head_size
    return t.made, {"intermediate_size": inner, "num_attention_heads": heads, "local_attention": 128,
                    "layer_types": ["full_attention" if i % 3 == 0 else "sliding_attention" for i in range(shape.layers)]}


def qwen3(shape, vocabulary):
    t, h, inner = Tensors(shape), shape.hidden, 3 * shape.hidden
    heads = h // shape.head_size
    groups = max(1, heads // 2)
    t.table("embed_tokens.weight", vocabulary)
    for i in range(shape.layers):
        at = f"layers.{i}."
        t.norm(at + "input_layernorm")
        t.linear(at + "self_attn.q_proj", h, h, 1 / t.size)
        t.linear(at + "self_attn.k_proj", groups * shape.head_size, h, 1 / t.size)
        t.linear(at + "self_attn.v_proj", groups * shape.head_size, h, 1 / t.size)
        t.linear(at + "self_attn.o_proj", h, h)
        for name in "qk":  # the norms of the heads give the logits their size
            t.made[f"{at}self_attn.{name}_norm.weight"] = np.full(shape.head_size, np.sqrt(shape.peak))
        t.norm(at + "post_attention_layernorm")
        t.linear(at + "mlp.gate_proj", inner, h, 1 / t.size)
        t.linear(at + "mlp.up_proj", inner, h, 1 / t.size)
        t.linear(at + "mlp.down_proj", h, inner)
    t.norm("norm", is_loud=False)
    return t.made, {"intermediate_size": inner, "num_attention_heads": heads, "num_key_value_heads": groups,
                    "head_dim": shape.head_size, "layer_types": ["full_attention"] * shape.layers}


def deberta(shape, vocabulary):
    t, h, inner, buckets = Tensors(shape), shape.hidden, 4 * shape.hidden, 256
    t.table("embeddings.word_embeddings.weight", vocabulary)
    t.norm("embeddings.LayerNorm", bias=True)
    t.table("encoder.rel_embeddings.weight", 2 * buckets)
    t.norm("encoder.LayerNorm", bias=True, is_loud=False)
    sharp = np.sqrt(shape.peak) / t.size
    for i in range(shape.layers):
        at = f"encoder.layer.{i}."
        t.linear(at + "attention.self.query_proj", h, h, sharp, bias=True)
        t.linear(at + "attention.self.key_proj", h, h, sharp, bias=True)
        t.linear(at + "attention.self.value_proj", h, h, 1 / t.size, bias=True)
        t.linear(at + "attention.output.dense", h, h, bias=True)
        t.norm(at + "attention.output.LayerNorm", bias=True)
        t.linear(at + "intermediate.dense", inner, h, 1 / t.size, bias=True)
        t.linear(at + "output.dense", h, inner, bias=True)
        t.norm(at + "output.LayerNorm", bias=True)
    return t.made, {"intermediate_size": inner, "num_attention_heads": h // shape.head_size, "position_buckets": buckets,
                    "pooler_hidden_size": h}


#: Function, and the model of tests/data/models with the rest of the configuration.
FAMILIES = {"modernbert": (modernbert, "modernbert"), "qwen3": (qwen3, "qwen3-embedding"), "deberta": (deberta, "deberta-v3")}


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


def write(data, *path):
    with open(os.path.join(*path), "w", encoding="utf-8") as file:
        json.dump(data, file)


def make(folder, shape):
    """A model directory with the tokenizer of splade-tiny."""
    function, like = FAMILIES[shape.family]
    tokenizer = model("splade-tiny")
    shutil.copytree(os.path.join(DATA, like), folder, ignore=shutil.ignore_patterns("*.safetensors"))
    vocabulary = read(tokenizer, "config.json")["vocab_size"]
    tensors, sizes = function(shape, vocabulary)
    write({**read(folder, "config.json"), **sizes, "hidden_size": shape.hidden, "num_hidden_layers": shape.layers,
           "vocab_size": vocabulary, "max_position_embeddings": 512}, folder, "config.json")
    pooling = read(folder, "1_Pooling", "config.json")
    write({key: shape.hidden if key.endswith("embedding_dimension") else value for key, value in pooling.items()},
          folder, "1_Pooling", "config.json")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(tokenizer, name), folder)
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    return folder


def cosines(path, texts, context):
    """Of int8 to float32 for all texts, and what the loading told."""
    with Model(path, device="cpu", dtype="int8", context=context) as int8:
        a, facts = int8.encode(texts), int8.info()["int8"]
    with Model(path, device="cpu", dtype="float32", context=context) as exact:
        b = exact.encode(texts)
    return (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1)), facts


#: Heads of 64 and 128, no outliers and channels 10 and 30 times as large, flat and peaked attention.
GRID = [Shape(family, 200 + i, hidden=hidden, head_size=head, n_outliers=n, outlier=outlier, peak=peak)
        for i, (hidden, head, (n, outlier), peak, family) in enumerate(itertools.product(
            (384, 768), (64, 128), ((0, 1), (3, 10), (3, 30)), (1, 4), FAMILIES))]


def measure(shapes):
    """Prints a line for each shape; the number of those that break the bound."""
    texts, broken = other_texts()[::4], 0
    with Context() as context, tempfile.TemporaryDirectory() as folder:
        for i, shape in enumerate(shapes):
            path = make(os.path.join(folder, str(i)), shape)
            try:
                values, facts = cosines(path, texts, context)
                found = f"mean {values.mean():.5f} min {values.min():.5f} kept {len(facts['kept'])} of {4 * shape.layers}"
                broken += int(values.mean() < MEAN or values.min() < BOUND)
            except errors.UnsupportedError as error:
                found = str(error).split("\n", maxsplit=1)[0]
            print(*shape, found, flush=True)
            shutil.rmtree(path)
    return int(broken)


if __name__ == "__main__":
    sys.exit(measure(GRID) > 0)
