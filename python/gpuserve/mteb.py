"""MTEB: a gpuserve model as an encoder of the Massive Text Embedding Benchmark.

    import mteb
    from gpuserve.mteb import MtebEncoder
    mteb.evaluate(MtebEncoder("sentence-transformers/all-MiniLM-L6-v2"), mteb.get_tasks(["STS12"]))
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional, Sequence, Union

import numpy as np
from mteb.models import ModelMeta
from mteb.models.abs_encoder import get_prompt_name

from ._ffi.calls import Floats
from ._ffi.arguments import Path
from .model import Model

QUERY = "query"
DOCUMENT = "document"


class MtebEncoder:
    """MTEB's ``EncoderProtocol``: queries and documents with the model's own prompts.

    Args:
        model_name: an open model to share, or a directory or name to open.
        revision: reported in the results.
        device: as for :class:`gpuserve.Model`; so are the options.
    """

    def __init__(self, model_name: Union[Model, Path], revision: Optional[str] = None, *,
                 device: Optional[str] = None, **options: Any) -> None:
        self.model = (model_name if isinstance(model_name, Model)
                      else Model(model_name, device=device, **options))
        facts = self.model.info()
        name = str(facts["path"]).rstrip("/").rsplit("/", 1)[-1]
        self.mteb_model_meta = ModelMeta.create_empty(overwrites={
            "name": f"gpuserve/{name}",
            "revision": revision or self.model.fingerprint,
            "n_parameters": facts["parameters"],
            "max_tokens": self.model.max_seq_length,
            "embed_dim": self.model.dim,
            "similarity_fn_name": "cosine",
        })

    def encode(self, inputs: Iterable[Mapping[str, Any]], *, task_metadata: Any, hf_split: str,
               hf_subset: str, prompt_type: Any = None, **options: Any) -> Floats:
        """The vectors of all texts of a data loader, in its order."""
        # In MTEB's order of precedence: prompts of the task, of its type, of queries and documents.
        name = get_prompt_name(self.model.prompts, task_metadata, prompt_type)
        if name is None and prompt_type is not None:
            kind = QUERY if str(prompt_type.value) == QUERY else DOCUMENT
            name = self.model.prompt_name_for(kind)
        texts = (text for batch in inputs for text in _texts_of(batch))
        parts = list(self.model.encode_stream(texts, prompt_name=name))
        if not parts:
            return np.empty((0, self.model.dim), dtype=np.float32)
        return np.concatenate(parts)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosine similarities as the torch tensor that MTEB expects."""
        return _tensor(self.model.similarity(embeddings1, embeddings2))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosine similarities of rows with the same index."""
        return _tensor(self.model.similarity_pairwise(embeddings1, embeddings2))


def _texts_of(batch: Mapping[str, Any]) -> Sequence[str]:
    texts: Sequence[str] = batch["text"]
    return texts


def _tensor(values: Floats) -> Any:
    import torch

    return torch.from_numpy(values)
