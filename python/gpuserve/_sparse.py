"""Sparse vectors: the positive entries of a row with one value per vocabulary entry."""

from __future__ import annotations

from ctypes import CDLL, POINTER, c_uint32, cast
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._ffi import texts as _texts
from ._ffi.calls import Floats


class Sparse(NamedTuple):
    """Token weights of a text, in ascending token id order."""

    ids: "NDArray[np.uint32]"
    weights: Floats


def compact(library: CDLL, row: Floats) -> Sparse:
    """The positive entries of a row."""
    n: int = library.gpuserve_sparse_compact(_texts.address(row), row.size, None, None, 0)
    ids = np.empty(n, dtype=np.uint32)
    weights = np.empty(n, dtype=np.float32)
    if n:
        library.gpuserve_sparse_compact(_texts.address(row), row.size,
                                        cast(_texts.address(ids), POINTER(c_uint32)),
                                        _texts.address(weights), n)
    return Sparse(ids, weights)
