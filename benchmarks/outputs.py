#!/usr/bin/env python3
"""Several outputs of one pass: outputs.py MODEL [--prepared FOLDER] [--late-heads] [--quick] [--results FOLDER]

The same texts go through one model with each set of outputs, and through separate passes of the
outputs of the largest set; through ONNX Runtime (of --prepared, benchmarks/peers/prepare.py) and
sentence-transformers, where they are there, for the dense vectors, the token vectors, both of one
pass, and both of two. All vectors must be ours. A model that makes embeddings also gets HEADS random linear heads: the scores
of all of them are compared with those of one. The order turns from round to round, disturbed rounds are
dropped (benchmarks/common); the caches are off. MODEL is a folder with several outputs, such as one
of BGE-M3, or any encoder, whose outputs are dense and token vectors; --late-heads gives it the two other heads of
BGE-M3 with random weights, without peers. GPUSERVE_LIBRARY names the library.
"""
import argparse
import contextlib
import json
import os
import random
import shutil
import struct
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "python"), str(HERE / "common"), str(HERE / "peers")]

from measure import keep, machine, rounds, today  # noqa: E402
from verdict import MIN_COSINE, least_cosine, line, spread, verdict  # noqa: E402

from gpuserve import Model  # noqa: E402

WORDS = ("time person year way day thing man world life hand part child eye woman place work week "
         "case point government company number group problem fact").split()
BATCH = 16
GOAL = 1.05  # all outputs of a pass over dense alone, and the scores of HEADS heads over those of one
HEADS, LABELS = 10, 8
COLBERT_DIM = 128
ONE_HEAD, ALL_HEADS = "1 head", f"{HEADS} heads"


def texts_of(n, words, seed=7):
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=words)) for _ in range(n)]


def sets_of(model):
    """Dense alone, dense with each other output, and all of them."""
    has = list(model.encode_multi("a text"))
    if model.labels:
        has.append("labels")
    if "dense" not in has:
        sys.exit("the model has no dense output: nothing to compare with")
    others = [name for name in has if name != "dense"] or ["colbert"]
    sets = [["dense"], *(["dense", name] for name in others)]
    return sets if len(others) < 2 else [*sets, ["dense", *others]]


def write_head(path, dim, chance):
    """One linear layer with softmax, as docs/heads.md describes the file."""
    weights = [chance.gauss(0, 1) for _ in range(LABELS * dim)]
    header = json.dumps({
        "__metadata__": {"labels": json.dumps([f"label {i}" for i in range(LABELS)]), "input": "normalized"},
        "weight": {"dtype": "F32", "shape": [LABELS, dim], "data_offsets": [0, 4 * LABELS * dim]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(weights)}f", *weights))


@contextlib.contextmanager
def with_late_heads(folder):
    """The model in `folder` with a sparse and a ColBERT head, as BGE-M3 has them."""
    import torch

    hidden = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))["hidden_size"]
    with tempfile.TemporaryDirectory() as made:
        shutil.copytree(folder, made, dirs_exist_ok=True)  # the library follows no link out of a model's folder
        torch.manual_seed(1)
        for name, rows in (("sparse_linear.pt", 1), ("colbert_linear.pt", COLBERT_DIM)):
            torch.save(torch.nn.Linear(hidden, rows).state_dict(), Path(made, name))
        yield made


@contextlib.contextmanager
def with_heads(given):
    """The model again, with HEADS heads."""
    with tempfile.TemporaryDirectory() as folder, Model(given.model, device=given.device, dtype=given.dtype) as plain:
        chance = random.Random(1)
        files = {f"head {i}": Path(folder, f"{i}.safetensors") for i in range(HEADS)}
        for path in files.values():
            write_head(path, plain.dim, chance)
        with Model(given.model, device=given.device, dtype=given.dtype, heads=files) as model:
            yield model


def head_parts(model, texts):
    """The scores of one head, and of all; equal bits are checked first."""
    names = list(model.heads)
    everything = model.predict_proba(texts[:4], heads=names)
    for name in names:
        if model.predict_proba(texts[:4], heads=[name])[name].tobytes() != everything[name].tobytes():
            sys.exit(f"{name} has other scores beside other heads")

    def ours(heads):
        return seconds(lambda: [model.encode_multi(some, ["labels"], heads=heads, cache="off") for some in batches(texts)])

    return {ONE_HEAD: lambda: ours(names[:1]), ALL_HEADS: lambda: ours(names)}


def batches(texts):
    return [texts[i:i + BATCH] for i in range(0, len(texts), BATCH)]


class OnnxRuntime:
    """The exported graph; vectors of tokens and of the text come from its last hidden states."""

    name = "ONNX Runtime"

    def __init__(self, model, prepared, threads):
        from engines.common import inputs_of, pool, prepared_facts
        import onnxruntime
        import tokenizers

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.session = onnxruntime.InferenceSession(str(Path(prepared, "fused.onnx")), options,
                                                    providers=["CPUExecutionProvider"])
        self.tokenizer = tokenizers.Tokenizer.from_file(str(Path(model, "tokenizer.json")))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(256)
        self.facts, self.inputs_of, self.pool = prepared_facts({"prepared": Path(prepared)}), inputs_of, pool

    def run(self, texts, dense, tokens):
        found = {"dense": [], "tokens": []}
        for some in batches(texts):
            ids = [one.ids for one in self.tokenizer.encode_batch(some)]
            hidden = self.session.run(None, self.inputs_of(self.facts, ids))[0]
            if dense:
                found["dense"].extend(self.pool(hidden, [len(one) for one in ids], self.facts["pooling"]))
            if tokens:
                found["tokens"].extend(row[:len(one)] for row, one in zip(hidden, ids))
        return found


class SentenceTransformers:
    name = "sentence-transformers"

    def __init__(self, model, _prepared, threads):
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(threads)
        self.model = SentenceTransformer(str(model), device="cpu", model_kwargs={"dtype": torch.float32})

    def run(self, texts, dense, tokens):
        kind = None if dense and tokens else "sentence_embedding" if dense else "token_embeddings"
        rows = self.model.encode(texts, batch_size=BATCH, output_value=kind, show_progress_bar=False)
        if kind:
            return {"dense" if dense else "tokens": rows}
        return {"dense": [row["sentence_embedding"] for row in rows],
                "tokens": [row["token_embeddings"] for row in rows]}


def peers_of(given, texts, wanted, wanted_tokens):
    """Those that are there and compute our vectors; why others do not take part."""
    peers, missing = [], {}
    for kind in (OnnxRuntime, SentenceTransformers):
        try:
            if given.late_heads:
                raise ImportError("it has no random heads")
            if kind is OnnxRuntime and not given.prepared:
                raise ImportError("no --prepared")
            peer = kind(given.model, given.prepared, len(os.sched_getaffinity(0)))
        except ImportError as error:
            missing[kind.name] = str(error)
            continue
        found = peer.run(texts, True, True)
        cosines = {"dense": least_cosine(as_lists(found["dense"]), as_lists(wanted)),
                   "tokens": min(least_cosine(as_lists(a), as_lists(b))
                                 for a, b in zip(found["tokens"], wanted_tokens))}
        if min(cosines.values()) < MIN_COSINE["fp32"]:
            missing[kind.name] = f"its vectors are others: least cosines {cosines}"
        else:
            peers.append(peer)
    return peers, missing


def as_lists(rows):
    return [[float(x) for x in row] for row in rows]


def seconds(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def parts_of(model, sets, peers, texts):
    """{name: function that returns seconds}"""
    def ours(passes):
        return seconds(lambda: [model.encode_multi(texts, names, cache="off") for names in passes])

    parts = {"+".join(names): lambda names=names: ours([names]) for names in sets}
    parts["separate passes"] = lambda: ours([[name] for name in sets[-1]])
    for peer in peers:
        for what, passes in (("dense", [(True, False)]), ("dense+tokens", [(True, True)]),
                             ("separate passes", [(True, False), (False, True)])):
            parts[f"{peer.name}: {what}"] = lambda peer=peer, passes=passes: seconds(
                lambda: [peer.run(texts, *outputs) for outputs in passes])
    return parts


def of_others(found, sets, peers):
    """The largest set's time over separate passes, and over one pass of each peer."""
    everything = "+".join(sets[-1])
    others = ["separate passes", *(f"{peer.name}: dense+tokens" for peer in peers)]
    return {other: spread(found.ratios(everything, other)) for other in others}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--prepared", type=Path, help="the model as prepare.py converted it")
    parser.add_argument("--late-heads", action="store_true", help="add a sparse and a ColBERT head with random weights")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 8 texts")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype")
    parser.add_argument("--words", type=int, default=100, help="words of a text")
    parser.add_argument("--rounds", type=int, help="undisturbed ones wanted (default 9, quick 3)")
    parser.add_argument("--results", type=Path, help="folder for the figures")
    given = parser.parse_args()
    given.rounds = given.rounds or (3 if given.quick else 9)
    return given


def measure(given, facts, model_name):
    with Model(given.model, device=given.device, dtype=given.dtype) as model, with_heads(given) as headed:
        texts, sets = texts_of(8 if given.quick else 32, given.words), sets_of(model)
        both = model.encode_multi(texts[:4], ["dense", "colbert"], cache="off")
        peers, missing = peers_of(given, texts[:4], both["dense"], both["colbert"])
        parts = {**parts_of(model, sets, peers, texts), **head_parts(headed, texts)}
        for part in parts.values():  # warm
            part()
        found = rounds(given.rounds, parts, say=print)
    if not found.kept:
        sys.exit("other processes disturbed every round: measure on a quiet machine")
    table = {name: {"ms": spread([1000 * s for s in found.values(name)]), "of_dense": spread(found.ratios(name, "dense"))}
             for name in parts}
    for name, row in table.items():
        print(f"{name:44} {row['ms']['median']:10.2f} ms ({row['ms']['min']:.2f} to {row['ms']['max']:.2f})  "
              f"{row['of_dense']['median']:.3f} of dense")
    everything = "+".join(sets[-1])
    found_goal = verdict(found.ratios(everything, "dense"), GOAL, at_most=True)
    print(line(f"{everything}, of dense", found_goal))
    heads_goal = verdict(found.ratios(ALL_HEADS, ONE_HEAD), GOAL, at_most=True)
    print(line(f"{ALL_HEADS}, of {ONE_HEAD}", heads_goal))
    beside = of_others(found, sets, peers)
    for name, one in beside.items():
        print(f"{everything}, of {name}: {one['median']:.3f} ({one['min']:.3f} to {one['max']:.3f})")
    for name, why in missing.items():
        print(f"{name}: not measured: {why}")
    if given.results:
        print(keep({"date": today(), "quick": given.quick, "machine": facts, "model": model_name, "late_heads": given.late_heads,
                    "device": given.device, "dtype": given.dtype, "texts": len(texts), "words": given.words,
                    "sets": table, "of_dense": found_goal, "heads_of_one": heads_goal, "of_others": beside, "missing": missing, "rounds": found.facts()},
                   given.results, "outputs-late-heads" if given.late_heads else "outputs"))


def main():
    given, facts = parse_arguments(), machine()
    model_name = os.path.basename(given.model)
    with contextlib.ExitStack() as stack:
        if given.late_heads:
            given.model = stack.enter_context(with_late_heads(given.model))
        measure(given, facts, model_name)


if __name__ == "__main__":
    main()
