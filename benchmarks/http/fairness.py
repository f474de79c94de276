#!/usr/bin/env python3
"""Single texts with concurrent bulk clients: fairness.py GPUSERVE MODEL --results FOLDER [--quick]

For each number of bulk clients, rounds of four parts in an order that turns: single texts alone, bulk
alone, both together, and both together with probes of `Retry-After`. Every client has an address of
its own. A bulk client sends 200 texts a request, each text once. Single texts come at random times
that do not wait for replies, at 20 % of the throughput of bulk alone. They are sent by a process of
their own: threads that write and read bulk bodies in one interpreter would delay them.

All texts have as many tokens, so that a text of one side is as much work as one of the other. The
server's own count of computed tokens gives the throughput, and must equal the tokens of the texts
answered: no part does other work than it reports.

Goals: 99.5 % of single texts are answered; their p99 is at most 4 times that of single texts alone;
all texts together reach 95 % of bulk alone; `Retry-After` is right within 2x: a refused bulk request
that is sent again after half of the time is refused again, after twice the time admitted.
"""
import argparse
import http.client
import json
import multiprocessing
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "common"), str(HERE.parent.parent / "tests/http")]

import openloop  # noqa: E402
from client import tokens_each, write_texts  # noqa: E402
from measure import keep, machine, rounds, today  # noqa: E402
from verdict import UNDECIDED, line, same_input, spread, verdict  # noqa: E402

BULK_TEXTS = 200
PROBES = 12             # clients that probe Retry-After at the same time: more than the queue takes
MIN_PROBES = 4       # of a round: with fewer its share says nothing
SINGLES_FROM = 1 << 24  # the number of the first single text; bulk texts have lower ones
SHARE_OF_SINGLES = 0.2
# figure: goal, whether it is the most
GOALS = {"answered": (0.995, False), "p99_of_idle": (4, True), "of_bulk_alone": (0.95, False),
         "retry_after_right": (0.9, False)}


def text_of(number):
    """Texts of equal work: each word is one token."""
    return openloop.words(number) + " jumps over a dog"


def body_of(first, n):
    return json.dumps({"input": [text_of(first + i) for i in range(n)],
                       "encoding_format": "base64"}).encode()


class Server:
    def __init__(self, program, model):
        self.process = subprocess.Popen([program, "serve", model, "--port", "0"],
                                        stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        self.host, port = self.url.split("//")[1].split(":")
        self.port = int(port)

    def connect(self, address):
        return http.client.HTTPConnection(self.host, self.port, timeout=300,
                                          source_address=(address, 0))

    def tokens(self):
        """Tokens computed since the start."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=60) as reply:
            return int(float(re.search(r"^gpuserve_tokens_total(?:\{.*?\})? (\S+)$",
                                       reply.read().decode(), re.MULTILINE)[1]))

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


class Address:
    """The server as openloop.Client takes it, reached from one address."""

    def __init__(self, server, address):
        self.host, self.port, self.source = server.host, server.port, (address, 0)


class Numbers:
    """A new number for each text, so that none is computed for an equal one."""

    def __init__(self, first):
        self.lock, self.next = threading.Lock(), first

    def take(self, n):
        with self.lock:
            self.next += n
            return self.next - n


def single_texts(server, first, dues, sender):
    """The process of the single texts: sends (latencies of those answered, how many were refused)."""
    client = openloop.Client(Address(server, "127.0.2.1"), [body_of(first + i, 1) for i in range(len(dues))])
    sender.send("ready")
    client.started = time.perf_counter()
    for due in dues:
        while True:
            left = client.started + due - time.perf_counter()
            client.receive(left)
            if left <= 0:
                break
        client.send(client.started + due)
    while client.busy:
        client.receive(60)
    answers = client.answers()
    sender.send(([one.seconds for one in answers if one.status == 200],
                 sum(one.status != 200 for one in answers)))


class Load:
    """What runs for one part of a round; returns when everything sent is answered."""

    def __init__(self, server, numbers, tokens, seconds):
        self.server, self.numbers, self.tokens, self.seconds = server, numbers, tokens, seconds
        self.lock, self.n_answered, self.n_refused = threading.Lock(), 0, 0
        self.latencies, self.singles_refused, self.probed = [], 0, []

    def run(self, n_bulk, rate, n_probes=0):
        receiver, apart = self.start_singles(rate) if rate else (None, None)
        before, self.begin = self.server.tokens(), time.monotonic()
        self.end = self.begin + self.seconds
        threads = [threading.Thread(target=self.bulk, args=(i,)) for i in range(n_bulk)]
        threads += [threading.Thread(target=self.probe, args=(i,)) for i in range(n_probes)]
        for thread in threads:
            thread.start()
        time.sleep(max(0, self.end - time.monotonic()))
        self.tokens_per_s = (self.server.tokens() - before) / (time.monotonic() - self.begin)
        for thread in threads:
            thread.join()
        if apart:
            self.latencies, self.singles_refused = receiver.recv()
            apart.join()
        answered = self.n_answered + len(self.latencies)
        same_input({"the server, tokens": self.server.tokens() - before,
                    "the texts answered": answered * self.tokens})
        return self

    def start_singles(self, rate):
        """Its requests are made and the process is ready to send."""
        chance, dues, due = random.Random(self.numbers["single"].next), [], 0.0
        while (due := due + chance.expovariate(rate)) < self.seconds:
            dues.append(due)
        receiver, sender = multiprocessing.Pipe(duplex=False)
        apart = multiprocessing.get_context("fork").Process(
            target=single_texts,
            args=(self.server, self.numbers["single"].take(len(dues)), dues, sender))
        apart.start()  # before the threads, which a fork would lose
        receiver.recv()
        return receiver, apart

    def embed(self, connection):
        """(status, milliseconds of Retry-After) of one bulk request."""
        body = body_of(self.numbers["bulk"].take(BULK_TEXTS), BULK_TEXTS)
        connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        reply.read()
        if reply.status not in (200, 429):
            raise RuntimeError(f"the server answered {reply.status}")
        with self.lock:
            self.n_answered += BULK_TEXTS * (reply.status == 200)
            self.n_refused += reply.status == 429
        return reply.status, int(reply.headers.get("retry-after-ms") or 0)

    def bulk(self, number):
        connection = self.server.connect(f"127.0.1.{number + 1}")
        while time.monotonic() < self.end:
            status, after_ms = self.embed(connection)
            if status != 200:
                time.sleep(min(after_ms / 1000, max(0, self.end - time.monotonic())))
        connection.close()

    def probe(self, number):
        """Send a refused request again after half of Retry-After, or after twice of it, in turn."""
        connection, early = self.server.connect(f"127.0.3.{number + 1}"), number % 2 == 0
        while time.monotonic() < self.end:
            status, after_ms = self.embed(connection)
            if status == 200:
                continue
            wait = after_ms / 1000 * (0.5 if early else 2)
            if time.monotonic() + wait >= self.end:
                early = True  # the time left does for none but a short one
                wait = after_ms / 1000 * 0.5
                if time.monotonic() + wait >= self.end:
                    break
            time.sleep(wait)
            status, _ = self.embed(connection)
            with self.lock:
                self.probed.append({"early": early, "after_ms": after_ms,
                                    "right": (status == 429) == early})
            early = not early
        connection.close()


def p99(values):
    return sorted(values)[int(0.99 * (len(values) - 1))] if values else float("nan")


def parts_of(args, server, numbers, n_bulk, rate):
    """The parts of a round, each with its figures."""
    def load(seconds=args.seconds):
        return Load(server, numbers, args.tokens, seconds)

    def singles(done):
        n = len(done.latencies) + done.singles_refused
        return {"singles": n, "answered": len(done.latencies) / n if n else 0.0,
                "p50_ms": p50(done.latencies) * 1e3, "p99_ms": p99(done.latencies) * 1e3}

    def p50(values):
        return spread(values).get("median", float("nan"))

    def bulk(done):
        return {"texts_per_s": done.tokens_per_s / args.tokens, "bulk_refused": done.n_refused}

    def idle():
        return singles(load().run(0, rate))

    def alone():
        return bulk(load().run(n_bulk, 0))

    def both():
        done = load().run(n_bulk, rate)
        return {**singles(done), **bulk(done)}

    def probes():
        # Longer: twice of Retry-After must fit.
        done = load(2 * args.seconds).run(n_bulk, rate, PROBES)
        return {"bulk_refused": done.n_refused, "probed": done.probed}

    return {"idle": idle, "bulk alone": alone, "both": both, "probes": probes}


def right_share(probed):
    """The share of probes that were right, the two kinds weighing as much; None of too few."""
    kinds = [[one["right"] for one in probed if one["early"] == early] for early in (True, False)]
    if len(probed) < MIN_PROBES or not all(kinds):
        return None
    return sum(sum(kind) / len(kind) for kind in kinds) / 2


def judge(found):
    """The verdict of each figure, over the undisturbed rounds."""
    kept = found.kept
    right = [share for share in (right_share(row["probes"]["probed"]) for row in kept)
             if share is not None]
    values = {"answered": [row["both"]["answered"] for row in kept],
              "p99_of_idle": [row["both"]["p99_ms"] / row["idle"]["p99_ms"] for row in kept],
              "of_bulk_alone": [row["both"]["texts_per_s"] / row["bulk alone"]["texts_per_s"]
                                for row in kept],
              "retry_after_right": right}
    table = {name: verdict(values[name], *GOALS[name]) for name in GOALS}
    if kept and not any(row["probes"]["bulk_refused"] for row in kept):
        table["retry_after_right"].update(verdict=UNDECIDED, why="no request was refused")
    return table


def measure_clients(args, server, numbers, n_bulk):
    """Rounds with `n_bulk` clients; single texts at a rate that a first measurement of bulk alone sets."""
    first = Load(server, numbers, args.tokens, max(2.0, args.seconds / 3)).run(n_bulk, 0)  # warm, too
    rate = max(SHARE_OF_SINGLES * first.tokens_per_s / args.tokens, 1.0)
    found = rounds(args.rounds, parts_of(args, server, numbers, n_bulk, rate), say=print)
    table = judge(found)
    for name, one in table.items():
        print(line(f"{n_bulk} bulk clients: {name}", one))
    return {"single_texts_per_s": round(rate, 2), "figures": table, "rounds": found.facts(),
            "bulk_alone_texts_per_s": spread([row["bulk alone"]["texts_per_s"] for row in found.kept]),
            "idle_p99_ms": spread([row["idle"]["p99_ms"] for row in found.kept]),
            "p99_ms": spread([row["both"]["p99_ms"] for row in found.kept]), "values": found.kept}


def check_tokens(args):
    """How many tokens each text has, of bulk clients and of single ones."""
    sample = [text_of(first + 997 * i) for first in (0, SINGLES_FROM) for i in range(200)]
    with tempfile.TemporaryDirectory() as folder:
        return tokens_each(args.program, args.model, write_texts(folder, sample, "sample.txt"))


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measure single texts with concurrent bulk clients.")
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="8 clients, 3 rounds: 2 minutes")
    parser.add_argument("--seconds", type=float, help="of each part of a round (default 10, quick 8)")
    parser.add_argument("--rounds", type=int, help="undisturbed ones wanted (default 4, quick 3)")
    parser.add_argument("--clients", type=int, nargs="+", help="bulk clients (default 1 8 100, quick 8)")
    args = parser.parse_args()
    args.seconds = args.seconds or (8 if args.quick else 10)
    args.rounds = args.rounds or (3 if args.quick else 4)
    args.clients = args.clients or ([8] if args.quick else [1, 8, 100])
    return args


def main():
    args, facts = parse_arguments(), machine()
    args.tokens = check_tokens(args)
    numbers = {"bulk": Numbers(0), "single": Numbers(SINGLES_FROM)}
    server = Server(args.program, args.model)
    try:
        clients = {n: measure_clients(args, server, numbers, n) for n in args.clients}
    finally:
        server.stop()
    print(keep({"date": today(), "quick": args.quick, "machine": facts, "seconds": args.seconds,
                "tokens_each": args.tokens, "bulk_texts": BULK_TEXTS, "clients": clients},
               args.results, "fairness"))


if __name__ == "__main__":
    main()
