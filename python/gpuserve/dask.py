"""Dask: embed a dataframe that does not fit in memory, or on a Dask cluster.

    import dask.dataframe as dd, gpuserve.dask
    frame = gpuserve.dask.embed(dd.read_parquet("s.parquet"), MODEL, "text")
    frame.to_parquet("o")
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .model import Model


@functools.lru_cache(maxsize=4)
def _opened(model: str, options: "tuple[tuple[str, Any], ...]") -> Model:
    """One model per process, shared by its partitions and threads."""
    return Model(model, **dict(options))


def _with_vectors(frame: Any, model: str, options: "tuple[tuple[str, Any], ...]", column: str,
                  output_column: str) -> Any:
    vectors = _opened(model, options).encode(frame[column].tolist())
    return frame.assign(**{output_column: list(np.asarray(vectors))})


def embed(frame: Any, model: str, column: str, *, output_column: str = "embedding",
          **options: Any) -> Any:
    """A Dask dataframe with an added column of vectors; computed when it is consumed.

    Args:
        frame: a ``dask.dataframe``.
        model: a directory or name that every worker can open.
        column: column of texts.
        options: as for :class:`gpuserve.Model`. Workers should be threads of one process, or one
            process per machine: each process has a copy of the model.
    """
    meta = frame._meta.assign(**{output_column: np.empty(0, dtype=object)})
    return frame.map_partitions(_with_vectors, model, tuple(sorted(options.items())), column,
                                output_column, meta=meta)
