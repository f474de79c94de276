"""The inference classes of sentence-transformers, computed by gpuserve.

    from gpuserve.sentence_transformers import SentenceTransformer
    model = SentenceTransformer("all-MiniLM-L6-v2")
    vectors = model.encode(["A man is eating food."])

Constructors and methods take the arguments of sentence-transformers 6; what is not available is refused by name.
Where sentence-transformers returns a tensor, so do these classes; without torch it is a numpy array.
"""

from __future__ import annotations

from ..quantization import quantize_embeddings
from . import util
from ._cross import CrossEncoder
from ._dense import SentenceTransformer
from ._similarity import SimilarityFunction
from ._sparse import SparseEncoder

__all__ = ["CrossEncoder", "SentenceTransformer", "SimilarityFunction", "SparseEncoder", "quantize_embeddings", "util"]
