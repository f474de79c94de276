#!/usr/bin/env python3
"""int8 against float32 on texts that the measurement at loading does not see: int8.py MODEL... --results FOLDER

Each model is loaded in int8, on each instruction set of this processor that computes int8 in its own way. It
must be refused, or hold the bound on each of the 608 texts of tests/python/test_int8.py. Writes
DATE-int8.json and the table of docs/accuracy.md between its markers; with --sets the other rows are those of the newest
file there. GPUSERVE_LIBRARY names the library.
"""
import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/cli"), str(ROOT / "tests/python"), str(HERE / "common")]

from measure import machine                        # noqa: E402
from random_families import BOUND, other_texts     # noqa: E402

from gpuserve import Context, Model, devices, errors  # noqa: E402

# With bfloat16 in attention and kept products; with products of four bytes; with sums in 16 bits.
SETS = ("avx512_amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2_vnni", "avx2")
BEGIN, END = "<!-- int8: begin -->", "<!-- int8: end -->"
PART = "--one"


def described(text, value):
    words = text.split(" ")
    repeats = len(words) if len(set(words)) == 1 else 1
    return {"text": text[:60] if repeats == 1 else words[0], "repeats": repeats, "characters": len(text),
            "cosine": round(float(value), 6)}


def encode(folder, dtype):
    with Context() as context, Model(folder, device="cpu", dtype=dtype, context=context) as model:
        return model.encode(other_texts()), model.info()


def measure(folder, reference):
    """The row of a model on the instruction set that the environment allows."""
    texts = other_texts()
    row = {"isa": devices()[0].isa, "texts": len(texts)}
    try:
        got, info = encode(folder, "int8")
    except errors.UnsupportedError as error:
        return {**row, "refused": str(error).split("\n", maxsplit=1)[0]}
    want, facts = np.load(reference), info["int8"]
    values = (got * want).sum(1, dtype=np.float64) / np.sqrt((got * got).sum(1, dtype=np.float64) *
                                                             (want * want).sum(1, dtype=np.float64))
    order = values.argsort()
    return {**row, "probe_cosine_min": facts["least_cosine"], "products": facts["products"], "kept": facts["kept"],
            "kept_dtype": facts["kept_dtype"], "cosine_mean": round(float(values.mean()), 6),
            "cosine_min": round(float(values.min()), 6), "lowest": [described(texts[i], values[i]) for i in order[:5]]}


def apart(isa, *words):
    """What this script prints in a process of its own: the library reads GPUSERVE_MAX_ISA once."""
    done = subprocess.run([sys.executable, __file__, PART, *words], check=True, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "GPUSERVE_MAX_ISA": isa, "GPUSERVE_WEIGHTS_CACHE": "off"})
    return json.loads(done.stdout)


def measure_sets(folder, sets):
    """A row for each instruction set of this processor. One float32 reference: sets differ by 1e-6 there."""
    rows = []
    with tempfile.TemporaryDirectory() as temp:
        reference = os.path.join(temp, "reference.npy")
        np.save(reference, encode(folder, "float32")[0])
        for isa in sets:
            row = apart(isa, folder, reference)
            if row["isa"] == isa:  # else the processor does not have it
                rows.append(row)
                print(Path(folder).name, json.dumps(row), flush=True)
    return rows


def newest(folder):
    """The models of the newest file of results; each row says where it was measured."""
    files = sorted(folder.glob("*-int8.json"))
    if not files:
        return {}
    file = json.loads(files[-1].read_text(encoding="utf-8"))
    for rows in file["models"].values():
        for row in rows:
            row.setdefault("measured", measured(file))
    return file["models"]


def measured(result):
    return f"{result['date']}, {result['processor']}"


def updated(old, new):
    """The rows of a model, in the order of the sets."""
    rows = {row["isa"]: row for row in old + new}
    return [rows[isa] for isa in SETS if isa in rows]


def is_broken(row):
    return "refused" not in row and row["cosine_min"] < BOUND


def table(models):
    lines = ["| model | instructions | products kept | cosine mean | cosine min | its text | measured |",
             "|---|---|---|---|---|---|---|"]
    for name, rows in models.items():
        for row in rows:
            start = f"| {name} | {row['isa']} | "
            if "refused" in row:
                lines.append(f"{start}refused | | | | {row['measured']} |")
                continue
            worst = row["lowest"][0]
            text = f"`{worst['text']}` {worst['repeats']} times" if worst["repeats"] > 1 else f"one of {worst['characters']} characters"
            lines.append(f"{start}{len(row['kept'])} of {row['products']}, {row['kept_dtype']} | {row['cosine_mean']:.5f} | "
                         f"{row['cosine_min']:.5f} | {text} | {row['measured']} |")
    return "\n".join(lines)


def write_document(result, name):
    path = ROOT / "docs" / "accuracy.md"
    head, rest = path.read_text(encoding="utf-8").split(BEGIN)
    body = f"From `benchmarks/results/{name}`.\n\n{table(result['models'])}\n"
    path.write_text(f"{head}{BEGIN}\n{body}{END}{rest.split(END)[1]}", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description="Compare int8 with float32.")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--sets", default="", help="instruction sets, with commas between them")
    args = parser.parse_args()
    result = {"date": datetime.date.today().isoformat(), **machine(), "bound": BOUND,
              "models": newest(args.results) if args.sets and args.results else {}}
    broken = 0
    for folder in args.models:
        name = Path(folder).name
        rows = [{**row, "measured": measured(result)} for row in
                measure_sets(folder, args.sets.split(",") if args.sets else SETS)]
        result["models"][name] = updated(result["models"].get(name, []), rows)
        broken += sum(map(is_broken, rows))
    if args.results:
        name = f"{result['date']}-int8.json"
        (args.results / name).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        write_document(result, name)
    print(f"{broken} below {BOUND}")
    return 1 if broken else 0


if __name__ == "__main__":
    if sys.argv[1] == PART:
        print(json.dumps(measure(*sys.argv[2:])))
    else:
        sys.exit(main())
