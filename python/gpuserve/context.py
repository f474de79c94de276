"""Contexts: threads, a memory budget and a log that models share."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import weakref
from ctypes import byref, c_void_p, cast
from typing import TYPE_CHECKING, Any, Dict, Generator, List, Optional

from ._ffi import abi
from ._ffi.arguments import Path, named
from ._ffi.closing import Closing
from ._ffi.library import call, encode_path, library, text_of
from ._ffi.values import number, text
from .errors import ClosedError, NotFoundError

if TYPE_CHECKING:
    from .model import Model

MEMORY_POLICIES: Dict[str, int] = {
    "refuse": abi.MEMORY_REFUSE, "wait": abi.MEMORY_WAIT, "evict": abi.MEMORY_EVICT,
}

_levels = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO, 4: logging.DEBUG}
_logger = logging.getLogger("gpuserve")


def _log(_user: Optional[int], level: int, message: Optional[bytes]) -> None:
    _logger.log(_levels.get(level, logging.INFO), (message or b"").decode("utf-8", "replace"))


# The library's threads call it, so it must live as long as the process.
_log_function = abi.LogFn(_log)


class Context(Closing):
    """Threads, budgets and logging that several models share.

    A :class:`Model` without one has a private context. The library logs to the logger ``gpuserve``.

    Args:
        n_threads: compute threads; default: one for each allowed physical core, at most the CPU quota,
            rounded to the nearest.
        memory_budget: max bytes of all models together; default: none.
        plugin_dir: first directory searched for ``libgpuserve-cuda.so``.
        cache_dir: the Hugging Face cache; default as in ``huggingface_hub``.
        log_level: lowest level, of ``logging``, that is logged.
        memory_policy: action for a model over a budget: ``"refuse"``, ``"wait"`` until other models
            are closed, or ``"evict"``: suspend idle models in LRU order.
        memory_wait: max wait for memory in seconds; default 30.
    """

    def __init__(self, *, n_threads: int = 0, memory_budget: int = 0,
                 plugin_dir: Optional[str] = None, cache_dir: Optional[str] = None,
                 log_level: int = logging.WARNING, memory_policy: str = "refuse",
                 memory_wait: float = 0) -> None:
        self._library = library()
        self._handle = c_void_p()
        self._lock = threading.RLock()  # reentrant: close() from the garbage collector may acquire it again
        self._models: "weakref.WeakSet[Any]" = weakref.WeakSet()
        #: The cache that was given, else None.
        self.cache_dir = cache_dir
        options = abi.new(
            abi.ContextOptions, n_threads=number(n_threads, "n_threads"),
            memory_budget_bytes=number(memory_budget, "memory_budget", 64),
            memory_policy=named(MEMORY_POLICIES, memory_policy, "memory_policy"),
            memory_wait_ms=number(int(memory_wait * 1000), "memory_wait"),
            log=cast(_log_function, c_void_p), log_level=_level_of(log_level),
            plugin_dir=encode_path(plugin_dir) if plugin_dir else None,
            cache_dir=encode_path(cache_dir) if cache_dir else None)
        call(self._library.gpuserve_context_create, byref(self._handle), byref(options))

    def _open_handle(self) -> c_void_p:
        if not self._handle:
            raise ClosedError("the context was closed")
        return self._handle

    def models(self) -> List[Dict[str, Any]]:
        """The open models in the order of opening: name, version, state, bytes reserved, ..."""
        found: List[Dict[str, Any]] = json.loads(
            text_of(self._library.gpuserve_context_models, self._open_handle()))["models"]
        return found

    def find(self, name: str, version: Optional[str] = None) -> "Model":
        """The open model of that name; every call returns the object that was opened.

        Args:
            name: as given to :class:`Model`, or the path of a model without a name.
            version: default: the last opened model of that name.
        """
        handle = c_void_p()
        try:
            call(self._library.gpuserve_context_find, byref(handle), self._open_handle(),
                 text(name, "name"), text(version, "version"))
            for model in list(self._models):
                if handle and model._handle.value == handle.value:
                    found: "Model" = model
                    return found
        finally:
            try:  # twice: a signal may arrive where the first begins
                self._library.gpuserve_model_close(byref(handle))
            finally:
                self._library.gpuserve_model_close(byref(handle))
        raise NotFoundError(f'model "{name}" is being closed')

    def set_budget(self, memory_budget: int, device: Optional[str] = None) -> None:
        """Set the max bytes of all models together, or on one device; 0 removes the limit."""
        call(self._library.gpuserve_context_set_budget, self._open_handle(),
             text(device, "device"), number(memory_budget, "memory_budget", 64))

    def stats(self) -> Dict[str, int]:
        """Statistics of the context, as in gpuserve_stats."""
        stats = abi.new(abi.Stats)
        call(self._library.gpuserve_context_stats, self._open_handle(), byref(stats))
        return {name: getattr(stats, name) for name, *_ in stats._fields_[1:]}

    def device_report(self) -> Dict[str, Any]:
        """Report on devices: processes, models on them, GPUs that CUDA does not show, links."""
        report: Dict[str, Any] = json.loads(
            text_of(self._library.gpuserve_device_report, self._open_handle()))
        return report

    def metrics(self) -> str:
        """Metrics of the context, as Prometheus text."""
        return text_of(self._library.gpuserve_context_metrics, self._open_handle())

    def doctor(self, *, root: Optional[Path] = None,
               device: Optional[str] = None) -> Dict[str, Any]:
        """Diagnose the GPU stack layer by layer: what works, what does not and why.

        Args:
            root: examine the files below this folder instead of this machine, without executing any.
            device: the device that must work; ``"cpu"``: no GPU is judged.
        """
        options = abi.new(abi.DoctorOptions, root=None if root is None else encode_path(root),
                           device=text(device, "device"))
        facts: Dict[str, Any] = json.loads(
            text_of(self._library.gpuserve_context_doctor, self._open_handle(), byref(options)))
        return facts

    def close(self) -> None:
        """Drop the reference to the context; open models keep their own."""
        with self._lock:
            if self._handle:
                self._library.gpuserve_context_unref(byref(self._handle))


@contextlib.contextmanager
def private_or(context: Optional[Context]) -> Generator[Context, None, None]:
    """The caller's context, or a temporary one for the call."""
    used = context or Context()
    try:
        yield used
    finally:
        if context is None:
            used.close()


def _level_of(level: int) -> int:
    for mine, theirs in _levels.items():
        if level >= theirs:
            return mine
    return 4
