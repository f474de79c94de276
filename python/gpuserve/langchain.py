"""LangChain: a gpuserve model as ``Embeddings``.

    from gpuserve.langchain import GpuserveEmbeddings
    store = InMemoryVectorStore(GpuserveEmbeddings("sentence-transformers/all-MiniLM-L6-v2"))
"""

from __future__ import annotations

from typing import Any, List, Union

from langchain_core.embeddings import Embeddings

from ._ffi.arguments import Path
from .model import Model


class GpuserveEmbeddings(Embeddings):  # type: ignore[misc, unused-ignore]
    """Embeddings for LangChain: documents and queries with the model's own prompts.

    Args:
        model: an open model to share, or a directory or name to open.
        options: as for :class:`gpuserve.Model`.
    """

    def __init__(self, model: Union[Model, Path], **options: Any) -> None:
        self.model = model if isinstance(model, Model) else Model(model, **options)

    def embed_documents(self, texts: List[str]) -> List[List[float]]:
        """One vector per document."""
        found: List[List[float]] = self.model.encode_document(texts).tolist()
        return found

    def embed_query(self, text: str) -> List[float]:
        """The vector of a query."""
        found: List[float] = self.model.encode_query(text).tolist()
        return found

    async def aembed_documents(self, texts: List[str]) -> List[List[float]]:
        """:meth:`embed_documents` without blocking the event loop."""
        name = self.model.prompt_name_for("document")
        return (await self.model.encode_async(texts, prompt_name=name)).tolist()  # type: ignore[return-value, no-any-return, unused-ignore]

    async def aembed_query(self, text: str) -> List[float]:
        """:meth:`embed_query` without blocking the event loop."""
        name = self.model.prompt_name_for("query")
        return (await self.model.encode_async(text, prompt_name=name)).tolist()  # type: ignore[return-value, no-any-return, unused-ignore]
