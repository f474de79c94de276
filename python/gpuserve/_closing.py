"""Handles of the library as Python knows such things: closed by ``with``, or when they are forgotten."""

from __future__ import annotations

from ctypes import c_void_p
from typing import Optional, TypeVar

Kept = TypeVar("Kept", bound="Closing")


class Closing:
    """What owns a handle; close() gives it back and may be called again."""

    _handle: Optional[c_void_p] = None

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: Kept) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._handle is not None:
            self.close()
