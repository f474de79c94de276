"""Exceptions of the package: one class for each kind of failure, with a hint how to fix it.

Every error of the library is raised as a :class:`GpuserveError` with a ``hint``. Where a built-in
exception matches, the class also derives from it: an invalid argument is a ``ValueError``, a
missing model a ``FileNotFoundError``, no memory a ``MemoryError``.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Type


class GpuserveError(Exception):
    """Base class of all errors of the library.

    Attributes:
        status: the library's status code, see ``gpuserve/types.h``.
        hint: how to fix it; may be empty.
        retry_after: seconds to wait before a retry, for :class:`BusyError`.
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
    """An argument or a text is invalid: correct the call."""

    status = 1


class NotFoundError(GpuserveError, FileNotFoundError):
    """No such file, model, tensor, label or device."""

    status = 2


class FormatError(GpuserveError, ValueError):
    """A file of the model is corrupt or contradicts another: download it again."""

    status = 3


class UnsupportedError(GpuserveError, NotImplementedError):
    """Valid, but not supported by this version."""

    status = 4


class OutOfMemoryError(GpuserveError, MemoryError):
    """The host is out of memory; no data was lost."""

    status = 5


class TooLargeError(GpuserveError, ValueError):
    """Over a limit or a budget named in the message."""

    status = 6


class BusyError(GpuserveError):
    """The queue is full: retry after ``retry_after`` seconds."""

    status = 7


class DeviceError(GpuserveError, RuntimeError):
    """The device is missing or failed."""

    status = 8


class ReadError(GpuserveError, OSError):
    """The operating system failed to read or write a file."""

    status = 9


class CancelledError(GpuserveError):
    """The request was cancelled before it ran."""

    status = 10


class ExpiredError(GpuserveError, TimeoutError):
    """The deadline passed before the request ran."""

    status = 11


class WaitTimeoutError(GpuserveError, TimeoutError):
    """The wait timed out; the request itself continues."""

    status = 12


class ForkedError(GpuserveError, RuntimeError):
    """Used in a child process after ``fork()``."""

    status = 13


class NumericError(GpuserveError, ArithmeticError):
    """Some rows are NaN or infinite.

    Attributes:
        rows: their indices; the other rows are valid.
        result: the computed rows.
    """

    status = 14
    rows: List[int] = []
    result: Any = None


class InternalError(GpuserveError, RuntimeError):
    """A bug in gpuserve: please report it."""

    status = 15


class MismatchError(GpuserveError, ValueError):
    """The model's fingerprint differs from the expected one."""

    status = 16


class DownloadError(NotFoundError):
    """The model is not in the cache, and fetching it failed."""


class ClosedError(GpuserveError, ValueError):
    """The model was closed."""


class LibraryError(GpuserveError, ImportError):
    """libgpuserve is missing or its version differs from this package."""


_by_status: Dict[int, Type[GpuserveError]] = {
    kind.status: kind
    for kind in (
        InvalidError, NotFoundError, FormatError, UnsupportedError, OutOfMemoryError, TooLargeError,
        BusyError, DeviceError, ReadError, CancelledError, ExpiredError, WaitTimeoutError,
        ForkedError, NumericError, InternalError, MismatchError,
    )
}


def error_of(status: int, message: str, hint: str, retry_after_ms: int = 0) -> GpuserveError:
    """The exception for a status of the library."""
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
