"""Zero-shot classification with a model of natural language inference (NLI)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterable, Sequence, Union, cast

import numpy as np

from ._ffi import arguments, texts as _texts
from ._ffi.calls import Floats
from ._ffi.library import call
from .errors import InvalidError

if TYPE_CHECKING:
    from .model import Model


def zero_shot(model: "Model", inputs: Union[str, Iterable[str]], labels: Sequence[str], template: str,
              multi_label: bool, options: Dict[str, Any]) -> Floats:
    """Scores of the labels: [n, labels], or [labels] for one text."""
    if isinstance(labels, str) or not all(isinstance(one, str) and one for one in labels):
        raise InvalidError("candidate_labels are not a list of strings")
    if not labels:
        raise InvalidError("candidate_labels are empty")
    if "{}" not in template:
        raise InvalidError(f"hypothesis_template {template!r} has no {{}} for the label")
    refused = {"score", "return_items", "return_result"} & set(options)
    if refused:
        raise InvalidError(f"{min(refused)} is not available with candidate_labels")
    texts = [cast(str, inputs)] if _texts.is_text(inputs) else arguments.sequence(inputs)
    none = np.empty(0, dtype=np.float32)
    scores_of(model, none, 0, len(labels), multi_label)  # refuses a model without the label before it computes
    hypotheses = [template.replace("{}", label, 1) for label in labels]
    logits = model.predict_proba([text for text in texts for _ in labels], hypotheses * len(texts), score="raw", **options)
    scores = scores_of(model, logits, len(texts), len(labels), multi_label)
    return cast(Floats, scores[0] if _texts.is_text(inputs) else scores)


def scores_of(model: "Model", logits: Floats, n_texts: int, n_candidates: int, multi_label: bool) -> Floats:
    n_labels = logits.shape[1] if logits.ndim == 2 else len(model.labels)
    scores = np.empty((n_texts, n_candidates), dtype=np.float32)
    model._guarded(lambda: call(model._library.gpuserve_zero_shot_scores, model._handle, _texts.address(logits), n_labels,
                                n_texts, n_candidates, int(multi_label), _texts.address(scores)))
    return scores
