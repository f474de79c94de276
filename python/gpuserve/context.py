"""What models share: threads, a memory budget, a log."""

from __future__ import annotations

import json
import logging
import threading
from ctypes import byref, c_void_p, cast
from typing import Any, Dict, Optional

from . import _abi
from ._library import call, encode_path, library, text_of
from .errors import ClosedError

_levels = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO, 4: logging.DEBUG}
_logger = logging.getLogger("gpuserve")


def _log(_user: Optional[int], level: int, message: Optional[bytes]) -> None:
    _logger.log(_levels.get(level, logging.INFO), (message or b"").decode("utf-8", "replace"))


# Called by the library's threads, so it must live as long as the process.
_log_function = _abi.LogFunction(_log)


class Context:
    """Threads, budgets and logging that several models share.

    A :class:`Model` without one gets its own. The library's log goes to the logger ``gpuserve``.

    Args:
        n_threads: compute threads; default: what the affinity mask and the cgroup allow.
        memory_budget: most bytes for all models together; default: none.
        plugin_dir: where ``libgpuserve-cuda.so`` is looked for first.
        cache_dir: the Hugging Face cache; default as in ``huggingface_hub``.
        log_level: the least level, of ``logging``, that is worth a line.
    """

    def __init__(self, *, n_threads: int = 0, memory_budget: int = 0,
                 plugin_dir: Optional[str] = None, cache_dir: Optional[str] = None,
                 log_level: int = logging.WARNING) -> None:
        self._library = library()
        self._handle: Optional[c_void_p] = None
        self._lock = threading.Lock()
        options = _abi.new(
            _abi.ContextOptions, n_threads=n_threads, memory_budget_bytes=memory_budget,
            log=cast(_log_function, c_void_p), log_level=_level_of(log_level),
            plugin_dir=encode_path(plugin_dir) if plugin_dir else None,
            cache_dir=encode_path(cache_dir) if cache_dir else None)
        handle = c_void_p()
        call(self._library.gpuserve_context_create, byref(handle), byref(options))
        self._handle = handle

    def _open_handle(self) -> c_void_p:
        if self._handle is None:
            raise ClosedError("the context was closed")
        return self._handle

    def metrics(self) -> str:
        """Statistics of all models of the context, as Prometheus text."""
        return text_of(self._library.gpuserve_context_metrics, self._open_handle())

    def doctor(self) -> Dict[str, Any]:
        """What works on this machine and what does not."""
        facts: Dict[str, Any] = json.loads(
            text_of(self._library.gpuserve_context_doctor, self._open_handle()))
        return facts

    def close(self) -> None:
        """Let go of the context; open models keep it alive themselves."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            self._library.gpuserve_context_unref(byref(handle))

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()


def _level_of(level: int) -> int:
    for mine, theirs in _levels.items():
        if level >= theirs:
            return mine
    return 4
