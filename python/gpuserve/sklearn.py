"""scikit-learn: a gpuserve model as a transformer from texts to vectors.

    make_pipeline(TextEmbedder("sentence-transformers/all-MiniLM-L6-v2"), LogisticRegression())
"""

# The framework has no types for pyright.
# pyright: basic
from __future__ import annotations

from typing import Any, Dict, Iterable, Optional

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from ._ffi.arguments import Path
from .model import Model


class TextEmbedder(TransformerMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]
    """Texts to [n, dim] float32. Has nothing to fit; the model opens at first use.

    A copy or a pickle has the parameters, not the open model.

    Args:
        model: a directory, or the name of a model in the Hugging Face cache.
        device, dtype: as for :class:`gpuserve.Model`.
        prompt_name, normalize_embeddings, truncate_dim: as for :meth:`gpuserve.Model.encode`; truncated vectors
            are normalized again only with normalize_embeddings.
    """

    def __init__(self, model: Path, *, device: Optional[str] = None, dtype: Optional[str] = None,
                 prompt_name: Optional[str] = None, normalize_embeddings: bool = False,
                 truncate_dim: Optional[int] = None) -> None:
        self.model = model
        self.device = device
        self.dtype = dtype
        self.prompt_name = prompt_name
        self.normalize_embeddings = normalize_embeddings
        self.truncate_dim = truncate_dim

    def fit(self, X: Iterable[str], y: Any = None) -> "TextEmbedder":  # noqa: N803
        """Open the model, so that an invalid one fails here."""
        self._opened()
        return self

    def transform(self, X: Iterable[str]) -> "NDArray[np.float32]":  # noqa: N803
        """The vectors of the texts: a list, an array or a pandas Series of str."""
        vectors: NDArray[np.float32] = self._opened().encode(
            list(X), prompt_name=self.prompt_name,
            normalize_embeddings=self.normalize_embeddings, truncate_dim=self.truncate_dim)
        return vectors

    def get_feature_names_out(self, input_features: Any = None) -> "NDArray[np.object_]":
        """dim0, dim1, ..."""
        n = self.truncate_dim or self._opened().dim
        return np.array([f"dim{i}" for i in range(n)], dtype=object)

    def _opened(self) -> Model:
        key = (str(self.model), self.device, self.dtype)
        if getattr(self, "_key", None) != key:
            self._open: Model = Model(self.model, device=self.device, dtype=self.dtype)
            self._key = key
        return self._open

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __getstate__(self) -> Dict[str, Any]:
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("_open", "_key")}
