"""Find libgpuserve, load it once, and convert its status codes to exceptions."""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import byref, c_size_t
from pathlib import Path
from typing import Any, Callable, List, Optional

from . import abi
from .._version import __version__
from ..errors import LibraryError, error_of

#: ABI version of this package: the number at the end of the library's name.
ABI_VERSION = 0
SONAME = f"libgpuserve.so.{ABI_VERSION}"
VARIABLE = "GPUSERVE_LIBRARY"

_lock = threading.RLock()  # reentrant: close() from the garbage collector may acquire it again
_loaded: Optional[ctypes.CDLL] = None


def _candidates() -> List[str]:
    """Candidate paths of the library: set by the user, inside the wheel, known to the system."""
    named = os.environ.get(VARIABLE)
    if named:
        return [named]
    return [str(Path(__file__).parents[1] / "_native" / SONAME), SONAME]


def _open() -> ctypes.CDLL:
    reasons: List[str] = []
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            reasons.append(f"{path}: {error}")
    raise LibraryError(
        "libgpuserve cannot be loaded: " + "; ".join(reasons),
        f"install the gpuserve wheel, or name the library in {VARIABLE}",
    )


def _check(library: ctypes.CDLL) -> ctypes.CDLL:
    try:
        abi.bind(library)
    except AttributeError as error:
        raise LibraryError(
            f"the library found is no libgpuserve of version {__version__}: {error}",
            "install the wheel and the library of the same version",
        ) from None
    version = library.gpuserve_abi_version()
    if version != ABI_VERSION:
        raise LibraryError(
            f"libgpuserve has binary interface {version}, this package needs {ABI_VERSION}",
            "install the wheel and the library of the same version",
        )
    return library


def library() -> ctypes.CDLL:
    """The library, loaded at the first call."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _check(_open())
    return _loaded


def version() -> str:
    """The version of the library itself."""
    text: bytes = library().gpuserve_version()
    return text.decode()


def raise_status(status: int, error: abi.Error) -> None:
    """Raise the exception for the ``error`` of a failed call."""
    raise error_of(status, error.message.decode("utf-8", "replace"),
                   error.hint.decode("utf-8", "replace"), error.retry_after_ms)


def call(function: Callable[..., int], *arguments: Any) -> None:
    """Call a function whose last argument is an error, and raise its exception."""
    error = abi.new(abi.Error)
    status = function(*arguments, byref(error))
    if status != abi.OK:
        raise_status(status, error)


def text_of(function: Callable[..., int], *arguments: Any) -> str:
    """The text of a function that fills a buffer and reports the required size."""
    capacity = 4096
    while True:
        buffer = ctypes.create_string_buffer(capacity)
        size = c_size_t()
        error = abi.new(abi.Error)
        status = function(*arguments, buffer, capacity, byref(size), byref(error))
        if status == abi.E_TOO_LARGE and size.value > capacity:
            capacity = size.value
            continue
        if status != abi.OK:
            raise_status(status, error)
        return buffer.raw[: size.value - 1].decode("utf-8")


def encode_path(path: "str | os.PathLike[str]") -> bytes:
    """Encode a path or name for the library."""
    return os.fsencode(os.fspath(path))
