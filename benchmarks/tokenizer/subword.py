#!/usr/bin/env python3
"""Subword tokenizers (BPE, Unigram): opening one, tokenizing, and texts made to be slow.

    subword.py BENCH_TOKENIZER KIND MODEL_DIRECTORY... [--rounds N] [--results FOLDER]

As bench.py does: one thread each, the engines in turn, medians of the processor time. Memory is the
most that a process of its own held after opening the tokenizer. KIND names the file of results; of
"bpe" a model of characters is measured, too, which is made of the first one's merges.
"""
import argparse
import datetime
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import adversaries
from bench import Ours, english, machine, timed
from measure import order
from verdict import same_input, spread
import tiktoken
import tokenizers

OPENS = """
import sys, tokenizers
def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
before = peak()
tokenizers.Tokenizer.from_file(sys.argv[1])
print(peak() - before)
"""
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SIZES = {"4 kB": 4096, "200 kB": 200_000, "4 MB": 4 << 20}


def byte_of_char():
    """GPT-2's alphabet."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return {**{chr(b): b for b in plain}, **{chr(256 + i): b for i, b in enumerate(others)}}


def token_texts(tokenizer):
    """Those of the vocabulary that are text, as they are in one."""
    vocab = tokenizer["model"]["vocab"]
    alphabet = byte_of_char()
    if not isinstance(vocab, dict):
        return [piece.replace("\u2581", " ") for piece, _ in vocab]
    found = (bytes(alphabet[c] for c in t).decode(errors="replace") for t in vocab if set(t) <= alphabet.keys())
    return [t for t in found if t and "\ufffd" not in t]


def as_characters(byte_level, folder):
    """The model of a byte-level tokenizer over characters, as Llama 2 has it: bytes where there is no
    token, spaces as a mark, and no words at all."""
    alphabet = byte_of_char()

    def text(token):
        return bytes(alphabet[c] for c in token).decode().replace(" ", "\u2581")

    vocab, merges = {"<unk>": 0}, []
    for byte in range(256):
        vocab["<0x%02X>" % byte] = len(vocab)
    for token in byte_level["model"]["vocab"]:
        if set(token) <= alphabet.keys():
            try:
                vocab.setdefault(text(token), len(vocab))
            except UnicodeDecodeError:
                pass
    for merge in byte_level["model"]["merges"]:
        try:
            left, right = map(text, merge.split(" ") if isinstance(merge, str) else merge)
        except UnicodeDecodeError:
            continue
        merges.append([left, right])
    made = {"version": "1.0", "added_tokens": [], "pre_tokenizer": None, "post_processor": None, "decoder": None,
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "\u2581"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
            "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": vocab,
                      "merges": merges}}
    pathlib.Path(folder, "tokenizer.json").write_text(json.dumps(made), "utf-8")


def peak_mb(process):
    status = pathlib.Path("/proc/%d/status" % process.pid).read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def memory(program, model, texts):
    """MB more than the process had before; for ours all of a small C program."""
    ours = Ours(program, model, texts[:1])
    ours.ask("cold")
    mine = peak_mb(ours.process)
    ours.close()
    out = subprocess.run([sys.executable, "-c", OPENS, str(model / "tokenizer.json")], check=True,
                         stdout=subprocess.PIPE).stdout
    return {"gpuserve": round(mine), "tokenizers": round(int(out) / 1024)}


def tiktoken_of(tokenizer):
    """tiktoken with the same vocabulary, where words are cut as GPT-2 does."""
    alphabet = byte_of_char()
    if tokenizer["model"]["type"] != "BPE" or tokenizer["pre_tokenizer"] is None or \
            not tokenizer["pre_tokenizer"].get("use_regex"):
        return None
    added = {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
    ranks = {bytes(alphabet[c] for c in t): i for t, i in tokenizer["model"]["vocab"].items() if t not in added}
    return tiktoken.Encoding("made", pat_str=GPT2, mergeable_ranks=ranks, special_tokens=added)


def compare(program, model, texts, rounds):
    """The engines on prose; each must find the same tokens."""
    ours = Ours(program, model, texts)
    path = str(model / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(path)
    theirs.no_padding()
    theirs.no_truncation()
    theirs.post_processor = tokenizers.processors.Sequence([])  # special tokens are not what is compared
    other = tiktoken_of(json.loads(pathlib.Path(path).read_text("utf-8")))
    size = sum(len(t.encode()) for t in texts)
    seconds = {"load": [], "cold": [], "warm": [], "tokenizers load": [], "tokenizers": [], "tiktoken": []}
    n_tokens = {}
    whole = tokenizers.Tokenizer.from_file(path)
    whole.no_padding()
    special = len(whole.encode("").ids) * len(texts)

    def ask_ours():
        for what in ("load", "cold", "warm"):
            took, n, _ = ours.ask(what)
            seconds[what].append(took)
            n_tokens["gpuserve"] = n - special

    def ask_tokenizers():
        seconds["tokenizers load"].append(timed(lambda: tokenizers.Tokenizer.from_file(path))[0])
        took, encodings = timed(lambda: theirs.encode_batch_fast(texts))
        seconds["tokenizers"].append(took)
        n_tokens["tokenizers"] = sum(len(e.ids) for e in encodings)

    def ask_tiktoken():
        took, lists = timed(lambda: [other.encode_ordinary(t) for t in texts])
        seconds["tiktoken"].append(took)
        n_tokens["tiktoken"] = sum(map(len, lists))

    parts = {"gpuserve": ask_ours, "tokenizers": ask_tokenizers, **({"tiktoken": ask_tiktoken} if other else {})}
    for part in parts.values():  # warm
        part()
    seconds = {name: [] for name in seconds}
    for number in range(rounds):
        for name in order(parts, number):
            parts[name]()
    ours.close()
    same_input(n_tokens)
    tokens = n_tokens["gpuserve"]
    median = {k: statistics.median(v) for k, v in seconds.items() if v}

    def over(theirs_name, ours_name):
        return spread([a / b for a, b in zip(seconds[theirs_name], seconds[ours_name])])

    ratios_of = {f"{name}_over_{peer}": over(peer, name) for peer in ("tokenizers", "tiktoken") if peer in median
                 for name in ("warm", "cold")}
    return {"bytes": size, "tokens": tokens, "peak_MB": memory(program, model, texts),
            "load_ms": {"gpuserve": round(median["load"] * 1e3), "tokenizers": round(median["tokenizers load"] * 1e3)},
            "load_over_tokenizers": over("tokenizers load", "load"), **ratios_of,
            "MB_per_s": {k: round(size / median[k] / 1e6, 1)
                         for k in ("cold", "warm", "tokenizers", "tiktoken") if k in median},
            "MB_per_s_spread": {k: spread([size / one / 1e6 for one in v])
                                for k, v in seconds.items() if v and "load" not in k}}


def slowest_letters(ours):
    """Of random sets of four letters and digits that whose texts take the most steps."""
    rng = random.Random(3)
    found = []
    for _ in range(30):
        letters = "".join(rng.sample(adversaries.LETTERS + adversaries.LETTERS.upper() + "0123456789", 4))
        ours.take([adversaries.by_chance(rng, letters, 20_000)])
        found.append((ours.ask("cold")[2], letters))
    return max(found)[1]


def ratios(program, model, prose, rounds):
    """Of cold prose for each byte, each text measured in turn with it; by size."""
    found = {}
    tokens = token_texts(json.loads((model / "tokenizer.json").read_text("utf-8")))
    reference, ours = Ours(program, model, prose), Ours(program, model, prose)
    letters = slowest_letters(ours)
    prose_size = sum(len(t.encode()) for t in prose)
    for label, size in SIZES.items():
        for name, text in adversaries.texts(max(size, 200_000), tokens, letters).items():
            texts = adversaries.parts(text, size)
            ours.take(texts)
            n_bytes = sum(len(t.encode()) for t in texts)
            of_prose = []
            for number in range(rounds):
                took = {one: {"text": ours, "prose": reference}[one].ask("cold")[0]
                        for one in order(("text", "prose"), number)}
                of_prose.append(took["text"] / n_bytes / (took["prose"] / prose_size))
            found.setdefault(name, {})[label] = {key: round(value, 2) for key, value in spread(of_prose).items()}
    reference.close()
    ours.close()
    return found


def worst(of_prose):
    def slowest(name):
        return max(one["median"] for one in of_prose[name].values())

    name = max(of_prose, key=slowest)
    return {"text": name, "of_cold_prose": slowest(name)}


def measure(program, model, name, rounds):
    texts = english(None)
    of_prose = ratios(program, model, texts, rounds)
    return {"model": name, "english": compare(program, model, texts, rounds), "slowest": worst(of_prose),
            "of_cold_prose": of_prose}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("kind", choices=("bpe", "unigram"))
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--results", help="folder for a dated file")
    arguments = parser.parse_args()
    result = {"what": "%s tokenizers, one thread" % arguments.kind, "date": datetime.date.today().isoformat(),
              "machine": machine(), "load_average": round(os.getloadavg()[0], 1), "rounds": arguments.rounds,
              "versions": {"tokenizers": tokenizers.__version__, "tiktoken": tiktoken.__version__},
              "models": [measure(arguments.program, m, m.name, arguments.rounds) for m in arguments.models]}
    if arguments.kind == "bpe":
        first = arguments.models[0]
        with tempfile.TemporaryDirectory() as folder:
            as_characters(json.loads((first / "tokenizer.json").read_text("utf-8")), folder)
            result["models"].append(measure(arguments.program, pathlib.Path(folder),
                                            first.name + ", as characters and one word", arguments.rounds))
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.results:
        path = pathlib.Path(arguments.results, "%s-tokenizer-%s.json" % (result["date"], arguments.kind))
        path.write_text(text + "\n")


if __name__ == "__main__":
    main()
