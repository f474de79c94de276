#!/usr/bin/env python3
"""Compile every source with each named compiler, warnings as errors, writing nothing.

    check_warnings.py [--jobs N] compile_commands.json COMPILER...

The commands are the build's own, so that its options, warnings included, hold; only the compiler
is exchanged and the output left out. C++ sources get the C++ driver of the same compiler.
"""
import argparse
import json
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

CXX = {"gcc": "g++", "clang": "clang++"}
# clang has no opinion on gcc's options and the other way round.
QUIET = {"gcc": [], "clang": ["-Wno-unknown-warning-option", "-Wno-ignored-optimization-argument"]}
DROPPED_WITH_VALUE = ("-o", "-MF", "-MQ", "-MT")
DROPPED = ("-MD", "-MMD", "-c", "-pipe")
# What an initializer leaves out is zero: meson.build says so too, before -Wextra says otherwise.
WARNINGS = ["-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", "-fsyntax-only"]


def command_for(compiler, entry):
    words = shlex.split(entry["command"])
    if words[0] == "ccache":
        words = words[1:]
    is_cxx = entry["file"].endswith((".cc", ".cpp", ".cu"))
    kept, skip = [], False
    for word in words[1:]:
        if skip:
            skip = False
        elif word in DROPPED_WITH_VALUE:
            skip = True
        elif word not in DROPPED:
            kept.append(word)
    return [CXX[compiler] if is_cxx else compiler, *kept, *QUIET[compiler], *WARNINGS]


def check(job):
    compiler, entry = job
    done = subprocess.run(command_for(compiler, entry), cwd=entry["directory"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode == 0, done.stdout


def main():
    parser = argparse.ArgumentParser(description="Compile with warnings as errors.")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("commands")
    parser.add_argument("compilers", nargs="+", choices=list(CXX))
    args = parser.parse_args()

    with open(args.commands, encoding="utf-8") as file:
        # Custom commands (nvcc's) are not compilations that gcc or clang could repeat.
        entries = [entry for entry in json.load(file)
                   if shlex.split(entry["command"])[0] in ("cc", "c++", "gcc", "g++", "clang",
                                                          "clang++", "ccache")]
    jobs = [(compiler, entry) for compiler in args.compilers for entry in entries]
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(check, jobs))
    for good, output in results:
        if not good:
            print(output)
    failed = sum(not good for good, _ in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
