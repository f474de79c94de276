"""Single values as the library's fields hold them: whole numbers, and texts that end with a NUL."""

from __future__ import annotations

from typing import Any, Optional

from .errors import InvalidError


def whole(value: Any, name: str) -> int:
    """An int or what stands for one, as those of numpy do."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {type(value).__name__}, not a whole number")
    found: int = value.__index__()
    return found


def number(value: Any, name: str, bits: int = 32) -> int:
    """A whole number that the library's field can hold; ctypes would wrap any other."""
    found = whole(value, name)
    if not 0 <= found < 1 << bits:
        raise InvalidError(f"{name} is {found}, it must be 0 to {(1 << bits) - 1}")
    return found


def text(value: Any, name: str) -> Optional[bytes]:
    """A name, a prompt or the like, which the library takes up to its NUL."""
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
