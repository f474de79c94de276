"""Texts over the token limit: windows with one vector per text, late chunking with one per chunk."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_size_t, c_void_p, cast
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from ._ffi import abi, texts as _texts
from ._ffi.calls import Call, Request, finish, free_all, patiently
from ._ffi.library import call
from .errors import InvalidError

if TYPE_CHECKING:
    from ._handle import Handle, View

METHODS: Dict[str, int] = {"window": abi.LONG_WINDOWS, "late": abi.LONG_LATE}
KINDS: Dict[str, int] = {"tokens": abi.CHUNK_BY_TOKENS, "sentence": abi.CHUNK_BY_SENTENCES,
                         "spans": abi.CHUNK_BY_SPANS}

#: Columns of gpuserve_chunk.
_TEXT, _BEGIN, _END, _TOKENS, _COLUMNS = 0, 2, 3, 4, 6


class LongText(NamedTuple):
    """The vectors of one text with its windows or chunks."""

    #: [dim] of the text, from windows; [n, dim] of its chunks, from late chunking. Of the precision.
    vectors: Any
    #: [n, 2]: start and end byte offset of each window or chunk in the UTF-8 text.
    spans: "NDArray[np.uint32]"
    #: [n]: tokens of each window or chunk, without prompt and special tokens.
    n_tokens: "NDArray[np.uint32]"


class _Owned:
    """A gpuserve_long_texts; freed with this object, which every job on its memory keeps alive."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.pointer = c_void_p()

    def __del__(self) -> None:
        if self.pointer.value:
            self.library.gpuserve_long_texts_free(byref(self.pointer))


def _flat_spans(spans: Sequence[Any], texts: Sequence[str]) -> "Tuple[NDArray[np.uint32], NDArray[np.uint64]]":
    """The spans of all texts in one array, and the first of each text."""
    if len(spans) != len(texts):
        raise InvalidError(f"spans has {len(spans)} lists, there are {len(texts)} texts")
    parts: List[NDArray[np.uint32]] = []
    for i, one in enumerate(spans):
        try:
            given = np.asarray(one)
        except ValueError as error:
            raise InvalidError(f"spans of text {i}: {error}") from None
        if given.ndim != 2 or given.shape[1] != 2 or not given.size or given.dtype.kind not in "iu":
            raise InvalidError(f"spans of text {i} are not pairs of byte offsets [begin, end]")
        if given.min() < 0 or given.max() > 0xFFFFFFFF:
            raise InvalidError(f"spans of text {i} hold {given.min() if given.min() < 0 else given.max()}, no byte offset")
        parts.append(given.astype(np.uint32))
    offsets = np.zeros(len(texts) + 1, dtype=np.uint64)
    np.cumsum([len(one) for one in parts], out=offsets[1:])
    return np.ascontiguousarray(np.concatenate(parts)), offsets


def _create(model: "Handle", texts: Sequence[str], spans: Optional[Sequence[Any]],
            fields: Dict[str, Any]) -> _Owned:
    packed = _texts.pack(texts)
    options = abi.new(abi.LongOptions, **fields)
    owned = _Owned(model._library)
    if spans is not None:
        flat, offsets = _flat_spans(spans, texts)
        options.spans = _texts.address(flat)
        options.span_offsets = _texts.address(offsets)
    call(model._library.gpuserve_long_texts_create, byref(owned.pointer), model._handle,
         _texts.address(packed.pointers), cast(_texts.address(packed.sizes), POINTER(c_size_t)), len(texts), byref(options))
    return owned


def _run(model: "Handle", view: "View", owned: _Owned, how: Dict[str, Any]) -> None:
    """Compute the windows block by block, so that signals are handled meanwhile."""
    while True:
        one = Call.__new__(Call)
        one.job = abi.new(abi.Job, **how)
        one.items = one.result = None
        one._kept = (owned, how)
        call(model._library.gpuserve_long_texts_next, owned.pointer, byref(one.job))
        if one.job.n_items == 0:
            return
        request = Request(model, one)
        try:
            patiently(model, lambda: model._guarded(lambda: request.submit(model), view))
            finish(model, request)
        finally:
            # Twice: the handler of a second signal raises where the first call of a function begins.
            try:
                free_all((request,))
            finally:
                free_all((request,))
        call(model._library.gpuserve_long_texts_take, owned.pointer)


def _array(address: int, shape: Tuple[int, int], kind: Any) -> Any:
    """A copy of memory of the library."""
    if shape[0] == 0:
        return np.empty(shape, dtype=kind)
    size = shape[0] * shape[1] * np.dtype(kind).itemsize
    return np.frombuffer(ctypes.string_at(address, size), dtype=kind).reshape(shape).copy()


def encode_long(model: "Handle", view: "View", texts: Sequence[str], spans: Optional[Sequence[Any]],
                fields: Dict[str, Any], how: Dict[str, Any]) -> List[LongText]:
    """The vectors of each text; `fields` are options of the division, `how` of every job."""
    if not texts:
        return []
    owned = model._guarded(lambda: _create(model, texts, spans, fields), view)
    _run(model, view, owned, how)
    result = abi.new(abi.LongResult)
    call(model._library.gpuserve_long_texts_result, owned.pointer, byref(result))
    chunks = _array(result.chunks, (result.n_chunks, _COLUMNS), np.uint32)
    vectors = _array(result.vectors, (result.n_vectors, result.dim), np.float32)
    first = np.searchsorted(chunks[:, _TEXT], np.arange(len(texts) + 1))
    late = fields["method"] == abi.LONG_LATE
    found: List[LongText] = []
    for i in range(len(texts)):
        part = slice(int(first[i]), int(first[i + 1]))
        found.append(LongText(vectors[part] if late else vectors[i],
                              chunks[part, _BEGIN:_END + 1].copy(), chunks[part, _TOKENS].copy()))
    return found
