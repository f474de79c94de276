"""Text embeddings, labels and scores, in process.

    from gpuserve import Model
    model = Model("sentence-transformers/all-MiniLM-L6-v2")
    vectors = model.encode(["A man is eating food.", "A man is eating a piece of bread."])

The package calls libgpuserve through ctypes; its only dependency is numpy.
"""

from __future__ import annotations

from . import errors
from ._ffi.calls import Items, Result
from ._convert import Conversion, convert
from ._entities import TokenLabels
from ._hub import pull
from ._ffi.library import version
from ._long_texts import LongText
from ._sparse import Sparse
from ._tokens import Tokens
from ._version import __version__
from .compute import Compute, top_k
from .context import Context
from .devices import Device, devices, refresh, select, select_all
from .errors import GpuserveError
from .model import Model
from .quantization import calibration_texts, quantize_embeddings, vector_ranges
from .tokenizer import Encoding, Tokenizer

__all__ = [
    "Compute", "Context", "Conversion", "Device", "Encoding", "GpuserveError", "Items", "LongText", "Model",
    "Result", "Sparse", "TokenLabels", "Tokenizer", "Tokens", "__version__", "calibration_texts", "convert", "devices",
    "errors", "pull", "quantize_embeddings", "refresh", "select", "select_all", "top_k", "vector_ranges", "version",
]
