#!/usr/bin/env python3
"""What float8 products would cost in accuracy, next to int8: float8.py MODEL... --results FOLDER

gpuserve has no float8 products; this says why. torch runs each model in float32 and with every product of its encoder
layers on rounded operands: weights with a scale for each output, activations with a scale for each token, as the tensor
cores of Hopper and newer devices take them. float8 is e4m3 (4 bits of exponent, 3 of mantissa, at most 448); int8 has
a zero point for each token. Neither has what gpuserve adds to int8 (SmoothQuant, chosen rounding, kept products).
Writes DATE-float8.json: the cosines to float32 on the 608 texts of tests/python/test_int8.py.
"""
import argparse
import datetime
import json
import sys
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/cli"), str(ROOT / "tests/python"), str(HERE / "common")]

from measure import machine                        # noqa: E402
from random_families import BOUND, other_texts     # noqa: E402

LARGEST = torch.finfo(torch.float8_e4m3fn).max
TINY = 1e-30


def float8(x):
    """Rows of x, rounded to e4m3 with a scale for each row."""
    scale = x.abs().amax(-1, keepdim=True).clamp_min(TINY) / LARGEST
    return (x / scale).to(torch.float8_e4m3fn).to(torch.float32) * scale


def int8_weights(x):
    scale = x.abs().amax(-1, keepdim=True).clamp_min(TINY) / 127
    return (x / scale).round() * scale


def int8_rows(x):
    least, most = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    step = (most - least).clamp_min(TINY) / 255
    return ((x - least) / step).round() * step + least


FORMATS = {"float8 e4m3": (float8, float8), "int8": (int8_weights, int8_rows)}

# The second product of the feed-forward, whose input has the largest outliers.
LAST_PRODUCTS = tuple(f".{i}.output.dense" for i in range(99))


def products(model, kept):
    """The products of the encoder's layers by name, without those whose name ends in one of `kept`."""
    return {name: module for name, module in model[0].auto_model.named_modules()
            if isinstance(module, torch.nn.Linear) and ".layer." in name and not name.endswith(kept)}


def rounded(model, texts, format_name, kept):
    """The vectors with rounded operands; the model is as it was afterwards."""
    of_weights, of_rows = FORMATS[format_name]
    changed = products(model, kept)
    weights = {name: module.weight.data for name, module in changed.items()}
    hooks = [module.register_forward_pre_hook(lambda _, inputs: (of_rows(inputs[0]),)) for module in changed.values()]
    for name, module in changed.items():
        module.weight.data = of_weights(weights[name])
    vectors = encode(model, texts)
    for hook in hooks:
        hook.remove()
    for name, module in changed.items():
        module.weight.data = weights[name]
    return vectors, len(changed)


def encode(model, texts):
    return model.encode(texts, batch_size=16, convert_to_tensor=True, normalize_embeddings=True).to(torch.float64)


def measure(folder, texts):
    model = SentenceTransformer(folder, device="cpu")
    exact = encode(model, texts)
    rows = []
    for name in FORMATS:
        for kept in ((), LAST_PRODUCTS):
            vectors, n = rounded(model, texts, name, kept)
            values = (vectors * exact).sum(1)
            rows.append({"format": name, "products": n, "of": len(products(model, ())),
                         "cosine_mean": round(float(values.mean()), 6), "cosine_min": round(float(values.min()), 6),
                         "below_bound": int((values < BOUND).sum())})
            print(Path(folder).name, json.dumps(rows[-1]), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description="Compare float8 and int8 products with float32.")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--results", type=Path)
    args = parser.parse_args()
    texts = other_texts()
    result = {"date": datetime.date.today().isoformat(), **machine(), "bound": BOUND, "texts": len(texts),
              "models": {Path(one).name: measure(one, texts) for one in args.models}}
    if args.results:
        (args.results / f"{result['date']}-float8.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
