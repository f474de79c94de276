#!/usr/bin/env python3
"""Machines larger than this one: simulate.py PROGRAM --results FOLDER --plot FILE

Runs PROGRAM (benchmarks/simulation/simulate.c) for 16 to 96 cores and 1 to 8 GPUs: what a closed loop
of many clients reaches, and latencies under random arrivals at a tenth to more than all of what the
devices can do. Writes the figures as JSON and draws docs/simulation.svg.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
from pathlib import Path

CORES = (16, 32, 48, 64, 96)
GPUS = (1, 2, 4, 8)
LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.1)
LARGEST = {"cpu": 64, "gpu": 8}


def run(program, kind, n, load, seconds):
    done = subprocess.run([program, kind, str(n), str(load), str(seconds)], check=True,
                          stdout=subprocess.PIPE, text=True)
    row = json.loads(done.stdout)
    print(f"{kind} {n:3} load {load:4}: {row['texts_per_s']:7} texts/s, {row['of_limit']:.1%} of the "
          f"limit, p50 {row['p50_us'] / 1e3:.1f} ms, p99 {row['p99_us'] / 1e3:.1f} ms, "
          f"{row['cpu_us_per_text']} us of processor a text", flush=True)
    return row


def request_cost(program, rounds=5):
    """What a request costs without tokenizer and network, which do next to nothing here: medians."""
    rows = [json.loads(subprocess.run([program, "request", "2"], check=True, text=True,
                                      stdout=subprocess.PIPE).stdout) for _ in range(rounds)]
    cost = {key: statistics.median(row[key] for row in rows)
            for key in ("blocking_us", "submitted_us")}
    print(f"a request: {cost['blocking_us']} us blocking, {cost['submitted_us']} us submitted")
    return {"threads": 2, "rounds": rounds, **cost}


# ------------------------------------------------------------------------------------------- plot

WIDTH, HEIGHT, LEFT, TOP, INNER_W, INNER_H = 430, 330, 60, 40, 340, 220


class Panel:
    """One diagram: x and y from 0, straight axes."""

    def __init__(self, at, title, x_label, y_label, most_x, most_y):
        self.most_x, self.most_y, self.parts = most_x, most_y, []
        self.head = f'<g transform="translate({at * WIDTH},0)">'
        self.text(WIDTH / 2, 22, title, 14, "middle")
        self.text(LEFT + INNER_W / 2, HEIGHT - 22, x_label, 12, "middle")
        self.parts.append(f'<text transform="translate(16,{TOP + INNER_H / 2}) rotate(-90)" '
                          f'font-size="12" text-anchor="middle">{y_label}</text>')
        self.parts.append(f'<path d="M{LEFT},{TOP}V{TOP + INNER_H}H{LEFT + INNER_W}" '
                          'fill="none" stroke="#444"/>')

    def text(self, x, y, what, size=11, anchor="start", color="#222"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" '
                          f'text-anchor="{anchor}" fill="{color}">{what}</text>')

    def place(self, x, y):
        return LEFT + x / self.most_x * INNER_W, TOP + INNER_H - y / self.most_y * INNER_H

    def ticks(self, xs, ys):
        for x in xs:
            px, py = self.place(x, 0)
            self.text(px, py + 16, f"{x:g}", anchor="middle")
        for y in ys:
            px, py = self.place(0, y)
            self.text(px - 6, py + 4, f"{y:g}", anchor="end")
            self.parts.append(f'<path d="M{px},{py:.1f}h{INNER_W}" stroke="#ddd"/>')

    def line(self, points, color, name, dashed=False, marks=True):
        at = [self.place(x, min(y, self.most_y)) for x, y in points]
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append('<polyline points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in at) +
                          f'" fill="none" stroke="{color}" stroke-width="2"{dash}/>')
        if marks:
            self.parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>'
                           for x, y in at]
        self.n_names = getattr(self, "n_names", 0) + 1
        self.text(LEFT + 12, TOP + 4 + 15 * self.n_names, name, 11, color=color)

    def draw(self):
        return self.head + "".join(self.parts) + "</g>"


def scaling(at, rows, what, unit):
    most = max(row["limit_texts_per_s"] for row in rows) / 1e3
    panel = Panel(at, f"{what}: closed loop", unit, "thousand texts/s",
                  max(row["n"] for row in rows), most * 1.05)
    step = 10 ** len(str(int(most / 5))) / 10 or 1
    panel.ticks([row["n"] for row in rows], [i * round(most / 4 / step) * step for i in range(1, 5)])
    panel.line([(row["n"], row["limit_texts_per_s"] / 1e3) for row in rows], "#888",
               "limit of the devices", True, False)
    panel.line([(row["n"], row["texts_per_s"] / 1e3) for row in rows], "#1f6fb4", "reached")
    return panel.draw()


def latency(at, rows, what):
    rows = [row for row in rows if row["load"] <= 1]
    most = max(row["p99_us"] for row in rows) / 1e3 * 1.1
    step = 10 ** (len(str(int(most))) - 1)
    panel = Panel(at, f"{what}: random arrivals", "offered, part of the limit", "milliseconds", 1,
                  most)
    panel.ticks([0.2, 0.4, 0.6, 0.8, 1], [y * step for y in range(1, int(most / step) + 1)])
    panel.line([(row["load"], row["p99_us"] / 1e3) for row in rows], "#c0504d", "99th percentile")
    panel.line([(row["load"], row["p50_us"] / 1e3) for row in rows], "#1f6fb4", "median")
    return panel.draw()


def plot(path, scale, loads):
    panels = [scaling(0, scale["cpu"], "CPU", "cores"),
              latency(1, loads["cpu"], f"{LARGEST['cpu']} cores"),
              scaling(2, scale["gpu"], "GPUs", "devices"),
              latency(3, loads["gpu"], f"{LARGEST['gpu']} GPUs")]
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * 4}" '
                    f'height="{HEIGHT}" font-family="sans-serif">'
                    '<rect width="100%" height="100%" fill="white"/>' + "".join(panels) +
                    "</svg>\n")


def main():
    parser = argparse.ArgumentParser(description="Simulate larger machines.")
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--plot", type=Path, required=True)
    args = parser.parse_args()

    scale = {"cpu": [run(args.program, "cpu", n, 0, args.seconds) for n in CORES],
             "gpu": [run(args.program, "gpu", n, 0, args.seconds) for n in GPUS]}
    loads = {kind: [run(args.program, kind, n, load, args.seconds) for load in LOADS]
             for kind, n in LARGEST.items()}
    request = request_cost(args.program)
    today = datetime.date.today().isoformat()
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / f"{today}-simulation.json").write_text(json.dumps(
        {"date": today, "processors_under_it": os.cpu_count(), "request": request, "closed_loop": scale,
         "random_arrivals": loads}, indent=1) + "\n")
    plot(args.plot, scale, loads)


if __name__ == "__main__":
    main()
