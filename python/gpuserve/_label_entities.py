"""Entities of labels that are given with the texts (GLiNER models)."""

from __future__ import annotations

from ctypes import POINTER, byref, c_size_t, c_void_p, cast
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Union

import numpy as np

from ._ffi import abi, texts as _texts
from ._ffi.calls import patiently
from ._entities import Entity
from ._ffi.library import call
from .errors import InvalidError, UnsupportedError

if TYPE_CHECKING:
    from ._handle import Handle

#: The same labels for every text, or a list for each text.
Labels = Union[Sequence[str], Sequence[Sequence[str]]]


class _Given:
    """The texts and labels of one request as the library reads them; the memory lives with it."""

    def __init__(self, texts: Sequence[str], labels: Labels, threshold: float, nested: bool, multi_label: bool,
                 truncation: int) -> None:
        by_text = len(labels) > 0 and not isinstance(labels[0], str)
        if by_text and len(labels) != len(texts):
            raise InvalidError(f"labels hold {len(labels)} lists, but there are {len(texts)} texts")
        for i, one in enumerate(labels if by_text else ()):
            if isinstance(one, str):
                raise InvalidError(f"labels of text {i} are the string {one!r}, not a list of strings")
        lists: List[Sequence[str]] = [list(one) for one in labels] if by_text else [list(labels)]  # type: ignore[arg-type]
        self.texts = texts
        self.names = lists if by_text else lists * len(texts)
        self._packed = _texts.pack(texts)
        # Labels end with NUL, so that one inside would cut a label.
        flat = [label for one in lists for label in one]
        for label in flat:
            if not isinstance(label, str) or "\0" in label:
                raise InvalidError(f"label {label!r} is no text, or has a NUL character")
        self._labels = _texts.pack([label + "\0" for label in flat], "label")
        self._offsets = np.cumsum([0] + [len(one) for one in lists], dtype=np.uint64)
        self.request = abi.new(
            abi.EntityRequest, threshold=threshold, texts=_texts.address(self._packed.pointers),
            text_sizes=_texts.address(self._packed.sizes), n_texts=len(texts),
            labels=_texts.address(self._labels.pointers), n_labels=len(flat),
            label_offsets=_texts.address(self._offsets) if by_text else None,
            overlap=abi.OVERLAP_NESTED if nested else abi.OVERLAP_FLAT, multi_label=int(multi_label),
            truncation=truncation)

    def read(self, library: Any, query: c_void_p, i: int) -> List[Entity]:
        """The entities of text ``i``."""
        n = c_size_t()
        at: Optional[int] = library.gpuserve_entity_query_found(query, i, byref(n), None)
        encoded = self.texts[i].encode()
        made: List[Entity] = []
        for one in cast(at, POINTER(abi.FoundEntity))[:n.value] if at else ():
            word = encoded[one.begin:one.end].decode()
            start = len(encoded[:one.begin].decode())
            made.append({"entity_group": self.names[i][one.label], "score": float(one.score), "word": word,
                         "start": start, "end": start + len(word)})
        return made


def label_entities(model: "Handle", texts: Sequence[str], labels: Labels, threshold: Optional[float], nested: bool,
                   multi_label: bool, truncation: int, client: int) -> List[List[Entity]]:
    """The entities of each text."""
    if "entities" not in model._view.facts.get("tasks", ()):
        raise UnsupportedError("this model does not take labels: it is no GLiNER model")
    if isinstance(labels, str):
        raise InvalidError("labels are one string, not a list of strings")
    if threshold is not None and not 0 < threshold <= 1:
        raise InvalidError(f"threshold is {threshold}, not above 0 and at most 1")
    given = _Given(texts, labels, threshold or 0.0, nested, multi_label, truncation)
    library = model._library
    job = abi.new(abi.Job, client=client)

    def find() -> List[List[Entity]]:
        query = c_void_p()
        call(library.gpuserve_entity_query_create, byref(query), model._handle, byref(given.request))
        try:
            call(library.gpuserve_entity_query_run, query, byref(job))
            return [given.read(library, query, i) for i in range(len(texts))]
        finally:
            library.gpuserve_entity_query_free(byref(query))

    return patiently(model, lambda: model._guarded(find))
