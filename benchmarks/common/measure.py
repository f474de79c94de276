"""Rounds, processor time of others, and the machine: what every benchmark measures with.

A round calls each part once. The order turns from round to round, so that no part is always first
or always behind the same one. A round in which other processes, or other guests of the host, took
processor time is dropped and counted. verdict.py judges what is left.
"""
import datetime
import json
import os
import platform
import re
import subprocess
import time
from pathlib import Path

MAX_OTHERS = 0.02      # share of the machine's processor time that others may take in a round
TICK_ERROR_S = 0.03     # the kernel counts the machine's time in ticks of 10 ms
MAX_ROUNDS = 2         # times the rounds asked for: more than that are not tried
TICKS = os.sysconf("SC_CLK_TCK")
EXTENSIONS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")


# ------------------------------------------------------------------------------------- the machine

def processor():
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def commit():
    done = subprocess.run(["git", "describe", "--always", "--dirty"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False,
                          cwd=Path(__file__).resolve().parent)
    return done.stdout.strip() or None


def machine():
    """The facts that a figure needs with it."""
    text = Path("/proc/cpuinfo").read_text("utf-8")
    found = re.search(r"^flags\s*:\s*(.+)$", text, re.MULTILINE)
    flags = set(found.group(1).split()) if found else set()
    return {"processor": processor(), "cores": len(os.sched_getaffinity(0)),
            "isa": [name for name in EXTENSIONS if name in flags], "kernel": platform.release(),
            "commit": commit(), "load_average_before": round(os.getloadavg()[0], 2)}


# ------------------------------------------------------------------- processor time of the machine

def busy_ticks(stat):
    """Of all processors, from the text of /proc/stat: user, nice, system and steal.

    Interrupts are left out: they are counted for no process either, so that those of our own
    connections do not look like others.
    """
    fields = [int(one) for one in stat.split("\n", 1)[0].split()[1:]]
    return fields[0] + fields[1] + fields[2] + (fields[7] if len(fields) > 7 else 0)


def process_ticks(stat):
    """(parent, ticks of the process and of its children that ended), from /proc/PID/stat."""
    fields = stat.rsplit(")", 1)[1].split()
    return int(fields[1]), sum(int(one) for one in fields[11:15])


def tree_ticks(processes, root):
    """Of a process and all below it. processes: {pid: (parent, ticks)}"""
    children = {}
    for pid, (parent, _) in processes.items():
        children.setdefault(parent, []).append(pid)
    total, left = 0, [root]
    while left:
        pid = left.pop()
        total += processes.get(pid, (0, 0))[1]
        left += children.get(pid, [])
    return total


def read_processes():
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path("/proc", entry, "stat").read_text("utf-8", "replace")
            except OSError:
                continue  # it has ended
            found[int(entry)] = process_ticks(text)
    return found


def own_seconds(pid=None):
    """Processor time of this process, or of another, and of all below it."""
    return tree_ticks(read_processes(), pid or os.getpid()) / TICKS


def machine_seconds():
    return busy_ticks(Path("/proc/stat").read_text("ascii")) / TICKS


def disturbed(others_s, wall_s, cores):
    """Whether others took more of the machine than a round may lose."""
    return others_s > MAX_OTHERS * wall_s * cores + TICK_ERROR_S


class Watch:
    """The processor time that others take from now on; other guests of the host are others, too,
    where the host tells (steal)."""

    def __init__(self):
        self.cores = os.cpu_count()
        self.started, self.machine, self.own = time.monotonic(), machine_seconds(), own_seconds()

    def stop(self):
        """{"seconds", "others_share", "disturbed"}"""
        own, all_of_it = own_seconds() - self.own, machine_seconds() - self.machine
        wall = time.monotonic() - self.started
        others = max(0.0, all_of_it - own)
        return {"seconds": round(wall, 3), "others_share": round(others / wall / self.cores, 4),
                "disturbed": disturbed(others, wall, self.cores)}


def drain(pid, quiet_s=0.15, limit_s=20):
    """Wait until a process computes nothing any more: requests that their client gave up are then
    done. False when it still computes after limit_s."""
    until, before = time.monotonic() + limit_s, own_seconds(pid)
    while time.monotonic() < until:
        time.sleep(quiet_s)
        now = own_seconds(pid)
        if now - before <= 1.5 / TICKS:
            return True
        before = now
    return False


# ---------------------------------------------------------------------------------------- rounds

def order(names, number):
    """The order of round `number`: begun one place further each round, every second one backwards."""
    names = list(names)
    at = number // 2 % len(names) if names else 0
    turned = names[at:] + names[:at]
    return turned[::-1] if number % 2 else turned


class Rounds:
    """What rounds gave: those undisturbed, and how many were dropped."""

    def __init__(self, kept, dropped, watched):
        self.kept, self.dropped, self.watched = kept, dropped, watched

    def values(self, name):
        return [one[name] for one in self.kept]

    def ratios(self, name, of):
        return [one[name] / one[of] for one in self.kept]

    def add(self, more):
        """The rounds of both, one after the other."""
        return Rounds(self.kept + more.kept, self.dropped + more.dropped, self.watched + more.watched)

    def facts(self):
        shares = [one["others_share"] for one in self.watched]
        return {"kept": len(self.kept), "dropped_disturbed": self.dropped,
                "others_share": shares, "others_share_allowed": MAX_OTHERS}


def rounds(n, parts, watch=Watch, say=None):
    """Call each of parts ({name: function}) once a round until n rounds are undisturbed, or
    MAX_ROUNDS * n were tried."""
    kept, watched = [], []
    for number in range(MAX_ROUNDS * n):
        if len(kept) == n:
            break
        watching = watch()
        values = {name: parts[name]() for name in order(parts, number)}
        seen = watching.stop()
        watched.append(seen)
        if not seen["disturbed"]:
            kept.append(values)
        if say:
            say(f"round {number + 1}: others took {seen['others_share']:.1%} of the processors"
                f"{', dropped' if seen['disturbed'] else ''}")
    return Rounds(kept, len(watched) - len(kept), watched)


# --------------------------------------------------------------------------------------- results

def today():
    return datetime.date.today().isoformat()


def keep(document, folder, name):
    """Write the document as FOLDER/DATE-NAME.json; the path."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{today()}-{name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


def finish(results, output):
    """Print them, and write them to a file where one is named."""
    text = json.dumps(results, indent=1)
    print(text)
    if output:
        Path(output).write_text(text + "\n", encoding="utf-8")
