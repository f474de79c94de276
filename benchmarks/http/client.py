"""Requests of bench.py and peers.py: texts of equal work, wrk, and single requests."""
import json
import os
import resource
import subprocess
import sys
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "common"))

from measure import drain  # noqa: E402
from verdict import same_input  # noqa: E402

N_CHECKED = 32      # texts whose vectors and tokens are compared
# Each is one token of BERT's vocabulary.
WORDS = "time year people way day man thing woman".split()


def make_texts(more_words=0):
    """512 texts, no two of them equal, each of 13 tokens and as many more as wanted."""
    more = "".join(f" {WORDS[i % len(WORDS)]}" for i in range(more_words))
    return [f"the quick fox named {a} {b} {c} jumps over a dog{more}"
            for a in WORDS for b in WORDS for c in WORDS]


def write_texts(folder, texts, name):
    path = Path(folder) / name
    path.write_text("".join(text + "\n" for text in texts), "utf-8")
    return path


def tokens_each(program, model, path):
    """How many tokens each text of a file has; raises where they differ."""
    done = subprocess.run([program, "tokenize", "-m", model, "--input", str(path)], check=True,
                          stdout=subprocess.PIPE, text=True)
    counts = [len(json.loads(line)["ids"]) for line in done.stdout.splitlines()]
    same_input({"the text with most tokens": max(counts), "that with fewest": min(counts)})
    return counts[0]


def ask(url, texts, timeout=60, **more):
    """(vectors, tokens counted or None) of one request."""
    request = urllib.request.Request(url + "/v1/embeddings", json.dumps({"input": texts, **more}).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as reply:
        found = json.load(reply)
    rows = found["data"] if isinstance(found, dict) else []
    if all("index" in row for row in rows):
        rows = sorted(rows, key=lambda row: row["index"])
    return [row["embedding"] for row in rows], found.get("usage", {}).get("prompt_tokens")


class Unfinished(Exception):
    """A server still computes long after its client has gone."""


def wrk(url, pid, texts, connections, seconds, texts_each=1, base64=False):
    """One measurement with `connections`, of requests with `texts_each` texts; returns when the server has
    nothing left to compute.

    At its end wrk gives up the requests in flight, which would run into the next measurement.
    """
    how = {"TEXTS": str(texts), "LIST": str(texts_each), **({"BASE64": "1"} if base64 else {})}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "60",
                           "-s", str(HERE / "post.lua"), url], check=True, text=True,
                          stdout=subprocess.PIPE, env={**os.environ, **how})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not drain(pid):
        raise Unfinished(f"{url} still computes 20 s after its client has gone")
    row = json.loads(done.stdout.strip().splitlines()[-1])
    if row["errors"]:
        raise RuntimeError(f"{url}: {row}")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"requests": row["requests"], "requests_per_s": row["requests"] / row["seconds"],
            "texts_per_s": texts_each * row["requests"] / row["seconds"], "p50_us": row["p50_us"], "p99_us": row["p99_us"],
            "client_cores": spent / row["seconds"]}
