"""Ownership of library handles: closed by ``with``, or by the garbage collector."""

from __future__ import annotations

from ctypes import c_void_p
from typing import TypeVar

Kept = TypeVar("Kept", bound="Closing")


class Closing:
    """Owner of a handle; close() releases it and is idempotent.

    The handle exists, as NULL, before the library opens it. Only the library sets it: to the opened
    object, and back to NULL. So an exception from a signal handler between any two instructions leaks
    nothing, and the next close() completes an interrupted one.
    """

    _handle: c_void_p = c_void_p()

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: Kept) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Twice: no other code completes a close() that an exception interrupted.
        try:
            if self._handle:
                self.close()
        finally:
            if self._handle:
                self.close()
