"""Scalar values for the library's fields: integers, and NUL-terminated texts."""

from __future__ import annotations

from typing import Any, Optional

from ..errors import InvalidError


def whole(value: Any, name: str) -> int:
    """An int or an integer type such as those of numpy."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {type(value).__name__}, not a whole number")
    found: int = value.__index__()
    return found


def number(value: Any, name: str, bits: int = 32) -> int:
    """An integer within the range of the library's field; ctypes would wrap other values."""
    found = whole(value, name)
    if not 0 <= found < 1 << bits:
        raise InvalidError(f"{name} is {found}, it must be 0 to {(1 << bits) - 1}")
    return found


def text(value: Any, name: str) -> Optional[bytes]:
    """A name, a prompt or similar, which the library reads up to its NUL."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{name} is {type(value).__name__}, not str")
    if "\0" in value:
        raise InvalidError(f"{name} holds a NUL at character {value.index(chr(0))}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidError(f"{name} has a lone surrogate at character {error.start}") from None
