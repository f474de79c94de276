#!/usr/bin/env python3
"""Write tests/data/sentence-transformers.json: the signatures of the inference methods of sentence-transformers, and
its results for models of tests/data on a CPU in float32. tests/python/test_sentence_transformers.py holds
gpuserve.sentence_transformers to both.

Needs sentence-transformers and torch (benchmarks/peers/requirements.txt) and the model splade-tiny (./dev models):

    python tools/make_sentence_transformers_reference.py
"""
import inspect
import json
import os

import torch
import sentence_transformers
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder, util

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUTPUT = os.path.join(ROOT, "tests", "data", "sentence-transformers.json")
MODELS = os.path.join(ROOT, "tests", "data", "models")
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpuserve", "models")
TEXTS = ["w1 w2 w3", "cab", "", "w4 bad w5 unknown", "W7 w8 w9 w10 w11 w12", "w0 w0 w0"]
PAIRS = [["w1 w2", "w3"], ["cab", "w4 bad"], ["w1 w2", ""], ["W7 w8 w9", "w10 w11 w12"]]
ENGLISH = ["the movie was great", "a man eats bread", "the movie was great and long"]
FUNCTIONS = ("cos_sim", "dot_score", "euclidean_sim", "manhattan_sim", "pairwise_cos_sim", "pairwise_dot_score",
             "pairwise_euclidean_sim", "pairwise_manhattan_sim", "pytorch_cos_sim", "normalize_embeddings",
             "truncate_embeddings", "semantic_search", "paraphrase_mining", "paraphrase_mining_embeddings",
             "quantize_embeddings")


def signature(function):
    """[name, kind, default] of each parameter; defaults that JSON cannot hold by name."""
    rows = []
    for one in inspect.signature(function).parameters.values():
        default = one.default
        if default is inspect.Parameter.empty:
            default = "<none>"
        elif not isinstance(default, (type(None), bool, int, float, str)):
            default = f"<{getattr(default, '__name__', type(default).__name__)}>"
        rows.append([one.name, one.kind.name, default])
    return rows


def names_of(kind):
    """Methods and properties of a class that are not torch.nn.Module's."""
    for name in dir(kind):
        if name.startswith("_"):
            continue
        owner = next(one for one in kind.__mro__ if name in one.__dict__)
        if owner.__module__.startswith(("sentence_transformers", "transformers")):
            yield name, owner.__dict__[name]


def signatures():
    """The constructors, methods and properties of the classes, and the functions of util."""
    found = {}
    for kind in (SentenceTransformer, CrossEncoder, SparseEncoder):
        rows = {"__init__": signature(kind.__init__)}
        for name, value in names_of(kind):
            if isinstance(value, property):
                rows[name] = "settable property" if value.fset else "property"
            elif callable(getattr(kind, name)) and not inspect.isclass(getattr(kind, name)):
                rows[name] = signature(getattr(kind, name))
        found[kind.__name__] = rows
    found["util"] = {name: signature(getattr(util, name)) for name in FUNCTIONS}
    return found


def plain(value):
    """Tensors and arrays as lists."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, torch.Tensor):
        value = value.to_dense().detach().numpy() if value.layout != torch.strided else value.detach().numpy()
    return value.tolist() if hasattr(value, "tolist") else value


def dense():
    """Results of SentenceTransformer."""
    model = SentenceTransformer(os.path.join(MODELS, "st-dense"), device="cpu", prompts={"mine": "w9 "})
    vectors = model.encode(TEXTS)
    made = {"encode": vectors, "query": model.encode_query(TEXTS), "document": model.encode_document(TEXTS),
            "prompt": model.encode(TEXTS, prompt="w5 "), "prompt_name": model.encode(TEXTS, prompt_name="mine"),
            "truncate_dim": model.encode(TEXTS, truncate_dim=4, normalize_embeddings=True),
            "tokens": model.encode(TEXTS, output_value="token_embeddings"),
            "token_ids": [one["input_ids"][one["attention_mask"].bool()]
                          for one in model.encode(TEXTS, output_value=None)],
            "semantic_search": util.semantic_search(vectors, vectors, top_k=3),
            "paraphrase_mining": util.paraphrase_mining(model, TEXTS, top_k=2)}
    for precision in ("int8", "uint8", "binary", "ubinary"):
        made[precision] = model.encode(TEXTS, precision=precision)
    for name in ("cosine", "dot", "euclidean", "manhattan"):
        model.similarity_fn_name = name
        made[name] = model.similarity(vectors, vectors[:2])
        made[name + "_pairwise"] = model.similarity_pairwise(vectors, vectors[::-1].copy())
    model.max_seq_length = 4
    made["max_seq_length"] = model.encode(TEXTS)
    return made


def cross():
    """Results of CrossEncoder: one label, and three."""
    one = CrossEncoder(os.path.join(MODELS, "bert-cross-encoder"), device="cpu")
    three = CrossEncoder(os.path.join(MODELS, "bert-pairs"), device="cpu")
    return {"one": one.predict(PAIRS), "one_raw": one.predict(PAIRS, activation_fn=torch.nn.Identity()),
            "one_tanh": one.predict(PAIRS, activation_fn=torch.nn.Tanh()),
            "rank": one.rank("w1 w2", [pair[1] for pair in PAIRS], return_documents=True),
            "three": three.predict(PAIRS), "three_softmax": three.predict(PAIRS, apply_softmax=True),
            "three_sigmoid": three.predict(PAIRS, activation_fn=torch.nn.Sigmoid())}


def sparse():
    """Results of SparseEncoder: (token id, weight) of each text, and what is made of the vectors."""
    model = SparseEncoder(os.path.join(CACHE, "splade-tiny"), device="cpu")
    vectors = model.encode(ENGLISH)
    rows = [[[int(i), float(row[i])] for i in row.nonzero()[:, 0]] for row in vectors.to_dense()]
    return {"encode": rows, "decode": model.decode(vectors, top_k=5), "sparsity": model.sparsity(vectors),
            "max_active_dims": model.decode(model.encode(ENGLISH, max_active_dims=3)),
            "similarity": model.similarity(vectors, vectors)}


def main():
    """Write the file."""
    torch.manual_seed(0)
    made = {"version": sentence_transformers.__version__, "texts": TEXTS, "pairs": PAIRS, "english": ENGLISH,
            "signatures": signatures(), "dense": plain(dense()), "cross": plain(cross()), "sparse": plain(sparse())}
    with open(OUTPUT, "w", encoding="utf-8") as file:
        json.dump(made, file, indent=None, separators=(",", ":"), sort_keys=True)
        file.write("\n")
    print(OUTPUT)


if __name__ == "__main__":
    main()
