#!/usr/bin/env python3
"""Write tests/data/compact-vectors.npz: vectors and what quantize_embeddings() of sentence-transformers
makes of them. Needs sentence-transformers 6; the test that reads the file does not.

    python tools/make_compact_vectors.py tests/data/compact-vectors.npz
"""
import sys

import numpy as np
from sentence_transformers.util.quantization import quantize_embeddings

PRECISIONS = ("int8", "uint8", "binary", "ubinary")


def main():
    random = np.random.default_rng(7)
    made = {}
    for dim in (1, 7, 8, 19, 384):
        calibration = random.normal(size=(200, dim)).astype(np.float32) * np.linspace(0.01, 3, dim, dtype=np.float32)
        calibration[:, dim // 2] = 0.25  # a range without width
        vectors = random.normal(size=(16, dim)).astype(np.float32) * np.linspace(0.01, 4, dim, dtype=np.float32)
        vectors[0] = calibration.min(axis=0)
        vectors[1] = calibration.max(axis=0)
        vectors[2] = 0
        vectors[3] = -0.0
        ranges = np.vstack((calibration.min(axis=0), calibration.max(axis=0)))
        made[f"vectors_{dim}"] = vectors
        made[f"ranges_{dim}"] = ranges
        for precision in PRECISIONS:
            made[f"{precision}_{dim}"] = quantize_embeddings(vectors, precision, ranges=ranges)
            made[f"own_{precision}_{dim}"] = quantize_embeddings(vectors, precision)
    np.savez_compressed(sys.argv[1], **made)


if __name__ == "__main__":
    main()
