"""Several outputs of each text from one pass: dense, sparse and token vectors, scores of labels."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, cast

import numpy as np

from ._ffi import abi, texts as _texts
from ._ffi.calls import Call, Floats, patiently, run
from ._heads import Heads
from ._sparse import compact
from .errors import InvalidError, UnsupportedError

if TYPE_CHECKING:
    from ._handle import Handle, View

#: The library's task of each output, and its name in the model's facts.
OUTPUTS: Dict[str, Tuple[int, str]] = {
    "dense": (abi.TASK_EMBED, "embed"),
    "sparse": (abi.TASK_SPARSE, "sparse"),
    "colbert": (abi.TASK_TOKEN_VECTORS, "token_vectors"),
    "labels": (abi.TASK_CLASSIFY, "classify"),
}
#: Floats of a submission's rows. Those of token vectors count as if each text had the most tokens.
MAX_FLOATS = 1 << 26


class _Rows(NamedTuple):
    """The rows of one output of a submission."""

    name: str
    output: Floats
    task: int


def outputs_of(view: "View", names: Optional[Sequence[str]]) -> List[str]:
    """The outputs asked for, checked; default: dense, sparse and colbert, as far as the model has them."""
    tasks = view.facts["tasks"]
    if names is None:
        made = [name for name in ("dense", "sparse") if OUTPUTS[name][1] in tasks]
        return [*made, "colbert"] if view.facts["late_interaction"] else made
    if isinstance(names, str):
        raise TypeError("outputs is one str, not a list of them")
    if not names:
        raise InvalidError("outputs is empty", "known are " + ", ".join(OUTPUTS))
    for i, name in enumerate(names):
        if name not in OUTPUTS:
            raise InvalidError(f'outputs[{i}] is "{name}"', "known are " + ", ".join(OUTPUTS))
        if OUTPUTS[name][1] not in tasks:
            had = ", ".join(one for one in OUTPUTS if OUTPUTS[one][1] in tasks)
            raise UnsupportedError(f'outputs[{i}] is "{name}", which the model does not have',
                                   f"it has {had}")
        if name in names[:i]:
            raise InvalidError(f'outputs[{i}] is "{name}" again')
    return list(names)


def _width(view: "View", name: str, dimensions: int) -> int:
    """Floats of a row."""
    return {"dense": dimensions or view.dim, "sparse": view.sparse_dim,
            "colbert": view.token_dim, "labels": len(view.labels)}[name]


class Encoding:
    """One call: its outputs, and the results of the submissions so far."""

    def __init__(self, model: "Handle", view: "View", names: List[str], fields: Dict[str, Any],
                 heads: Optional[Heads] = None) -> None:
        self._model = model
        self._view = view
        self._fields: Dict[str, Any] = {**fields, **(heads.field if heads else {})}
        self._heads = heads
        self._widths = {name: _width(view, name, fields["dimensions"]) for name in names}
        if heads:
            self._widths["labels"] = heads.columns
        self.found: Dict[str, List[Any]] = {name: [] for name in names}

    def _tokens(self, name: str) -> int:
        """Rows of a text, at most."""
        return self._view.max_seq_length if name == "colbert" else 1

    def size(self) -> int:
        """Texts of a submission."""
        floats = sum(width * self._tokens(name) for name, width in self._widths.items())
        return max(1, min(1024, MAX_FLOATS // max(1, floats)))

    def add(self, texts: Sequence[str], first: int) -> None:
        """Compute the outputs of some texts, and append them."""
        rows = [_Rows(name, np.empty((len(texts) * self._tokens(name), width), dtype=np.float32),
                      OUTPUTS[name][0]) for name, width in self._widths.items()]
        more = (abi.Output * max(1, len(rows) - 1))()
        for one, other in zip(more, rows[1:]):
            one.task, one.rows, one.capacity = other.task, _texts.address(other.output), other.output.size
        offsets = np.zeros(len(texts) + 1, dtype=np.uint64)
        fields = dict(self._fields)
        if "colbert" in self._widths:
            fields["token_offsets"] = _texts.address(offsets)
        call = Call(texts, rows[0].output, first=first, task=rows[0].task,
                    more=ctypes.addressof(more), n_more=len(rows) - 1, **fields)
        # The library writes to the rows and reads `more` until the call is over.
        call._kept = (call._kept, more, rows, offsets)
        patiently(self._model, lambda: self._model._guarded(lambda: run(self._model, call, first),
                                                            self._view))
        for name, output, _ in rows:
            self.found[name].extend(self._parts(name, output, len(texts), offsets))

    def _parts(self, name: str, output: Floats, n: int, offsets: Any) -> Iterable[Any]:
        if name == "sparse":
            return [compact(self._model._library, row) for row in output]
        if name == "colbert":
            skipped = self._view.first_vector
            ends = [int(end) for end in offsets]
            return [output[min(ends[i] + skipped, ends[i + 1]):ends[i + 1]].copy() for i in range(n)]
        return output

    def result(self, alone: bool) -> Dict[str, Any]:
        """The outputs of all texts, or of the one text."""
        made = {name: parts[0] if alone else parts if name in ("sparse", "colbert")
                else np.array(parts, dtype=np.float32).reshape(len(parts), self._widths[name])
                for name, parts in self.found.items()}
        return {**made, "labels": self._heads.split(cast(Floats, made["labels"]))} if self._heads else made


def max_sim(library: ctypes.CDLL, query: Any, documents: Sequence[Any]) -> Floats:
    """MaxSim of the query's token vectors with those of each document."""
    asked = _vectors(query, "query")
    scores = np.empty(len(documents), dtype=np.float32)
    for i, document in enumerate(documents):
        rows = _vectors(document, f"document {i}")
        if rows.shape[1] != asked.shape[1]:
            raise InvalidError(f"document {i} has vectors of {rows.shape[1]} numbers, the query of "
                               f"{asked.shape[1]}")
        scores[i] = library.gpuserve_max_sim(_texts.address(asked), len(asked), _texts.address(rows),
                                             len(rows), asked.shape[1])
    return scores


def _vectors(value: Any, what: str) -> Floats:
    rows: Floats = np.ascontiguousarray(value, dtype=np.float32)
    if rows.ndim != 2:
        raise InvalidError(f"{what} has {rows.ndim} dimensions: token vectors have two")
    return rows
