"""LlamaIndex: a gpuserve model as ``BaseEmbedding``.

    from gpuserve.llama_index import GpuserveEmbedding
    Settings.embed_model = GpuserveEmbedding("sentence-transformers/all-MiniLM-L6-v2")
"""

from __future__ import annotations

from typing import Any, List, Union

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from ._ffi.arguments import Path
from .model import Model


class GpuserveEmbedding(BaseEmbedding):  # type: ignore[misc, unused-ignore]
    """Embeddings for LlamaIndex: texts and queries with the model's own prompts.

    Args:
        model: an open model to share, or a directory or name to open.
        embed_batch_size: texts per call from LlamaIndex.
        options: as for :class:`gpuserve.Model`.
    """

    _model: Model = PrivateAttr()

    def __init__(self, model: Union[Model, Path], *, embed_batch_size: int = 256,
                 **options: Any) -> None:
        opened = model if isinstance(model, Model) else Model(model, **options)
        super().__init__(model_name=str(opened.info()["path"]), embed_batch_size=embed_batch_size)
        self._model = opened

    @classmethod
    def class_name(cls) -> str:
        """The class name that LlamaIndex stores."""
        return "GpuserveEmbedding"

    def _get_query_embedding(self, query: str) -> List[float]:
        found: List[float] = self._model.encode_query(query).tolist()
        return found

    def _get_text_embedding(self, text: str) -> List[float]:
        found: List[float] = self._model.encode_document(text).tolist()
        return found

    def _get_text_embeddings(self, texts: List[str]) -> List[List[float]]:
        found: List[List[float]] = self._model.encode_document(texts).tolist()
        return found

    async def _aget_query_embedding(self, query: str) -> List[float]:
        return await self._aget(query, "query")

    async def _aget_text_embedding(self, text: str) -> List[float]:
        return await self._aget(text, "document")

    async def _aget_text_embeddings(self, texts: List[str]) -> List[List[float]]:
        name = self._model.prompt_name_for("document")
        found: List[List[float]] = (await self._model.encode_async(texts, prompt_name=name)).tolist()  # type: ignore[assignment, unused-ignore]
        return found

    async def _aget(self, text: str, kind: str) -> List[float]:
        name = self._model.prompt_name_for(kind)
        found: List[float] = (await self._model.encode_async(text, prompt_name=name)).tolist()  # type: ignore[assignment, unused-ignore]
        return found
