#!/usr/bin/env python3
"""Compare `gpuserve fit` with scikit-learn's LogisticRegression on the same vectors.

    compare_fit.py PROGRAM MODEL TRAIN.csv TEST.csv [C]

The vectors are those that `gpuserve embed` writes for both files (columns text and label). Prints a
JSON object; exit status 1 when the test accuracies are more than 0.3 points apart, or when the
weights that both end at with a tight tolerance, the minimum of the same function, are not the same
to 1 %. Needs numpy and scikit-learn.
"""
import csv
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy
from sklearn.linear_model import LogisticRegression


def run(*arguments):
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


def vectors(program, model, path, out):
    run(program, "embed", "--model", model, "--input", path, "--normalize", "--output", out)
    with open(path, newline="", encoding="utf-8") as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    return numpy.load(out), numpy.array(labels)


def head_of(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = numpy.frombuffer(file.read(), "<f4")
    rows, dim = header["weight"]["shape"]
    return data[:rows * dim].reshape(rows, dim)


def main():
    program, model, train, test = sys.argv[1:5]
    c = float(sys.argv[5]) if len(sys.argv) > 5 else 10.0
    csv.field_size_limit(1 << 30)
    with tempfile.TemporaryDirectory() as folder:
        x, y = vectors(program, model, train, os.path.join(folder, "train.npy"))
        xt, yt = vectors(program, model, test, os.path.join(folder, "test.npy"))
        head = os.path.join(folder, "head.safetensors")
        result = {"C": c, "train": len(y), "test": len(yt)}
        for name, tolerance in (("gpuserve", "1e-4"), ("gpuserve_tight", "1e-7")):
            ours = json.loads(run(program, "fit", "--model", model, "--train", train, "--test",
                                  test, "--C", str(c), "--tolerance", tolerance, "--output", head,
                                  "--json", "--quiet"))
            result[name] = ours["test_accuracy"]
        weight = head_of(head)
    for name, tolerance in (("sklearn", 1e-4), ("sklearn_tight", 1e-9)):
        theirs = LogisticRegression(C=c, max_iter=20000 if tolerance < 1e-4 else 2000,
                                    tol=tolerance).fit(x, y)
        result[name] = float((theirs.predict(xt) == yt).mean())
    # Two labels are one row to scikit-learn: the difference of our two.
    w = weight[1:] - weight[:1] if len(weight) == 2 else weight
    wanted = theirs.coef_
    result["weights_apart"] = float(numpy.abs(w - wanted).max() / numpy.abs(wanted).max())
    print(json.dumps(result, indent=2))
    good = abs(result["gpuserve"] - result["sklearn"]) <= 0.003 and result["weights_apart"] <= 0.01
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
