#!/usr/bin/env python3
"""What each number format costs in accuracy: accuracy.py PROGRAM MODEL REVIEWS_CSV --results FOLDER

Embeds two sets of texts in float32 and in every other format of this machine, and compares: the
cosine of each vector with its float32 one, and the labels that the shipped heads and the
157-intent head give. Texts: W2 of the speed benchmark (ordinary English), and the reference texts
of the tests (many of them deliberately odd). float32 itself is compared with the float64 vectors
of an independent implementation.

Writes DATE-accuracy.json, and the table of docs/accuracy.md between its markers.
"""
import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))
import workloads                                                                # noqa: E402

FORMATS = ("bf16", "int8")
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def write_texts(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def embed(program, model, texts_file, dtype):
    """The vectors, or None where this machine has not the format."""
    out = texts_file.with_suffix(f".{dtype}.npy")
    done = subprocess.run([program, "embed", "--model", model, "--input", texts_file, "--output",
                           out, "--dtype", dtype, "--quiet"], stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        if dtype == "fp32":
            raise SystemExit(done.stderr)
        print(f"{dtype}: not measured: {done.stderr.strip()}", file=sys.stderr)
        return None
    return np.load(out)


def labels(program, model, head, texts_file, dtype):
    done = subprocess.run([program, "classify", "--model", model, "--head", head, "--input",
                           texts_file, "--dtype", dtype, "--quiet"], check=True,
                          stdout=subprocess.PIPE, text=True)
    return [json.loads(line)["label"] for line in done.stdout.splitlines()]


def cosines(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def compare_format(program, model, heads, sets, reference, dtype):
    row = {}
    for name, file in sets.items():
        vectors = embed(program, model, file, dtype)
        if vectors is None:
            return None
        cos = cosines(vectors, reference[name])
        row[name] = {"cosine_mean": float(cos.mean()), "cosine_min": float(cos.min()),
                     "max_abs_diff": float(np.abs(vectors - reference[name]).max())}
        for head in heads:
            want = labels(program, model, head, file, "fp32")
            got = labels(program, model, head, file, dtype)
            same = sum(a == b for a, b in zip(want, got)) / len(want)
            row[name][f"same_label_{head_name(head)}"] = same
    return row


def head_name(head):
    path = Path(head)
    return path.parent.name if path.stem == "head" else path.stem


def against_float64(program, model, texts, folder):
    oracle = load_file(ROOT / "tests/data/oracle/vectors/all-MiniLM-L6-v2.safetensors")
    file = write_texts(folder / "oracle.jsonl", [texts[row] for row in oracle["row"]])
    want = oracle["mean_f64"] / np.linalg.norm(oracle["mean_f64"], axis=1, keepdims=True)
    got = embed(program, model, file, "fp32")
    return {"cosine_min": float(cosines(got, want).min()),
            "max_abs_diff": float(np.abs(got - want).max()), "texts": len(want)}


def table(result):
    lines = ["| format | texts | cosine mean | cosine min | same label |", "|---|---|---|---|---|"]
    exact = result["float32_against_float64"]
    lines.append(f"| float32, against float64 | {exact['texts']} reference texts | "
                 f"| {exact['cosine_min']:.7f} | |")
    for dtype, row in result["formats"].items():
        for name, cell in row.items():
            same = ", ".join(f"{key.removeprefix('same_label_')} {value:.2%}"
                             for key, value in cell.items() if key.startswith("same_label_"))
            lines.append(f"| {dtype} | {result['texts'][name]} {name} | {cell['cosine_mean']:.5f} "
                         f"| {cell['cosine_min']:.5f} | {same} |")
    return "\n".join(lines)


def write_document(result, results_name):
    path = ROOT / "docs" / "accuracy.md"
    text = path.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    body = f"{BEGIN}\nFrom `benchmarks/results/{results_name}`, all-MiniLM-L6-v2.\n\n{table(result)}\n"
    path.write_text(f"{head}{body}{END}{tail}", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description="Measure what number formats cost.")
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("reviews")
    parser.add_argument("--head", action="append", default=[])
    parser.add_argument("--results", type=Path, required=True)
    args = parser.parse_args()

    tokenizer = Tokenizer.from_file(str(Path(args.model) / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    with open(ROOT / "tests/data/oracle/texts.jsonl", encoding="utf-8") as file:
        odd = [json.loads(line)["text"] for line in file]
    w2 = workloads.make_workloads(args.reviews, tokenizer)["w2"]

    with tempfile.TemporaryDirectory() as temp:
        folder = Path(temp)
        sets = {"W2 texts": write_texts(folder / "w2.jsonl", w2),
                "reference texts": write_texts(folder / "odd.jsonl", odd)}
        reference = {name: embed(args.program, args.model, file, "fp32")
                     for name, file in sets.items()}
        result = {"date": datetime.date.today().isoformat(),
                  "texts": {"W2 texts": len(w2), "reference texts": len(odd)},
                  "float32_against_float64": against_float64(args.program, args.model, odd, folder),
                  "formats": {}}
        for dtype in FORMATS:
            row = compare_format(args.program, args.model, args.head, sets, reference, dtype)
            if row:
                result["formats"][dtype] = row

    args.results.mkdir(parents=True, exist_ok=True)
    name = f"{result['date']}-accuracy.json"
    (args.results / name).write_text(json.dumps(result, indent=1) + "\n")
    write_document(result, name)
    print(table(result))


if __name__ == "__main__":
    main()
