#!/usr/bin/env python3
"""The server on loopback: bench.py GPUSERVE WRITING READING MODEL --results FOLDER [--quick]

The library's own throughput (gpuserve bench), and wrk with 1, 8 and 64 connections against `gpuserve
serve`, on the same cores and the same texts, in rounds whose order turns. What the server costs
without the model is the difference of a second of the library and a second of the server, one after
the other. Each round measures the library twice: what these two differ is the noise floor. Such pairs
are added until the noise floor of their median is below the goal, or there are enough. Then the
speed of writing JSON and base64, what each copy of a request's body costs, what compression costs and
saves, the time from start to ready, and memory.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "common"))

import wire  # noqa: E402
from client import N_CHECKED, ask, make_texts, tokens_each, write_texts, wrk  # noqa: E402
from measure import keep, machine, rounds, today  # noqa: E402
from verdict import (line, noise_floor, noise_of_median, same_input, spread,  # noqa: E402
                     verdict)

CONNECTIONS = (1, 8, 64)
GOALS = {"share_of_library_at_64": 0.85, "overhead_p50_us": 150, "json_mb_per_s": 250,
         "base64_mb_per_s": 2000, "ready_ms": 300}
MAX_PAIRS = 5          # times the pairs asked for
AT_MOST = ("overhead_p50_us", "ready_ms", "idle_mb")


class Server:
    def __init__(self, program, model, *options):
        started = time.monotonic()
        self.process = subprocess.Popen([program, "serve", model, "--port", "0", "--quiet", *options],
                                        stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        host, port = self.url.split("//")[1].split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200"), "not ready"
        self.ready_ms = (time.monotonic() - started) * 1e3

    def memory_mb(self, name):
        for row in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if row.startswith(name + ":"):
                return int(row.split()[1]) / 1024
        raise KeyError(name)

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def library(args, texts, seconds):
    """`gpuserve bench` over a file of texts: all in one job, again and again."""
    done = subprocess.run([args.program, "bench", "-m", args.model, "--input", str(texts),
                           "--seconds", str(seconds), "--json"], check=True, text=True,
                          stdout=subprocess.PIPE)
    return json.loads(done.stdout)["workloads"]["input"]


def check_equal_work(args, server, files):
    """The same texts have the same tokens on both sides; how many each has."""
    each = tokens_each(args.program, args.model, files["all"])
    texts = files["all"].read_text("utf-8").splitlines()
    _, served = ask(server.url, texts[:N_CHECKED])
    alone = library(args, files["all"], 0.1)
    same_input({"library, texts": alone["texts"], "server, texts": len(texts)})
    same_input({"library, tokens": alone["tokens"], "tokenizer": each * len(texts)})
    same_input({"server, tokens": served, "tokenizer": each * N_CHECKED})
    return each


def throughput(args, server, files):
    """Rounds of the library and of the server with each number of connections."""
    def alone():
        return library(args, files["all"], args.seconds)["texts_per_s"]

    parts = {"library": alone, "library again": alone}
    for n in args.connections:
        parts[n] = lambda n=n: wrk(server.url, server.process.pid, files["all"], n, args.seconds)
    for n in args.connections:
        wrk(server.url, server.process.pid, files["all"], n, 1)  # warm
    return rounds(args.rounds, parts, say=print)


def one_text(args, server, files):
    """Rounds of one text at a time: median microseconds of the library and of the server."""
    def alone():
        return 1e6 / library(args, files["one"], 1)["texts_per_s"]

    def served():
        return wrk(server.url, server.process.pid, files["one"], 1, 1)["p50_us"]

    served()
    parts, found = {"library": alone, "server": served, "library again": alone}, None
    for _ in range(MAX_PAIRS):
        more = rounds(args.pairs, parts, say=print)
        found = found.add(more) if found else more
        noise = noise_of_median(pairs_of(found))
        print(f"{len(found.kept)} pairs: noise floor of the median {noise:.0f} us")
        if len(found.kept) >= args.pairs and noise < GOALS["overhead_p50_us"]:
            break
    return found


def pairs_of(found):
    return [(row["library"], row["library again"]) for row in found.kept]


def beside_library(found, value):
    """value(row, library): `library` is the mean of both of its turns in the round."""
    return [value(row, (row["library"] + row["library again"]) / 2) for row in found.kept]


def start_once(args):
    server = Server(args.program, args.model)
    found = {"ready_ms": server.ready_ms, "idle_mb": server.memory_mb("VmRSS")}
    server.stop()
    return found


def write_once(args):
    done = subprocess.run([args.writing], check=True, text=True, stdout=subprocess.PIPE)
    found = json.loads(done.stdout)
    return {"json_mb_per_s": found["json_bytes_per_s"] / 1e6,
            "base64_mb_per_s": found["base64_bytes_per_s"] / 1e6}


def alone(args):
    """Rounds of the server's start, of writing and of reading, on their own."""
    start_once(args)  # brings the files into the page cache
    found = rounds(args.rounds, {"start": lambda: start_once(args),
                                 "writing": lambda: write_once(args),
                                 "reading": lambda: wire.read_once(args.reading)}, say=print)
    return found, {name: [row[name] for row in found.values(part)] for part, name in (
        ("start", "ready_ms"), ("start", "idle_mb"), ("writing", "json_mb_per_s"),
        ("writing", "base64_mb_per_s"))}


def compressed(args):
    """Rounds of replies in each coding."""
    server = Server(args.program, args.model, *wire.SERVER_OPTIONS)
    try:
        return wire.compress_rounds(server.url, make_texts(), args.rounds, say=print)
    finally:
        server.stop()


def measure(args):
    with tempfile.TemporaryDirectory() as folder:
        texts = make_texts()
        files = {"all": write_texts(folder, texts, "all.txt"),
                 "one": write_texts(folder, texts[:1], "one.txt")}
        server = Server(args.program, args.model)
        try:
            each = check_equal_work(args, server, files)
            many = throughput(args, server, files)
            one = one_text(args, server, files)
            peak = server.memory_mb("VmHWM")
        finally:
            server.stop()
    small, others = alone(args)
    coded, sizes = compressed(args)
    return each, {"throughput": many, "one_text": one, "alone": small, "compression": coded}, {
        **others, "peak_mb": peak}, sizes


def judge(args, found, others):
    many, one = found["throughput"], found["one_text"]
    weights_mb = sum(p.stat().st_size for p in Path(args.model).glob("*.safetensors")) / 2 ** 20
    goals = {**GOALS, "idle_mb": round(weights_mb * 1.3 + 80, 1)}
    values = {
        "share_of_library_at_64": beside_library(
            many, lambda row, alone: row[64]["requests_per_s"] / alone),
        "overhead_p50_us": beside_library(one, lambda row, alone: row["server"] - alone),
        **{name: others[name] for name in goals if name in others}}
    noise = {"share_of_library_at_64": noise_floor(pairs_of(many), relative=True),
             "overhead_p50_us": noise_of_median(pairs_of(one))}
    least = {"overhead_p50_us": 0}
    return {name: verdict(values[name], goals[name], name in AT_MOST, noise.get(name, 0.0),
                          least.get(name), of_median=name == "overhead_p50_us") for name in goals}


def document(args, facts, each, found, verdicts, peak_mb, sizes):
    many, one = found["throughput"], found["one_text"]
    connections = {str(n): {key: spread([row[n][key] for row in many.kept])
                            for key in ("requests_per_s", "p50_us", "p99_us", "client_cores")}
                   for n in args.connections}
    return {"date": today(), "quick": args.quick,
            "machine": {**facts, "load_average_after": round(os.getloadavg()[0], 2)},
            "seconds": args.seconds, "texts": len(make_texts()), "tokens_each": each,
            "figures": verdicts, "peak_mb": round(peak_mb, 1),
            "library_texts_per_s": spread([a for pair in pairs_of(many) for a in pair]),
            "connections": connections,
            "copies": wire.copies(found["alone"].values("reading")) if found["alone"].kept else {},
            "compression": wire.compression(found["compression"], sizes),
            "one_text_us": {"library": spread([a for pair in pairs_of(one) for a in pair]),
                            "server": spread(one.values("server"))},
            "rounds": {name: part.facts() for name, part in found.items()},
            "values": {name: [{" ".join(key) if isinstance(key, tuple) else key: value for key, value in row.items()}
                              for row in part.kept] for name, part in found.items()}}


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measure the HTTP server.")
    parser.add_argument("program")
    parser.add_argument("writing")
    parser.add_argument("reading")
    parser.add_argument("model")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="1 and 64 connections, 3 minutes")
    parser.add_argument("--seconds", type=int, help="of each measurement (default 3, quick 2)")
    parser.add_argument("--rounds", type=int, help="undisturbed ones wanted (default 7, quick 5)")
    parser.add_argument("--pairs", type=int, help="of one text at a time (default 20, quick 10)")
    args = parser.parse_args()
    args.connections = (1, 64) if args.quick else CONNECTIONS
    args.seconds = args.seconds or (2 if args.quick else 3)
    args.rounds = args.rounds or (5 if args.quick else 7)
    args.pairs = args.pairs or (10 if args.quick else 20)
    return args


def main():
    args, facts = parse_arguments(), machine()
    each, found, others, sizes = measure(args)
    verdicts = judge(args, found, others)
    result = document(args, facts, each, found, verdicts, others["peak_mb"], sizes)
    for name, one in verdicts.items():
        print(line(name, one))
    for n, row in result["connections"].items():
        if row["requests_per_s"]["n"]:
            print(f"{n} connections: {row['requests_per_s']['median']:.1f} requests/s, p50 "
                  f"{row['p50_us']['median']:.0f} us, p99 {row['p99_us']['median']:.0f} us")
    for text in wire.lines_of(result):
        print(text)
    print(keep(result, args.results, "http"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
