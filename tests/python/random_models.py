"""Random BERT models that are hard on int8: channels of outliers, peaked attention, heads of any size.

A model is made anew from its seed in each run, the same one always: RandomState's streams are frozen.
"""
import itertools
import json
import os
import shutil
import struct
from typing import NamedTuple

import numpy as np

from common import model


class Kind(NamedTuple):
    """What a model is made of."""
    seed: int
    hidden: int = 256
    heads: int = 2
    layers: int = 4
    inner: int = 512
    #: How many channels of the residual have outliers, and how many times the others' size they have.
    n_outliers: int = 0
    outlier: float = 1
    #: About the standard deviation of attention's logits: 1 is flat, 4 looks at few tokens.
    peak: float = 1


#: 12 models: heads of 128 and 64, flat to peaked attention, without outliers (two seeds), with channels 10 and 30 times as large.
#: A quarter of the product of the factors heads, layers, peak, outliers. Each pair of values of two factors is among them.
HARD = [Kind(100 + i, heads=heads, layers=layers, peak=peak, n_outliers=n, outlier=outlier)
        for i, (heads, layers, peak, (n, outlier)) in enumerate(itertools.product(
            (2, 4), (3, 4), (2, 4, 6), ((0, 1), (0, 1), (3, 10), (3, 30))))
        if i // 24 == ((i // 4 % 3 == 2) + i % 4 // 2) % 2 and (i // 24 + i // 12 + i // 4 % 3 + i % 4) % 2 == 0]


def tensors_of(kind, vocabulary):
    """The names are of BertModel's state_dict()."""
    random = np.random.RandomState(kind.seed)
    h, inner = kind.hidden, kind.inner
    made = {}

    def linear(name, n, k, scale=1.0):
        made[name + ".weight"] = random.standard_normal((n, k)) * scale / np.sqrt(k)
        made[name + ".bias"] = random.standard_normal(n) * 0.1

    def norm(name):
        made[name + ".weight"] = 1 + 0.1 * random.standard_normal(h)
        made[name + ".bias"] = 0.1 * random.standard_normal(h)
        made[name + ".weight"][loud] *= kind.outlier

    loud = random.permutation(h)[:kind.n_outliers]
    made["embeddings.word_embeddings.weight"] = random.standard_normal((vocabulary, h))
    made["embeddings.position_embeddings.weight"] = random.standard_normal((512, h)) * 0.3
    made["embeddings.token_type_embeddings.weight"] = random.standard_normal((2, h)) * 0.1
    norm("embeddings.LayerNorm")
    # What the outliers add to a logit is taken back, so that the peak is that of the kind.
    size = np.sqrt((h - kind.n_outliers + kind.n_outliers * kind.outlier ** 2) / h)
    for i in range(kind.layers):
        at = f"encoder.layer.{i}."
        sharp = np.sqrt(kind.peak) / size
        linear(at + "attention.self.query", h, h, sharp)
        linear(at + "attention.self.key", h, h, sharp)
        linear(at + "attention.self.value", h, h, 1 / size)
        linear(at + "attention.output.dense", h, h)
        norm(at + "attention.output.LayerNorm")
        linear(at + "intermediate.dense", inner, h, 1 / size)
        linear(at + "output.dense", h, inner)
        norm(at + "output.LayerNorm")
    return made


def write_safetensors(path, tensors):
    head, at = {}, 0
    for name, values in tensors.items():
        head[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [at, at + 4 * values.size]}
        at += 4 * values.size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(np.ascontiguousarray(values, dtype="<f4").tobytes())


def make(folder, kind):
    """A model directory with the tokenizer of splade-tiny."""
    source = model("splade-tiny")
    os.makedirs(folder)
    with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config.update(architectures=["BertModel"], hidden_size=kind.hidden, num_attention_heads=kind.heads,
                  num_hidden_layers=kind.layers, intermediate_size=kind.inner)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(source, name), folder)
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors_of(kind, config["vocab_size"]))
    return folder
