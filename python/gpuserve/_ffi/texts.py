"""Convert Python strings to the library's input: pointers and sizes into one block of UTF-8."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidError


class Packed(NamedTuple):
    """Concatenated texts; the arrays point into ``block``, which must stay alive with them."""

    block: bytes
    pointers: "NDArray[np.uint64]"
    sizes: "NDArray[np.uint64]"


def _encode(text: Any, index: int, what: str) -> bytes:
    try:
        encoded: bytes = text.encode("utf-8")
        return encoded
    except AttributeError:
        raise TypeError(f"{what} {index} is {type(text).__name__}, not str") from None
    except UnicodeEncodeError as error:
        raise InvalidError(
            f"{what} {index} has a lone surrogate at character {error.start}, which is no text",
            "decode the input with errors=\"replace\"",
        ) from None


def pack(texts: Sequence[str], what: str = "text", first: int = 0) -> Packed:
    """Pack texts into one block; ``first`` is the index of the first text, for messages."""
    parts: List[bytes] = [_encode(text, first + i, what) for i, text in enumerate(texts)]
    block = b"".join(parts)
    sizes = np.fromiter(map(len, parts), dtype=np.uint64, count=len(parts))
    pointers = np.empty(len(parts), dtype=np.uint64)
    base = np.frombuffer(block, dtype=np.uint8).__array_interface__["data"][0] if block else 0
    if len(parts):
        pointers[0] = 0
        np.cumsum(sizes[:-1], out=pointers[1:])
    # An empty block has no address of its own; the library requires a non-NULL pointer.
    pointers += np.uint64(base) if base else np.uint64(address(sizes))
    return Packed(block, pointers, sizes)


def token_ids(values: Any) -> "NDArray[np.int32]":
    """Token ids as int32; numpy would truncate fractions and wrap large values."""
    try:
        given = np.asarray(values)
    except ValueError as error:
        raise InvalidError(f"ids are not a list of token ids: {error}") from None
    if given.ndim != 1:
        raise InvalidError(f"ids of {given.ndim} dimensions: a list of token ids has one")
    if given.size == 0:
        return np.empty(0, dtype=np.int32)
    if given.dtype.kind not in "iu":
        raise InvalidError(f"ids are {given.dtype}, not whole numbers")
    if given.min() < 0 or given.max() > np.iinfo(np.int32).max:
        wrong = given[(given < 0) | (given > np.iinfo(np.int32).max)][0]
        raise InvalidError(f"{wrong} is not a token id")
    return np.ascontiguousarray(given, dtype=np.int32)


def address(array: "NDArray[Any]") -> int:
    """Address of an array's memory."""
    place: int = array.__array_interface__["data"][0]
    return place


def is_text(value: Any) -> bool:
    """True for one text; raises for anything that is neither a text nor a collection."""
    name = type(value).__name__
    if isinstance(value, str):
        return True
    if value is None:
        raise TypeError("inputs is None, not a str or a list of them")
    if isinstance(value, (bytes, bytearray, int, float, dict)):
        raise TypeError(f"inputs is {name}, not a str or a list of them")
    if isinstance(value, np.ndarray) and value.ndim != 1:
        raise TypeError(f"inputs is an array of {value.ndim} dimensions, texts have one")
    return False
