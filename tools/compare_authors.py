#!/usr/bin/env python3
"""Compares reference.safetensors of families that transformers lacks with the authors' modeling files.

    python3 tools/compare_authors.py [--out tests/data/authors.json] FOLDER

FOLDER holds a folder for each implementation with the files that SOURCES names, downloaded from that repository at
that commit. It lies outside of the tree, or in one that git ignores: the files are never committed. Their SHA-256 is
checked before anything runs. Read the files first: they are programs. Each model directory of an implementation is loaded by the authors' class, in float64,
and its hidden states of the stored texts are compared with the stored reference. --out records the sources and the
differences; tools/make_models_page.py reads them. Needs torch, einops and transformers 4.48.3: the files are older than
transformers 5.
"""
import argparse
import hashlib
import importlib
import json
import sys
import types
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "fixtures" / "make_family_models"))
from reference import InDouble  # noqa: E402

BOUND = 1e-6  # of float64 results whose rotary angles are float32
SOURCES = {
    "nomic": {
        "repository": "https://github.com/aahrong/nomic-embed-text-v1.5 (copy of https://huggingface.co/nomic-ai/nomic-bert-2048)",
        "commit": "3185eb0cda4624b21ca40e3909242b1240f34a99",
        "files": {
            "configuration_hf_nomic_bert.py": "2fa5bac1ef8ad8601fd5887b2fb006074df16e36ef524ba35fe3086442fee00a",
            "modeling_hf_nomic_bert.py": "a07009dc1aeffc24a2e503f82c4ef22350a98f4add22c183c373fa803da32ea7",
        },
        "config": ("configuration_hf_nomic_bert", "NomicBertConfig"),
        "model": ("modeling_hf_nomic_bert", "NomicBertModel"),
        "arguments": {"add_pooling_layer": False},
        "options": {"attn_pdrop": 0.0},  # as published; the class drops at inference too
        "models": ["nomic-bert-hub", "nomic-moe-hub", "nomic-moe-hub-every-3"],
    },
    # The first implementation of the authors: one tensor for query, key and value, GEGLU only.
    "jina-v2": {
        "repository": "https://github.com/roycms/jina-embeddings-v2-base-en (copy of "
                      "https://huggingface.co/jinaai/jina-embeddings-v2-base-en)",
        "commit": "44a6b72942202ea92138683ea4bb1081477a101d",
        "files": {
            "bert_padding.py": "d7cde1845bde2b821a30ec7eddaf7b50f2db37b22dc956379131fe8a24b1d666",
            "configuration_jbert.py": "d8cb2ba1798d81b7f373f5d4b361766655c4f9f8ae76ccf3e4fa3b059c9b8c32",
            "modeling_jbert.py": "2c9c216ddc2eebfd905cb0cc3efdb1134cdb0d4cbd12d2f22648e5609a95b1bf",
        },
        "config": ("configuration_jbert", "JBertConfig"),
        "model": ("modeling_jbert", "JBertModel"),
        "arguments": {"add_pooling_layer": False},
        "options": {"model_max_length": 64},
        "rename": "fuse_qkv",
        "models": ["jina-v2-hub"],
    },
}


def digest_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_files(folder, files):
    for name, digest in files.items():
        found = digest_of(folder / name)
        if found != digest:
            sys.exit(f"{folder / name}: SHA-256 is {found}, expected {digest}")


def load_class(folder, module, name):
    """The class of a file that imports its neighbours as a package."""
    package = f"authors_{folder.name}"
    if package not in sys.modules:
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__path__ = [str(folder)]
    return getattr(importlib.import_module(f"{package}.{module}"), name)


def fuse_qkv(weights):
    """Query, key and value of a layer as one tensor."""
    out = {}
    for name, value in weights.items():
        if ".self.query." in name:
            parts = [weights[name.replace("query", part)] for part in ("query", "key", "value")]
            out[name.replace("query", "Wqkv")] = torch.cat(parts)
        elif ".self.key." not in name and ".self.value." not in name:
            out[name] = value
    return out


def padded(value, shape):
    """The weight with rows and columns of zeros up to the shape: NomicBERT rounds the vocabulary and the width of a gated
    network up, which changes nothing if the weights there are zero."""
    out = torch.zeros(shape, dtype=value.dtype)
    out[tuple(slice(0, n) for n in value.shape)] = value
    return out


RENAMES = {None: dict, "fuse_qkv": fuse_qkv}


def make_model(folder, source, directory):
    """The authors' model with the directory's weights, in float64. Weights without a place, and places without
    weights, are errors."""
    options = {**json.loads((directory / "config.json").read_text()), **source.get("options", {})}
    config = load_class(folder, *source["config"])(**options)
    weights = {name: value.double() for name, value in load_file(directory / "model.safetensors").items()}
    weights = RENAMES[source.get("rename")](weights)
    torch.set_default_dtype(torch.float64)
    try:
        with InDouble():
            model = load_class(folder, *source["model"])(config, **source["arguments"]).double().eval()
    finally:
        torch.set_default_dtype(torch.float32)
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    model.load_state_dict({name: padded(value, shapes.get(name, value.shape)) for name, value in weights.items()
                           if not name.startswith("pooler.")})
    return model


def difference(folder, source, directory):
    stored = load_file(directory / "reference.safetensors")
    model = make_model(folder, source, directory)
    rows = torch.split(stored["ids"], stored["n_tokens"].tolist())
    hidden = torch.split(stored["hidden_f64"], stored["n_tokens"].tolist())
    worst = 0.0
    for ids, want in zip(rows, hidden):
        with torch.no_grad(), InDouble():
            got = model(ids[None].long(), attention_mask=torch.ones(1, len(ids), dtype=torch.long))[0][0]
        worst = max(worst, float((got - want).abs().max()))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    failed, results = 0, {}
    for name, source in SOURCES.items():
        folder = (options.folder / name).resolve()
        check_files(folder, source["files"])
        for model in source["models"]:
            directory = ROOT / "tests/data/models" / model
            worst = difference(folder, source, directory)
            failed += worst > BOUND
            results[model] = {"repository": source["repository"], "commit": source["commit"], "sha256": source["files"],
                              "reference": digest_of(directory / "reference.safetensors"), "difference": worst}
            print(f"{model:32} {worst:.1e}{'' if worst <= BOUND else '  DIFFERENT'}")
    if options.out:
        record = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0], "models": results}
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
