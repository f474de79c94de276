#!/usr/bin/env python3
"""What the server must withstand, at full size: withstand.py [PART...] --results FOLDER

slow      T7   1,000 slow headers, slow bodies, slow readers: other clients are not slowed
overload  T8   ten times what the server can do: quick refusals, full use, no wrong answer
end       T13  500 servers ended under load: no accepted request is lost
reload    T13  1,000 reloads under load: each answer is the old model's or the new one's
grow      T16  hours of requests, one in a hundred malformed, with reloads: memory stays
fuzz      a million fuzzed requests with loads, cancellations, reloads and batches; `--asan`: under AddressSanitizer

What does not depend on the machine's speed fails at once; ./dev test runs the same parts at a size of
seconds. The figures are printed with their goals and kept as JSON.
"""
import argparse
import datetime
import http.client
import itertools
import json
import os
import platform
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import fuzzing
import openloop
from serving import HERE, MINILM, Server, figure

TEXTS = ("a dog in the park", "a cat on the roof")


def memory_kb(server, name="VmRSS"):
    with open("/proc/%d/status" % server.process.pid, encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name + ":"))


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def stopped(server):
    code, err = server.stop()
    assert code == 0, (code, err)
    return err


class Load:
    """Threads that ask until stop(): every answer's status and body, every failure."""

    def __init__(self, server, n=3, texts=TEXTS, keep=False):
        self.server, self.answers, self.failures, self.seconds = server, [], [], []
        self.ending, self.keep = threading.Event(), keep
        self.body = json.dumps({"inputs": list(texts)}).encode()
        self.bodies = {}  # each once: hours of equal answers would fill the memory
        self.threads = [threading.Thread(target=self.run) for _ in range(n)]
        for thread in self.threads:
            thread.start()

    def connection(self):
        connection = self.server.connect()
        connection.timeout = 300
        try:
            connection.connect()
            return connection
        except OSError:
            return None  # the server takes no more: nothing was accepted

    def run(self):
        connection = None
        while not self.ending.is_set():
            connection = connection or self.connection()
            if not connection:
                return
            started = time.perf_counter()
            try:
                connection.request("POST", "/embed", self.body)
                reply = connection.getresponse()
                body = reply.read()
                self.answers.append((reply.status, self.bodies.setdefault(body, body)))
                self.seconds.append(time.perf_counter() - started)
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                connection.close()
                connection = None
            if connection and not self.keep:
                connection.close()
                connection = None
        if connection:
            connection.close()

    def stop(self):
        self.ending.set()
        for thread in self.threads:
            thread.join()

    def wrong(self, known):
        """Answers that are none of these bodies with 200."""
        return [one for one in self.answers if one[0] != 200 or one[1] not in known]

    def check(self, known):
        """Every request was answered, with one of these bodies."""
        assert not self.failures, self.failures[:3]
        assert not self.wrong(known), self.wrong(known)[:3]


# ---------------------------------------------------------------------------------------- T7: slow

def neighbours(server, known, seconds):
    """The p99 of clients that are not slow, in seconds; each of their requests is answered right."""
    load = Load(server, 2, keep=True)
    time.sleep(seconds)
    load.stop()
    load.check([known])
    assert len(load.seconds) > 1
    return percentile(load.seconds, 0.99)


def slow_of_kind(server, known, kind, n, seconds):
    before_s, before_kb = neighbours(server, known, seconds), memory_kb(server)
    crowd = subprocess.Popen([sys.executable, os.path.join(HERE, "crowd.py"), server.host,
                              str(server.port), kind, str(n)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    assert crowd.stdout.readline() == "ready\n"
    n_there = figure(server, "gpuserve_http_connections")
    while figure(server, "gpuserve_http_requests_working") > 0:  # what the readers asked for
        time.sleep(0.05)
    during_s, more_kb = neighbours(server, known, seconds), memory_kb(server) - before_kb
    n_ended = int(crowd.communicate("end", timeout=600)[0])
    after_s = neighbours(server, known, seconds)
    return {"connections": n_there, "ended": n_ended, "more_mb": round(more_kb / 1024, 1),
            "p99_before_ms": round(before_s * 1e3, 2), "p99_ms": round(during_s * 1e3, 2),
            "peak_more_mb": round((memory_kb(server, "VmHWM") - before_kb) / 1024, 1),
            "p99_after_ms": round(after_s * 1e3, 2), "p99_ratio": round(during_s / max(before_s, after_s), 2)}


def slow(n=1000, seconds=10):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * n + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, wanted)), hard))
    server = Server(MINILM, "--quiet")
    known = server.post("/embed", {"inputs": list(TEXTS)}).body
    figures = {kind: slow_of_kind(server, known, kind, n, seconds)
               for kind in ("header", "body", "reader")}
    stopped(server)
    return figures


# ------------------------------------------------------------------------------------ T8: overload

def is_right(server, answer):
    """The same texts asked for alone give the same bits."""
    again = server.post("/v1/embeddings", answer.body).json()
    return [one["embedding"] for one in answer.json()["data"]] == [
        one["embedding"] for one in again["data"]]


class Measured:
    """What clients got, how fast, and how many cores they left to the server on the same machine."""

    def __init__(self, run, *args):
        spent, started = time.process_time(), time.perf_counter()
        self.answers, seconds = run(*args)
        took = time.perf_counter() - started
        self.cores = os.cpu_count() - (time.process_time() - spent) / took
        self.good = [one for one in self.answers if one.status == 200]
        self.refused = [one for one in self.answers if one.status != 200]
        # while all are asking: not the beginning, nor what is answered after the last was sent
        begin = seconds / 10
        self.rate = sum(begin <= one.at < seconds for one in self.good) / (seconds - begin)
        self.rate = self.rate or len(self.good) / took  # a slow machine and a short time


def overload_once(server, seconds, n_texts, factor, series):
    """As many clients as fill the server, then `factor` times as many requests as they had answered;
    (the one, the other)."""
    most = Measured(openloop.closed, server, openloop.bodies(int(200 * seconds), n_texts, series), 8, seconds)
    assert most.good and not most.refused
    rate = factor * most.rate
    source = openloop.bodies(max(1, int(rate * seconds)), n_texts, series + 1)
    over = Measured(openloop.opened, server, source, rate)
    assert over.good and {one.status for one in over.refused} == {429}
    for one in over.refused:
        assert int(one.headers["retry-after"]) >= 1, one.headers
        assert int(one.headers["retry-after-ms"]) >= 1, one.headers
    return most, over


def overload(rounds=6, seconds=6, n_texts=32, n_checked=100, factor=10):
    """As the server is by default: --queue-ms bounds what waits. The machine's speed varies, so that
    rounds alternate; goodput is their median."""
    server = Server(MINILM, "--quiet")
    openloop.closed(server, openloop.bodies(200, n_texts, 31), 4, min(2, seconds))
    pairs = [overload_once(server, seconds, n_texts, factor, 2 * i) for i in range(rounds)]
    good = [one for _, over in pairs for one in over.good]
    refused = [one for _, over in pairs for one in over.refused]
    for one in good[:n_checked] + pairs[0][0].answers[:8]:
        assert is_right(server, one), "a wrong answer"
    stopped(server)
    base = percentile([one.seconds for most, _ in pairs for one in most.good], 0.99)
    accepted = percentile([one.seconds for one in good], 0.99)
    goodput = [over.rate / most.rate for most, over in pairs]
    return {"rounds": rounds, "capacity_per_s": round(statistics.median(
                most.rate for most, _ in pairs), 1),
            "accepted": len(good), "refused": len(refused),
            "refusal_p99_ms": round(percentile([one.seconds for one in refused], 0.99) * 1e3, 2),
            "accepted_p99_ms": round(accepted * 1e3, 1), "p99_at_capacity_ms": round(base * 1e3, 1),
            "accepted_p99_ratio": round(accepted / base, 2),
            "goodput": round(statistics.median(goodput), 3),
            "goodput_least": round(min(goodput), 3), "goodput_most": round(max(goodput), 3),
            # to the cores that the clients, on the same machine, left for the server
            "goodput_by_cores_left": round(statistics.median(
                over.rate / over.cores * most.cores / most.rate for most, over in pairs), 3)}


# ---------------------------------------------------------------------------------------- T13: end

def end(n=500):
    server = Server(MINILM, "--quiet")
    known = [server.post("/embed", {"inputs": [TEXTS[0], "some words " * k]}).body
             for k in range(1, 60, 3)]
    stopped(server)
    answered = lost = wrong = closed = 0
    for i in range(n):
        server = Server(MINILM, "--quiet")
        k = i % len(known)
        load = Load(server, texts=(TEXTS[0], "some words " * (1 + 3 * k)), keep=i % 2 == 1)
        while len(load.answers) < i % 5:
            time.sleep(0.001)
        time.sleep(0.0007 * (i % 53))
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(timeout=300)
        load.stop()
        # A kept connection may be closed between two requests; from outside that looks the same when a
        # request was under way on it, so these are counted apart. On fresh connections none is excused.
        excused = [one for one in load.failures if i % 2 == 1 and one.startswith(
            ("RemoteDisconnected", "Connection", "BrokenPipeError"))]
        closed += len(excused)
        lost += len(load.failures) - len(excused)
        wrong += len(load.wrong([known[k]]))
        stopped(server)
        answered += len(load.answers)
    assert answered > n
    return {"cycles": n, "answered": answered, "lost": lost, "wrong": wrong,
            "kept_connections_closed": closed}


# ------------------------------------------------------------------------------------- T13: reload

def link_or_copy(source, target):
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copyfile(source, target)


def variant(folder, pooling):
    """MiniLM with another pooling: other vectors from the same weights."""
    target = os.path.join(folder, pooling)
    shutil.copytree(MINILM, target, copy_function=link_or_copy)
    path = os.path.join(target, "1_Pooling", "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    os.unlink(path)
    for key in config:
        if key.startswith("pooling_mode_"):
            config[key] = key == "pooling_mode_" + pooling
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    return target


def point(link, target):
    os.symlink(target, link + ".new")
    os.rename(link + ".new", link)


def hang_up(server, name="gpuserve_http_reloads_total"):
    before = figure(server, name)
    server.process.send_signal(signal.SIGHUP)
    until = time.monotonic() + 200  # a busy machine takes its time
    while figure(server, name) == before:
        assert time.monotonic() < until, "no reload"
        time.sleep(0.005)


def reload(n=1000):
    folder = tempfile.mkdtemp()
    link = os.path.join(folder, "model")
    targets = [variant(folder, pooling) for pooling in ("mean_tokens", "cls_token")]
    point(link, targets[0])
    server = Server(link, "--quiet")
    known = []
    for target in targets:
        point(link, target)
        hang_up(server)
        known.append(server.post("/embed", {"inputs": list(TEXTS)}).body)
    assert known[0] != known[1]
    load = Load(server)
    started = time.monotonic()
    for i in range(n):
        point(link, targets[i % 2])
        hang_up(server)
        assert server.post("/embed", {"inputs": list(TEXTS)}).body == known[i % 2]
    seconds = time.monotonic() - started
    load.stop()
    assert len(load.answers) > n
    assert {body for _, body in load.answers} >= set(known), "only one model answered"
    stopped(server)
    shutil.rmtree(folder)
    return {"reloads": n, "answered": len(load.answers), "lost": len(load.failures),
            "wrong": len(load.wrong(known)),
            "seconds": round(seconds, 1)}


# --------------------------------------------------------------------------------------- T16: grow

MALFORMED = (("/embed", b'{"inputs": ['), ("/embed", b'{"inputs": "\xff\xfe"}'), ("/embed", b"[]"),
             ("/v1/embeddings", b'{"input": []}'), ("/v1/embeddings", b'{"model": "none", "input": "a"}'),
             ("/nowhere", b"{}"), ("/rerank", b'{"query": 1}'), ("/v2/models/x/infer", b"{}"))


def slope_mb_per_hour(samples):
    """Least squares over (seconds, kB)."""
    n = len(samples)
    x = sum(at for at, _ in samples) / n
    y = sum(kb for _, kb in samples) / n
    spread = sum((at - x) ** 2 for at, _ in samples)
    return sum((at - x) * (kb - y) for at, kb in samples) / max(spread, 1e-9) * 3600 / 1024


def grow(minutes=60):
    server = Server(MINILM, "--quiet")
    known = server.post("/embed", {"inputs": list(TEXTS)}).body
    load = Load(server, 2)
    malformed, samples, started, n = itertools.cycle(MALFORMED), [], time.monotonic(), 0
    while time.monotonic() - started < minutes * 60:
        if len(load.answers) >= 100 * (n + 1):
            reply = server.request("POST", *next(malformed))
            assert 400 <= reply.status < 500, (reply.status, reply.body)
            n += 1
            if n % 20 == 0:
                hang_up(server)
        time.sleep(0.01)
        if time.monotonic() - started > minutes * 60 * 0.25:  # the rest is warming up
            samples.append((time.monotonic() - started, memory_kb(server)))
    load.stop()
    load.check([known])
    stopped(server)
    return {"minutes": minutes, "answered": len(load.answers), "malformed": n,
            "first_mb": round(samples[0][1] / 1024, 1), "last_mb": round(samples[-1][1] / 1024, 1),
            "slope_mb_per_hour": round(slope_mb_per_hour(samples), 2)}


# -------------------------------------------------------------------------------------------- fuzz

def fuzz(n=1000000, seed=None):
    """Counts by status; `wrong` are findings: status 500, an incomplete or wrong reply, a line on standard error."""
    seed = seed if seed is not None else int(time.time())
    print("fuzz: seed %d" % seed, file=sys.stderr, flush=True)
    folder = tempfile.mkdtemp()
    server = Server(*fuzzing.arguments(folder))
    started = time.monotonic()
    clients = fuzzing.Fuzz(server, n, seed=seed)
    mix = fuzzing.Mix(server)
    counts = clients.wait()
    mix.stop()
    seconds = time.monotonic() - started
    wrong = [*clients.wrong, *mix.failures]
    if server.process.poll() is None:
        wrong += [path for (path, body), want in clients.known.items() if server.post(path, body).body != want]
    code, err = server.stop()
    shutil.rmtree(folder)
    wrong += [(code, err)] if code != 0 or err else []
    for one in wrong[-5:]:
        print(one, file=sys.stderr)
    statuses = {str(one): number for one, number in counts.items() if isinstance(one, int)}
    return {"seed": seed, "requests": counts["requests"], "statuses": dict(sorted(statuses.items())), "left": counts["left"],
            "unread": counts["unread"], "known": sum(number for one, number in counts.items() if isinstance(one, tuple)),
            "mix": dict(mix.counts), "lost": int(counts["requests"] < n), "wrong": len(wrong), "seconds": round(seconds, 1)}


# -------------------------------------------------------------------------------------------- main

PARTS = {"slow": slow, "overload": overload, "end": end, "reload": reload, "grow": grow, "fuzz": fuzz}
LONG = ("grow", "fuzz")


def verdicts(part, figures):
    """(what, value, goal, whether at least)."""
    if part == "slow":
        for kind, row in figures.items():
            yield kind + ": p99 of others, times that without", row["p99_ratio"], 2, False
            yield kind + ": MB more, at the peak", row["peak_more_mb"], 64, False
    elif part == "overload":
        yield "refusals p99, ms", figures["refusal_p99_ms"], 20, False
        yield "accepted p99, times that at capacity", figures["accepted_p99_ratio"], 2, False
        yield "goodput, of capacity", figures["goodput"], 0.95, True
        yield "the same by the cores left", figures["goodput_by_cores_left"], 0.95, True
    elif part == "grow":
        yield "slope, MB an hour", figures["slope_mb_per_hour"], 1, False
    else:
        yield "requests lost", figures["lost"], 0, False
        yield "wrong answers", figures["wrong"], 0, False


def processor():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description="What the server must withstand, at full size.")
    parser.add_argument("parts", nargs="*", metavar="PART", help="one of " + ", ".join(PARTS) +
                        "; all but grow and fuzz if none is named")
    parser.add_argument("--minutes", type=float, default=60, help="of grow")
    parser.add_argument("--requests", type=int, default=1000000, help="of fuzz")
    parser.add_argument("--seed", type=int, help="of fuzz")
    parser.add_argument("--results", type=Path, required=True)
    args = parser.parse_args()
    parts = args.parts or [part for part in PARTS if part not in LONG]
    wrong = [part for part in parts if part not in PARTS]
    if wrong:
        parser.error("no part \"%s\"" % wrong[0])
    args.results.mkdir(parents=True, exist_ok=True)
    today = datetime.date.today().isoformat()
    path = args.results / (today + "-withstand.json")
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept["date"] = today
    n_missed = 0
    given = {"grow": (args.minutes,), "fuzz": (args.requests, args.seed)}
    for part in parts:
        figures = PARTS[part](*given.get(part, ()))
        kept[part] = {"processor": processor(), "cores": os.cpu_count(), **figures}  # others may be another machine's
        print(part + ":", json.dumps(kept[part]), flush=True)
        for what, value, goal, is_least in verdicts(part, figures):
            met = value >= goal if is_least else value <= goal
            n_missed += not met
            print("  %s: %s (goal %s %s): %s" % (what, value, ">=" if is_least else "<=", goal,
                                                 "met" if met else "missed"), flush=True)
        path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print(path)
    return n_missed > 0


if __name__ == "__main__":
    sys.exit(main())
