"""Similarity functions of sentence-transformers over arrays and tensors."""

from __future__ import annotations

from enum import Enum
from typing import Any, Callable, Dict, List, Tuple, Union

import numpy as np

from .._ffi.arguments import unit
from .._ffi.calls import Floats
from ..errors import InvalidError
from ._tensors import rows, tensor

#: Scores of all pairs, or of rows with the same index.
Score = Callable[[Any, Any], Any]


def _both(a: Any, b: Any) -> Tuple[Floats, Floats]:
    one, other = rows(a), rows(b)
    if one.shape[1] != other.shape[1]:
        raise InvalidError(f"vectors of {one.shape[1]} numbers and of {other.shape[1]}: their spaces differ")
    return one, other


def _aligned(a: Any, b: Any) -> Tuple[Floats, Floats]:
    one, other = _both(a, b)
    if len(one) != len(other):
        raise InvalidError(f"{len(one)} vectors and {len(other)}: each is compared with one")
    return one, other


def dot_score(a: Any, b: Any) -> Any:
    """Dot product of each row of `a` with each row of `b`."""
    one, other = _both(a, b)
    return tensor(one @ other.T)


def cos_sim(a: Any, b: Any) -> Any:
    """Cosine similarity of each row of `a` with each row of `b`."""
    one, other = _both(a, b)
    return tensor(unit(one) @ unit(other).T)


def _distances(a: Any, b: Any, norm: Callable[[Floats], Floats]) -> Any:
    one, other = _both(a, b)
    made: Floats = np.empty((len(one), len(other)), dtype=np.float32)
    for row, vector in zip(made, one):  # a row at a time: the differences of all pairs take too much memory
        row[:] = norm(other - vector)
    return tensor(-made)


def _l1(differences: Floats) -> Floats:
    found: Floats = np.abs(differences).sum(axis=1)
    return found


def _l2(differences: Floats) -> Floats:
    found: Floats = np.sqrt(np.einsum("ij,ij->i", differences, differences))
    return found


def euclidean_sim(a: Any, b: Any) -> Any:
    """Negative Euclidean distance of each row of `a` to each row of `b`."""
    return _distances(a, b, _l2)


def manhattan_sim(a: Any, b: Any) -> Any:
    """Negative Manhattan distance of each row of `a` to each row of `b`."""
    return _distances(a, b, _l1)


def pairwise_dot_score(a: Any, b: Any) -> Any:
    """Dot product of row i of `a` with row i of `b`."""
    one, other = _aligned(a, b)
    return tensor(np.einsum("ij,ij->i", one, other))


def pairwise_cos_sim(a: Any, b: Any) -> Any:
    """Cosine similarity of row i of `a` with row i of `b`."""
    one, other = _aligned(a, b)
    return tensor(np.einsum("ij,ij->i", unit(one), unit(other)))


def pairwise_euclidean_sim(a: Any, b: Any) -> Any:
    """Negative Euclidean distance of row i of `a` to row i of `b`."""
    one, other = _aligned(a, b)
    return tensor(-_l2(one - other))


def pairwise_manhattan_sim(a: Any, b: Any) -> Any:
    """Negative Manhattan distance of row i of `a` to row i of `b`."""
    one, other = _aligned(a, b)
    return tensor(-_l1(one - other))


class SimilarityFunction(Enum):
    """Names of the similarity functions."""

    COSINE = "cosine"
    DOT_PRODUCT = "dot"
    DOT = "dot"
    EUCLIDEAN = "euclidean"
    MANHATTAN = "manhattan"

    @staticmethod
    def to_similarity_fn(similarity_function: Union[str, "SimilarityFunction"]) -> Score:
        """The function of all pairs."""
        return _FUNCTIONS[name_of(similarity_function)][0]

    @staticmethod
    def to_similarity_pairwise_fn(similarity_function: Union[str, "SimilarityFunction"]) -> Score:
        """The function of rows with the same index."""
        return _FUNCTIONS[name_of(similarity_function)][1]

    @staticmethod
    def possible_values() -> List[str]:
        """All names."""
        return list(_FUNCTIONS)


_FUNCTIONS: Dict[str, Tuple[Score, Score]] = {
    "cosine": (cos_sim, pairwise_cos_sim),
    "dot": (dot_score, pairwise_dot_score),
    "euclidean": (euclidean_sim, pairwise_euclidean_sim),
    "manhattan": (manhattan_sim, pairwise_manhattan_sim),
}


def name_of(function: Any) -> str:
    """The checked name of a similarity function."""
    name = getattr(function, "value", function)  # an enum, theirs too
    if name not in _FUNCTIONS:
        raise InvalidError(f"similarity_fn_name {name!r} is unknown", "known are " + ", ".join(_FUNCTIONS))
    return str(name)
