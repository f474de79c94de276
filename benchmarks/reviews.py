#!/usr/bin/env python3
"""`gpuserve eval` on movie reviews, by dtype, element type and number of dimensions: reviews.py TASK PROGRAM MODEL REVIEWS.csv RESULTS

retrieval: a query is the first sentence of a review, its relevant document the next sentences; the documents of all queries are
searched. classification: the label of a review; a head is trained on 4 of 5 reviews and measured on the
others. Writes RESULTS/DATE-TASK.json.
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
LABELLED = 2000  # reviews, as many of each label
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
DIMENSIONS = (None, 256, 128, 64)


def reviews(path):
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield row["text"].replace("<br />", " "), row["label"]


def pairs(path):
    """The first reviews whose first sentence is of 30 to 200 characters and has at least 200 behind it."""
    for text, _ in reviews(path):
        first, *rest = SENTENCE_END.split(text, maxsplit=1)
        if rest and 30 <= len(first) <= 200 and len(rest[0]) > 200:
            yield {"text": first, "pair": rest[0][:400]}


def labelled(path):
    """The first 400 characters of reviews, the labels in turn."""
    of_label = {}
    for text, label in reviews(path):
        of_label.setdefault(label, []).append({"text": text[:400], "label": label})
    for rows in zip(*of_label.values()):
        yield from rows


# Rows of the file, how many are used, and what is measured with all dimensions.
TASKS = {"retrieval": (pairs, QUERIES, (["--dtypes", "float32,bfloat16,int8"],)),
         "classification": (labelled, LABELLED, (["--dtypes", "float32,bfloat16,int8"], ["--dtypes", "float32", "--precisions", "int8,binary"]))}


def main():
    task, program, model, path, results = sys.argv[1:]
    read, limit, whole = TASKS[task]
    rows = [row for row, _ in zip(read(path), range(limit))]
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "reviews.jsonl")
        with open(source, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        for dimensions in DIMENSIONS:
            for options in whole if dimensions is None else (["--dtypes", "float32", "--dimensions", str(dimensions)],):
                done = subprocess.run([program, "eval", model, "--task", task, "-i", source, "-d", "cpu", "--json", "-q", *options],
                                      check=True, stdout=subprocess.PIPE, text=True)
                for row in json.loads(done.stdout)["rows"]:
                    row.pop("labels", None)
                    figures.append({"dimensions": dimensions, **row})
                    print(" ".join(f"{name}={value:.4f}" if isinstance(value, float) else f"{name}={value}"
                                   for name, value in figures[-1].items()))
    document = {"date": today(), "machine": machine(), "model": os.path.basename(os.path.normpath(model)),
                "pairs" if task == "retrieval" else "texts": len(rows), "figures": figures}
    print(keep(document, results, task))


if __name__ == "__main__":
    main()
