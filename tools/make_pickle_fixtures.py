#!/usr/bin/env python3
"""Write tests/data/pickle: the weights of models of tests/data/models as torch.save() writes them.

Usage: make_pickle_fixtures.py [OUT]        (default tests/data/pickle)
Needs torch and safetensors; made with torch 2.15.

Each folder is a model without its safetensors: MODEL names the model that has the rest, and whose numbers these are.
A second run writes the same bytes, except the storage keys of the old layout, which are addresses.
"""
import collections
import json
import os
import shutil
import sys

import torch
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "../tests/data/models")
OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../tests/data/pickle")
OLD = {"_use_new_zipfile_serialization": False}


def weights(model, name="model.safetensors"):
    return collections.OrderedDict(load_file(os.path.join(MODELS, model, name)))


def folder(name, model):
    path = os.path.join(OUT, name)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "MODEL"), "w", encoding="ascii") as file:
        file.write(model + "\n")
    return path


def save(name, model, state, **options):
    torch.save(state, os.path.join(folder(name, model), "pytorch_model.bin"), **options)


def as_state_dict(tensors):
    """With the attribute that Module.state_dict() adds, which is state of the OrderedDict."""
    state = collections.OrderedDict(tensors)
    state._metadata = collections.OrderedDict({"": {"version": 1}})
    return state


def shared(tensors):
    """All tensors as views of one storage, at offsets, and a second name for the word embeddings."""
    flat = torch.cat([t.reshape(-1) for t in tensors.values()])
    views, at = collections.OrderedDict(), 0
    for name, t in tensors.items():
        views[name] = flat[at:at + t.numel()].view(t.shape)
        at += t.numel()
    views["lm_head.weight"] = views["embeddings.word_embeddings.weight"]
    return views


def wrapped(tensors):
    """As pytorch-lightning saves a module with the model in `model`."""
    return {"epoch": 3, "global_step": 70000, "pytorch-lightning_version": "2.1.0", "lr": 1e-3, "big": 2**70,
            "low": -5, "low_long": -2**40, "done": True, "callbacks": None, "history": [0.5, [1, 2], (1, 2, 3, 4)],
            "state_dict": collections.OrderedDict((f"model.{name}", t) for name, t in tensors.items())}


def sharded():
    source = os.path.join(MODELS, "bert-sharded")
    with open(os.path.join(source, "model.safetensors.index.json"), encoding="utf-8") as file:
        index = json.load(file)
    path = folder("sharded", "bert-sharded")
    for name in sorted(set(index["weight_map"].values())):
        torch.save(weights("bert-sharded", name),
                   os.path.join(path, name.replace("model-", "pytorch_model-").replace(".safetensors", ".bin")))
    index["weight_map"] = {tensor: name.replace("model-", "pytorch_model-").replace(".safetensors", ".bin")
                           for tensor, name in index["weight_map"].items()}
    with open(os.path.join(path, "pytorch_model.bin.index.json"), "w", encoding="utf-8") as file:
        json.dump(index, file, indent=1, sort_keys=True)


def dense():
    save("dense", "st-dense", as_state_dict(weights("st-dense")))
    path = os.path.join(OUT, "dense/2_Dense")
    os.makedirs(path, exist_ok=True)
    torch.save(weights("st-dense/2_Dense"), os.path.join(path, "pytorch_model.bin"))


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    torch.manual_seed(1)
    bert = weights("bert")
    bert_positions = torch.arange(40).expand((1, -1))  # a buffer of older models
    save("state-dict", "bert", as_state_dict(bert | {"embeddings.position_ids": bert_positions}))
    save("parameters", "bert", {name: torch.nn.Parameter(t) for name, t in bert.items()})
    save("shared", "bert", shared(bert))
    save("wrapped", "bert", wrapped(bert))
    save("protocol-4", "bert", dict(bert), pickle_protocol=4)
    save("protocol-5", "bert", as_state_dict(bert), pickle_protocol=5)
    save("old", "bert", as_state_dict(bert), **OLD)
    save("old-shared", "bert", shared(bert), **OLD)
    save("f16", "bert-f16", weights("bert-f16"))
    save("bf16", "bert-bf16", weights("bert-bf16"))
    save("classifier", "bert-single", as_state_dict(weights("bert-single")))
    sharded()
    dense()


if __name__ == "__main__":
    main()
