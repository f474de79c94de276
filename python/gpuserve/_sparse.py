"""Sparse vectors: the words above zero of a row as long as the vocabulary."""

from __future__ import annotations

from ctypes import CDLL, POINTER, c_uint32, cast
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _texts
from ._calls import Floats


class Sparse(NamedTuple):
    """The weights of a text's words, in the order of their token ids."""

    ids: "NDArray[np.uint32]"
    weights: Floats


def compact(library: CDLL, row: Floats) -> Sparse:
    """What of a row is above zero."""
    n: int = library.gpuserve_sparse_compact(_texts.address(row), row.size, None, None, 0)
    ids = np.empty(n, dtype=np.uint32)
    weights = np.empty(n, dtype=np.float32)
    if n:
        library.gpuserve_sparse_compact(_texts.address(row), row.size,
                                        cast(_texts.address(ids), POINTER(c_uint32)),
                                        _texts.address(weights), n)
    return Sparse(ids, weights)
