#!/usr/bin/env python3
"""Largest errors of the functions of elementwise chains over every float32 number.

    benchmarks/chain_range.py RESULT.json [--program build/tests/kernels/test_kernel_chain] [--parts 1024]
                              [--processes 2] [--stride 1]

The test program of tests/kernels/test_chain.c compares each instruction set of the machine with float64
functions of the C library. It takes the bit patterns in parts, each in a process of its own. RESULT.json
has, for each instruction set and function, the largest error in units in the last place (ULP) and its
argument. The exit status is 1 if an error exceeds the test's limit.

One core needs about half an hour. The findings of each part are lines of RESULT.json.parts, which a run that was
interrupted reads again; a part must end within the test's time limit of 100 s.
"""
import argparse
import concurrent.futures
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

LINE = re.compile(r"^cpu (\w+), 1 threads: (\w+) is within ([\d.]+|inf) ULP, at (\S+)$", re.MULTILINE)


def run_part(args, part):
    """{"part", "passed", "found": [[instruction set, function, ULP, argument]]}."""
    done = subprocess.run([args.program, "--filter", "chain/functions_over_all_magnitudes"],
                          env=os.environ | {"GPUSERVE_CHAIN_STRIDE": str(args.stride),
                                            "GPUSERVE_CHAIN_PART": f"{part}/{args.parts}"},
                          capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    found = LINE.findall(text)
    if not found:
        raise RuntimeError(f"part {part}: the test printed no errors:\n{text}")
    return {"part": f"{part}/{args.parts}/{args.stride}", "passed": done.returncode == 0, "found": found}


def run_parts(args):
    path = Path(str(args.result) + ".parts")
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    known = {row["part"] for row in rows}
    missing = [i for i in range(args.parts) if f"{i}/{args.parts}/{args.stride}" not in known]
    with path.open("a", encoding="utf-8") as file, concurrent.futures.ThreadPoolExecutor(args.processes) as pool:
        for row in pool.map(lambda i: run_part(args, i), missing):
            rows.append(row)
            print(json.dumps(row), file=file, flush=True)
    path.unlink()
    return rows


def processor():
    try:
        return re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)[1]
    except (OSError, TypeError):
        return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("--program", default="build/tests/kernels/test_kernel_chain")
    parser.add_argument("--parts", type=int, default=1024)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--stride", type=int, default=1)
    args = parser.parse_args()

    worst = {}
    rows = run_parts(args)
    for isa, function, ulp, at in (one for row in rows for one in row["found"]):
        best = worst.setdefault(isa, {})
        if float(ulp) >= best.get(function, {"ulp": -1})["ulp"]:
            best[function] = {"ulp": float(ulp), "at": at}
    passed = all(row["passed"] for row in rows)
    args.result.write_text(json.dumps({
        "what": "largest error of each chain function in ULP, and its argument",
        "reference": "float64 functions of the C library", "stride": args.stride, "processor": processor(),
        "libc": " ".join(platform.libc_ver()), "passed": passed, "functions": worst}, indent=1) + "\n", "utf-8")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
