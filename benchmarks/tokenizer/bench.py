#!/usr/bin/env python3
"""Tokenizing with lib/text, Hugging Face `tokenizers` and `nanotoken`, one thread each.

    bench.py BENCH_TOKENIZER MODEL_DIRECTORY [--rounds N] [--text FILE] [--results FOLDER]

The engines take turns round by round, in an order that turns, on the same texts, so that a busy machine
slows all of them. Results are processor time: other processes on the machine affect it less than wall-clock
time. The ratios are those of the rounds, with their spread.
English is the prose of --text (default: the licences that Debian installs), cut at paragraphs. The other inputs are worst cases, measured
in nanoseconds a byte and in trie steps a byte.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import nanotoken  # noqa: E402
import tokenizers  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "common"))

from measure import order  # noqa: E402
from verdict import same_input, spread  # noqa: E402


def english(path):
    """Paragraphs of prose: each once, so that a cold cache meets words as it would at first."""
    files = [pathlib.Path(path)] if path else sorted(
        p for p in pathlib.Path("/usr/share/common-licenses").iterdir() if not p.is_symlink())
    texts = set()
    for file in files:
        for paragraph in file.read_text(errors="replace").split("\n\n"):
            if len(paragraph) > 40:
                texts.add(" ".join(paragraph.split()))
    texts = sorted(texts)
    random.Random(1).shuffle(texts)
    return texts


def adversaries(vocabulary, n_bytes):
    """name -> texts that ask for the most work a byte."""
    rng = random.Random(2)
    pieces = [w[2:] if w.startswith("##") else w for w in vocabulary if w.isalpha() or w[:2] == "##"]
    long_pieces = sorted((p for p in pieces if p.isascii() and p.isalpha()), key=len)[-2000:]

    def cut(make):
        out, size = [], 0
        while size < n_bytes:
            out.append(make())
            size += len(out[-1].encode())
        return out

    def spaced(word, n=60):
        return lambda: " ".join(word() for _ in range(n))

    letters = "abcdefghijklmnopqrstuvwxyz"
    return {
        "random letters, words of 99": cut(spaced(lambda: "".join(rng.choices(letters, k=99)))),
        "random letters, words of 8": cut(spaced(lambda: "".join(rng.choices(letters, k=8)))),
        "long tokens without their end": cut(spaced(
            lambda: "".join(rng.choice(long_pieces)[:-1] for _ in range(8))[:99])),
        "one letter, one word": cut(lambda: "a" * 20000),
        "punctuation": cut(lambda: "".join(rng.choices("!.,;-#[]()", k=5000))),
        "opening brackets": cut(lambda: "[" * 5000),
        "half added tokens": cut(lambda: "[MASK[SEP[CLS " * 400),
        "added tokens": cut(lambda: "[MASK]" * 800),
        "spaces": cut(lambda: " " * 5000 + "a"),
        "control characters": cut(lambda: "a\x01" * 2500),
        "Chinese": cut(lambda: "".join(chr(rng.randrange(0x4E00, 0x9FA5)) for _ in range(2000))),
        "Cyrillic": cut(spaced(lambda: "".join(chr(rng.randrange(0x430, 0x450)) for _ in range(7)))),
        "Cyrillic capitals": cut(spaced(lambda: "".join(chr(rng.randrange(0x410, 0x430)) for _ in range(7)))),
        "accents": cut(lambda: "éàüñçöÅŠ " * 300),
        "Hangul": cut(spaced(lambda: "".join(chr(rng.randrange(0xAC00, 0xD7A4)) for _ in range(4)))),
        "marks upon marks": cut(lambda: "a" + "\u0301\u0323" * 2000),
        "marks that are kept": cut(lambda: "a" + "\u302e\u302f" * 1500),
        "a kept mark on each word": cut(lambda: "a\u302e " * 1500),
        "emoji": cut(lambda: "".join(chr(rng.randrange(0x1F300, 0x1F600)) for _ in range(1200))),
        "any character": cut(lambda: "".join(
            chr(rng.choice((rng.randrange(0x20, 0xD800), rng.randrange(0xE000, 0x110000))))
            for _ in range(1500))),
    }


class Ours:
    """bench_tokenizer behind a pipe."""

    def __init__(self, program, model, texts):
        self.file = self.write(texts)
        self.process = subprocess.Popen([program, str(model), self.file.name], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @staticmethod
    def write(texts):
        file = tempfile.NamedTemporaryFile()
        for t in texts:
            data = t.encode()
            file.write(struct.pack("<I", len(data)) + data)
        file.flush()
        return file

    def take(self, texts):
        """Other texts from now on."""
        file = self.write(texts)
        self.ask("file " + file.name)  # only then has it read the one before
        self.file = file

    def ask(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        seconds, tokens, steps = self.process.stdout.readline().split()
        return float(seconds), int(tokens), int(steps)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def timed(function):
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def machine():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def compare_engines(arguments, texts):
    """MB/s of each engine on prose."""
    ours = Ours(arguments.program, arguments.model, texts)
    theirs = tokenizers.Tokenizer.from_file(str(arguments.model / "tokenizer.json"))
    theirs.no_padding()
    theirs.no_truncation()
    nano = nanotoken.Tokenizer(theirs)
    size = sum(len(t.encode()) for t in texts)
    seconds = {"warm": [], "cold": [], "load": [], "tokenizers": [], "nanotoken": []}
    n_tokens = {}

    def ask_ours():
        for what in ("load", "cold", "warm"):
            took, n_tokens["ours"], _ = ours.ask(what)
            seconds[what].append(took)

    def ask(name, encode, count):
        took, found = timed(encode)
        seconds[name].append(took)
        n_tokens[name] = sum(map(count, found))

    parts = {"ours": ask_ours,
             "tokenizers": lambda: ask("tokenizers", lambda: theirs.encode_batch_fast(texts), lambda e: len(e.ids)),
             "nanotoken": lambda: ask("nanotoken", lambda: nano.encode_batch(texts, parallel=False), len)}
    for part in parts.values():  # warm
        part()
    seconds = {name: [] for name in seconds}
    for number in range(arguments.rounds):
        for name in order(parts, number):
            parts[name]()
    ours.close()
    same_input(n_tokens)
    median = {k: statistics.median(v) for k, v in seconds.items()}
    rates = {k: round(size / v / 1e6, 1) for k, v in median.items() if k != "load"}

    def over(theirs_name, ours_name):
        return spread([a / b for a, b in zip(seconds[theirs_name], seconds[ours_name])])

    return {"bytes": size, "texts": len(texts), "tokens": n_tokens["ours"], "MB_per_s": rates,
            "load_ms": round(median["load"] * 1e3, 2),
            "warm_over_tokenizers": over("tokenizers", "warm"), "cold_over_tokenizers": over("tokenizers", "cold"),
            "warm_over_nanotoken": over("nanotoken", "warm")}


def try_adversaries(arguments, prose, vocabulary):
    """ns and trie steps a byte, prose first; each is measured in turn with prose."""
    found = {}
    reference = Ours(arguments.program, arguments.model, prose)
    for name, texts in adversaries(vocabulary, 200_000).items():
        size = sum(len(t.encode()) for t in texts)
        ours = Ours(arguments.program, arguments.model, texts)
        rounds = []
        for _ in range(arguments.rounds):
            base = reference.ask("cold")[0]
            took, _, steps = ours.ask("cold")
            rounds.append((took, base, steps))
        ours.close()
        prose_size = sum(len(t.encode()) for t in prose)
        ratio = statistics.median(r[0] / size / (r[1] / prose_size) for r in rounds)
        found[name] = {"ns_per_byte": round(statistics.median(r[0] for r in rounds) / size * 1e9, 2),
                       "of_cold_prose": round(ratio, 2),
                       "trie_steps_per_byte": round(rounds[0][2] / size, 2)}
    reference.close()
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--text")
    parser.add_argument("--results", help="folder for a dated file")
    arguments = parser.parse_args()
    texts = english(arguments.text)
    vocabulary = json.loads((arguments.model / "tokenizer.json").read_text())["model"]["vocab"]
    result = {
        "what": "tokenizer, one thread", "date": datetime.date.today().isoformat(),
        "machine": machine(), "load_average": round(os.getloadavg()[0], 1), "model": arguments.model.name, "rounds": arguments.rounds,
        "versions": {"tokenizers": tokenizers.__version__, "nanotoken": "0.1.0"},
        "english": compare_engines(arguments, texts),
        "adversaries": try_adversaries(arguments, texts, vocabulary),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.results:
        name = "tokenizer-%s-%s.json" % (result["machine"].replace(" ", "-"), result["date"])
        pathlib.Path(arguments.results, name).write_text(text + "\n")


if __name__ == "__main__":
    main()
