#!/usr/bin/env python3
"""Write tests/data/eval.json: scores that scipy and scikit-learn compute from similarities of the program. Needs scikit-learn."""
import json
import os
import random
import subprocess
import sys

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, average_precision_score, f1_score

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def best(metric, labels, similarity):
    """Over the middles of adjacent similarities; the highest threshold of equal scores."""
    found = np.unique(similarity)[::-1]
    middles = (found[:-1] + found[1:]) / 2
    scores = [metric(labels, similarity > t) for t in middles]
    return float(max(scores)), float(middles[int(np.argmax(scores))])


def main():
    """Arguments: the program."""
    rng = random.Random(7)
    pairs = [[" ".join("w%d" % rng.randint(1, 20) for _ in range(rng.randint(1, 6))) for _ in range(2)] for _ in range(60)]
    pairs += pairs[:6]  # equal similarities
    lines = "".join(json.dumps({"text": a, "pair": b}) + "\n" for a, b in pairs)
    model = os.path.join(ROOT, "tests", "data", "models", "st-weighted-layers")
    out = subprocess.run([sys.argv[1], "similarity", model, "--pairs", "--input-format", "jsonl", "-d", "cpu"], input=lines,
                         capture_output=True, text=True, check=True).stdout
    similarity = np.array([json.loads(line)["similarity"] for line in out.splitlines()])
    score = [round(float(s) * 5 + rng.gauss(0, 0.5)) for s in similarity]
    label = [int(s + rng.gauss(0, 0.1) > np.median(similarity)) for s in similarity]
    accuracy, f1 = (best(metric, label, similarity) for metric in (accuracy_score, f1_score))
    made = {"texts": pairs, "similarity": similarity.tolist(), "score": score, "label": label,
            "sts": {"spearman": float(spearmanr(similarity, score)[0]), "pearson": float(pearsonr(similarity, score)[0])},
            "pairs": {"average_precision": float(average_precision_score(label, similarity)), "accuracy": accuracy[0],
                       "accuracy_threshold": accuracy[1], "f1": f1[0], "f1_threshold": f1[1]}}
    with open(os.path.join(ROOT, "tests", "data", "eval.json"), "w", encoding="utf-8") as file:
        json.dump(made, file)
        file.write("\n")


if __name__ == "__main__":
    main()
