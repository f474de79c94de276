#!/usr/bin/env python3
"""Embed a file of any size, a line a text, into a .npy file, in memory that does not grow.

    python3 examples/python/stream_large_file.py --input big.txt --output big.npy
"""
import resource

import numpy as np

from common import arguments
from gpuserve import Model


def count_lines(path):
    with open(path, "rb") as file:
        return sum(1 for _ in file)


def lines(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            yield line.rstrip("\n")


def main():
    given = arguments(__doc__.split("\n")[0], input=("big.txt", "a line a text"),
                      output=("big.npy", "float32 [lines, dim]"))
    with Model(given.model, device=given.device) as model:
        n = count_lines(given.input)
        # The file is written page by page as the vectors come; the array is never in memory whole.
        made = np.lib.format.open_memmap(given.output, mode="w+", dtype=np.float32,
                                         shape=(n, model.dim))
        row = 0
        for vectors in model.encode_stream(lines(given.input)):
            made[row:row + len(vectors)] = vectors
            row += len(vectors)
        made.flush()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{row} vectors in {given.output}; at most {peak} MB were in use")


if __name__ == "__main__":
    main()
