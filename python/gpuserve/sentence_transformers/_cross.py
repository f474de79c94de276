"""CrossEncoder: scores of pairs of texts."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union, cast

import numpy as np

from .._ffi.arguments import Path
from .._ffi.calls import Floats
from .._ffi.texts import is_text
from ..errors import InvalidError, UnsupportedError
from ..model import Model
from . import _tensors as tensors
from ._base import BaseModel, accepts, check_call, joined, refuse

Activation = Callable[[Any], Any]
#: Activations that the library computes, by the name of their class in torch.nn.
ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "raw"}


def _softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: Floats = powers / powers.sum(axis=1, keepdims=True)
    return found


def _pairs(inputs: Any) -> Tuple[List[Tuple[str, str]], bool]:
    """The pairs of a call, and whether it is a single one."""
    if isinstance(inputs, str) or inputs is None:
        raise InvalidError(f"inputs is {type(inputs).__name__}, not a pair of texts or a list of them")
    given = inputs.tolist() if isinstance(inputs, np.ndarray) else list(inputs)
    alone = len(given) > 0 and isinstance(given[0], str)
    found: List[Tuple[str, str]] = []
    for i, one in enumerate([given] if alone else given):
        pair: List[Any] = list(cast(Any, one)) if isinstance(one, (list, tuple)) else []
        if len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise InvalidError(f"input {i} is not a pair of texts")
        found.append((pair[0], pair[1]))
    return found, alone


class CrossEncoder(BaseModel):
    """The class of sentence-transformers over :class:`gpuserve.Model`.

    Args:
        num_labels: checked against the model's.
        max_length: token limit of a pair; default the model's.
        activation_fn: default of :meth:`predict`; default the model's own.
        keep_in_fp32_modules: refused.

    The other arguments are those of :class:`SentenceTransformer`; names are completed by ``cross-encoder/``.
    """

    default_huggingface_organization = "cross-encoder"

    @accepts(model_name="model_name_or_path", automodel_args="model_kwargs", tokenizer_args="processor_kwargs",
             tokenizer_kwargs="processor_kwargs", config_args="config_kwargs", cache_dir="cache_folder",
             default_activation_function="activation_fn")
    def __init__(self, model_name_or_path: Union[None, Path, Model] = None, *, modules: Any = None,
                 device: Any = None, prompts: Optional[Dict[str, str]] = None,
                 default_prompt_name: Optional[str] = None, cache_folder: Optional[str] = None,
                 trust_remote_code: bool = False, revision: Optional[str] = None, local_files_only: bool = False,
                 token: Any = None, model_kwargs: Optional[Dict[str, Any]] = None,
                 processor_kwargs: Optional[Dict[str, Any]] = None, config_kwargs: Optional[Dict[str, Any]] = None,
                 model_card_data: Any = None, backend: str = "torch", num_labels: Optional[int] = None,
                 max_length: Optional[int] = None, activation_fn: Optional[Activation] = None,
                 keep_in_fp32_modules: Optional[List[str]] = None) -> None:
        refuse({"keep_in_fp32_modules": keep_in_fp32_modules or None}, "CrossEncoder",
               'model_kwargs={"dtype": "float32"} keeps all of them')
        self._start(model_name_or_path, modules=modules, device=device, prompts=prompts,
                    default_prompt_name=default_prompt_name, cache_folder=cache_folder,
                    trust_remote_code=trust_remote_code, revision=revision, local_files_only=local_files_only,
                    token=token, model_kwargs=model_kwargs, processor_kwargs=processor_kwargs,
                    config_kwargs=config_kwargs, model_card_data=model_card_data, backend=backend,
                    max_tokens=max_length)
        if not self._model.labels:
            raise UnsupportedError("this model scores no pairs: it has no labels", "SentenceTransformer embeds")
        if num_labels not in (None, self.num_labels):
            raise InvalidError(f"num_labels is {num_labels}, the model has {self.num_labels}",
                               "a head with other labels needs training")
        #: Activation of calls that name none; None: the model's own.
        self.activation_fn = activation_fn

    @property
    def num_labels(self) -> int:
        """Number of scores of a pair."""
        return len(self._model.labels)

    @property
    def max_length(self) -> int:
        """Token limit of a pair, as :attr:`max_seq_length`."""
        return self.max_seq_length

    @max_length.setter
    def max_length(self, value: Optional[int]) -> None:
        self.max_seq_length = value

    def is_singular_input(self, inputs: Any) -> bool:
        """True for one pair."""
        return not isinstance(inputs, str) and len(inputs) > 0 and isinstance(inputs[0], str)

    def _own_score(self) -> str:
        """The library's name of the model's activation, by the rules of sentence-transformers."""
        config = self._config("config.json")
        saved = self._config("config_sentence_transformers.json")
        of_config: Dict[str, Any] = config.get("sentence_transformers") or {}
        named: Any = (saved.get("activation_fn") or of_config.get("activation_fn")
                 or config.get("sbert_ce_default_activation_function"))
        if named is None:
            return "sigmoid" if self.num_labels == 1 else "raw"
        return ACTIVATIONS.get(str(named).rsplit(".", maxsplit=1)[-1], "default")

    @accepts(dropped=["num_workers"], sentences="inputs", activation_fct="activation_fn")
    def predict(self, inputs: Any, prompt_name: Optional[str] = None, prompt: Optional[str] = None,
                batch_size: int = 32, show_progress_bar: Optional[bool] = None,
                activation_fn: Optional[Activation] = None, apply_softmax: Optional[bool] = False,
                convert_to_numpy: bool = True, convert_to_tensor: bool = False, device: Any = None,
                pool: Optional[Dict[str, Any]] = None, chunk_size: Optional[int] = None, **kwargs: Any) -> Any:
        """Scores of pairs: [n] with one label, else [n, labels].

        Args:
            inputs: a pair of texts, or a list of pairs.
            prompt_name, prompt: instruction of a reranker that is a language model.
            activation_fn: called with the logits, a tensor, or an array without torch; ``torch.nn.Sigmoid`` and
                ``Identity`` are computed by the library. Default that of the constructor, else the model's own.
            apply_softmax: over the labels, after the activation.
            convert_to_numpy, convert_to_tensor: an array, a tensor, or with neither a list of tensors.
            batch_size, show_progress_bar, device, pool, chunk_size, kwargs: as for
                :meth:`SentenceTransformer.encode`.
        """
        check_call(batch_size, kwargs, "CrossEncoder.predict()")
        if convert_to_tensor:
            tensors.require("convert_to_tensor=True")
        pairs, alone = _pairs(inputs)
        options = self._prompt(prompt, prompt_name)
        instruction = options.get("prompt") or self.prompts.get(options.get("prompt_name") or "")
        function = activation_fn if activation_fn is not None else self.activation_fn
        score = self._own_score() if function is None else ACTIVATIONS.get(type(function).__name__, "raw")
        progress = bool(show_progress_bar) and pool is None
        scores = joined(self._distributed(pairs, device, pool, chunk_size, lambda model, some: self._scores(
            model, some, score, instruction, progress)))
        if function is not None and type(function).__name__ not in ACTIVATIONS:
            scores = tensors.array(function(tensors.tensor(scores)))
        if self.num_labels == 1 and scores.ndim > 1:
            scores = scores[:, 0]
        if apply_softmax and scores.ndim > 1 and len(scores):
            scores = _softmax(scores)
        if convert_to_tensor:
            made = tensors.tensor(scores)
        else:
            made = scores if convert_to_numpy else [tensors.tensor(np.asarray(one)) for one in scores]
        return made[0] if alone else made

    def _scores(self, model: Model, pairs: Sequence[Tuple[str, str]], score: str, instruction: Optional[str],
                progress: bool) -> Floats:
        """[n, labels]; with an instruction by the library's rerank call, a call for each query."""
        if not instruction:
            made: Floats = model.predict_proba([pair[0] for pair in pairs], [pair[1] for pair in pairs], score=score,
                                               show_progress_bar=progress)
            return made
        if score == "raw":
            raise InvalidError("activation_fn does not go together with a prompt",
                               "leave activation_fn out: the scores are then the model's own")
        places: Dict[str, List[int]] = {}
        for i, (query, _) in enumerate(pairs):
            places.setdefault(query, []).append(i)
        found: Floats = np.empty((len(pairs), 1), dtype=np.float32)
        for query, numbers in places.items():
            for hit in model.rank(query, [pairs[i][1] for i in numbers], prompt=instruction):
                found[numbers[hit["corpus_id"]]] = hit["score"]
        return found

    @accepts(dropped=["num_workers", "apply_softmax", "convert_to_numpy", "convert_to_tensor"],
             activation_fct="activation_fn")
    def rank(self, query: str, documents: Sequence[str], top_k: Optional[int] = None,
             return_documents: bool = False, prompt_name: Optional[str] = None, prompt: Optional[str] = None,
             batch_size: int = 32, show_progress_bar: Optional[bool] = None,
             activation_fn: Optional[Activation] = None, device: Any = None, pool: Optional[Dict[str, Any]] = None,
             chunk_size: Optional[int] = None) -> List[Dict[str, Any]]:
        """Documents by their score with a query, best first: ``{"corpus_id", "score"}``, and ``"text"`` with
        `return_documents`; the other arguments are those of :meth:`predict`.
        """
        if self.num_labels != 1:
            raise InvalidError("CrossEncoder.rank() only works for models with num_labels=1, this one has "
                               f"{self.num_labels}", "use CrossEncoder.predict() with pairs")
        if is_text(documents):
            raise InvalidError("documents is one str, not a list of them")
        scores = self.predict([(query, one) for one in documents], prompt_name, prompt, batch_size, show_progress_bar,
                              activation_fn, device=device, pool=pool, chunk_size=chunk_size)
        order = np.argsort(-np.asarray(scores), kind="stable")[:top_k]
        return [{"corpus_id": int(i), "score": float(scores[i]),
                 **({"text": documents[i]} if return_documents else {})} for i in order]
