"""One call into the library: the job, the objects it borrows, and the wait for completion."""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from ctypes import byref, c_char_p, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, NamedTuple, Optional, Sequence, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import abi, texts as _texts
from .library import raise_status
from ..errors import BusyError, ClosedError, NumericError, error_of

if TYPE_CHECKING:
    from .._handle import Handle

Floats = NDArray[np.float32]
Answer = TypeVar("Answer")

#: Up to this many texts use a blocking library call: Python handles Ctrl-C only after it returns.
DIRECT_TEXTS = 64
#: Max duration of a wait inside the library, so that Python can handle signals between waits.
WAIT_US = 100_000


class Items(NamedTuple):
    """Outcome of each text of a call."""

    n_tokens: "NDArray[np.uint32]"
    truncated: "NDArray[np.bool_]"
    status: "NDArray[np.int32]"
    #: The row is the result of an equal text: coalesced in flight, or from the cache.
    cached: "NDArray[np.bool_]"


def items_of(raw: "NDArray[np.uint32]") -> Items:
    """The columns of an array of gpuserve_item."""
    return Items(raw[:, 1].copy(), raw[:, 2] != 0, raw[:, 0].view(np.int32).copy(),
                 raw[:, 3] != 0)


class Result(NamedTuple):
    """Device, tokens and times of a call, summed over its submissions."""

    #: Compute format.
    dtype: str
    #: Of all texts, including special tokens.
    n_tokens: int
    #: Texts cut at the token limit.
    n_truncated: int
    #: Texts with the result of an equal text.
    n_cached: int
    #: Time of tokenization, summed over threads.
    tokenize_us: int
    #: Time until the first batch began.
    queue_us: int
    #: Time from there to the end of the last batch.
    compute_us: int
    #: Time from submission to completion; submissions of one call overlap.
    total_us: int
    #: Device: ``"cpu"``, ``"cuda:0"``.
    device: str
    #: Fingerprint of the model: identifies the space of its vectors.
    fingerprint: str


_DTYPE_NAMES = {abi.DTYPE_FLOAT32: "float32", abi.DTYPE_FLOAT16: "float16",
                abi.DTYPE_BFLOAT16: "bfloat16", abi.DTYPE_TF32: "tf32", abi.DTYPE_INT8: "int8"}


def result_of(results: Sequence[abi.Result]) -> Result:
    """Result of a call, merged from the results of its submissions; at least one."""
    last = results[-1]
    sums = [sum(getattr(one, name) for one in results) for name in Result._fields[1:8]]
    return Result._make([_DTYPE_NAMES.get(last.dtype, str(last.dtype)), *sums, last.device.decode(),
                         last.fingerprint.decode()])


class Made(NamedTuple):
    """Rows, the outcome of each text and of the call if requested, and whether the input was a single
    text.
    """

    output: Floats
    items: Optional[Items]
    result: Optional[Result]
    alone: bool

    def with_more(self, value: Any) -> Any:
        more = [one for one in (self.items, self.result) if one is not None]
        return (value, *more) if more else value


class Call:
    """A job that keeps its texts and output alive."""

    __slots__ = ("job", "output", "items", "result", "_kept")

    def __init__(self, texts: Sequence[str], output: Floats, *, first: int = 0,
                 pairs: Optional[Sequence[str]] = None, want_items: bool = True,
                 want_result: bool = False, **fields: Any) -> None:
        n = len(texts)
        job = abi.new(abi.Job, n_items=n, **fields)
        self.job = job
        self.output = output
        self.items: Optional[NDArray[np.uint32]] = None
        self.result: Optional[abi.Result] = abi.new(abi.Result) if want_result else None
        if self.result is not None:
            job.result = ctypes.addressof(self.result)
        if n == 1 and pairs is None:
            self._one(texts[0], first)
        else:
            self._many(texts, pairs, first)
        self._into(output, want_items)

    @classmethod
    def of_ids(cls, lists: Sequence[Sequence[int]], output: Floats, **fields: Any) -> "Call":
        """A call on lists of token ids instead of texts."""
        made = cls.__new__(cls)
        made.job = abi.new(abi.Job, n_items=len(lists), **fields)
        made.output = output
        made.items = made.result = None
        flat = [_texts.token_ids(ids) for ids in lists]
        ids = np.concatenate(flat)
        offsets = np.zeros(len(lists) + 1, dtype=np.uint64)
        np.cumsum([len(one) for one in flat], out=offsets[1:])
        made._kept = (ids, offsets)
        made.job.ids = _texts.address(ids)
        made.job.id_offsets = _texts.address(offsets)
        made._into(output, True)
        return made

    def _into(self, output: Floats, want_items: bool) -> None:
        """Set the output rows and the per-item outcome."""
        job = self.job
        n = job.n_items
        job.output = _texts.address(output)
        job.output_capacity = output.size if output.flags.c_contiguous else (
            (n - 1) * (output.strides[0] // 4) + output.shape[1])
        if not output.flags.c_contiguous:
            job.output_stride = output.strides[0] // 4
        if want_items or n > 1:
            self.items = np.zeros((n, 8), dtype=np.uint32)
            job.items = _texts.address(self.items)

    def _one(self, text: str, first: int) -> None:
        """As _many() for one text, in a tenth of its time."""
        encoded = _texts._encode(text, first, "text")
        pointer = c_char_p(encoded)
        size = c_size_t(len(encoded))
        self._kept: Any = (encoded, pointer, size)
        self.job.texts = ctypes.addressof(pointer)
        self.job.text_sizes = ctypes.addressof(size)

    def _many(self, texts: Sequence[str], pairs: Optional[Sequence[str]], first: int) -> None:
        packed = _texts.pack(texts, "text", first)
        self.job.texts = _texts.address(packed.pointers)
        self.job.text_sizes = _texts.address(packed.sizes)
        self._kept = (packed,)
        if pairs is not None:
            second = _texts.pack(pairs, "second text", first)
            self.job.pairs = _texts.address(second.pointers)
            self.job.pair_sizes = _texts.address(second.sizes)
            self._kept = (packed, second)

    def finish(self, status: int, error: abi.Error, first: int = 0) -> None:
        """Raise the library's error unless all items succeeded."""
        if status == abi.OK:
            return
        if status == abi.E_NUMERIC and self.items is not None:
            raised = error_of(status, error.message.decode("utf-8", "replace"),
                              error.hint.decode("utf-8", "replace"))
            assert isinstance(raised, NumericError)
            raised.rows = (np.flatnonzero(self.items[:, 0]) + first).tolist()
            raised.result = self.output
            raise raised
        raise_status(status, error)


class Slot:
    """A reusable job for one text with default options, used by one call at a time."""

    __slots__ = ("run", "arguments", "pointer", "size", "row", "_job")

    def __init__(self, library: Any, handle: Any, dim: int) -> None:
        # Without argument types, which ctypes would check on each call; the values already match.
        self.run = library["gpuserve_run"]
        self.pointer = c_char_p()
        self.size = c_size_t()
        self.row: Floats = np.empty(dim, dtype=np.float32)
        self._job = abi.new(
            abi.Job, n_items=1, task=abi.TASK_EMBED, output=_texts.address(self.row),
            output_capacity=dim, texts=ctypes.addressof(self.pointer),
            text_sizes=ctypes.addressof(self.size))
        self.arguments = (handle, byref(self._job), None)


def patiently(model: "Handle", work: Callable[[], Answer]) -> Answer:
    """Retry until the queue accepts the call.

    A model that refuses requests while it is suspended is the exception: its error is raised.
    """
    while True:
        try:
            return work()
        except BusyError as error:
            if model._options.get("when_suspended") == "refuse":
                model.ready()
            time.sleep(error.retry_after or 0.001)


class _Submitted:
    """State that the library keeps of a request: it writes to the memory of `call` until `pointer` is freed."""

    __slots__ = ("library", "pointer", "call", "owner", "freeing", "is_returned")

    def __init__(self, library: Any, call: Call) -> None:
        self.library = library
        self.pointer = c_void_p()
        self.call = call
        self.owner: Optional["weakref.ref[Request]"] = None
        #: The thread that frees it; setdefault() is atomic. Not by id(), which a later object may reuse.
        self.freeing: Dict[str, int] = {}
        #: gpuserve_submit() has returned. Before that the pointer may be set, but must not be used.
        self.is_returned = False

    def free(self) -> None:
        """Cancel the request, wait until the library releases its memory, and free it. Idempotent.

        Only one thread frees: the garbage collector may finish a request in one thread while another frees
        abandoned requests.
        """
        me = threading.get_ident()
        if self.freeing.setdefault("thread", me) != me:
            return
        if self.pointer.value:
            self.library.gpuserve_cancel(self.pointer)
            self.library.gpuserve_request_free(byref(self.pointer))
        _submitted.pop(id(self), None)


#: Every request from before its submission until it is freed. No exception, at any instruction, can release
#: memory that the library still writes to.
_submitted: Dict[int, _Submitted] = {}


def _free_abandoned() -> None:
    """Free requests without an owner: after two exceptions at once the second one interrupted free()."""
    for state in list(_submitted.values()):
        if state.owner is not None and state.owner() is None:
            state.free()


def free_all(requests: Iterable["Request"]) -> None:
    """Free requests. An exception from a signal handler is raised after all are freed."""
    raised: Optional[BaseException] = None
    left = [request._state for request in requests]
    while left:
        try:
            while left:
                left[-1].free()
                left.pop()
        except BaseException as error:  # noqa: B902  (raised again below)
            raised = error
    if raised is not None:
        raise raised


class Request:
    """A library request, owned before it is submitted.

    A signal handler (Ctrl-C, an alarm, a worker's time limit) may raise between any two instructions, also
    after the library has accepted the request and before Python has stored the result of that call.
    So the pointer that the library sets exists before the call, and the request is freed with this
    object at the latest.
    """

    __slots__ = ("_state", "__weakref__")

    def __init__(self, model: "Handle", call: Call) -> None:
        self._state = state = _Submitted(model._library, call)
        state.owner = weakref.ref(self)
        _submitted[id(state)] = state

    @property
    def is_returned(self) -> bool:
        """Whether gpuserve_submit() has returned."""
        return self._state.is_returned

    @property
    def pointer(self) -> c_void_p:
        return self._state.pointer

    def submit(self, model: "Handle") -> None:
        """Submit the request. BusyError if the queue is full."""
        if model._closing:
            raise ClosedError("the model is being closed")
        if len(_submitted) > 1:
            _free_abandoned()
        state = self._state
        error = abi.new(abi.Error)
        try:
            status = state.library.gpuserve_submit(
                byref(state.pointer), model._handle, byref(state.call.job), None, None, byref(error))
        finally:
            state.is_returned = True
        if status != abi.OK:
            raise_status(status, error)

    def wait(self, timeout_us: int, error: abi.Error) -> int:
        """Wait for completion; returns the library's status."""
        status: int = self._state.library.gpuserve_wait(self._state.pointer, timeout_us, byref(error))
        return status

    def cancel(self) -> None:
        self._state.library.gpuserve_cancel(self._state.pointer)

    def free(self) -> None:
        free_all((self,))

    def __del__(self) -> None:
        state = getattr(self, "_state", None)
        if state is not None:
            state.free()


def run(model: "Handle", call: Call, first: int = 0) -> None:
    """Run one call to completion. BusyError if the queue is full."""
    if call.job.n_items > DIRECT_TEXTS:
        request = Request(model, call)
        try:
            request.submit(model)
            finish(model, request, first)
        finally:
            # Twice: the handler of a second signal raises where the first call of a function begins.
            try:
                free_all((request,))
            finally:
                free_all((request,))
        return
    error = abi.new(abi.Error)
    status = model._library.gpuserve_run(model._handle, byref(call.job), byref(error))
    if status != abi.OK:
        call.finish(status, error, first)


def submit(model: "Handle", call: Call) -> Request:
    """Submit a call."""
    request = Request(model, call)
    request.submit(model)
    return request


def finish(model: "Handle", request: Request, first: int = 0) -> None:
    """Wait for a request and raise the library's error. The caller frees the request in every case."""
    error = abi.new(abi.Error)
    while True:
        status = request.wait(WAIT_US, error)
        if status != abi.E_TIMEOUT:
            break
        if model._closing:
            raise ClosedError("the model was closed while this call ran")
    request._state.call.finish(status, error, first)


def rerank(model: "Handle", query: str, documents: Sequence[str], scores: Floats, first: int,
           client: int, instruction: Optional[str] = None, method: int = abi.RERANK_DEFAULT) -> None:
    """Write the relevance of each document to the query. BusyError if the queue is full."""
    prompt = None if instruction is None else _texts._encode(instruction, 0, "prompt")
    asked = _texts._encode(query, 0, "query")
    packed = _texts.pack(documents, "document", first)
    options = abi.new(abi.RerankOptions, query_size=len(asked), query_prompt=prompt, method=method,
                       document_sizes=_texts.address(packed.sizes))
    job = abi.new(abi.Job, client=client)
    error = abi.new(abi.Error)
    status = model._library.gpuserve_rerank(
        model._handle, asked, _texts.address(packed.pointers), len(documents),
        _texts.address(scores), None, len(documents), byref(options), byref(job), byref(error))
    if status != abi.OK:
        raise_status(status, error)
