#!/usr/bin/env python3
"""Write tests/data/fit.json: the cross-validation of `gpuserve fit`, computed by scikit-learn.

    make_fit_reference.py [PROGRAM]

The vectors are those that PROGRAM embeds; the folds follow from the rule of docs/heads.md, written here a second time.
LogisticRegressionCV and log_loss of scikit-learn give the scores of each C. Needs numpy and scikit-learn.
"""
import json
import os
import random
import subprocess
import sys
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import accuracy_score, log_loss

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TINY = os.path.join(ROOT, "tests", "data", "models", "st-weighted-layers")
FOLD_SEED = 2
MASK = (1 << 64) - 1


def vectors(program, texts):
    out = subprocess.run([program, "embed", TINY, "-d", "cpu", "--normalize"], input="\n".join(texts), capture_output=True, text=True,
                         check=True).stdout
    return np.array([json.loads(line)["embedding"] for line in out.splitlines()], dtype=np.float64)


def text_hash(text, seed):
    """FNV-1a of the bytes, seeded and mixed."""
    value = 0xcbf29ce484222325 ^ (seed * 0x9e3779b97f4a7c15 & MASK)
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001b3 & MASK
    value = (value ^ value >> 33) * 0xff51afd7ed558ccd & MASK
    return value ^ value >> 29


def folds_of(rows, n, seed):
    """The fold of each row: label by label, the most frequent texts first, then by hash, each text to the fold with
    the fewest rows of the label, then the fewest rows."""
    labels = sorted({label for _, label in rows})
    groups = {}
    for text, label in rows:
        groups.setdefault(text, []).append(labels.index(label))
    order = sorted(groups, key=lambda text: (min(groups[text]), -len(groups[text]), text_hash(text, seed + FOLD_SEED)))
    fold, sizes, of_label, last = {}, [0] * n, [0] * n, None
    for text in order:
        if min(groups[text]) != last:
            of_label, last = [0] * n, min(groups[text])
        fold[text] = min(range(n), key=lambda k: (of_label[k], sizes[k], k))
        of_label[fold[text]] += len(groups[text])
        sizes[fold[text]] += len(groups[text])
    return np.array([fold[text] for text, _ in rows])


def cross_validation(program, rows, n, seed):
    """What `gpuserve fit` must choose for these rows, and the scores of each C."""
    x, y = vectors(program, [text for text, _ in rows]), np.array([label for _, label in rows])
    fold = folds_of(rows, n, seed)
    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(n)]
    grid, labels = np.logspace(-4, 4, 10), np.unique(y)
    how = {"tol": 1e-9, "max_iter": 100000}
    losses, accuracies = np.zeros((n, 10)), np.zeros((n, 10))
    for k, (train, held_out) in enumerate(splits):
        for i, c in enumerate(grid):
            fitted = LogisticRegression(C=c, **how).fit(x[train], y[train])
            losses[k, i] = log_loss(y[held_out], fitted.predict_proba(x[held_out]), labels=labels)
            accuracies[k, i] = accuracy_score(y[held_out], fitted.predict(x[held_out]))
    chosen = LogisticRegressionCV(Cs=10, cv=splits, scoring="neg_log_loss", **how).fit(x, y)
    best = float(np.ravel(chosen.C_)[0])
    assert best == grid[losses.mean(axis=0).argmin()], (best, losses.mean(axis=0))
    return {"rows": rows, "folds": n, "seed": seed, "C": best, "train_accuracy": float(accuracy_score(y, chosen.predict(x))),
            "scores": [{"C": float(c), "log_loss": float(loss), "accuracy": float(accuracy)}
                       for c, loss, accuracy in zip(grid, losses.mean(axis=0), accuracies.mean(axis=0))]}


def validation(program, rows, held_out):
    """The same on texts held out by the user."""
    (x, xv), y, yv = (vectors(program, [text for text, _ in part]) for part in (rows, held_out)), *(
        [label for _, label in part] for part in (rows, held_out))
    scores = []
    for c in np.logspace(-4, 4, 10):
        fitted = LogisticRegression(C=c, tol=1e-9, max_iter=100000).fit(x, y)
        scores.append({"C": float(c), "log_loss": float(log_loss(yv, fitted.predict_proba(xv), labels=fitted.classes_)),
                       "accuracy": float(accuracy_score(yv, fitted.predict(xv)))})
    return {"rows": rows, "held_out": held_out, "C": min(scores, key=lambda score: score["log_loss"])["C"], "scores": scores}


def labelled(rng, counts, noise):
    """Texts of words, most of them of their label; a part of them twice, some with another label the second time."""
    rows = []
    for k, (label, n) in enumerate(sorted(counts.items())):
        for _ in range(n):
            own = [rng.randint(1 + 6 * k, 6 + 6 * k) for _ in range(3)]
            rows.append([" ".join("w%d" % w for w in own + [rng.randint(1, 20) for _ in range(noise)]), label])
    names = [label for label, n in counts.items() if n > 4]
    rows += [list(row) for row in rng.sample([row for row in rows if row[1] in names], 8)]
    rows += [[row[0], rng.choice(names)] for row in rng.sample([row for row in rows if row[1] in names], 4)]
    rng.shuffle(rows)
    return rows


def main():
    warnings.simplefilter("ignore")
    program = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "cli", "gpuserve")
    rng = random.Random(20261126)
    cases = {"three": cross_validation(program, labelled(rng, {"east": 22, "north": 14, "west": 19}, 4), 5, 0),
             "two": cross_validation(program, labelled(rng, {"no": 30, "yes": 12}, 5), 4, 7),
             "rare": cross_validation(program, labelled(rng, {"east": 16, "north": 15, "rare": 3}, 4), 3, 0),
             "validation": validation(program, labelled(rng, {"east": 20, "west": 20}, 5), labelled(rng, {"east": 20, "west": 20}, 5))}
    with open(os.path.join(ROOT, "tests", "data", "fit.json"), "w", encoding="utf-8") as file:
        json.dump(cases, file)
        file.write("\n")
    for name, case in cases.items():
        print(name, case["C"], [round(score["log_loss"], 4) for score in case["scores"]])


if __name__ == "__main__":
    main()
