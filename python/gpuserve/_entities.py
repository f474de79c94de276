"""Token classification: labels of tokens, and entities as in the pipeline of transformers."""

from __future__ import annotations

from ctypes import byref, c_size_t
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Sequence, cast

import numpy as np
from numpy.typing import NDArray

from ._ffi import abi, texts as _texts
from ._ffi.calls import Call, Floats, patiently, run
from ._ffi.library import call, text_of
from ._tokens import Tokens, tokenize
from .errors import InvalidError, UnsupportedError

if TYPE_CHECKING:
    from ._handle import Handle

Entity = Dict[str, Any]

#: Texts per submission.
LABELLED_TEXTS = 64


class TokenLabels(NamedTuple):
    """The tokens of one text and the scores of their labels."""

    ids: "NDArray[np.int32]"
    #: [n, 2]: start and end byte offset in the UTF-8 text; end is 0 for special tokens.
    spans: "NDArray[np.uint32]"
    #: [n, len(model.labels)]
    scores: Floats


def label_tokens(model: "Handle", texts: Sequence[str], score: int, truncation: int,
                 client: int) -> List[TokenLabels]:
    """The token labels of each text."""
    view = model._view
    if "token_labels" not in view.facts.get("tasks", ()):
        raise UnsupportedError("this model is not a token classifier")
    found: List[TokenLabels] = []
    for i in range(0, len(texts), LABELLED_TEXTS):
        # The number of rows is known in advance only with the ids.
        tokens: List[Tokens] = model._guarded(
            lambda: [tokenize(model, text, True, view.max_seq_length, truncation)
                     for text in texts[i:i + LABELLED_TEXTS]], view)
        scores = np.empty((sum(len(one.ids) for one in tokens), len(view.labels)), dtype=np.float32)
        offsets = np.zeros(len(tokens) + 1, dtype=np.uint64)
        job = Call.of_ids([cast(Sequence[int], one.ids) for one in tokens], scores, task=abi.TASK_TOKEN_LABELS,
                           score=score, client=client, token_offsets=_texts.address(offsets))
        patiently(model, lambda: model._guarded(lambda: run(model, job, i), view))
        found += [TokenLabels(*one, scores[int(first):int(last)].copy())
                  for one, first, last in zip(tokens, offsets, offsets[1:])]
    return found


# ------------------------------------------------------------------------------------- entities

STRATEGIES = {"simple": abi.AGGREGATION_SIMPLE, "none": abi.AGGREGATION_NONE, "first": abi.AGGREGATION_FIRST,
              "average": abi.AGGREGATION_AVERAGE, "max": abi.AGGREGATION_MAX}


def entities(model: "Handle", text: str, found: TokenLabels, strategy: str,
             ignored: Sequence[str]) -> List[Entity]:
    """The entities of one text."""
    if strategy not in STRATEGIES:
        raise InvalidError(f'aggregation_strategy "{strategy}" is unknown', "known are " + ", ".join(sorted(STRATEGIES)))
    encoded = text.encode()
    return model._guarded(lambda: _read(model, encoded, found, STRATEGIES[strategy], ignored))


def _read(model: "Handle", encoded: bytes, found: TokenLabels, aggregation: int,
          ignored: Sequence[str]) -> List[Entity]:
    library, handle = model._library, model._handle
    ids, spans = np.ascontiguousarray(found.ids), np.ascontiguousarray(found.spans)
    scores = np.ascontiguousarray(found.scores)
    given = (abi.Entity * max(len(ids), 1))()
    n = c_size_t()
    call(library.gpuserve_entities, handle, _texts.address(scores), scores.shape[1], encoded, len(encoded),
         _texts.address(ids), _texts.address(spans), len(ids), aggregation, given, byref(n))
    made: List[Entity] = []
    for one in given[:n.value]:
        name = library.gpuserve_entity_name(handle, byref(one), aggregation).decode()
        if name in ignored:
            continue
        grouped = aggregation != abi.AGGREGATION_NONE
        entity: Entity = {"entity_group" if grouped else "entity": name, "score": float(one.score)}
        if not grouped:
            entity["index"] = int(one.first)
        entity["word"] = text_of(library.gpuserve_entity_word, handle, byref(one), aggregation, encoded, len(encoded),
                                 _texts.address(ids), _texts.address(spans), len(ids))
        entity["start"] = len(encoded[:spans[one.first][0]].decode("utf-8", "replace"))
        entity["end"] = len(encoded[:spans[one.last][1]].decode("utf-8", "replace"))
        made.append(entity)
    return made
