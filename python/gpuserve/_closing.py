"""Handles of the library as Python knows such things: closed by ``with``, or when they are forgotten."""

from __future__ import annotations

from ctypes import c_void_p
from typing import TypeVar

Kept = TypeVar("Kept", bound="Closing")


class Closing:
    """What owns a handle; close() gives it back and may be called again.

    The handle is there, NULL, before the library opens it, and only the library sets it: to what it opened, and to
    NULL again. So an exception of a signal handler between any two instructions leaves nothing open that has no
    owner, and a close() that it ended is finished by the next.
    """

    _handle: c_void_p = c_void_p()

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: Kept) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Twice: nobody else finishes a close() that an exception ended.
        try:
            if self._handle:
                self.close()
        finally:
            if self._handle:
                self.close()
