"""Asynchronous calls: one thread per model waits for completions and resolves futures.

The library's threads never call into Python, because they would wait for the GIL instead of
computing. They signal the model's eventfd, and this thread reads it.
"""

from __future__ import annotations

import collections
import os
import select
import threading
import weakref
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, NamedTuple

from ._ffi import abi
from ._ffi.calls import Call, Request
from .errors import DeviceError

if TYPE_CHECKING:
    from ._handle import Handle

Finish = Callable[[Call], Any]


class _Ticket:
    """Lives as long as start(). A request without it and without a pointer will not be submitted any more."""

    __slots__ = ("__weakref__",)


class _Pending(NamedTuple):
    request: Request
    call: Call
    future: "Future[Any]"
    finish: Finish
    ticket: "weakref.ref[_Ticket]"


class Dispatcher:
    """The pending futures of one model."""

    def __init__(self, model: "Handle") -> None:
        # No reference to the model: its thread would keep it alive forever.
        self._library = model._library
        # Not for stop(): the garbage collector may close the model in the thread that holds it.
        self._lock = threading.Lock()
        self._cancelled: "Deque[int]" = collections.deque()
        self._pending: Dict[int, _Pending] = {}
        self._wake_read, self._wake_write = os.pipe()
        self._fd: int = self._library.gpuserve_completion_fd(model._handle)
        if self._fd < 0:
            raise DeviceError("the model has no descriptor of completions",
                              "too many open files? see `ulimit -n`")
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="gpuserve-completions", daemon=True)
        self._thread.start()

    def start(self, model: "Handle", call: Call, finish: Finish) -> "Future[Any]":
        """Submit a call; its future gets the result of `finish`. BusyError if the queue is full."""
        future: Future[Any] = Future()
        request = Request(model, call)
        ticket = _Ticket()
        key = id(request)
        # First: an exception in it may leave the future's lock held; then it must not be resolved.
        future.add_done_callback(lambda done: self._cancel(key) if done.cancelled() else None)
        try:
            # Before the submission: after an exception from a signal handler the thread cleans up.
            with self._lock:
                self._pending[key] = _Pending(request, call, future, finish, weakref.ref(ticket))
            request.submit(model)
        except BaseException:
            if not request.pointer.value:
                with self._lock:
                    self._pending.pop(key, None)
            raise
        # It may have completed before the thread saw its pointer.
        os.write(self._wake_write, b"x")
        return future

    def _cancel(self, key: int) -> None:
        """Cancel in the thread: a callback must not wait for the lock."""
        self._cancelled.append(key)
        os.write(self._wake_write, b"x")

    def __del__(self) -> None:
        # Not earlier: a callback of a future may still write.
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _loop(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while not self._stopping:
            for fd, _ in poll.poll():
                os.read(fd, 8 if fd == self._fd else 4096)
            self._cancel_requests()
            for key in self._keys():
                self._resolve(key, 0)
        with self._lock:
            for pending in self._pending.values():
                pending.request.cancel()
        for key in self._keys():
            self._resolve(key, -1)

    def _cancel_requests(self) -> None:
        while self._cancelled:
            key = self._cancelled.popleft()
            with self._lock:
                if key in self._pending:
                    self._pending[key].request.cancel()

    def _keys(self) -> List[int]:
        with self._lock:
            return list(self._pending)

    def _resolve(self, key: int, timeout_us: int) -> None:
        """Resolve one future if its request completes within the timeout."""
        error = abi.new(abi.Error)
        with self._lock:
            pending = self._pending.get(key)
            if pending is None:
                return  # its submission has failed meanwhile
            request, call, future, finish, ticket = pending
            # The library sets the pointer before it queues the request: do not use it until then.
            if timeout_us >= 0 and not request.is_returned and ticket() is not None:
                return
            if not request.pointer.value:  # the submission did not happen
                del self._pending[key]
                return
            status = request.wait(timeout_us, error)
            if status == abi.E_TIMEOUT:
                return
            del self._pending[key]
            request.free()
        if not future.set_running_or_notify_cancel():
            return
        try:
            call.finish(status, error)
            future.set_result(finish(call))
        except BaseException as raised:  # noqa: B902  (the future carries any exception)
            future.set_exception(raised)

    def stop(self) -> None:
        """Cancel pending requests, and wait until all are resolved."""
        self._stopping = True
        os.write(self._wake_write, b"x")
        # A callback of this very thread may drop the last reference to a model.
        if threading.current_thread() is not self._thread:
            self._thread.join()
