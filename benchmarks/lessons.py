#!/usr/bin/env python3
"""The commands of docs/lessons.md on this machine, and their figures next to the published ones.

    lessons.py --program GPUSERVE --examples FOLDER --model MODEL --results FOLDER [--reviews CSV] [--quick]

Each command of the page runs once, with --json where the program has it, or is recorded with the reason
why it does not. PLAN has what is special about a command; any other one runs as it stands. The figures are
those that the commands print: nothing is measured here but the time of a command and what others took of
the processors meanwhile. Writes a dated file; the exit status is 1 if a command failed.
"""
import argparse
import csv
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple, Optional, Tuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks" / "common"))

from matmul import parse as parse_ladder  # noqa: E402
from measure import Watch, keep, machine, today  # noqa: E402

PAGE = ROOT / "docs" / "lessons.md"
WITH_JSON = ("bench", "devices", "doctor", "inspect", "prune")
LIMIT_S = 1800
REVIEWS, QUICK_REVIEWS = 2500, 100
ANY_STATUS = ()


class Plan(NamedTuple):
    """What a command of the page needs, and what runs in its place."""

    quick: Optional[str] = None     # with --quick
    needs: str = ""                 # "cuda", "reviews"
    gigabytes: float = 0            # free memory of the host, without --quick
    never: str = ""                 # why it is not run
    statuses: Tuple[int, ...] = (0,)


PLAN = {
    "build/examples/two_models_one_device": Plan(
        "build/examples/two_models_one_device random:bert-tiny random:bert-tiny,seed=2", gigabytes=16),
    "build/examples/two_models_one_device 1:64": Plan(
        "build/examples/two_models_one_device random:bert-tiny,seed=3 random:bert-tiny,seed=4"),
    "build/examples/two_models_one_device 1:1 cuda": Plan(needs="cuda"),
    "gpuserve bench MODEL --device cuda:0": Plan("gpuserve bench MODEL --device cuda:0 --seconds 0.05", needs="cuda"),
    "gpuserve bench MODEL --device cuda:0 --stream-weights --device-budget 4G": Plan(
        "gpuserve bench MODEL --device cuda:0 --stream-weights --device-budget 4G --seconds 0.05", needs="cuda"),
    "gpuserve bench --random layers=24,hidden=2048 --device cuda:0 --dtype fp16 --stream-weights --device-budget 2G": Plan(
        "gpuserve bench --random bert-tiny --device cuda:0 --dtype fp16 --stream-weights --seconds 0.05", needs="cuda", gigabytes=6),
    "gpuserve bench MODEL --device 'cuda:*' --pipeline": Plan(
        never="one GPU: tests/cuda_backend/test_pipeline_cuda.py runs it on two emulated ones"),
    "gpuserve bench MODEL --share 8 --plot share.svg": Plan(
        "gpuserve bench MODEL --share 2 --plot share.svg --seconds 0.05"),
    "gpuserve bench --random bert-base --share 8 --rate 5": Plan(
        "gpuserve bench --random bert-tiny --share 2 --rate 200 --seconds 0.05", gigabytes=6),
    "gpuserve doctor": Plan(statuses=ANY_STATUS),
    "gpuserve doctor --root /proc/1234/root": Plan(never="1234 stands for a process of a container"),
    "gpuserve serve -m MODEL --tokens-per-second 20000 --memory-budget 4G": Plan(
        never="a server without clients: tests/runtime/scheduler/test_batcher.c sends beyond the quota"),
    "gpuserve devices --select 'cuda:*'": Plan(needs="cuda"),
    "gpuserve bench MODEL --device 'cuda:*'": Plan("gpuserve bench MODEL --device 'cuda:*' --seconds 0.05", needs="cuda"),
    "gpuserve doctor --root broken": Plan(statuses=(18,)),
    "build/examples/matmul_ladder": Plan("build/examples/matmul_ladder auto 33"),
    "build/examples/matmul_ladder cpu 256 1024": Plan("build/examples/matmul_ladder cpu 25 40"),
    "build/examples/matmul_ladder cuda:0 512 4096": Plan("build/examples/matmul_ladder cuda:0 33", needs="cuda"),
    "gpuserve bench sentence-transformers/all-MiniLM-L6-v2 --dtypes": Plan("gpuserve bench MODEL --dtypes --seconds 0.05"),
    "gpuserve bench MODEL --batches": Plan("gpuserve bench --random layers=1,hidden=32 --batches --seconds 0.01"),
    "gpuserve prune all-MiniLM-L6-v2 minilm-30 --percent 30": Plan(
        "gpuserve prune MODEL minilm-30 --percent 30 --seconds 0.05"),
    "gpuserve prune all-MiniLM-L6-v2 minilm-24 --pattern 2:4": Plan(
        "gpuserve prune MODEL minilm-24 --pattern 2:4 --seconds 0.05"),
    "gpuserve bench --lstm -m share/models/lstm-sentiment --input reviews.csv --where source=imdb "
    "--label-name 0=negative --label-name 1=positive": Plan(needs="reviews"),
    "gpuserve bench --transfer": Plan("gpuserve bench --transfer --max-bytes 64KiB"),
    "gpuserve bench --transfer --device cuda:0 --max-bytes 64MiB": Plan(
        "gpuserve bench --transfer --device cuda:0 --max-bytes 64KiB", needs="cuda"),
}


# ---------------------------------------------------------------------------------------- the page

def sections(text):
    """[(title, body)]"""
    parts = re.split(r"(?m)^## (.+)$", text)
    return list(zip(parts[1::2], parts[2::2]))


def commands(body):
    lines = re.findall(r"(?m)^    ((?:gpuserve |build/|mkdir |echo )\S.*)$", re.sub(r" *\\\n *", " ", body))
    return [re.sub(r"\s+# .*", "", line) for line in lines]


def published(body):
    """{"tables", "sentences"}: the columns or rows of the page's tables, and its sentences, that say "published"."""
    tables, sentences = [], []
    for block in re.split(r"\n\n+", body):
        if block.startswith("|"):
            rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
            header, rows = rows[0], rows[2:]
            columns = [i for i, cell in enumerate(header) if i == 0 or "published" in cell]
            if len(columns) > 1:
                tables.append([[row[i] for i in columns] for row in (header, *rows)])
            elif any(row[0] == "published" for row in rows):
                tables.append([header, *(row for row in rows if row[0] == "published")])
        elif not block.startswith("    "):
            sentences += [one for one in re.split(r"(?<=\.)\s+", " ".join(block.split())) if "ublished" in one]
    return {"tables": tables, "sentences": sentences}


# ------------------------------------------------------------------------------------ the commands

class Runner:
    """Runs commands of the page in a folder of its own."""

    def __init__(self, args, folder):
        self.quick, self.folder = args.quick, folder
        self.words = {"gpuserve": args.program, "MODEL": args.model, "all-MiniLM-L6-v2": args.model,
                      "sentence-transformers/all-MiniLM-L6-v2": args.model,
                      "share/models/lstm-sentiment": str(ROOT / "share" / "models" / "lstm-sentiment")}
        self.examples, self.model = args.examples, args.model
        self.reviews = args.reviews and few_reviews(args.reviews, folder, QUICK_REVIEWS if args.quick else REVIEWS)
        found = json.loads(subprocess.run([args.program, "devices", "--json"], check=True, stdout=subprocess.PIPE,
                                          text=True).stdout)
        self.devices = {device["selector"]: device for device in found["devices"]}

    def obstacle(self, plan):
        """Why a command is not run here; "" if it is."""
        free = self.devices["cpu"]["memory_free_bytes"] / 1e9
        if plan.never:
            return plan.never
        if plan.needs == "cuda" and not any(name.startswith("cuda") for name in self.devices):
            return "this machine has no CUDA device"
        if plan.needs == "reviews" and not self.reviews:
            return "no file of labelled reviews was given"
        if plan.gigabytes > free and not self.quick:
            return f"it needs {plan.gigabytes:g} GB of memory, {free:.1f} GB are free"
        return ""

    def without_paths(self, text):
        """What a command printed, without the folders of this machine."""
        for path, name in ((self.model, Path(self.model).name), (self.folder + "/", ""), (f"{ROOT}/", "")):
            text = text.replace(path, name)
        return re.sub(r"(?<!\w)%s\b" % re.escape(str(Path.home())), "~", text)

    def run(self, command):
        """The entry of one command of the page."""
        plan = PLAN.get(command, Plan())
        obstacle = self.obstacle(plan)
        if obstacle:
            return {"command": command, "not_run": obstacle}
        small = plan.quick if self.quick and plan.quick else command
        if re.match(r"gpuserve (%s) " % "|".join(WITH_JSON), small + " "):
            small += " --json"
        line = re.sub(r"(?<!\S)build/examples/", lambda _: shlex.quote(self.examples) + "/", small)
        for word, path in self.words.items():
            line = re.sub(r"(?<!\S)%s(?!\S)" % re.escape(word), lambda _, path=path: shlex.quote(path), line)
        watch = Watch()
        try:
            done = subprocess.run(["sh", "-c", line], cwd=self.folder, timeout=LIMIT_S, text=True, check=False,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except subprocess.TimeoutExpired:
            return {"command": command, "ran": small, "failed": f"no end within {LIMIT_S} s"}
        entry = {"command": command, "ran": small, **watch.stop()}
        if plan.statuses != ANY_STATUS and done.returncode not in plan.statuses:
            return {**entry, "failed": f"status {done.returncode}: {done.stderr.strip()[-500:]}"}
        return {**entry, "figures": figures(line, self.without_paths(done.stdout))}


def few_reviews(path, folder, n):
    """At most n rows, evenly from the whole file, as reviews.csv of the folder."""
    with open(path, encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    step = max(1, len(rows) // n)
    with open(Path(folder) / "reviews.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows[::step][:n]])
    return True


def figures(line, text):
    """What a command printed: its JSON, the table of the ladder, or its lines."""
    if "matmul_ladder" in line:
        device, sides = parse_ladder(text)
        return {"device": device, "rows": [{"side": int(side), "step": step, **row} for side, steps in sides.items()
                                           for step, row in steps.items()]}
    try:
        return json.loads(text)
    except ValueError:
        return {"lines": text.splitlines()}


# ---------------------------------------------------------------------------------------- printing

def cell(value):
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)


def print_table(rows, indent):
    """rows: lists of cells, the header first."""
    texts = [[cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts)]
    for row in texts:
        print((indent + "  ".join(text.ljust(width) for text, width in zip(row, widths))).rstrip())


def print_figures(found, indent="    "):
    for key, value in found.items():
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            columns = list(dict.fromkeys(name for row in value for name in row))
            print(f"{indent}{key}:")
            print_table([columns, *([row.get(name) for name in columns] for row in value)], indent + "  ")
        elif isinstance(value, dict):
            print(f"{indent}{key}:")
            print_figures(value, indent + "  ")
        elif isinstance(value, list) and key == "lines":
            print("\n".join(indent + line for line in value))
        else:
            print(f"{indent}{key}: {', '.join(map(cell, value)) if isinstance(value, list) else cell(value)}")


def print_lesson(lesson):
    print("\n" + lesson["title"])
    for sentence in lesson["published"]["sentences"]:
        print("  " + sentence)
    for table in lesson["published"]["tables"]:
        print_table(table, "  published  ")
    for entry in lesson["commands"]:
        print("  $ " + entry.get("ran", entry["command"]))
        if "figures" in entry:
            print_figures(entry["figures"] if isinstance(entry["figures"], dict) else {"found": entry["figures"]})
        else:
            print("    " + ("not run: " + entry["not_run"] if "not_run" in entry else "FAILED: " + entry["failed"]))


def main():
    parser = argparse.ArgumentParser(description="Run the commands of docs/lessons.md.")
    parser.add_argument("--program", type=os.path.abspath, required=True, help="the program gpuserve")
    parser.add_argument("--examples", type=os.path.abspath, required=True, help="the folder of the built examples")
    parser.add_argument("--model", required=True, help="a folder, or random:SHAPE")
    parser.add_argument("--reviews", help="labelled film reviews: text,label,source")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, whose figures mean nothing")
    args = parser.parse_args()
    if not args.model.startswith("random:"):
        args.model = os.path.abspath(args.model)
    found = [(title, body) for title, body in sections(PAGE.read_text("utf-8")) if commands(body)]
    stale = set(PLAN) - {command for _, body in found for command in commands(body)}
    if stale:
        sys.exit(f"{PAGE.name} has no such command: {', '.join(sorted(stale))}")
    document = {"date": today(), "quick": args.quick, "machine": machine(), "model": Path(args.model).name, "lessons": []}
    with tempfile.TemporaryDirectory(prefix="gpuserve-lessons-") as folder:
        runner = Runner(args, folder)
        for title, body in found:
            lesson = {"title": title, "published": published(body), "commands": [runner.run(one) for one in commands(body)]}
            document["lessons"].append(lesson)
            print_lesson(lesson)
    print("\n" + str(keep(document, args.results, "lessons-quick" if args.quick else "lessons")))
    sys.exit(any("failed" in entry for lesson in document["lessons"] for entry in lesson["commands"]))


if __name__ == "__main__":
    main()
