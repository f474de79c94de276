"""Classifier heads of a model, by name: those that a call asks for, and the columns of their scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

from ._ffi.arguments import labelled
from .errors import InvalidError

if TYPE_CHECKING:
    from ._ffi.calls import Floats
    from ._handle import View


class Heads:
    """The heads of one call, in its order; the library writes their scores side by side."""

    def __init__(self, view: "View", names: Sequence[str]) -> None:
        if isinstance(names, str):
            raise TypeError("heads is one str, not a list of them")
        known = view.heads
        self.labels: Dict[str, List[str]] = {}
        for i, name in enumerate(names):
            if name not in known:
                raise InvalidError(f'heads[{i}] is "{name}", which the model does not have',
                                   "its heads: " + (", ".join(known) or "none"))
            if name in self.labels:
                raise InvalidError(f'heads[{i}] is "{name}" again')
            self.labels[name] = known[name]
        if not self.labels:
            raise InvalidError("heads is empty", "its heads: " + (", ".join(known) or "none"))

    @property
    def field(self) -> Dict[str, Any]:
        """The field of gpuserve_job."""
        return {"heads": ",".join(self.labels).encode()}

    @property
    def columns(self) -> int:
        """Floats of a row."""
        return sum(len(labels) for labels in self.labels.values())

    def split(self, scores: "Floats") -> "Dict[str, Floats]":
        """The columns of each head, of one row or of rows."""
        found: "Dict[str, Floats]" = {}
        first = 0
        for name, labels in self.labels.items():
            found[name] = scores[..., first:first + len(labels)]
            first += len(labels)
        return found


def heads_of(view: "View", names: Optional[Sequence[str]]) -> Optional[Heads]:
    """None: the call names no heads."""
    return None if names is None else Heads(view, names)


def labelled_by_head(known: Dict[str, List[str]], scores: "Dict[str, Floats]", top_k: Optional[int]) -> Any:
    """The labels of each head, of one text or of each text."""
    found = {name: [labelled(known[name], row, top_k) for row in rows.reshape(-1, len(known[name]))]
             for name, rows in scores.items()}
    texts = [dict(zip(found, one)) for one in zip(*found.values())]
    return texts[0] if any(rows.ndim == 1 for rows in scores.values()) else texts
