"""Asynchronous calls: one thread for each model that waits for completions and resolves futures.

The library's own threads never call into Python: they would wait for the interpreter's lock while
they should compute. They raise the model's eventfd instead, and this thread reads it.
"""

from __future__ import annotations

import os
import select
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Tuple

from . import _abi
from ._calls import Call, Request
from .errors import DeviceError

if TYPE_CHECKING:
    from ._handle import Handle

Finish = Callable[[Call], Any]


class Dispatcher:
    """The futures of one model that are not resolved yet."""

    def __init__(self, model: "Handle") -> None:
        # No reference to the model: its thread would keep it alive for ever.
        self._library = model._library
        # Reentrant: the garbage collector may run in a thread that holds it, and close a model, which calls
        # stop().
        self._lock = threading.RLock()
        self._pending: Dict[int, Tuple[Request, Call, "Future[Any]", Finish]] = {}
        self._fd: int = self._library.gpuserve_completion_fd(model._handle)
        if self._fd < 0:
            raise DeviceError("the model has no descriptor of completions",
                              "too many open files? see `ulimit -n`")
        self._wake_read, self._wake_write = os.pipe()
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="gpuserve-completions", daemon=True)
        self._thread.start()

    def start(self, model: "Handle", call: Call, finish: Finish) -> "Future[Any]":
        """Submit a call; its future gets what `finish` makes of it. BusyError for a full queue."""
        future: Future[Any] = Future()
        request = Request(model, call)
        key = id(request)
        # Before it is submitted: an exception of a signal handler leaves it to the thread.
        with self._lock:
            self._pending[key] = (request, call, future, finish)
        try:
            request.submit(model)
        except BaseException:
            if not request.pointer.value:
                with self._lock:
                    self._pending.pop(key, None)
            raise
        future.add_done_callback(lambda done: self._cancel(key) if done.cancelled() else None)
        # It may have completed before its pointer was seen here.
        os.write(self._wake_write, b"x")
        return future

    def _cancel(self, key: int) -> None:
        with self._lock:
            if key in self._pending:
                self._pending[key][0].cancel()

    def _loop(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while not self._stopping:
            for fd, _ in poll.poll():
                os.read(fd, 8 if fd == self._fd else 4096)
            for key in self._keys():
                self._resolve(key, 0)
        # All that is left was cancelled.
        for key in self._keys():
            self._resolve(key, -1)
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _keys(self) -> List[int]:
        with self._lock:
            return list(self._pending)

    def _resolve(self, key: int, timeout_us: int) -> None:
        """Resolve one future, if its request completes in that time."""
        error = _abi.new(_abi.Error)
        with self._lock:
            request, call, future, finish = self._pending.get(key) or (None, None, None, None)
            if request is None or call is None or future is None or finish is None:
                return  # its submission has failed meanwhile
            if not request.pointer.value:
                if timeout_us < 0:  # no submission comes any more
                    del self._pending[key]
                return
            status = request.wait(timeout_us, error)
            if status == _abi.E_TIMEOUT:
                return
            del self._pending[key]
            request.free()
        if not future.set_running_or_notify_cancel():
            return
        try:
            call.finish(status, error)
            future.set_result(finish(call))
        except BaseException as raised:  # noqa: B902  (whatever it is, the future carries it)
            future.set_exception(raised)

    def stop(self) -> None:
        """Cancel what is pending, and wait until all of it is resolved."""
        with self._lock:
            self._stopping = True
            for request, _, _, _ in self._pending.values():
                request.cancel()
        os.write(self._wake_write, b"x")
        # The last reference to a model may be dropped by a callback of this very thread.
        if threading.current_thread() is not self._thread:
            self._thread.join()
