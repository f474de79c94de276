#!/usr/bin/env python3
"""Mutants of tokenizer.json: what the package tokenizers refuses is refused, what both accept gives the same ids.

Usage: differential_tokenizer.py VERDICT_PROGRAM MODEL_DIR [N] [SEED]

The file as it is and with other parts (those of tests/text/differential.py) have their turns. What the package
accepts may only be refused as unsupported or over a documented limit, never as corrupt.
"""
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from json_mutants import has_duplicates, mutant
from tokenizers import Tokenizer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "text"))
from differential import configurations  # noqa: E402

TEXTS = ["", "hello world", "Naïve [MASK]  un字 a.b [SEP]x", "the of and a to in is you that", "##ing x" * 20]
MEANT = ("0 4 ", "0 6 ")  # GPUSERVE_E_UNSUPPORTED, GPUSERVE_E_TOO_LARGE


def reference(data):
    """Its ids for each text alone and as a pair, or None."""
    try:
        tokenizer = Tokenizer.from_str(data.decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()
    except BaseException:  # its panics are no Exception
        return None
    out = []
    for text in TEXTS:
        for texts in ((text,), (text, text)):
            try:
                out.append("".join(f" {i}" for i in tokenizer.encode(*texts).ids) + " ;")
            except BaseException:
                return None  # accepted, but it cannot encode
    return "1" + "".join(out)


def main():
    program, model = sys.argv[1:3]
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 2000
    rng = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    tree = json.loads((pathlib.Path(model) / "tokenizer.json").read_text("utf-8"))
    trees = [tree] + [other for _, other in configurations(tree)]
    mutants = []
    while len(mutants) < n:
        data = mutant(tree if len(mutants) % 2 else rng.choice(trees), rng)
        if not has_duplicates(data):
            mutants.append(data)
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "texts").write_text("\n".join(TEXTS) + "\n", "utf-8")
        for i, data in enumerate(mutants):
            os.mkdir(os.path.join(folder, str(i)))
            pathlib.Path(folder, str(i), "tokenizer.json").write_bytes(data)
        names = "".join(f"{i}\n" for i in range(n))
        lines = subprocess.run([program, "tokenizer", folder], input=names.encode(), stdout=subprocess.PIPE,
                               check=True).stdout.decode(errors="replace").split("\n")
    verdicts = collections.Counter()
    shown = 0
    for i, data in enumerate(mutants):
        want = reference(data)
        if lines[i].startswith("1"):
            kind = "same" if lines[i] == want else "WRONG: accepted" if want is None else "WRONG: ids"
        elif want is None:
            kind = "refused by both"
        elif lines[i].startswith(MEANT):
            kind = "not supported"
        else:
            kind = "WRONG: refused"
        verdicts[kind] += 1
        if kind.startswith("WRONG") and shown < 40:
            shown += 1
            print(f"mutant {i}, {kind}; gpuserve: {lines[i][:200]}")
    print(", ".join(f"{count} {kind}" for kind, count in sorted(verdicts.items())))
    wrong = sum(count for kind, count in verdicts.items() if kind.startswith("WRONG"))
    return 1 if wrong or not verdicts["same"] or not verdicts["refused by both"] else 0


if __name__ == "__main__":
    sys.exit(main())
