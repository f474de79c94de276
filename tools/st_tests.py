#!/usr/bin/env python3
"""Run the inference tests of sentence-transformers against gpuserve.sentence_transformers, and against the original
for comparison: passed / tried of each file, and the tests that only the original passes.

    python tools/st_tests.py CHECKOUT [--stand-ins] [--verbose] [--files FILE...] [--select EXPRESSION]

CHECKOUT is a directory of https://github.com/UKPLab/sentence-transformers: the source archive on PyPI has no
inference tests. Needs pytest and benchmarks/peers/requirements.txt, and GPUSERVE_LIBRARY. The tests load models of
the hub; --stand-ins makes models of the same shapes with random weights in a cache of its own, for a machine without
the hub: tests that expect values of trained models then fail with both.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: Below the folder of tests.
FILES = (
    "test_sentence_transformer.py", "test_compute_embeddings.py", "test_multi_process.py",
    "cross_encoder/test_cross_encoder.py", "cross_encoder/test_pretrained.py",
    "sparse_encoder/test_sparse_encoder.py", "sparse_encoder/test_multi_process.py",
    "sparse_encoder/test_pretrained.py", "util/test_similarity.py", "util/test_retrieval.py",
)
#: A plugin of pytest that puts our classes and functions in the place of theirs before a test imports them.
ALIAS = '''
import sentence_transformers
import sentence_transformers.util.retrieval
import sentence_transformers.util.similarity
from gpuserve import sentence_transformers as ours

for name in ("SentenceTransformer", "CrossEncoder", "SparseEncoder"):
    setattr(sentence_transformers, name, getattr(ours, name))
for module in (sentence_transformers.util, sentence_transformers.util.similarity, sentence_transformers.util.retrieval):
    for name in ours.util.__all__:
        if hasattr(module, name) and name != "SimilarityFunction":
            setattr(module, name, getattr(ours.util, name))
'''
NAMES = {
    "sentence-transformers-testing/stsb-bert-tiny-safetensors": "dense",
    "sentence-transformers/paraphrase-distilroberta-base-v1": "dense",
    "cross-encoder-testing/reranker-bert-tiny-gooaq-bce": "cross",
    "cross-encoder/stsb-distilroberta-base": "cross",
    "cross-encoder/nli-MiniLM2-L6-H768": "cross-three",
    "sparse-encoder-testing/splade-bert-tiny-nq": "sparse",
}


def tokenizer_folder():
    """A folder with the vocabulary of bert-base-uncased."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "gpuserve", "models", "all-MiniLM-L6-v2")


def save(kind, folder):
    """A model with random weights, saved by sentence-transformers."""
    import torch
    from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
    from transformers import (
        AutoTokenizer, BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel,
    )
    torch.manual_seed(1)
    raw = folder + "-raw"
    config = BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512,
                        num_labels=3 if kind == "cross-three" else 1)
    architecture = {"dense": BertModel, "sparse": BertForMaskedLM}.get(kind, BertForSequenceClassification)
    architecture(config).save_pretrained(raw)
    AutoTokenizer.from_pretrained(tokenizer_folder(), model_max_length=512).save_pretrained(raw)
    opened = {"dense": SentenceTransformer, "sparse": SparseEncoder}.get(kind, CrossEncoder)(raw, device="cpu")
    opened.save_pretrained(folder, create_model_card=False)


def make_stand_ins(home):
    """A cache of the hub with the models of NAMES."""
    revision = "0" * 40
    for name, kind in NAMES.items():
        repository = os.path.join(home, "hub", "models--" + name.replace("/", "--"))
        os.makedirs(os.path.join(repository, "refs"))
        with open(os.path.join(repository, "refs", "main"), "w", encoding="utf-8") as file:
            file.write(revision)
        os.makedirs(os.path.join(repository, "snapshots"))
        save(kind, os.path.join(repository, "snapshots", revision))


def run(checkout, files, environment, select, ours):
    """Outcome and reason of each test, by name."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "gpuserve_alias.py"), "w", encoding="utf-8") as plugin:
            plugin.write(ALIAS)
        path = os.pathsep.join([folder, os.path.join(ROOT, "python"), checkout])
        command = [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=line", "-p", "no:cacheprovider",
                   *(f"tests/{file}" for file in files),
                   *(["-k", select] if select else []), *(["-p", "gpuserve_alias"] if ours else [])]
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False,
                              env={**environment, "PYTHONPATH": path})
    found = {}
    for outcome, name, why in re.findall(r"^(PASSED|FAILED|ERROR|XFAIL) (\S+?\.py(?:::.*?)?)( - .*)?$",
                                         done.stdout, re.M):
        found[name] = (outcome, why)
    if not found:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    return found


def passed(results):
    """Names of the tests that passed."""
    return {name for name, (outcome, _) in results.items() if outcome == "PASSED"}


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", help="directory of the repository")
    parser.add_argument("--stand-ins", action="store_true", help="random models in the place of the hub's")
    parser.add_argument("--verbose", action="store_true", help="name the tests that only the original passes")
    parser.add_argument("--files", nargs="+", default=FILES, help="files below tests; default all inference tests")
    parser.add_argument("--select", help="expression of names, as pytest -k takes it")
    given = parser.parse_args()
    checkout = os.path.abspath(given.checkout)
    with tempfile.TemporaryDirectory() as home:
        environment = dict(os.environ, TOKENIZERS_PARALLELISM="false")
        if given.stand_ins:
            make_stand_ins(home)
            environment.update(HF_HOME=home, HF_HUB_OFFLINE="1")
        with ThreadPoolExecutor(2) as threads:
            theirs, ours = threads.map(
                lambda alias: run(checkout, given.files, environment, given.select, alias), (False, True))
    print("| file | tried | sentence-transformers passes | gpuserve passes, of these |\n|---|---|---|---|")
    good, both = passed(theirs), passed(theirs) & passed(ours)
    for file in given.files:
        row = [sum(name.startswith(f"tests/{file}") for name in names) for names in (theirs, good, both)]
        print(f"| {file} | {row[0]} | {row[1]} | {row[2]} |")
    print(f"| all | {len(theirs)} | {len(good)} | {len(both)} |")
    if given.verbose:
        print("\n".join(f"{name}{ours.get(name, ('', ' missing'))[1]}" for name in sorted(good - both)))


if __name__ == "__main__":
    main()
