"""Tensors of torch where sentence-transformers returns them. torch is imported at first use; without it a result
that would be a tensor is a numpy array."""

from __future__ import annotations

import importlib
import importlib.util
from functools import lru_cache
from typing import Any, List, Sequence, cast

import numpy as np

from .._ffi.calls import Floats
from ..errors import InvalidError, UnsupportedError


@lru_cache(maxsize=None)
def torch() -> Any:
    """The module torch; None without it."""
    return importlib.import_module("torch") if importlib.util.find_spec("torch") else None


def require(argument: str) -> None:
    """Refuse an argument that asks for a tensor by name."""
    if torch() is None:
        raise UnsupportedError(f"{argument} needs torch, which is not installed", "pip install torch")


def tensor(values: Any) -> Any:
    """A tensor that shares the memory of an array; the array without torch."""
    return values if torch() is None else torch().from_numpy(np.ascontiguousarray(values))


def sparse_tensor(values: Floats) -> Any:
    """A sparse COO tensor of rows; the rows without torch."""
    return values if torch() is None else torch().from_numpy(values).to_sparse()


def device(name: str) -> Any:
    """A torch.device; the name without torch."""
    return name if torch() is None else torch().device(name)


def array(values: Any) -> Any:
    """An array of an array, a tensor, or a list of either; sparse tensors become dense."""
    if isinstance(values, np.ndarray):
        return cast(Any, values)
    if hasattr(values, "detach"):
        dense = values.detach().to_dense() if values.layout != torch().strided else values.detach()
        dense = dense.cpu()
        return dense.float().numpy() if dense.dtype == torch().bfloat16 else dense.numpy()
    many: List[Any] = list(cast(Any, values)) if isinstance(values, (list, tuple)) else []
    if many and not np.isscalar(many[0]):
        return np.stack([array(one) for one in many])
    return np.asarray(cast(Any, values))


def rows(values: Any, name: str = "embeddings") -> Floats:
    """Vectors as float32 rows; one vector is one row."""
    found: Floats = np.atleast_2d(np.asarray(array(values), dtype=np.float32))
    if found.ndim != 2:
        raise InvalidError(f"{name} has {found.ndim} dimensions, vectors have 1 or 2")
    return found


def padded(lists: Sequence[Sequence[int]], value: int, left: bool = False) -> Any:
    """Lists of numbers as the rows of one array."""
    width = max((len(one) for one in lists), default=0)
    made = np.full((len(lists), width), value, dtype=np.int64)
    for row, one in zip(made, lists):
        if len(one):
            row[width - len(one) if left else 0:][:len(one)] = one
    return made
