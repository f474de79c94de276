#!/usr/bin/env python3
"""Switch every check of input off, one at a time: some test must fail.

    run.py [--only PATH[:LINE]]... [--again LOG] [--tests PATTERN] [--sample N] [--seconds S] [--asan]
           [--log FILE] [--list]

A copy of the tree in build-limits/ is changed so that each check (see checks.py) can be switched off
while the program runs, and built once, as far as the tests need it. Each test (see cases.py) then runs
once, alone, with every check on, to record the checks that it meets, that is, which refused something in
it; no other test can notice a missing check. Then each check is switched off in turn, and the tests
that meet it run, the quickest first, until one fails twice, crashes or hangs. The last line is "N
noticed, N unnoticed"; the lines before it list the unnoticed checks. Run through `./dev limits`, which gives
the tests what they need.
"""
import argparse
import collections
import concurrent.futures
import fcntl
import functools
import hashlib
import json
import os
import queue
import random
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from cases import cases_of, sources_of, targets_of
from checks import find_checks, sources, write_switchable

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build-limits"
ONE_AT_A_TIME = threading.Lock()    # for tests that meson runs alone
RELEASE = ["-Dbuildtype=release"]
ASAN = ["-Dbuildtype=debugoptimized", "-Db_ndebug=false", "-Db_sanitize=address,undefined",
        "-Db_lundef=false", "-Dtests=enabled"]
ASAN_ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1",
    "LSAN_OPTIONS": f"suppressions={ROOT}/tools/dev/lsan.supp:print_suppressions=0",
}


def command(*words, **options):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout[-4000:]}")
    return done.stdout


# ------------------------------------------------------------------------------------- the copy

def copy_tree(tree, checks):
    """The working tree with switches; only what differs is written, so that little is built again."""
    listed = command("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).split("\n")
    names = {name for name in listed if name and (ROOT / name).is_file()}
    changed = {check.path for check in checks}
    fresh = WORK / "fresh"
    for name in sorted(names):
        content = (ROOT / name).read_bytes()
        if name in changed:
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            (fresh / name).write_bytes(content)
        else:
            put(tree / name, content, (ROOT / name).stat().st_mode)
    write_switchable(fresh, checks)
    for name in sorted(changed):
        put(tree / name, (fresh / name).read_bytes(), 0o644)


def take_folder():
    """A second run would change the copy under the first one."""
    WORK.mkdir(exist_ok=True)
    lock = open(WORK / "lock", "w", encoding="ascii")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"{WORK}: another run is at work there")
    return lock


def put(path, content, mode):
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    if path.stat().st_mode & 0o777 != mode & 0o777:
        path.chmod(mode & 0o777)


def configure(tree, folder, options):
    switch = WORK / "switch.o"
    command("cc", "-O2", "-fPIC", "-c", ROOT / "tools/limits/switch.c", "-o", switch)
    if not (folder / "build.ninja").exists():
        command("meson", "setup", folder, tree, "-Dcuda=disabled", *options, f"-Dc_link_args={switch}", f"-Dcpp_link_args={switch}")
    command("ninja", "-C", folder, "build.ninja")    # a new list of tests


# ------------------------------------------------------------------------------------ the tests

class Tests:
    """Those of one build, and what each of them met."""

    def __init__(self, folder, n_checks, environment, all_tests):
        self.folder, self.n_checks, self.environment, self.all = folder, n_checks, environment, all_tests
        self.seconds, self.met = {}, {}
        self.noticed = collections.Counter()    # (file, test): what noticed one, notices its neighbours
        self.pages = queue.SimpleQueue()

    def page(self):
        try:
            return self.pages.get_nowait()
        except queue.Empty:
            with ONE_AT_A_TIME:
                path = self.folder / f"checks-{len(list(self.folder.glob('checks-*')))}"
                path.touch()
                path.chmod(0o666)    # a test may run the program as another user
                return path

    def run(self, name, off, limit_s):
        """(failed, seconds, the checks that were met)"""
        test, page = self.all[name], self.page()
        page.write_bytes(struct.pack("i", off) + bytes(self.n_checks))
        environment = os.environ | self.environment | test["env"] | {
            "GPUSERVE_CHECKS": str(page), "CRITERION_FAIL_FAST": "1",
            "GPUSERVE_TEST_FAIL_FAST": "1"}
        began = time.monotonic()
        with ONE_AT_A_TIME if not test.get("is_parallel", True) else threading.Lock():
            child = subprocess.Popen(test["cmd"], cwd=test["workdir"] or self.folder, env=environment,
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL, start_new_session=True)
            try:
                status = child.wait(limit_s)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                try:
                    os.killpg(child.pid, signal.SIGKILL)    # a server that it left behind, too
                except ProcessLookupError:
                    pass
                child.wait()
        met = [i for i, byte in enumerate(page.read_bytes()[4:]) if byte]
        self.pages.put(page)
        return status, time.monotonic() - began, met

    def learn(self, jobs, tree):
        """Run each once. What it met is kept next to the build, until it or what it tests changes; one that
        failed is asked again."""
        kept = self.folder / "met.json"
        known = json.loads(kept.read_text()) if kept.exists() else {}
        keys = {name: key_of(sources_of(tree, test)) for name, test in self.all.items()}
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            runs = {pool.submit(self.run, name, -1, 900): name for name in self.all
                    if name not in known or known[name][0] != keys[name] or known[name][1][0] != 0}
            for run in concurrent.futures.as_completed(runs):
                known[runs[run]] = keys[runs[run]], run.result()
                kept.write_text(json.dumps(known))
        for name in self.all:
            status, seconds, met = known[name][1]
            if status == 0:
                self.seconds[name], self.met[name] = seconds, met
            else:
                print(f"left out, it does not pass here: {name} ({status})", flush=True)

    def notice(self, number, where, until):
        """The test that fails when the check is off; None: none does; False: out of time."""
        able = sorted((name for name, met in self.met.items() if number in met),
                      key=lambda name: (self.seconds[name] / (1 + self.noticed[where, name])))
        for name in able:
            if time.monotonic() > until:
                return False
            limit_s = 20 + 6 * self.seconds[name]
            status = self.run(name, number, limit_s)[0]
            # Twice: it may fail by chance, or by a busy machine.
            if status is None or (status != 0 and self.run(name, number, limit_s)[0] != 0):
                self.noticed[where, name] += 1
                return name
        return None


# ------------------------------------------------------------------------------------- the work

UNNOTICED = re.compile(r"^unnoticed[^:]*: ([^:]+):\d+ in (\w+)\(\): (.*)$", re.MULTILINE)


def chosen(checks, arguments):
    """The numbers of those that are meant: lines may have moved since the earlier run."""
    again = set(UNNOTICED.findall(arguments.again.read_text("utf-8"))) if arguments.again else None
    numbers = [i for i, check in enumerate(checks)
               if (not arguments.only or any(check.path.startswith(only) or f"{check.path}:{check.line}" == only
                                             for only in arguments.only))
               and (again is None or (check.path, check.function, check.text) in again)]
    if arguments.sample and arguments.sample < len(numbers):
        random.Random(arguments.seed).shuffle(numbers)
        numbers = sorted(numbers[:arguments.sample])
    return numbers


@functools.lru_cache
def digest_of(place):
    digest = hashlib.sha256()
    for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def key_of(places):
    return hashlib.sha256("".join(digest_of(place) for place in sorted(places)).encode()).hexdigest()[:16]


def switch_off(tests, checks, numbers, arguments):
    """number -> the test that noticed, None, or False."""
    until = time.monotonic() + arguments.seconds
    results, lock = {}, threading.Lock()

    def one(number):
        by = tests.notice(number, checks[number].path, min(until, time.monotonic() + arguments.each_seconds))
        with lock:
            results[number] = by
            check = checks[number]
            said = "not run to the end" if by is False else f"noticed by {by}" if by else "UNNOTICED"
            print(f"{check.path}:{check.line}: {said}: {check.text[:90]}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(one, numbers))
    return results


def report(checks, results, to):
    by_file = collections.Counter()
    for number, by in results.items():
        by_file[checks[number].path, bool(by)] += 1
    for path in sorted({path for path, _ in by_file}):
        print(f"{path:34} {by_file[path, True]:4} noticed {by_file[path, False]:4} unnoticed", file=to)
    for number, by in sorted(results.items()):
        if not by:
            check = checks[number]
            why = ", not run to the end" if by is False else ""
            print(f"unnoticed{why}: {check.path}:{check.line} in {check.function}(): {check.text}", file=to)
    n = sum(bool(by) for by in results.values())
    print(f"{n} noticed, {len(results) - n} unnoticed", file=to, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="paths that begin so, or PATH:LINE")
    parser.add_argument("--again", type=Path, help="what this --log of an earlier run calls unnoticed")
    parser.add_argument("--tests", type=re.compile, default=re.compile(""), help="only those named so")
    parser.add_argument("--sample", type=int, default=0, help="as many, by chance")
    parser.add_argument("--seed", default=str(time.time()))
    parser.add_argument("--seconds", type=float, default=86400, help="for all, then no more are begun")
    parser.add_argument("--each-seconds", type=float, default=180)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--asan", action="store_true", help="with sanitizers: what else goes unnoticed")
    parser.add_argument("--log", help="a file for the summary")
    parser.add_argument("--list", action="store_true", help="only print the checks")
    arguments = parser.parse_args()
    checks = find_checks(ROOT, sources(ROOT))
    numbers = chosen(checks, arguments)
    if arguments.list:
        for number in numbers:
            check = checks[number]
            print(f"{check.path}:{check.line}: {check.function}: {check.how}: {check.text}")
        print(f"{len(numbers)} checks")
        return 0
    if not numbers and not arguments.again:
        sys.exit(f"no check to switch off: {', '.join(arguments.only) or 'the tree'} has none of its own, or does not exist")
    arguments.lock = take_folder()    # held to the end
    tree, folder = WORK / "tree", WORK / "tree" / ("build-asan" if arguments.asan else "build")
    copy_tree(tree, checks)
    configure(tree, folder, ASAN if arguments.asan else RELEASE)
    left_out = {"http", "deploy"} if arguments.asan else set()
    found = cases_of(folder, lambda test: not left_out & {suite.split(":")[-1] for suite in test["suite"]})
    found = {name: test for name, test in found.items() if arguments.tests.search(name)}
    wanted = targets_of(folder, found.values()) if arguments.tests.pattern else []    # [] is all
    command("ninja", "-C", folder, "-j", arguments.jobs, *wanted)
    tests = Tests(folder, len(checks), ASAN_ENVIRONMENT if arguments.asan else {}, found)
    tests.learn(arguments.jobs, tree)
    results = switch_off(tests, checks, numbers, arguments)
    report(checks, results, sys.stdout)
    if arguments.log:
        with open(arguments.log, "w", encoding="utf-8") as log:
            report(checks, results, log)
    return 1 if not all(results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
