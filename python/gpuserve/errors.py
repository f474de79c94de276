"""The errors of the package: one class for each kind of failure, with what to do about it.

Every error of the library arrives as a :class:`GpuserveError` whose ``hint`` says how to mend it.
Where Python has a word for the same thing, the class is that word too: a bad argument is a
``ValueError``, a missing model a ``FileNotFoundError``, no memory a ``MemoryError``.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Type


class GpuserveError(Exception):
    """Anything the library refused or failed at.

    Attributes:
        status: the library's status code, see ``gpuserve/types.h``.
        hint: what to do about it; may be empty.
        retry_after: seconds after which to try again, for :class:`BusyError`.
    """

    status: int = -1

    def __init__(self, message: str, hint: str = "", retry_after: Optional[float] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class InvalidError(GpuserveError, ValueError):
    """An argument or a text is wrong: mend the call."""

    status = 1


class NotFoundError(GpuserveError, FileNotFoundError):
    """No such file, model, tensor, label or device."""

    status = 2


class FormatError(GpuserveError, ValueError):
    """A file of the model is corrupt or contradicts another: get it anew."""

    status = 3


class UnsupportedError(GpuserveError, NotImplementedError):
    """Understood, but this version cannot do it."""

    status = 4


class OutOfMemoryError(GpuserveError, MemoryError):
    """The host is out of memory; nothing was lost."""

    status = 5


class TooLargeError(GpuserveError, ValueError):
    """Over a limit or a budget that the message names."""

    status = 6


class BusyError(GpuserveError):
    """The queue is full: try again after ``retry_after`` seconds."""

    status = 7


class DeviceError(GpuserveError, RuntimeError):
    """The device is missing or failed."""

    status = 8


class ReadError(GpuserveError, OSError):
    """The operating system could not read or write a file."""

    status = 9


class CancelledError(GpuserveError):
    """The request was cancelled before it ran."""

    status = 10


class ExpiredError(GpuserveError, TimeoutError):
    """The deadline passed before the request ran."""

    status = 11


class WaitTimeoutError(GpuserveError, TimeoutError):
    """A wait ended; the request itself goes on."""

    status = 12


class ForkedError(GpuserveError, RuntimeError):
    """Used in a child process after ``fork()``."""

    status = 13


class NumericError(GpuserveError, ArithmeticError):
    """Some rows are NaN or infinite.

    Attributes:
        rows: their numbers; the others are good.
        result: the rows that were being computed.
    """

    status = 14
    rows: List[int] = []
    result: Any = None


class InternalError(GpuserveError, RuntimeError):
    """A fault of gpuserve itself: please report it."""

    status = 15


class MismatchError(GpuserveError, ValueError):
    """The model has another fingerprint than the one expected."""

    status = 16


class ClosedError(GpuserveError, ValueError):
    """The model was closed."""


class LibraryError(GpuserveError, ImportError):
    """libgpuserve is missing or of another version than this package."""


_by_status: Dict[int, Type[GpuserveError]] = {
    kind.status: kind
    for kind in (
        InvalidError, NotFoundError, FormatError, UnsupportedError, OutOfMemoryError, TooLargeError,
        BusyError, DeviceError, ReadError, CancelledError, ExpiredError, WaitTimeoutError,
        ForkedError, NumericError, InternalError, MismatchError,
    )
}


def error_of(status: int, message: str, hint: str, retry_after_ms: int = 0) -> GpuserveError:
    """The error for a status that the library returned."""
    if status == ForkedError.status:
        hint = (
            "a model cannot cross fork(): start processes with "
            'multiprocessing.get_context("spawn"), or open the model in the child'
        )
    kind = _by_status.get(status, GpuserveError)
    error = kind(message or f"gpuserve failed with status {status}", hint,
                 retry_after_ms / 1000 if status == BusyError.status else None)
    error.status = status
    return error
