#!/usr/bin/env python3
"""Single texts beside bulk clients: fairness.py GPUSERVE MODEL --results FOLDER [--seconds S] [--rounds N]

For 1, 8 and 100 bulk clients of 200 texts a request, each from an address of its own, in interleaved
rounds: single texts alone, bulk alone, and both together. Single texts come at 20 % of the
throughput of bulk alone, from a further address, at random times that do not wait for replies. They
are sent by a process of their own: 100 threads that write and read bulk bodies in one interpreter
would delay the single texts before they are sent and after they are answered.

Goals: 99.5 % of single texts are answered; their p99 is at most 4 times that of single texts alone;
all texts together reach 95 % of bulk alone; `Retry-After` is right within 2x: a refused bulk request
that is sent again after half of the time is mostly refused, after twice the time mostly admitted. A
verdict is "undecided" where the quartiles of the rounds lie on both sides of the goal.
"""
import argparse
import datetime
import http.client
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))

from measure import processor  # noqa: E402

BULK_TEXTS = 200
PARALLEL_SINGLES = 64
TEXT = "the quick fox number %d jumps over a dog"
# figure: goal, whether it is the least value
GOALS = {"answered": (0.995, True), "p99_of_idle": (4, False), "of_bulk_alone": (0.95, True),
         "retry_after_right": (0.9, True)}


class Server:
    def __init__(self, program, model):
        self.process = subprocess.Popen([program, "serve", model, "--port", "0"],
                                        stdout=subprocess.PIPE, text=True)
        url = self.process.stdout.readline().strip()
        self.host, port = url.split("//")[1].split(":")
        self.port = int(port)

    def connect(self, address):
        return http.client.HTTPConnection(self.host, self.port, timeout=300,
                                          source_address=(address, 0))

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def numbers():
    """A new number for each text, so that none is computed for an equal one."""
    lock, state = threading.Lock(), [0]

    def take(n):
        with lock:
            state[0] += n
            return state[0]
    return take


take_number = numbers()


def embed(connection, n):
    first = take_number(n)
    body = json.dumps({"input": [TEXT % (first + i) for i in range(n)], "encoding_format": "base64"})
    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    reply.read()
    return reply.status, int(reply.headers.get("retry-after-ms") or 0)


class Load:
    """What runs for one part of a round."""

    def __init__(self, server, n_bulk, singles_a_second, seconds, seed):
        self.server, self.seconds, self.rate = server, seconds, singles_a_second
        self.begin = time.monotonic()
        self.end = self.begin + seconds
        self.lock = threading.Lock()
        self.n_texts, self.latencies, self.n_refused, self.right = 0, [], 0, []
        self.random = random.Random(seed)
        receiver, sender = multiprocessing.Pipe(duplex=False)
        own = multiprocessing.get_context("fork").Process(target=self.singles_apart, args=(sender,))
        if singles_a_second:
            own.start()  # before the threads, which a fork would lose
        threads = [threading.Thread(target=self.bulk, args=(i,)) for i in range(n_bulk)]
        if n_bulk and singles_a_second:
            threads.append(threading.Thread(target=self.probe))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if singles_a_second:
            self.latencies, self.n_refused, n_texts = receiver.recv()
            self.n_texts += n_texts
            own.join()

    def count(self, n):
        with self.lock:
            if time.monotonic() <= self.end:
                self.n_texts += n

    def bulk(self, number):
        connection = self.server.connect(f"127.0.1.{number + 1}")
        while time.monotonic() < self.end:
            status, after_ms = embed(connection, BULK_TEXTS)
            if status == 200:
                self.count(BULK_TEXTS)
            else:
                time.sleep(min(after_ms / 1000, max(0, self.end - time.monotonic())))
        connection.close()

    def single(self, due, local):
        if not hasattr(local, "connection"):
            local.connection = self.server.connect("127.0.2.1")
        status, _ = embed(local.connection, 1)
        with self.lock:
            if status == 200:
                self.latencies.append(time.monotonic() - due)
            else:
                self.n_refused += 1
        if status == 200:
            self.count(1)

    def singles(self):
        local, due, pending = threading.local(), self.begin, []
        with ThreadPoolExecutor(PARALLEL_SINGLES) as pool:
            while due < self.end:
                time.sleep(max(0, due - time.monotonic()))
                pending.append(pool.submit(self.single, due, local))
                due += self.random.expovariate(self.rate)
        for one in pending:
            one.result()

    def singles_apart(self, sender):
        take_number(1 << 40)  # other texts than those of the bulk clients
        self.singles()
        sender.send((self.latencies, self.n_refused, self.n_texts))

    def probe(self):
        """Whether Retry-After is more than half and less than twice what is right, in turn."""
        connection, early = self.server.connect("127.0.3.1"), True
        while time.monotonic() < self.end:
            status, after_ms = embed(connection, BULK_TEXTS)
            if status == 200:
                self.count(BULK_TEXTS)
                continue
            time.sleep(after_ms / 1000 * (0.5 if early else 2))
            if time.monotonic() >= self.end:
                break
            status, _ = embed(connection, BULK_TEXTS)
            self.right.append((status == 429) == early)
            if status == 200:
                self.count(BULK_TEXTS)
            early = not early
        connection.close()


def p99(values):
    return sorted(values)[int(0.99 * (len(values) - 1))] if values else float("nan")


def one_round(server, n_bulk, seconds, number):
    """Parts in turn; every second round the other way round, but for the rate, which comes first."""
    alone = Load(server, n_bulk, 0, seconds, number)
    rate = alone.n_texts / seconds
    order = ("idle", "both") if number % 2 == 0 else ("both", "idle")
    parts = {name: Load(server, n_bulk if name == "both" else 0, max(0.2 * rate, 1), seconds, number)
             for name in order}
    both, idle = parts["both"], parts["idle"]
    n = len(both.latencies) + both.n_refused
    row = {"bulk_alone_texts_per_s": rate, "both_texts_per_s": both.n_texts / seconds, "singles": n,
           "idle_p99_ms": p99(idle.latencies) * 1e3, "p99_ms": p99(both.latencies) * 1e3,
           "answered": len(both.latencies) / n if n else 0,
           "probes": len(both.right)}
    row["p99_of_idle"] = row["p99_ms"] / row["idle_p99_ms"]
    row["of_bulk_alone"] = row["both_texts_per_s"] / rate if rate else 0
    if both.right:
        row["retry_after_right"] = sum(both.right) / len(both.right)
    return row


def verdict(values, goal, is_least):
    """Of one figure in all rounds."""
    values = [value for value in values if value is not None]
    if len(values) < 2:
        return {"verdict": "undecided", "why": "fewer than 2 rounds have this figure"}
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    met = [value >= goal if is_least else value <= goal for value in (low, middle, high)]
    word = "met" if all(met) else "missed" if not any(met) else "undecided"
    return {"median": round(middle, 4), "quartiles": [round(low, 4), round(high, 4)], "goal": goal,
            "verdict": word}


def main():
    parser = argparse.ArgumentParser(description="Measure single texts beside bulk clients.")
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=40, help="of each part of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 100])
    args = parser.parse_args()

    rounds = {n: [] for n in args.clients}
    server = Server(args.program, args.model)
    try:
        Load(server, 2, 0, min(args.seconds, 3), 0)  # warm-up
        for number in range(args.rounds):
            for n in args.clients:
                rounds[n].append(one_round(server, n, args.seconds, number))
    finally:
        server.stop()
    verdicts = {}
    for n, rows in rounds.items():
        verdicts[n] = {name: verdict([row.get(name) for row in rows], *goal)
                       for name, goal in GOALS.items()}
        for name, one in verdicts[n].items():
            print(f"{n} bulk clients: {name} {one.get('median')} {one.get('quartiles', '')} "
                  f"(goal {'>=' if GOALS[name][1] else '<='} {GOALS[name][0]}): {one['verdict']}")
    today = datetime.date.today().isoformat()
    args.results.mkdir(parents=True, exist_ok=True)
    path = args.results / f"{today}-fairness.json"
    path.write_text(json.dumps({"date": today, "processor": processor(), "cores": os.cpu_count(),
                                "seconds": args.seconds, "verdicts": verdicts, "rounds": rounds},
                               indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
