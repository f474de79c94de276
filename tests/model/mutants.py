#!/usr/bin/env python3
"""Mutants of every JSON file of a model directory: opened whole, or refused with the place and a reason.

Usage: mutants.py VERDICT_PROGRAM MODELS_DIR [N] [SEED]
"""
import collections
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

from json_mutants import mutant

MODELS = ["st-dense", "st-newer", "st-poolings", "bert-single", "bert-sharded", "bert-cross-encoder"]
# What a mutant may be refused as: leading out of the directory, not found, corrupt, unsupported, over a limit.
REASONS = {"1", "2", "3", "4", "6"}


def json_files(folder):
    """The files that decide what the model is."""
    return [path for path in sorted(folder.rglob("*.json"))
            if path.name not in ("pairs.json", "generation_config.json", "tokenizer.json")]


def make(source, path, data, target):
    """The model with one file changed; the others are links to the originals."""
    target.mkdir()
    for original in source.rglob("*"):
        copy = target / original.relative_to(source)
        if original.is_dir():
            copy.mkdir(exist_ok=True)
        elif original == path:
            copy.write_bytes(data)
        else:
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(original, copy)


def main():
    program, models = sys.argv[1:3]
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 500
    rng = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    choices = [(pathlib.Path(models) / name, path) for name in MODELS
               for path in json_files(pathlib.Path(models) / name)]
    counts = collections.Counter()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        mutants = []
        for i in range(n):
            source, path = rng.choice(choices)
            data = mutant(json.loads(path.read_text("utf-8")), rng)
            make(source, path, data, pathlib.Path(folder, str(i)))
            mutants.append((path, data, f"{folder}/{i}"))
        done = subprocess.run([program, "model", folder], input="".join(f"{i}\n" for i in range(n)).encode(),
                              stdout=subprocess.PIPE)
        lines = done.stdout.decode(errors="replace").split("\n")
    for (path, data, place), line in zip(mutants, lines):
        verdict, _, rest = line.partition(" ")
        status, _, message = rest.partition(" ")
        counts["opened" if verdict == "1" else "refused"] += 1
        # Only what leads out is called an invalid argument: everything else is the model's own fault.
        if verdict != "1" and (status not in REASONS or not (message.startswith(place) or message.startswith(path.name)) or
                               status == "1" and "leads out" not in message):
            wrong += 1
            print(f"{path}: {line}\n    {data[:500]}")
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) + f"; ended with {done.returncode}")
    return 1 if wrong or done.returncode or len(lines) != n + 1 or len(counts) != 2 else 0


if __name__ == "__main__":
    sys.exit(main())
