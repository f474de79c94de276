#!/usr/bin/env python3
"""A Unigram tokenizer of 100 languages: opening it, tokenizing, and texts made to be slow.

    unigram.py BENCH_TOKENIZER MODEL_DIRECTORY [--rounds N] [--results FOLDER]

As bench.py does: one thread each, the engines in turn, medians of the processor time. Memory is the
most that a process of its own held after opening the tokenizer.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

from bench import Ours, english, machine, timed
import tokenizers

OPENS = """
import sys, tokenizers
def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
before = peak()
tokenizers.Tokenizer.from_file(sys.argv[1])
print(peak() - before)
"""
PARTS = {
    "one letter": "a", "dashes": "-", "equals signs": "=", "underscores": "_", "full stops": ".", "asterisks": "*",
    "zeros": "0", "spaces": " ", "the mark of spaces": "\u2581", "line ends": "\n", "control characters": "\x01",
    "Thai": "\u0e01\u0e32", "Chinese": "\u4e2d\u6587", "jamo": "\u1100\u1161\u11a8", "accents": "e\u0301",
    "marks upon marks": "\u0301", "joined emoji": "\U0001f600\u200d", "ligatures": "\ufb01",
    "full width": "\uff21", "one that becomes 18": "\ufdfa", "unknown": "\U00012000",
}


def peak_mb(process):
    status = pathlib.Path("/proc/%d/status" % process.pid).read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def memory(arguments, texts):
    """MB beside the process as it was before; for ours all of a small C program."""
    ours = Ours(arguments.program, arguments.model, texts[:1])
    ours.ask("cold")
    mine = peak_mb(ours.process)
    ours.close()
    out = subprocess.run([sys.executable, "-c", OPENS, str(arguments.model / "tokenizer.json")], check=True,
                         stdout=subprocess.PIPE).stdout
    return {"gpuserve": round(mine), "tokenizers": round(int(out) / 1024)}


def compare(arguments, texts):
    ours = Ours(arguments.program, arguments.model, texts)
    path = str(arguments.model / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(path)
    theirs.no_padding()
    theirs.no_truncation()
    size = sum(len(t.encode()) for t in texts)
    seconds = {"load": [], "cold": [], "warm": [], "tokenizers load": [], "tokenizers": []}
    for _ in range(arguments.rounds):
        for what in ("load", "cold", "warm"):
            took, tokens, _ = ours.ask(what)
            seconds[what].append(took)
        seconds["tokenizers load"].append(timed(lambda: tokenizers.Tokenizer.from_file(path))[0])
        took, encodings = timed(lambda: theirs.encode_batch_fast(texts))
        seconds["tokenizers"].append(took)
    assert tokens == sum(len(e.ids) for e in encodings), "the engines disagree"
    ours.close()
    median = {k: statistics.median(v) for k, v in seconds.items()}
    return {"bytes": size, "tokens": tokens, "peak_MB": memory(arguments, texts),
            "load_ms": {"gpuserve": round(median["load"] * 1e3), "tokenizers": round(median["tokenizers load"] * 1e3)},
            "MB_per_s": {k: round(size / median[k] / 1e6, 1) for k in ("cold", "warm", "tokenizers")}}


def adversaries(arguments, prose):
    """ns a byte and of cold prose, each measured in turn with it."""
    found = {}
    reference = Ours(arguments.program, arguments.model, prose)
    size = sum(len(t.encode()) for t in prose)
    for name, part in PARTS.items():
        text = part * (200_000 // len(part.encode()))
        ours = Ours(arguments.program, arguments.model, [text])
        rounds = [(ours.ask("cold")[0] / len(text.encode()), reference.ask("cold")[0] / size)
                  for _ in range(arguments.rounds)]
        ours.close()
        found[name] = {"ns_per_byte": round(statistics.median(a for a, _ in rounds) * 1e9, 1),
                       "of_cold_prose": round(statistics.median(a / b for a, b in rounds), 2)}
    reference.close()
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--results", help="folder for a dated file")
    arguments = parser.parse_args()
    texts = english(None)
    result = {"what": "Unigram tokenizer, one thread", "date": datetime.date.today().isoformat(),
              "machine": machine(), "load_average": round(os.getloadavg()[0], 1), "model": arguments.model.name,
              "rounds": arguments.rounds, "versions": {"tokenizers": tokenizers.__version__},
              "english": compare(arguments, texts), "adversaries": adversaries(arguments, texts)}
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.results:
        pathlib.Path(arguments.results, result["date"] + "-tokenizer-unigram.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
