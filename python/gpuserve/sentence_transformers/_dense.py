"""SentenceTransformer: texts to vectors."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Generator, List, Literal, Optional, Sequence, Union, overload

import numpy as np
from numpy.typing import NDArray

from .._ffi.arguments import Path
from .._ffi.values import whole
from ..errors import InvalidError
from ..model import Model
from ..quantization import PRECISIONS, quantize_embeddings
from . import _tensors as tensors
from ._base import BaseModel, accepts, check_call, joined, texts_of
from ._similarity import SimilarityFunction, name_of

OUTPUTS = ("sentence_embedding", "token_embeddings", None)


class SentenceTransformer(BaseModel):
    """The class of sentence-transformers over :class:`gpuserve.Model`.

    Args:
        model_name_or_path: a directory or a name, completed by ``sentence-transformers/``; or an open
            :class:`gpuserve.Model`.
        device: of the library, such as ``"cpu"`` and ``"cuda:0"``; default the best one.
        prompts, default_prompt_name: beside the model's own prompts.
        cache_folder, revision, local_files_only: of the hub.
        trust_remote_code: accepted; no code of a model is run.
        model_kwargs: ``dtype`` or ``torch_dtype``, and the arguments of :class:`gpuserve.Model`.
        processor_kwargs: ``model_max_length``.
        similarity_fn_name: ``"cosine"``, ``"dot"``, ``"euclidean"``, ``"manhattan"``; default the model's own.
        truncate_dim: keep the first values of each vector.
        modules, config_kwargs, token, backend: refused by name if they ask for anything else than the default.
    """

    default_huggingface_organization = "sentence-transformers"
    _default_prompts = {"query": "", "document": ""}
    SUPPORTED_SIMILARITY_FN_NAMES = ("cosine", "dot", "euclidean", "manhattan")

    @accepts(tokenizer_kwargs="processor_kwargs")
    def __init__(self, model_name_or_path: Union[None, Path, Model] = None, *, modules: Any = None,
                 device: Any = None, prompts: Optional[Dict[str, str]] = None,
                 default_prompt_name: Optional[str] = None, cache_folder: Optional[str] = None,
                 trust_remote_code: bool = False, revision: Optional[str] = None, local_files_only: bool = False,
                 token: Any = None, use_auth_token: Any = None, model_kwargs: Optional[Dict[str, Any]] = None,
                 processor_kwargs: Optional[Dict[str, Any]] = None, config_kwargs: Optional[Dict[str, Any]] = None,
                 model_card_data: Any = None, backend: str = "torch",
                 similarity_fn_name: Union[None, str, SimilarityFunction] = None,
                 truncate_dim: Optional[int] = None) -> None:
        name = None if similarity_fn_name is None else name_of(similarity_fn_name)
        self._start(model_name_or_path, modules=modules, device=device, prompts=prompts,
                    default_prompt_name=default_prompt_name, cache_folder=cache_folder,
                    trust_remote_code=trust_remote_code, revision=revision, local_files_only=local_files_only,
                    token=token if token is not None else use_auth_token, model_kwargs=model_kwargs,
                    processor_kwargs=processor_kwargs, config_kwargs=config_kwargs,
                    model_card_data=model_card_data, backend=backend)
        own = self._config("config_sentence_transformers.json").get("similarity_fn_name")
        #: Values kept of each vector; None: all.
        self.truncate_dim = truncate_dim
        self._similarity_fn_name = name if name is not None else own

    # ---------------------------------------------------------------------------------- encode

    @overload
    def encode(self, inputs: Any, prompt_name: Optional[str] = ..., prompt: Optional[str] = ...,
               batch_size: int = ..., show_progress_bar: Optional[bool] = ..., output_value: Literal["sentence_embedding"] = ...,
               precision: Optional[str] = ..., convert_to_numpy: Literal[True] = ..., convert_to_tensor: Literal[False] = ...,
               device: Any = ..., normalize_embeddings: bool = ..., truncate_dim: Optional[int] = ...,
               pool: Optional[Dict[str, Any]] = ..., chunk_size: Optional[int] = ..., *, ranges: Any = ...,
               calibration_embeddings: Any = ..., **kwargs: Any) -> "NDArray[Any]": ...

    @overload
    def encode(self, inputs: Any, prompt_name: Optional[str] = ..., prompt: Optional[str] = ...,
               batch_size: int = ..., show_progress_bar: Optional[bool] = ..., output_value: Optional[str] = ...,
               precision: Optional[str] = ..., convert_to_numpy: bool = ..., convert_to_tensor: bool = ...,
               device: Any = ..., normalize_embeddings: bool = ..., truncate_dim: Optional[int] = ...,
               pool: Optional[Dict[str, Any]] = ..., chunk_size: Optional[int] = ..., *, ranges: Any = ...,
               calibration_embeddings: Any = ..., **kwargs: Any) -> Any: ...

    @accepts(sentences="inputs")
    def encode(self, inputs: Any, prompt_name: Optional[str] = None, prompt: Optional[str] = None,
               batch_size: int = 32, show_progress_bar: Optional[bool] = None,
               output_value: Optional[str] = "sentence_embedding", precision: Optional[str] = "float32",
               convert_to_numpy: bool = True, convert_to_tensor: bool = False, device: Any = None,
               normalize_embeddings: bool = False, truncate_dim: Optional[int] = None,
               pool: Optional[Dict[str, Any]] = None, chunk_size: Optional[int] = None, *,
               ranges: Any = None, calibration_embeddings: Any = None, **kwargs: Any) -> Any:
        """Vectors of one text or many.

        Args:
            inputs: a text, or a list of them.
            prompt_name, prompt: one of the prompts, or a text, put before each text.
            batch_size: checked; the library forms its own batches.
            show_progress_bar: on standard error; with a pool there is none.
            output_value: ``"token_embeddings"``: a [n_tokens, hidden] tensor of each text; None: a dict of each
                text with ``input_ids``, ``attention_mask``, ``token_embeddings`` and ``sentence_embedding``.
            precision: ``"float32"``, ``"int8"``, ``"uint8"``, ``"binary"``, ``"ubinary"``; also ``"float16"``.
            ranges, calibration_embeddings: of int8 and uint8, as for :func:`gpuserve.quantize_embeddings`;
                default the vectors of this call, as in sentence-transformers.
            convert_to_numpy, convert_to_tensor: an array, a tensor, or with neither a list of tensors.
            device: one device, or a list of them that share the texts.
            normalize_embeddings: to L2 norm 1.
            truncate_dim: keep the first values of each vector; default that of the constructor.
            pool, chunk_size: of :meth:`start_multi_process_pool`; texts of a chunk.
            kwargs: ``task`` is accepted: the prompt's name chooses a route of a model.
        """
        check_call(batch_size, kwargs, "SentenceTransformer.encode()")
        if output_value not in OUTPUTS:
            raise InvalidError(f"output_value {output_value!r} is unknown",
                               "known are sentence_embedding, token_embeddings and None")
        if precision is not None and precision not in PRECISIONS:
            raise InvalidError(f"Precision {precision!r} is not supported, must be one of {list(PRECISIONS)}")
        if convert_to_tensor:
            tensors.require("convert_to_tensor=True")
        texts, alone = texts_of(inputs)
        if not texts:
            return self._nothing(convert_to_numpy, convert_to_tensor, output_value)
        options: Dict[str, Any] = self._prompt(prompt, prompt_name)
        if output_value != "sentence_embedding":
            parts = self._distributed(texts, device, pool, chunk_size,
                                      lambda model, some: self._features(model, some, options, output_value,
                                                                         normalize_embeddings, truncate_dim))
            found = [one for part in parts for one in part]
            return found[0] if alone else found
        options.update(normalize_embeddings=normalize_embeddings, truncate_dim=self._kept(truncate_dim),
                       show_progress_bar=bool(show_progress_bar) and pool is None)
        vectors = joined(self._distributed(texts, device, pool, chunk_size,
                                           lambda model, some: model.encode(some, **options)))
        if precision not in (None, "float32"):
            vectors = quantize_embeddings(vectors, str(precision), ranges, calibration_embeddings)
        if convert_to_tensor:
            made = tensors.tensor(vectors)
        else:
            made = vectors if convert_to_numpy else [tensors.tensor(one) for one in vectors]
        return made[0] if alone else made

    @staticmethod
    def _nothing(convert_to_numpy: bool, convert_to_tensor: bool, output_value: Optional[str]) -> Any:
        """The result for an empty list, as in sentence-transformers."""
        if output_value != "sentence_embedding" or not (convert_to_numpy or convert_to_tensor):
            return []
        empty = np.array([], dtype=np.float32)
        return tensors.tensor(empty) if convert_to_tensor else empty

    def _kept(self, truncate_dim: Optional[int]) -> Optional[int]:
        """Values of a vector; more than there are keep all."""
        found = self.truncate_dim if truncate_dim is None else truncate_dim
        return None if found is None else min(whole(found, "truncate_dim"), self._model.dim)

    def _features(self, model: Model, texts: Sequence[str], options: Dict[str, Any], output_value: Optional[str],
                  normalize: bool, truncate_dim: Optional[int]) -> List[Any]:
        """Token vectors of each text, or all features of it."""
        tokens = [tensors.tensor(one) for one in model.encode(texts, output_value="token_embeddings", **options)]
        if output_value is not None:
            return tokens
        vectors = model.encode(texts, normalize_embeddings=normalize, truncate_dim=self._kept(truncate_dim), **options)
        name = options.get("prompt_name")
        prompt = options.get("prompt") or (model.prompts[name] if name else "")
        encoder = self.tokenizer
        found: List[Any] = []
        for text, token_vectors, vector in zip(texts, tokens, vectors):
            ids = np.asarray(encoder.encode(prompt + text, truncation=True), dtype=np.int64)
            found.append({"input_ids": tensors.tensor(ids), "attention_mask": tensors.tensor(np.ones_like(ids)),
                          "token_embeddings": token_vectors, "sentence_embedding": tensors.tensor(vector)})
        return found

    @accepts(sentences="inputs")
    def encode_query(self, inputs: Any, prompt_name: Optional[str] = None, prompt: Optional[str] = None,
                     batch_size: int = 32, show_progress_bar: Optional[bool] = None,
                     output_value: Optional[str] = "sentence_embedding", precision: Optional[str] = "float32",
                     convert_to_numpy: bool = True, convert_to_tensor: bool = False, device: Any = None,
                     normalize_embeddings: bool = False, truncate_dim: Optional[int] = None,
                     pool: Optional[Dict[str, Any]] = None, chunk_size: Optional[int] = None, **kwargs: Any) -> Any:
        """:meth:`encode` with the prompt for queries, if there is one."""
        if prompt is None and prompt_name is None:
            prompt_name = self._prompt_name_for("query")
        return self.encode(inputs, prompt_name, prompt, batch_size, show_progress_bar, output_value, precision,
                           convert_to_numpy, convert_to_tensor, device, normalize_embeddings, truncate_dim, pool,
                           chunk_size, **kwargs)

    @accepts(sentences="inputs")
    def encode_document(self, inputs: Any, prompt_name: Optional[str] = None, prompt: Optional[str] = None,
                        batch_size: int = 32, show_progress_bar: Optional[bool] = None,
                        output_value: Optional[str] = "sentence_embedding", precision: Optional[str] = "float32",
                        convert_to_numpy: bool = True, convert_to_tensor: bool = False, device: Any = None,
                        normalize_embeddings: bool = False, truncate_dim: Optional[int] = None,
                        pool: Optional[Dict[str, Any]] = None, chunk_size: Optional[int] = None,
                        **kwargs: Any) -> Any:
        """:meth:`encode` with the prompt for documents, if there is one."""
        if prompt is None and prompt_name is None:
            prompt_name = self._prompt_name_for("document")
        return self.encode(inputs, prompt_name, prompt, batch_size, show_progress_bar, output_value, precision,
                           convert_to_numpy, convert_to_tensor, device, normalize_embeddings, truncate_dim, pool,
                           chunk_size, **kwargs)

    def encode_multi_process(self, sentences: List[str], pool: Dict[str, Any], prompt_name: Optional[str] = None,
                             prompt: Optional[str] = None, batch_size: int = 32, chunk_size: Optional[int] = None,
                             show_progress_bar: Optional[bool] = None, precision: str = "float32",
                             normalize_embeddings: bool = False, truncate_dim: Optional[int] = None) -> Any:
        """:meth:`encode` with a pool."""
        return self.encode(sentences, prompt_name=prompt_name, prompt=prompt, batch_size=batch_size,
                           chunk_size=chunk_size, show_progress_bar=show_progress_bar, precision=precision,
                           normalize_embeddings=normalize_embeddings, truncate_dim=truncate_dim, pool=pool)

    # ------------------------------------------------------------------------------ similarity

    @property
    def similarity_fn_name(self) -> str:
        """Name of the similarity function."""
        return self._similarity_fn_name or "cosine"

    @similarity_fn_name.setter
    def similarity_fn_name(self, value: Union[None, str, SimilarityFunction]) -> None:
        self._similarity_fn_name = None if value is None else name_of(value)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Similarity of each vector of the first list with each one of the second."""
        return SimilarityFunction.to_similarity_fn(self.similarity_fn_name)(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Similarity of vectors with the same index."""
        return SimilarityFunction.to_similarity_pairwise_fn(self.similarity_fn_name)(embeddings1, embeddings2)

    # ----------------------------------------------------------------------------------- shape

    def get_embedding_dimension(self) -> int:
        """Dimension of the vectors of :meth:`encode`."""
        return self._kept(None) or self._model.dim

    def get_sentence_embedding_dimension(self) -> int:
        """Older name of :meth:`get_embedding_dimension`."""
        return self.get_embedding_dimension()

    @contextlib.contextmanager
    def truncate_embeddings(self, truncate_dim: Optional[int]) -> Generator[None, None, None]:
        """Another `truncate_dim` in a ``with`` statement."""
        before, self.truncate_dim = self.truncate_dim, truncate_dim
        try:
            yield
        finally:
            self.truncate_dim = before

    #: Older name.
    truncate_sentence_embeddings = truncate_embeddings

    @staticmethod
    def load(input_path: str) -> "SentenceTransformer":
        """Older form of the constructor."""
        return SentenceTransformer(input_path)
