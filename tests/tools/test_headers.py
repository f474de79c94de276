#!/usr/bin/env python3
"""The host compiler finds every header of CUDA in the emulator: test_headers.py BUILD

A machine with a CUDA toolkit among the compiler's own folders compiles what one without it does not.
"""
import re
import subprocess
import sys

CUDA = re.compile(r"^\s+/.*/(cuda\w*|cublas\w*|cudnn\w*|curand\w*|nvrtc)\.h$")


def main():
    output = subprocess.run(["ninja", "-C", sys.argv[1], "-t", "deps"], stdout=subprocess.PIPE, text=True, check=True).stdout
    target, objects, wrong = "", 0, []
    for line in output.splitlines():
        if line and not line[0].isspace():
            target, objects = line.split(":")[0], objects + 1
        elif CUDA.match(line) and not target.endswith(".cu.o"):  # those are nvcc's
            wrong.append(f"{target}: {line.strip()}")
    for line in wrong[:20]:
        print("a header of the toolkit:", line)
    passed = objects > 100 and not wrong
    print(f"{int(passed)} passed, {int(not passed)} failed")
    return not passed


if __name__ == "__main__":
    sys.exit(main())
