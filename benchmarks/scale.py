#!/usr/bin/env python3
"""A plan for a given number of texts a day: nodes, memory, network and cost, and a simulation of it.

    scale.py [--texts-a-day 1e9] [--plot FILE.svg]

The throughput of a node comes from a results file of ./dev bench peers. ASSUMPTIONS has all other numbers.
The simulation sends Poisson arrivals at the busiest hour's rate through a balancer to replicas that run
their queues in batches, as the batcher does, and kills one replica: the plan must hold there.
"""
import argparse
import glob
import heapq
import json
import math
import os
import random

HERE = os.path.dirname(os.path.abspath(__file__))
ASSUMPTIONS = {
    "peak": 2.5,          # the busiest hour over the mean of the day
    "load": 0.7,          # of a node's throughput that is planned for at the peak
    "spare": 2,           # nodes more, so that one may fail and one be updated
    "text_bytes": 200,    # a request's text of 38 tokens, with its headers shared by 8 texts
    "dim": 384,
    "vcpu_hour": 0.04,    # price of a virtual core an hour, in any currency
    "gb_out": 0.01,       # price of a GB between zones
}
KINDS = ("gpuserve fp32", "gpuserve int8", "OpenVINO fp32", "sentence-transformers")


def node_figures(folder=os.path.join(HERE, "results")):
    """(name, texts/s, milliseconds of one short text, MB) of engines measured on one node: the newest full run."""
    for path in sorted(glob.glob(os.path.join(folder, "*-cpu-peers-*.json")), reverse=True):
        with open(path, encoding="utf-8") as file:
            results = json.load(file)
        if not results["quick"]:
            break
    else:
        raise SystemExit(f"{folder} has no file of a full run of ./dev bench peers")
    found = [(name, engine["median"]["W2"], engine["median"]["W1-32"], engine["peak_mb"])
             for name, engine in results["engines"].items() if name in KINDS]
    return os.path.relpath(path, HERE), results["machine"], found


def plan(texts_a_day, rate, memory_mb):
    """What one kind of node needs for a number of texts a day."""
    mean = texts_a_day / 86400
    peak = mean * ASSUMPTIONS["peak"]
    nodes = math.ceil(peak / (rate * ASSUMPTIONS["load"])) + ASSUMPTIONS["spare"]
    vector = 4 * ASSUMPTIONS["dim"]
    return {
        "mean": mean, "peak": peak, "nodes": nodes, "cores": 2 * nodes,
        "memory_gb": nodes * memory_mb / 1024,
        "in_mbit": peak * ASSUMPTIONS["text_bytes"] * 8 / 1e6,
        "out_base64_mbit": peak * vector * 4 / 3 * 8 / 1e6,
        "out_json_mbit": peak * 4700 * 8 / 1e6,
        "stored_gb_a_day": texts_a_day * vector / 1e9,
        "cost_a_day": 2 * nodes * 24 * ASSUMPTIONS["vcpu_hour"]
        + texts_a_day * vector * 4 / 3 / 1e9 * ASSUMPTIONS["gb_out"],
    }


class Node:
    """A replica: what waits, and until when it is at work."""

    def __init__(self, rate, least_seconds):
        self.rate, self.least = rate, least_seconds
        self.waiting, self.running, self.alive = [], [], True

    def load(self):
        return len(self.waiting) + len(self.running)


def simulate(rate, least_seconds, n_nodes, arrivals_a_second, seconds, balancer, kill, seed=1):
    """Latencies in seconds of all texts, under a balancer; one node dies in the middle.

    A node runs all that waits as one batch of at most 64 texts, which takes as long as its
    throughput says, and never less than one text alone takes. The texts of a node that dies are
    sent again by the balancer, as HAProxy and nginx do when told to.
    """
    chance = random.Random(seed)
    nodes = [Node(rate, least_seconds) for _ in range(n_nodes)]
    events, latencies, number, turn = [], [], 0, 0

    def push(time, kind, what):
        nonlocal number
        number += 1
        heapq.heappush(events, (time, number, kind, what))

    def choose():
        nonlocal turn
        living = [node for node in nodes if node.alive]
        if balancer == "round robin":
            turn += 1
            return living[turn % len(living)]
        # Two at random, the shorter queue: what a balancer that knows its own connections gains.
        return min(chance.sample(living, min(2, len(living))), key=Node.load)

    def begin(node, now):
        if node.alive and not node.running and node.waiting:
            node.running, node.waiting = node.waiting[:64], node.waiting[64:]
            push(now + max(node.least, len(node.running) / node.rate), "done", node)

    push(0.0, "arrive", None)
    if kill:
        push(seconds / 2, "die", nodes[0])
    while events:
        now, _, kind, what = heapq.heappop(events)
        if kind == "arrive":
            node = choose()
            node.waiting.append(now)
            begin(node, now)
            if now < seconds:
                push(now + chance.expovariate(arrivals_a_second), "arrive", None)
        elif kind == "done" and what.alive:
            latencies += [now - began for began in what.running]
            what.running = []
            begin(what, now)
        elif kind == "die":
            lost, what.alive = what.running + what.waiting, False
            what.running, what.waiting = [], []
            for began in lost:
                node = choose()
                node.waiting.append(began)
                begin(node, now)
    return sorted(latencies)


def quantile(values, q):
    return values[min(len(values) - 1, int(q * len(values)))]


def plan_table(texts_a_day, engines):
    lines = ["| node of 2 cores | texts/s | nodes | cores | memory, GB | cost a day |",
             "|---|---|---|---|---|---|"]
    for name, rate, _, memory in engines:
        p = plan(texts_a_day, rate, memory)
        lines.append(f"| {name} | {rate:.0f} | {p['nodes']} | {p['cores']} | {p['memory_gb']:.0f} | "
                     f"{p['cost_a_day']:.0f} |")
    p = plan(texts_a_day, 1, 1)
    lines += ["", f"Mean {p['mean']:.0f} texts a second, at the peak {p['peak']:.0f}. Network at the peak: "
              f"{p['in_mbit']:.0f} Mbit/s in; out {p['out_base64_mbit']:.0f} Mbit/s as base64, "
              f"{p['out_json_mbit']:.0f} as JSON numbers. Vectors to store: "
              f"{p['stored_gb_a_day']:.0f} GB a day as float32."]
    return lines


def simulation_table(texts_a_day, engines, seconds):
    lines = ["| node | balancer | load | p50, ms | p99, ms | p99 with one node killed, ms |",
             "|---|---|---|---|---|---|"]
    series = []
    for name, rate, latency, memory in engines:
        if not name.startswith("gpuserve"):
            continue
        p = plan(texts_a_day, rate, memory)
        # A third of the cluster shows the same queues in a third of the time.
        n_nodes = max(2, p["nodes"] // 3)
        for balancer in ("round robin", "least of two"):
            for load in (0.5, 0.7, 0.85, 0.95):
                found = [simulate(rate, latency / 1e3, n_nodes, rate * n_nodes * load, seconds,
                                  balancer, kill) for kill in (False, True)]
                row = [1e3 * quantile(found[0], 0.5), 1e3 * quantile(found[0], 0.99),
                       1e3 * quantile(found[1], 0.99)]
                series.append((name, balancer, load, *row))
                lines.append(f"| {name} | {balancer} | {load:.0%} | " +
                             " | ".join(f"{value:.1f}" for value in row) + " |")
    return lines, series


def draw(path, series):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, balancer in dict.fromkeys((s[0], s[1]) for s in series):
        points = [(s[2], s[4]) for s in series if s[:2] == (name, balancer)]
        axes.plot(*zip(*points), marker="o", label=f"{name}, {balancer}")
    axes.set(xlabel="load of the nodes", ylabel="p99 latency, ms", yscale="log",
             title="Waiting for a vector as the cluster fills")
    axes.legend()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts-a-day", type=float, default=1e9)
    parser.add_argument("--seconds", type=float, default=4, help="simulated")
    parser.add_argument("--plot")
    given = parser.parse_args()
    source, machine, engines = node_figures()
    if not engines:
        raise SystemExit(f"{source} names none of {', '.join(KINDS)}")
    print(f"Nodes as measured in {source} ({machine['cpu']}, {machine['threads']} threads).\n")
    print("\n".join(plan_table(given.texts_a_day, engines)))
    lines, series = simulation_table(given.texts_a_day, engines, given.seconds)
    print("\n" + "\n".join(lines))
    if given.plot:
        draw(given.plot, series)


if __name__ == "__main__":
    main()
