"""Base class of a model: opening, sharing, swap, suspend and close.

Inference is in model.py. A call holds the handle through _guarded(), so that close() can wait for
it. A call uses one View, the shape of the model, so that a swap that changes the shape never
meets an array allocated for another one.
"""

from __future__ import annotations

import atexit
import json
import sys
import threading
import weakref
from ctypes import Array, byref, c_size_t, c_uint32, c_void_p, sizeof
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Set, TypeVar

from ._ffi import abi
from ._ffi.arguments import Path
from ._ffi.calls import Floats, Slot
from ._ffi.closing import Closing
from ._futures import Dispatcher
from ._hub import fetched
from ._ffi.library import call, encode_path, library, raise_status, text_of
from ._options import Opening
from ._ffi.values import text
from .context import Context
from .errors import ClosedError, InvalidError, MismatchError, NotFoundError

Result = TypeVar("Result")

CHANGES: Dict[str, int] = {
    "fingerprint": abi.CHANGE_FINGERPRINT, "dim": abi.CHANGE_DIM,
    "labels": abi.CHANGE_LABELS, "max_tokens": abi.CHANGE_MAX_TOKENS,
}
ALLOWABLE = ("dim", "labels")

_open_models: "weakref.WeakSet[Handle]" = weakref.WeakSet()


class View(NamedTuple):
    """The shape that callers allocate arrays by; a swap replaces it as a whole."""

    dim: int
    sparse_dim: int
    token_dim: int
    #: Token vectors of a text that are not part of late interaction.
    first_vector: int
    max_seq_length: int
    labels: List[str]
    fingerprint: str
    facts: Dict[str, Any]

    @property
    def heads(self) -> Dict[str, List[str]]:
        """The labels of each classifier head, by its name."""
        return {head["name"]: head["labels"] for head in self.facts.get("classifier_heads") or ()}


class Handle(Closing):
    """A gpuserve_model, shared by any number of threads; the base class of Model."""

    def __init__(self, path: Path, context: Optional[Context], options: Dict[str, Any]) -> None:
        self._handle = c_void_p()
        self._closing = False
        #: True while calls must not begin: the model is closing, or its shape changes.
        self._gate = False
        #: One entry per call in progress. A set, because adding and discarding need no lock, and discarding
        #: an entry that an exception of a signal handler prevented is harmless.
        self._active: Set[object] = set()
        self._slots: List[Slot] = []
        # Acquired directly, never through the condition: Condition.__enter__ is Python code, which an
        # exception of a signal handler may interrupt with the lock held. Reentrant, because the garbage
        # collector may call close().
        self._mutex = threading.RLock()
        self._idle = threading.Condition(self._mutex)
        self._closer = threading.RLock()
        self._swaps = threading.Lock()
        self._dispatcher: Optional[Dispatcher] = None
        self._library = library()
        #: Ranges of int8 vectors by fingerprint, dimensions and normalization.
        self._ranges: Dict[Any, Floats] = {}
        self._options = {name: value for name, value in options.items() if name != "progress"}
        #: The context: device, threads and budgets shared with other models.
        self.context = context or Context()
        self._own_context = context is None
        try:
            # Its functions are called as long as the model is open.
            self._opening = Opening(options)
            try:
                self._open(encode_path(path))
            except NotFoundError:
                if not fetched(path, self.context.cache_dir):
                    raise
                self._open(encode_path(path))
            self._view = self._looked_at()
            _open_models.add(self)
            self.context._models.add(self)
        except BaseException:
            self.close()
            raise

    def _open(self, path: bytes) -> None:
        error = abi.new(abi.Error)
        status = self._library.gpuserve_model_open(
            byref(self._handle), self.context._open_handle(), path, byref(self._opening.struct),
            byref(error))
        self._opening.raise_what_progress_raised()
        if status != abi.OK:
            raise_status(status, error)

    def _looked_at(self) -> View:
        """Read the shape of the current model."""
        read = self._library
        handle = self._handle
        facts: Dict[str, Any] = json.loads(text_of(read.gpuserve_model_info, handle))
        properties = abi.new(abi.ModelProperties)
        call(read.gpuserve_model_get_properties, handle, byref(properties))
        return View(
            properties.dim, properties.sparse_dim, properties.token_dim, properties.first_vector,
            properties.max_tokens,
            [read.gpuserve_model_label(handle, i).decode("utf-8") for i in range(properties.n_labels)],
            properties.fingerprint.decode(), facts)

    # ----------------------------------------------------------------------------------- facts

    @property
    def dim(self) -> int:
        """Dimension of an embedding; 0 without one."""
        return self._view.dim

    @property
    def sparse_dim(self) -> int:
        """Dimension of a sparse vector, the vocabulary size; 0 without one."""
        return self._view.sparse_dim

    @property
    def max_seq_length(self) -> int:
        """Max tokens of a text; longer texts are cut."""
        return self._view.max_seq_length

    @property
    def labels(self) -> List[str]:
        """Labels of the model's classifier or of its first head, in the order of the scores."""
        return self._view.labels

    @property
    def heads(self) -> Dict[str, List[str]]:
        """Labels of each head that the model was opened with, by its name, in the order of its scores."""
        return self._view.heads

    @property
    def fingerprint(self) -> str:
        """Identifier of the vector space: store it with vectors."""
        return self._view.fingerprint

    @property
    def prompts(self) -> Dict[str, str]:
        """The prompts of the model, by name."""
        return self._view.facts.get("prompts") or {}

    @property
    def device(self) -> str:
        """Device the model was opened on; :meth:`info` reports the current one."""
        return str(self._view.facts.get("device", "cpu"))

    def info(self) -> Dict[str, Any]:
        """Model info: architecture, device and the reason for its choice, dtype, memory, fingerprint."""
        facts: Dict[str, Any] = self._guarded(
            lambda: json.loads(text_of(self._library.gpuserve_model_info, self._handle)))
        return facts

    def ready(self) -> None:
        """Readiness probe: return if a request would be computed now. Never blocks.

        BusyError during failover to another device, or if the model is suspended and refuses requests;
        DeviceError if its device is lost permanently.
        """
        self._guarded(lambda: call(self._library.gpuserve_model_ready, self._handle))

    def counts(self) -> Dict[str, int]:
        """Work since the model was opened or swapped: batches, items in them, tokens, compute_ns.

        Items divided by batches is the mean number of texts per batch.
        """
        counts = abi.new(abi.ModelCounts)
        self._guarded(lambda: call(self._library.gpuserve_model_stats, self._handle, byref(counts)))
        return {name: getattr(counts, name) for name, *_ in counts._fields_[2:]}

    def batches(self) -> Dict[int, Dict[str, int]]:
        """The batches of counts() by number of texts: their count, and the nanoseconds of input packing,
        inference and output distribution.
        """
        n = c_size_t()
        capacity = 16
        while True:
            rows: Array[abi.BatchCounts] = (abi.BatchCounts * capacity)()
            rows[0].struct_size = sizeof(abi.BatchCounts)
            self._guarded(lambda: call(self._library.gpuserve_model_batches, self._handle, rows,
                                       capacity, byref(n)))
            if n.value <= capacity:
                return {row.n_texts: {name: getattr(row, name) for name, *_ in row._fields_[2:]}
                        for row in rows[: n.value]}
            capacity = n.value

    # ------------------------------------------------------------------- exchange, suspend, end

    def swap(self, model_name_or_path: Optional[Path] = None, *, allow: Iterable[str] = (),
             fingerprint: Optional[str] = None, **options: Any) -> FrozenSet[str]:
        """Replace the model with another one without downtime.

        The new model is loaded and warmed up beside the old one, which serves until then and continues
        after a failure. A request uses either the old or the new model. Returns after the old model's
        memory is released.

        Args:
            model_name_or_path: default: the path of the last load, which reads its files again.
            allow: ``"dim"`` and ``"labels"`` may change only if named here. Calls of other threads
                then wait for the swap, because their arrays have the old shape.
            fingerprint: the required fingerprint of the new model.
            options: as for :class:`gpuserve.Model`; options not named keep their values.

        Returns:
            The changes, out of ``"fingerprint"``, ``"dim"``, ``"labels"``, ``"max_tokens"``.
        """
        allowed = [allow] if isinstance(allow, str) else list(allow)
        for name in allowed:
            if name not in ALLOWABLE:
                raise InvalidError(f'allow names "{name}"', "known are " + ", ".join(ALLOWABLE))
        merged = {**self._options, **options}
        opening = Opening(merged)
        how = abi.new(abi.SwapOptions, allow=sum(CHANGES[name] for name in set(allowed)),
                       fingerprint=text(fingerprint, "fingerprint"))
        with self._swaps:
            path = None if model_name_or_path is None else encode_path(model_name_or_path)
            changed = (self._alone if allowed else self._guarded)(
                lambda: self._swapped(path, opening, how))
            self._opening = opening
            self._options = {name: value for name, value in merged.items() if name != "progress"}
        return frozenset(name for name, bit in CHANGES.items() if changed & bit)

    def _swapped(self, path: Optional[bytes], opening: Opening, how: abi.SwapOptions) -> int:
        changes = c_uint32()
        error = abi.new(abi.Error)
        status = self._library.gpuserve_model_swap(
            self._handle, path, byref(changes), byref(opening.struct), byref(how), byref(error))
        opening.raise_what_progress_raised()
        if status != abi.OK:
            raise_status(status, error)
        self._view = self._looked_at()
        return changes.value

    def suspend(self) -> None:
        """Release the model's memory and keep it open; its next request loads it again.

        Waits until its requests have completed. With ``when_suspended="refuse"`` requests raise BusyError
        until :meth:`resume`.
        """
        self._guarded(lambda: call(self._library.gpuserve_model_suspend, self._handle))

    def resume(self) -> None:
        """Load a suspended model again; a model that is not suspended is unchanged."""
        self._guarded(lambda: call(self._library.gpuserve_model_resume, self._handle))

    def close(self) -> None:
        """Wait for calls in progress, cancel asynchronous requests, and release everything.

        After an exception, such as Ctrl-C, the next close() completes it.
        """
        with self._mutex:
            self._closing = self._gate = True
            self._idle.notify_all()
            self._wait_for_calls(0)
        with self._closer:
            if self._dispatcher is not None:
                self._dispatcher.stop()
                self._dispatcher = None
            self._library.gpuserve_model_close(byref(self._handle))
            if self._own_context:
                self.context.close()

    def __del__(self) -> None:
        try:
            if self._handle and not sys.is_finalizing():
                self.close()
        finally:
            if self._handle and not sys.is_finalizing():
                self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a gpuserve.Model cannot be pickled: open it in each process")

    # -------------------------------------------------------------------------------- internal

    def _guarded(self, work: Callable[[], Result], view: Optional[View] = None) -> Result:
        """Run a function with the handle, which stays open and keeps the expected shape meanwhile."""
        active, token = self._active, object()
        while True:
            try:
                active.add(token)
                if not self._gate:
                    if view is not None and view is not self._view:
                        self._check_shape(view)
                    return work()
            finally:
                active.discard(token)
                if self._gate:
                    self._wake()
            self._wait_at_the_gate()

    def _check_shape(self, view: View) -> None:
        if _shape(view) != _shape(self._view):
            raise MismatchError("the model was swapped for one of another shape during this call",
                                "call again")

    def _wake(self) -> None:
        with self._mutex:
            self._idle.notify_all()

    def _wait_at_the_gate(self) -> None:
        with self._mutex:
            while self._gate and not self._closing:
                self._idle.wait()
            if self._closing:
                raise ClosedError("the model was closed")

    def _wait_for_calls(self, n: int) -> None:
        """Wait until `n` calls are left, with the lock held. The timeout covers a wakeup lost to a signal."""
        while len(self._active) > n:
            self._idle.wait(0.2)

    def _alone(self, work: Callable[[], Result]) -> Result:
        """Run a function that changes the model's shape: no call is in progress meanwhile."""
        with self._mutex:
            if self._closing:
                raise ClosedError("the model was closed")
            self._gate = True
        token = object()
        try:
            self._active.add(token)
            with self._mutex:
                self._wait_for_calls(1)
            return work()
        finally:
            self._active.discard(token)
            self._slots.clear()
            with self._mutex:
                self._gate = self._closing
                self._idle.notify_all()

    def _embed_one(self, text: str) -> Optional[Floats]:
        """Fast path: the vector of one text with default options; None: use the general path.

        The overhead of a call is mostly cold code, which the forward pass has evicted from the processor's
        caches. So this path is minimal: a job created once, in which only the text changes. All other cases,
        errors included, use the general path.
        """
        active, token = self._active, object()
        try:
            active.add(token)
            if self._gate or not self._slots and not self._add_slot():
                return None
            slot = self._slots.pop()
            encoded = text.encode()
            slot.pointer.value = encoded
            slot.size.value = len(encoded)
            vector = None if slot.run(*slot.arguments) else slot.row.copy()
            self._slots.append(slot)
            return vector
        except (UnicodeEncodeError, IndexError):    # another thread may have taken the slot
            return None
        finally:
            active.discard(token)
            if self._gate:
                self._wake()

    def _add_slot(self) -> bool:
        if self._view.dim:
            self._slots.append(Slot(self._library, self._handle, self._view.dim))
        return bool(self._view.dim)

    def _futures(self) -> Dispatcher:
        with self._mutex:
            if self._dispatcher is None:
                self._dispatcher = Dispatcher(self)
            found = self._dispatcher
        return found


def _shape(view: View) -> Any:
    return view.dim, view.sparse_dim, view.labels, view.heads


@atexit.register
def _close_all() -> None:
    """Close models before interpreter shutdown, so that none of their threads outlives it."""
    for model in list(_open_models):
        model.close()
