"""Functions of ``sentence_transformers.util`` for inference."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set, Tuple

import numpy as np

from .._ffi.arguments import unit
from ..quantization import quantize_embeddings
from ._similarity import (
    Score, SimilarityFunction, cos_sim, dot_score, euclidean_sim, manhattan_sim, pairwise_cos_sim, pairwise_dot_score,
    pairwise_euclidean_sim, pairwise_manhattan_sim,
)
from ._tensors import array, rows, tensor

__all__ = [
    "SimilarityFunction", "cos_sim", "dot_score", "euclidean_sim", "manhattan_sim", "normalize_embeddings",
    "pairwise_cos_sim", "pairwise_dot_score", "pairwise_euclidean_sim", "pairwise_manhattan_sim",
    "paraphrase_mining", "paraphrase_mining_embeddings", "pytorch_cos_sim", "quantize_embeddings",
    "semantic_search", "truncate_embeddings",
]

#: Name in older versions.
pytorch_cos_sim = cos_sim


def normalize_embeddings(embeddings: Any) -> Any:
    """Vectors with L2 norm 1."""
    return tensor(unit(rows(embeddings)))


def truncate_embeddings(embeddings: Any, truncate_dim: Optional[int]) -> Any:
    """The first values of each vector, in the type of the vectors."""
    return embeddings[..., :truncate_dim]


def _best(scores: Any, top_k: int) -> Any:
    """Columns of the largest scores of each row, best first; equal scores in the order of the columns."""
    n = int(scores.shape[1])
    kept: Any
    if top_k < n:
        kept = np.sort(np.argpartition(-scores, top_k - 1, axis=1)[:, :top_k], axis=1)
    else:
        kept = np.broadcast_to(np.arange(n), scores.shape)
    order = np.argsort(-np.take_along_axis(scores, kept, axis=1), axis=1, kind="stable")
    return np.take_along_axis(kept, order, axis=1)


def semantic_search(query_embeddings: Any, corpus_embeddings: Any, query_chunk_size: int = 100,
                    corpus_chunk_size: int = 500000, top_k: int = 10,
                    score_function: Score = cos_sim) -> List[List[Dict[str, Any]]]:
    """The `top_k` rows of a corpus with the largest scores for each query.

    Args:
        query_embeddings, corpus_embeddings: rows of vectors; one query may be a single vector.
        query_chunk_size, corpus_chunk_size: rows that are compared at a time.
        top_k: hits of a query.
        score_function: scores of all pairs.

    Returns:
        For each query a list of ``{"corpus_id", "score"}``, best first.
    """
    queries, corpus = rows(query_embeddings), rows(corpus_embeddings)
    found: List[List[Dict[str, Any]]] = []
    for first in range(0, len(queries), query_chunk_size):
        part = tensor(queries[first:first + query_chunk_size])
        scores: Any = np.empty((len(part), 0), dtype=np.float32)
        ids: Any = np.empty((len(part), 0), dtype=np.int64)
        for begin in range(0, len(corpus), corpus_chunk_size):
            made = array(score_function(part, tensor(corpus[begin:begin + corpus_chunk_size])))
            columns: Any = np.broadcast_to(np.arange(begin, begin + int(made.shape[1])), made.shape)
            scores, ids = np.concatenate([scores, made], axis=1), np.concatenate([ids, columns], axis=1)
            best = _best(scores, top_k)
            scores, ids = np.take_along_axis(scores, best, axis=1), np.take_along_axis(ids, best, axis=1)
        found += [[{"corpus_id": int(i), "score": float(score)} for i, score in zip(*row)]
                  for row in zip(ids, scores)]
    return found


def paraphrase_mining_embeddings(embeddings: Any, query_chunk_size: int = 5000, corpus_chunk_size: int = 100000,
                                 max_pairs: int = 500000, top_k: int = 100,
                                 score_function: Score = cos_sim) -> List[List[Any]]:
    """The pairs of rows with the largest scores.

    Args:
        embeddings: rows of vectors.
        query_chunk_size, corpus_chunk_size: rows that are compared at a time.
        max_pairs: pairs of the result.
        top_k: other rows that are considered for each row.
        score_function: scores of all pairs.

    Returns:
        Lists ``[score, i, j]`` with i < j, best first.
    """
    hits = semantic_search(embeddings, embeddings, query_chunk_size, corpus_chunk_size, top_k + 1, score_function)
    seen: Set[Tuple[int, int]] = set()
    pairs: List[List[Any]] = []
    for i, row in enumerate(hits):
        for hit in row:
            j = hit["corpus_id"]
            pair = (min(i, j), max(i, j))
            if i != j and pair not in seen:
                seen.add(pair)
                pairs.append([hit["score"], *pair])
    return sorted(pairs, key=lambda pair: -pair[0])[:max_pairs]


def paraphrase_mining(model: Any, sentences: List[str], show_progress_bar: bool = False, batch_size: int = 32,
                      query_chunk_size: int = 5000, corpus_chunk_size: int = 100000, max_pairs: int = 500000,
                      top_k: int = 100, score_function: Score = cos_sim, truncate_dim: Optional[int] = None,
                      prompt_name: Optional[str] = None, prompt: Optional[str] = None) -> List[List[Any]]:
    """The pairs of texts with the largest scores, see :func:`paraphrase_mining_embeddings`."""
    vectors = model.encode(sentences, show_progress_bar=show_progress_bar, batch_size=batch_size,
                           truncate_dim=truncate_dim, prompt_name=prompt_name, prompt=prompt)
    return paraphrase_mining_embeddings(vectors, query_chunk_size, corpus_chunk_size, max_pairs, top_k,
                                        score_function)
