#!/usr/bin/env python3
"""The server on loopback: bench.py GPUSERVE WRITING MODEL --results FOLDER [--seconds S] [--rounds N]

Interleaved rounds, medians: the library's own throughput on short texts (gpuserve bench), and wrk with
1, 8 and 64 connections against `gpuserve serve`, on the same cores. What the server costs beside the
model is the median difference of pairs, a second of the library and a second of the server each, one
after the other: the machine's speed varies more from minute to minute than the server costs. Then the
speed of writing JSON and base64, the time from start to ready, and memory.
"""
import argparse
import datetime
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from report import processor  # noqa: E402

CONNECTIONS = (1, 8, 64)
PAIRS_A_ROUND = 4
TEXT = "the quick fox number %d jumps over a dog\n"  # as post.lua's
GOALS = {"share_of_library_at_64": 0.85, "overhead_p50_us": 150, "json_mb_per_s": 250,
         "base64_mb_per_s": 2000, "ready_ms": 300}


class Server:
    def __init__(self, program, model):
        started = time.monotonic()
        self.process = subprocess.Popen([program, "serve", model, "--port", "0"],
                                        stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        host, port = self.url.split("//")[1].split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200"), "not ready"
        self.ready_ms = (time.monotonic() - started) * 1e3

    def memory_kb(self, name):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1])
        raise KeyError(name)

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def wrk(server, connections, seconds):
    done = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s",
                           str(HERE / "post.lua"), server.url], check=True, text=True,
                          stdout=subprocess.PIPE)
    row = json.loads(done.stdout.strip().splitlines()[-1])
    assert row["errors"] == 0, row
    return {"requests_per_s": row["requests"] / row["seconds"], "p50_us": row["p50_us"],
            "p99_us": row["p99_us"]}


def library(program, model, texts, seconds):
    done = subprocess.run([program, "bench", "-m", model, "--input", texts, "--seconds",
                           str(seconds), "--json"], check=True, text=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["workloads"]["input"]


def pairs(server, args):
    """(the library, the server): a text's median time in us, of pairs that follow each other."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write(TEXT % 1000000)
        text.flush()

        def alone():
            return 1e6 / library(args.program, args.model, text.name, 1)["texts_per_s"]

        def served():
            return wrk(server, 1, 1)["p50_us"]

        found = []
        for i in range(PAIRS_A_ROUND * args.rounds):
            if i % 2:
                found.append((alone(), served()))
            else:
                found.append((served(), alone())[::-1])
        return found


def spread(values):
    """Quartiles."""
    return [round(one, 1) for one in statistics.quantiles(values, n=4)]


def middle(rows):
    return {key: round(statistics.median(row[key] for row in rows), 1) for key in rows[0]}


def measure(args):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as texts:
        for i in range(400):
            texts.write(TEXT % (1000000 + i))
        texts.flush()
        server = Server(args.program, args.model)
        idle_kb = server.memory_kb("VmRSS")
        rows = {n: [] for n in CONNECTIONS}
        own = []
        for _ in range(args.rounds):
            own.append(library(args.program, args.model, texts.name, args.seconds))
            for n in CONNECTIONS:
                rows[n].append(wrk(server, n, args.seconds))
        found = pairs(server, args)
        result = {"idle_mb": round(idle_kb / 1024, 1),
                  "peak_mb": round(server.memory_kb("VmHWM") / 1024, 1)}
        server.stop()
    result["library"] = middle([{"texts_per_s": row["texts_per_s"]} for row in own])
    result["one_text_us"] = {"library": spread([alone for alone, _ in found]),
                             "server": spread([served for _, served in found]),
                             "difference": spread([served - alone for alone, served in found])}
    result["connections"] = {str(n): middle(rows[n]) for n in CONNECTIONS}
    ready = []
    for _ in range(5):
        server = Server(args.program, args.model)
        ready.append(server.ready_ms)
        server.stop()
    result["ready_ms"] = round(statistics.median(ready), 1)
    written = json.loads(subprocess.run([args.writing], check=True, text=True,
                                        stdout=subprocess.PIPE).stdout)
    result["json_mb_per_s"] = round(written["json_bytes_per_s"] / 1e6, 1)
    result["base64_mb_per_s"] = round(written["base64_bytes_per_s"] / 1e6, 1)
    return result


def main():
    parser = argparse.ArgumentParser(description="Measure the HTTP server.")
    parser.add_argument("program")
    parser.add_argument("writing")
    parser.add_argument("model")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    result = measure(args)
    many = result["connections"]["64"]
    weights_mb = sum(p.stat().st_size for p in Path(args.model).glob("*.safetensors")) / 2 ** 20
    figures = {
        "share_of_library_at_64": many["requests_per_s"] / result["library"]["texts_per_s"],
        "overhead_p50_us": result["one_text_us"]["difference"][1],
        "json_mb_per_s": result["json_mb_per_s"], "base64_mb_per_s": result["base64_mb_per_s"],
        "ready_ms": result["ready_ms"], "idle_mb": result["idle_mb"]}
    goals = {**GOALS, "idle_mb": round(weights_mb * 1.3 + 80, 1)}
    most = ("overhead_p50_us", "ready_ms", "idle_mb")
    verdicts = {}
    for name, value in figures.items():
        met = value <= goals[name] if name in most else value >= goals[name]
        verdicts[name] = {"value": round(value, 3), "goal": goals[name], "met": met}
        print(f"{name}: {value:.3f} (goal {'<=' if name in most else '>='} {goals[name]}): "
              f"{'met' if met else 'missed'}")
    for n, row in result["connections"].items():
        print(f"{n} connections: {row['requests_per_s']} requests/s, p50 {row['p50_us']} us, "
              f"p99 {row['p99_us']} us")
    args.results.mkdir(parents=True, exist_ok=True)
    today = datetime.date.today().isoformat()
    path = args.results / f"{today}-http.json"
    path.write_text(json.dumps({"date": today, "processor": processor(), "cores": os.cpu_count(),
                                "rounds": args.rounds, "seconds": args.seconds, "figures": verdicts,
                                **result}, indent=1) + "\n")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
