"""SparseEncoder: texts to sparse vectors (SPLADE)."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union

import numpy as np

from .._ffi.arguments import Path
from .._ffi.calls import Floats
from .._ffi.values import whole
from ..errors import InvalidError, UnsupportedError
from ..model import Model
from . import _tensors as tensors
from ._base import BaseModel, accepts, check_call, joined, texts_of
from ._similarity import SimilarityFunction, name_of


def _top(row: Floats, n: int) -> None:
    """Keep the `n` largest weights."""
    if n < np.count_nonzero(row):
        row[np.argpartition(-row, n - 1)[n:] if n else slice(None)] = 0


class SparseEncoder(BaseModel):
    """The class of sentence-transformers over :class:`gpuserve.Model`; without torch, vectors are dense rows.

    Args:
        max_active_dims: weights kept of each vector, the largest ones; default all.
        similarity_fn_name: default the model's own, else ``"dot"``.

    The other arguments are those of :class:`SentenceTransformer`; names are completed by ``sparse-encoder/``.
    """

    default_huggingface_organization = "sparse-encoder"
    _default_prompts = {"query": "", "document": ""}
    SUPPORTED_SIMILARITY_FN_NAMES = ("cosine", "dot", "euclidean", "manhattan")

    @accepts(tokenizer_kwargs="processor_kwargs")
    def __init__(self, model_name_or_path: Union[None, Path, Model] = None, *, modules: Any = None,
                 device: Any = None, prompts: Optional[Dict[str, str]] = None,
                 default_prompt_name: Optional[str] = None, cache_folder: Optional[str] = None,
                 trust_remote_code: bool = False, revision: Optional[str] = None, local_files_only: bool = False,
                 token: Any = None, model_kwargs: Optional[Dict[str, Any]] = None,
                 processor_kwargs: Optional[Dict[str, Any]] = None, config_kwargs: Optional[Dict[str, Any]] = None,
                 model_card_data: Any = None, backend: str = "torch",
                 similarity_fn_name: Union[None, str, SimilarityFunction] = None,
                 max_active_dims: Optional[int] = None) -> None:
        name = None if similarity_fn_name is None else name_of(similarity_fn_name)
        self._start(model_name_or_path, modules=modules, device=device, prompts=prompts,
                    default_prompt_name=default_prompt_name, cache_folder=cache_folder,
                    trust_remote_code=trust_remote_code, revision=revision, local_files_only=local_files_only,
                    token=token, model_kwargs=model_kwargs, processor_kwargs=processor_kwargs,
                    config_kwargs=config_kwargs, model_card_data=model_card_data, backend=backend)
        if not self._model.sparse_dim:
            raise UnsupportedError("this model makes no sparse vectors: it is not a masked language model")
        own = self._config("config_sentence_transformers.json").get("similarity_fn_name")
        #: Weights kept of each vector; None: all.
        self.max_active_dims = max_active_dims
        self._similarity_fn_name = name if name is not None else own

    @accepts(sentences="inputs")
    def encode(self, inputs: Any, prompt_name: Optional[str] = None, prompt: Optional[str] = None,
               batch_size: int = 32, show_progress_bar: Optional[bool] = None, convert_to_tensor: bool = True,
               convert_to_sparse_tensor: bool = True, save_to_cpu: bool = False, device: Any = None,
               max_active_dims: Optional[int] = None, pool: Optional[Dict[str, Any]] = None,
               chunk_size: Optional[int] = None, **kwargs: Any) -> Any:
        """Sparse vectors of one text or many.

        Args:
            convert_to_tensor: one tensor; False: a list of them.
            convert_to_sparse_tensor: sparse COO tensors; False: dense ones.
            save_to_cpu: accepted; the tensors are always in host memory.
            max_active_dims: weights kept of each vector; default that of the constructor.
            inputs, prompt_name, prompt, batch_size, show_progress_bar, device, pool, chunk_size, kwargs: as for
                :meth:`SentenceTransformer.encode`; there is no progress bar.
        """
        check_call(batch_size, kwargs, "SparseEncoder.encode()")
        texts, alone = texts_of(inputs)
        limit = self.max_active_dims if max_active_dims is None else max_active_dims
        options = self._prompt(prompt, prompt_name)
        rows = joined(self._distributed(texts, device, pool, chunk_size,
                                        lambda model, some: self._rows(model, some, options, limit)))
        convert = tensors.sparse_tensor if convert_to_sparse_tensor else tensors.tensor
        if alone:
            return convert(rows[0])
        return convert(rows) if convert_to_tensor else [convert(row) for row in rows]

    @staticmethod
    def _rows(model: Model, texts: Any, options: Dict[str, Any], limit: Optional[int]) -> Floats:
        made: Floats = np.zeros((len(texts), model.sparse_dim), dtype=np.float32)
        for row, one in zip(made, model.encode_multi(texts, ["sparse"], **options)["sparse"]):
            row[one.ids] = one.weights
            if limit is not None:
                _top(row, whole(limit, "max_active_dims"))
        return made

    @accepts(sentences="inputs")
    def encode_query(self, inputs: Any, prompt_name: Optional[str] = None, prompt: Optional[str] = None,
                     batch_size: int = 32, show_progress_bar: Optional[bool] = None, convert_to_tensor: bool = True,
                     convert_to_sparse_tensor: bool = True, save_to_cpu: bool = False, device: Any = None,
                     max_active_dims: Optional[int] = None, pool: Optional[Dict[str, Any]] = None,
                     chunk_size: Optional[int] = None, **kwargs: Any) -> Any:
        """:meth:`encode` with the prompt for queries, if there is one."""
        if prompt is None and prompt_name is None:
            prompt_name = self._prompt_name_for("query")
        return self.encode(inputs, prompt_name, prompt, batch_size, show_progress_bar, convert_to_tensor,
                           convert_to_sparse_tensor, save_to_cpu, device, max_active_dims, pool, chunk_size, **kwargs)

    @accepts(sentences="inputs")
    def encode_document(self, inputs: Any, prompt_name: Optional[str] = None, prompt: Optional[str] = None,
                        batch_size: int = 32, show_progress_bar: Optional[bool] = None,
                        convert_to_tensor: bool = True, convert_to_sparse_tensor: bool = True,
                        save_to_cpu: bool = False, device: Any = None, max_active_dims: Optional[int] = None,
                        pool: Optional[Dict[str, Any]] = None, chunk_size: Optional[int] = None,
                        **kwargs: Any) -> Any:
        """:meth:`encode` with the prompt for documents, if there is one."""
        if prompt is None and prompt_name is None:
            prompt_name = self._prompt_name_for("document")
        return self.encode(inputs, prompt_name, prompt, batch_size, show_progress_bar, convert_to_tensor,
                           convert_to_sparse_tensor, save_to_cpu, device, max_active_dims, pool, chunk_size, **kwargs)

    def decode(self, embeddings: Any, top_k: Optional[int] = None) -> Any:
        """``(token, weight)`` of a vector, the largest weight first; a list of that for rows of vectors."""
        if top_k is not None and whole(top_k, "top_k") <= 0:
            raise InvalidError(f"top_k must be a positive integer, got {top_k}.")
        values = tensors.array(embeddings)
        if values.ndim not in (1, 2):
            raise InvalidError(f"Input tensor must be 1D or 2D, got {values.ndim}D.")
        found: List[List[Tuple[str, float]]] = []
        for row in np.atleast_2d(values):
            ids = np.flatnonzero(row)
            ids = ids[np.argsort(-row[ids], kind="stable")][:top_k]
            found.append([(token, float(weight))
                          for token, weight in zip(self._model.convert_ids_to_tokens(list(ids)), row[ids])])
        return found[0] if values.ndim == 1 else found

    @staticmethod
    def sparsity(embeddings: Any) -> Dict[str, float]:
        """Mean number of weights of a vector, and the share of the vocabulary without one."""
        values = tensors.array(embeddings)
        if values.ndim not in (1, 2):
            raise InvalidError(f"Expected a 1D or 2D tensor, got {values.ndim}D.")
        rows = np.atleast_2d(values)
        if not rows.size:
            return {"active_dims": 0.0, "sparsity_ratio": 1.0}
        active = float(np.count_nonzero(rows, axis=1).mean())
        return {"active_dims": active, "sparsity_ratio": 1.0 - active / rows.shape[1]}

    @staticmethod
    def intersection(embeddings_1: Any, embeddings_2: Any) -> Any:
        """Products of the weights that both vectors have; the first one may be compared with many."""
        one, other = tensors.array(embeddings_1), tensors.array(embeddings_2)
        if one.ndim != 1:
            raise InvalidError(f"embeddings_1 has {one.ndim} dimensions, it must be one vector")
        return tensors.sparse_tensor(np.ascontiguousarray(one * other))

    @property
    def similarity_fn_name(self) -> str:
        """Name of the similarity function."""
        return self._similarity_fn_name or "dot"

    @similarity_fn_name.setter
    def similarity_fn_name(self, value: Union[None, str, SimilarityFunction]) -> None:
        self._similarity_fn_name = None if value is None else name_of(value)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Similarity of each vector of the first list with each one of the second."""
        return SimilarityFunction.to_similarity_fn(self.similarity_fn_name)(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Similarity of vectors with the same index."""
        return SimilarityFunction.to_similarity_pairwise_fn(self.similarity_fn_name)(embeddings1, embeddings2)

    def get_embedding_dimension(self) -> int:
        """Dimension of a vector, the size of the vocabulary."""
        return self._model.sparse_dim

    def get_sentence_embedding_dimension(self) -> int:
        """Older name of :meth:`get_embedding_dimension`."""
        return self.get_embedding_dimension()
