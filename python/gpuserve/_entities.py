"""Labels of tokens, and the entities they make up, as transformers' pipeline finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple, cast

import numpy as np
from numpy.typing import NDArray

from . import _abi, _texts
from ._calls import Call, Floats, patiently, run
from ._tokens import Tokens, decode, tokenize
from .errors import InvalidError, UnsupportedError

if TYPE_CHECKING:
    from ._handle import Handle

Entity = Dict[str, Any]

#: Texts of one submission.
LABELLED_TEXTS = 64
UNKNOWN = "[UNK]"
#: No blank comes before a piece that begins so, as the decoder of WordPiece joins them.
NO_BLANK = (".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re")


class TokenLabels(NamedTuple):
    """One text's tokens and the scores of their labels."""

    ids: "NDArray[np.int32]"
    #: [n, 2]: first byte of the UTF-8 text and one past the last; 0 for special tokens.
    spans: "NDArray[np.uint32]"
    #: [n, len(model.labels)]
    scores: Floats


def label_tokens(model: "Handle", texts: Sequence[str], score: int, truncation: int) -> List[TokenLabels]:
    """Of each text."""
    view = model._view
    if "token_labels" not in view.facts.get("tasks", ()):
        raise UnsupportedError("this model labels no tokens: it is no token classifier")
    found: List[TokenLabels] = []
    for i in range(0, len(texts), LABELLED_TEXTS):
        # The number of rows is known before only when the ids are.
        tokens: List[Tokens] = model._guarded(
            lambda: [tokenize(model, text, True, view.max_seq_length, truncation)
                     for text in texts[i:i + LABELLED_TEXTS]], view)
        scores = np.empty((sum(len(one.ids) for one in tokens), len(view.labels)), dtype=np.float32)
        offsets = np.zeros(len(tokens) + 1, dtype=np.uint64)
        call = Call.of_ids([cast(Sequence[int], one.ids) for one in tokens], scores, task=_abi.TASK_TOKEN_LABELS,
                           score=score, token_offsets=_texts.address(offsets))
        patiently(model, lambda: model._guarded(lambda: run(model, call, i), view))
        found += [TokenLabels(*one, scores[int(first):int(last)].copy())
                  for one, first, last in zip(tokens, offsets, offsets[1:])]
    return found


# ------------------------------------------------------------------------------------- entities

def _kind(label: str) -> str:
    """"B-PER" and "I-PER" are of the kind "PER"."""
    return label[2:] if label[:2] in ("B-", "I-") else label


def _groups(labels: List[str], tokens: List[int], join: bool) -> Iterator[Tuple[int, int]]:
    """The first token and the last of each entity."""
    first = last = -1
    for i in tokens:
        goes_on = (join and first >= 0 and not labels[i].startswith("B-")
                   and _kind(labels[last]) == _kind(labels[i]))
        if first >= 0 and not goes_on:
            yield first, last
        if not goes_on:
            first = i
        last = i
    if first >= 0:
        yield first, last


def _word(model: "Handle", encoded: bytes, found: TokenLabels, first: int, last: int) -> str:
    """What was found. A token that is in no vocabulary is told by the text's own letters."""
    whole: str = model._guarded(lambda: decode(model, found.ids[first:last + 1].tolist(), False))
    if UNKNOWN not in whole:
        return whole
    word = ""
    for i in range(first, last + 1):
        piece: str = model._guarded(lambda: decode(model, found.ids[i:i + 1].tolist(), False))
        if piece == UNKNOWN:
            begin, end = found.spans[i]
            piece = encoded[begin:end].decode("utf-8", "replace")
            word += piece if i == first or piece.startswith(NO_BLANK) else " " + piece
        elif i > first and piece.startswith("##"):
            word += piece[2:]
        else:
            word += piece if i == first or piece.startswith(NO_BLANK) else " " + piece
    return word


def entities(model: "Handle", text: str, found: TokenLabels, strategy: str,
             ignored: Sequence[str]) -> List[Entity]:
    """Of one text."""
    if strategy not in ("none", "simple"):
        raise InvalidError(f'aggregation_strategy "{strategy}" is unknown', "known are none and simple")
    grouped = strategy == "simple"
    names = model._view.labels
    encoded = text.encode()
    best = found.scores.argmax(axis=1)
    labels = [names[i] for i in best]
    tokens = [i for i, (_, end) in enumerate(found.spans) if end > 0]    # no special ones
    made: List[Entity] = []
    for first, last in _groups(labels, tokens, grouped):
        # A group is called by all after the first dash, whatever is before it.
        name = labels[first].split("-", 1)[-1] if grouped else labels[first]
        if name in ignored:
            continue
        score = float(np.mean([found.scores[i, best[i]] for i in tokens if first <= i <= last],
                              dtype=np.float64))
        one: Entity = {"entity_group" if grouped else "entity": name, "score": score}
        if not grouped:
            one["index"] = first
        one.update(word=_word(model, encoded, found, first, last),
                   start=len(encoded[:found.spans[first][0]].decode("utf-8", "replace")),
                   end=len(encoded[:found.spans[last][1]].decode("utf-8", "replace")))
        made.append(one)
    return made
