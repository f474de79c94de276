#!/usr/bin/env python3
"""Each target that `./dev` names exists in the build: a command that names an unknown target fails only when someone runs it.

    test_targets.py BUILD    the folder of a build with the tests
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(r"^\s*(?:\w+=\S+ )*compile build (.+)$", re.MULTILINE)
LIBRARY = '"$(library_target)"'
# gemm_chain is built where oneDNN is, cpuid_limit.so on x86-64; bench.sh asks before.
OPTIONAL = {"benchmarks/gemm_chain", "benchmarks/cpuid_limit.so"}


def targets():
    """(script, target), for each of `compile build TARGET...`; variables are left out."""
    version = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text(encoding="utf-8"))[1]
    for script in sorted((ROOT / "tools/dev").glob("*.sh")):
        for line in LINE.findall(script.read_text(encoding="utf-8")):
            for word in line.split():
                word = word.replace(LIBRARY, f"lib/libgpuserve.so.{version}")
                if "$" not in word:
                    yield script.name, word


def main():
    build, found = sys.argv[1], sorted(set(targets()))
    listed = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], check=True, text=True, stdout=subprocess.PIPE).stdout
    known = {line.split(":", 1)[0] for line in listed.splitlines()}
    unknown = [f"tools/dev/{script}: {target} is no target of the build" for script, target in found
               if target not in known | OPTIONAL]
    if len(found) < 15:
        unknown.append(f"only {len(found)} targets are found in tools/dev")
    print("\n".join(unknown))
    print(f"{len(found) - len(unknown)} passed, {len(unknown)} failed")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
