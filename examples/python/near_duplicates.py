#!/usr/bin/env python3
"""Find texts that say nearly the same, in bounded memory.

    python3 examples/python/near_duplicates.py
"""
import numpy as np

from common import arguments, reviews
from gpuserve import Model

#: Rows compared at a time: BLOCK x n similarities are in memory.
BLOCK = 512


def pairs_above(vectors, threshold):
    """(i, j, similarity) with i < j of all pairs that similar; vectors of length 1."""
    for first in range(0, len(vectors), BLOCK):
        block = vectors[first:first + BLOCK] @ vectors[first:].T
        rows, columns = np.nonzero(np.triu(block, 1) >= threshold)
        for row, column in zip(rows, columns):
            yield first + row, first + column, block[row, column]


def main():
    given = arguments(__doc__.split("\n")[0], texts=(5000, "how many reviews"),
                      threshold=(0.9, "least cosine similarity"))
    texts, _ = reviews(given.texts)
    with Model(given.model, device=given.device) as model:
        vectors = model.encode(texts, normalize_embeddings=True)
    found = sorted(pairs_above(vectors, given.threshold), key=lambda pair: -pair[2])
    print(f"{len(found)} pairs of {len(texts)} texts are at least {given.threshold} similar")
    for i, j, similarity in found[:5]:
        print(f"{similarity:.3f}  {i}: {texts[i][:70]!r}\n       {j}: {texts[j][:70]!r}")


if __name__ == "__main__":
    main()
