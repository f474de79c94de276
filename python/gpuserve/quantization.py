"""Compact vectors: float16, int8, uint8 and sign bits, as sentence-transformers makes them.

    ranges = vector_ranges(model.encode(many_texts))
    small = quantize_embeddings(model.encode(texts), "int8", ranges=ranges)
"""

from __future__ import annotations

from itertools import count, takewhile
from typing import Any, Dict, List, Optional

import numpy as np
from numpy.typing import NDArray

from ._ffi import abi, texts as _texts
from ._ffi.arguments import named
from ._ffi.calls import Floats
from ._ffi.library import call, library
from .errors import InvalidError

PRECISIONS: Dict[str, int] = {
    name: getattr(abi, "PRECISION_" + name.upper())
    for name in ("float32", "float16", "int8", "uint8", "binary", "ubinary")
}
TYPES: Dict[str, Any] = {"float32": np.float32, "float16": np.float16, "int8": np.int8,
                         "uint8": np.uint8, "binary": np.int8, "ubinary": np.uint8}


def _vectors(given: Any, name: str) -> Floats:
    found: Floats = np.ascontiguousarray(given, dtype=np.float32)
    if found.ndim != 2:
        raise InvalidError(f"{name} has {found.ndim} dimensions, 2 are needed: [texts, values]")
    return found


def _ranges(given: Any, dim: int) -> Floats:
    found = _vectors(given, "ranges")
    if found.shape != (2, dim):
        raise InvalidError(f"ranges has the shape {found.shape}, (2, {dim}) is needed")
    return found


class Form:
    """The vectors of a job in a precision: the library makes them, or they are converted from float32."""

    def __init__(self, precision: str, dim: int, ranges: Optional[Any]) -> None:
        if precision not in PRECISIONS:
            raise InvalidError(f'precision "{precision}" is unknown', "known are " + ", ".join(PRECISIONS))
        self.precision = precision
        self.ranges = _ranges(ranges, dim) if precision in ("int8", "uint8") else None
        self.columns = dim
        #: Of the job. The addresses are valid as long as this object.
        self.fields: Dict[str, Any] = {}
        if precision != "float32":
            self.columns = int(library().gpuserve_quantized_bytes(PRECISIONS[precision], dim))
            self.fields["precision"] = PRECISIONS[precision]
        if self.ranges is not None:
            self.fields["ranges"] = _texts.address(self.ranges)

    def vectors(self, rows: Any) -> Any:
        """The output of a job with the fields of this form."""
        return rows.view(TYPES[self.precision])

    def convert(self, rows: Floats) -> Any:
        """One float32 vector, or rows of them."""
        if self.precision == "float32":
            return rows
        made = quantize_embeddings(rows.reshape(-1, rows.shape[-1]), self.precision, ranges=self.ranges)
        return made if rows.ndim == 2 else made[0]


def calibration_texts() -> List[str]:
    """The library's built-in texts, for ranges where a caller has no texts of its own."""
    made = (library().gpuserve_calibration_text(i) for i in count())
    return [text.decode() for text in takewhile(lambda text: text is not None, made)]


def vector_ranges(vectors: Any, margin: float = 0.0) -> Floats:
    """The range of each dimension: [2, dim], the minima before the maxima.

    Args:
        vectors: [n, dim], finite, of at least 2 texts; some hundreds are better.
        margin: widens each range by this share of its width at both ends, 0 to 1.
    """
    rows = _vectors(vectors, "vectors")
    ranges: Floats = np.empty((2, rows.shape[1]), dtype=np.float32)
    call(library().gpuserve_vector_ranges, _texts.address(rows), rows.shape[0], rows.shape[1], margin,
         _texts.address(ranges))
    return ranges


def quantize_embeddings(embeddings: Any, precision: str, ranges: Optional[Any] = None,
                        calibration_embeddings: Optional[Any] = None) -> "NDArray[Any]":
    """Vectors in a smaller type; the arguments and the bits are those of sentence-transformers.

    Args:
        embeddings: [n, dim] float32.
        precision: ``"float32"``, ``"float16"``, ``"int8"``, ``"uint8"``, ``"binary"`` or ``"ubinary"``
            (eight dimensions per byte).
        ranges: [2, dim] of :func:`vector_ranges`, for int8 and uint8. Vectors are comparable only if
            the same ranges made them.
        calibration_embeddings: vectors whose ranges are used if `ranges` is None. With neither, the
            ranges are those of `embeddings`, of which at least 2 are needed.
    """
    kind = named(PRECISIONS, precision, "precision")
    rows = _vectors(embeddings, "embeddings")
    n, dim = rows.shape
    limits: Optional[Floats] = None
    if precision in ("int8", "uint8") and n:
        limits = _ranges(ranges if ranges is not None else
                         vector_ranges(rows if calibration_embeddings is None else calibration_embeddings), dim)
    width: int = library().gpuserve_quantized_bytes(kind, dim)
    made: "NDArray[np.uint8]" = np.empty((n, width), dtype=np.uint8)
    call(library().gpuserve_quantize, _texts.address(rows), n, dim, kind,
         None if limits is None else _texts.address(limits), _texts.address(made), made.nbytes)
    return made.view(TYPES[precision])
