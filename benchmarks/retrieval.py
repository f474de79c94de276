#!/usr/bin/env python3
"""Retrieval accuracy by dtype and number of dimensions, on movie reviews: retrieval.py PROGRAM MODEL REVIEWS.csv RESULTS

A query is the first sentence of a review, its relevant document the next sentences; the documents of all queries are searched.
`gpuserve eval --task retrieval` measures. Writes RESULTS/DATE-retrieval.json.
"""
import csv
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "common"))

from measure import keep, machine, today                                       # noqa: E402

QUERIES = 1000
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
DIMENSIONS = (None, 256, 128, 64)


def pairs(path):
    """The first reviews whose first sentence is of 30 to 200 characters and has at least 200 behind it."""
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            first, *rest = SENTENCE_END.split(row["text"].replace("<br />", " "), maxsplit=1)
            if rest and 30 <= len(first) <= 200 and len(rest[0]) > 200:
                yield {"text": first, "pair": rest[0][:400]}


def main():
    program, model, reviews, results = sys.argv[1:]
    rows = [row for row, _ in zip(pairs(reviews), range(QUERIES))]
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "reviews.jsonl")
        with open(source, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        for dimensions in DIMENSIONS:
            options = ["--dtypes", "float32,bfloat16,int8"] if dimensions is None else ["--dtypes", "float32", "--dimensions", str(dimensions)]
            done = subprocess.run([program, "eval", model, "--task", "retrieval", "-i", source, "-d", "cpu", "--json", "-q", *options],
                                  check=True, capture_output=True, text=True)
            for row in json.loads(done.stdout)["rows"]:
                figures.append({"dimensions": dimensions, **row})
                print(" ".join(f"{name}={value:.4f}" if isinstance(value, float) else f"{name}={value}"
                               for name, value in figures[-1].items()))
    document = {"date": today(), "machine": machine(), "model": os.path.basename(os.path.normpath(model)), "pairs": len(rows), "figures": figures}
    print(keep(document, results, "retrieval"))



if __name__ == "__main__":
    main()
