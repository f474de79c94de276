"""Validate arguments, convert them to the library's values, and shape results for the caller."""

from __future__ import annotations

import importlib
import os
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np

from . import abi
from .calls import Floats
from .texts import is_text
from .values import text, whole
from ..errors import InvalidError

Path = Union[str, "os.PathLike[str]"]

#: Texts per submission without a batch_size. The library forms its own batches.
CHUNK_TEXTS = 1024

DTYPES: Dict[str, int] = {
    "default": abi.DTYPE_DEFAULT,
    "float32": abi.DTYPE_FLOAT32, "fp32": abi.DTYPE_FLOAT32,
    "float16": abi.DTYPE_FLOAT16, "fp16": abi.DTYPE_FLOAT16,
    "bfloat16": abi.DTYPE_BFLOAT16, "bf16": abi.DTYPE_BFLOAT16,
    "tf32": abi.DTYPE_TF32,
    "int8": abi.DTYPE_INT8,
}
POOLINGS: Dict[str, int] = {
    "default": abi.POOLING_DEFAULT,
    "cls": abi.POOLING_CLS,
    "mean": abi.POOLING_MEAN,
    "max": abi.POOLING_MAX,
    "mean_sqrt_len": abi.POOLING_MEAN_SQRT_LEN,
    "weighted_mean": abi.POOLING_WEIGHTED_MEAN,
    "last": abi.POOLING_LAST,
}
TRUNCATIONS: Dict[str, int] = {
    "default": abi.TRUNCATE_DEFAULT,
    "right": abi.TRUNCATE_RIGHT,
    "left": abi.TRUNCATE_LEFT,
    "strict": abi.TRUNCATE_STRICT,
}
RERANK_METHODS: Dict[str, int] = {
    "default": abi.RERANK_DEFAULT,
    "cross-encoder": abi.RERANK_CROSS_ENCODER,
    "cosine": abi.RERANK_COSINE,
    "max-sim": abi.RERANK_MAX_SIM,
}
SCORES: Dict[str, int] = {
    "default": abi.SCORE_DEFAULT,
    "raw": abi.SCORE_RAW,
    "softmax": abi.SCORE_SOFTMAX,
    "sigmoid": abi.SCORE_SIGMOID,
}
CACHES: Dict[str, int] = {
    "default": abi.CACHE_DEFAULT, "on": abi.CACHE_ON, "off": abi.CACHE_OFF,
}
PRIORITIES: Dict[str, int] = {
    "normal": abi.PRIORITY_NORMAL,
    "high": abi.PRIORITY_HIGH,
    "low": abi.PRIORITY_LOW,
}


def named(table: Dict[str, int], name: str, what: str) -> int:
    """The library's enum value of a name."""
    if not isinstance(name, str):
        raise TypeError(f"{what} is {type(name).__name__}, not str")
    if name not in table:
        raise InvalidError(f'{what} "{name}" is unknown', "known are " + ", ".join(table))
    return table[name]


def one_of(inputs: Any, sentences: Any) -> Any:
    if inputs is not None and sentences is not None:
        raise TypeError("inputs and sentences are the same: give one of them")
    return sentences if inputs is None else inputs


def prompt_fields(prompt_name: Optional[str], prompt: Optional[str]) -> Dict[str, Any]:
    return {"prompt_name": text(prompt_name, "prompt_name"), "prompt": text(prompt, "prompt")}


def prompt_name_for(prompts: Dict[str, str], kind: str) -> Optional[str]:
    """The prompt for "query" or "document" among prompts by name."""
    names = {"query": ("query", "retrieval.query"),
             "document": ("document", "passage", "corpus", "retrieval.passage")}[kind]
    return next((name for name in names if name in prompts), None)


def vector_fields(truncate_dim: Optional[int], dim: int, normalize: bool) -> Dict[str, Any]:
    """`dimensions` (0: all) and `normalize` of a job.

    sentence-transformers truncates after the model's modules and normalizes only on request. Without that
    request the library applies the model's own normalization to the whole vector, then truncates.
    """
    if truncate_dim is None:
        return {"dimensions": 0, "normalize": abi.NORMALIZE_YES if normalize else abi.NORMALIZE_DEFAULT}
    found = whole(truncate_dim, "truncate_dim")
    if not 1 <= found <= dim:
        raise InvalidError(f"truncate_dim is {truncate_dim}, the vectors have 1 to {dim} numbers")
    return {"dimensions": found, "normalize": abi.NORMALIZE_YES if normalize else abi.NORMALIZE_WHOLE}


def batch_size(batch_size: Optional[int]) -> int:
    if batch_size is None:
        return CHUNK_TEXTS
    found = whole(batch_size, "batch_size")
    if found < 1:
        raise InvalidError(f"batch_size is {batch_size}, it must be 1 at least")
    return found


def sequence(inputs: Iterable[str]) -> Sequence[str]:
    return inputs if isinstance(inputs, (list, tuple)) else list(inputs)


def chunks(inputs: Iterable[str], size: int) -> Iterator[Tuple[List[str], None]]:
    """Lists of at most `size` texts, taken lazily from the iterable."""
    if is_text(inputs):
        raise TypeError("inputs is one str: a stream is an iterable of them")
    part: List[str] = []
    most = batch_size(size)
    for one in inputs:
        part.append(one)
        if len(part) == most:
            yield part, None
            part = []
    if part:
        yield part, None


def row_type(fields: Dict[str, Any]) -> Any:
    """The type of a job's rows: bytes with a precision."""
    return np.uint8 if fields.get("precision") else np.float32


def output(out: Optional[Floats], n: int, columns: int, kind: Any = np.float32) -> Any:
    if out is None:
        return np.empty((n, columns), dtype=kind)
    if not isinstance(out, np.ndarray) or out.dtype != np.float32 or out.ndim != 2:
        raise InvalidError("out is not a 2-dimensional array of float32")
    if out.shape != (n, columns):
        raise InvalidError(f"out is {list(out.shape)}, the result is [{n}, {columns}]")
    if not out.flags.writeable:
        raise InvalidError("out is read-only")
    tight = columns == 1 or out.strides[1] == 4
    if not tight or (n > 1 and (out.strides[0] < columns * 4 or out.strides[0] % 4)):
        raise InvalidError(f"out has strides {out.strides}: columns must be tight, rows rising",
                           "give a C-contiguous array, or rows of one")
    return out


def converted(vectors: Any, alone: bool, to_numpy: bool, to_tensor: bool) -> Any:
    if to_tensor:
        torch: Any = importlib.import_module("torch")
        return torch.from_numpy(vectors)
    return vectors if to_numpy or alone else list(vectors)


def labelled(labels: List[str], scores: Floats, top_k: Optional[int]) -> Any:
    order = np.argsort(-scores, kind="stable")[: len(labels) if top_k is None else top_k]
    found: List[Dict[str, Any]] = [{"label": labels[i], "score": float(scores[i])} for i in order]
    return found[0] if top_k == 1 else found


def units(a: Any, b: Any) -> Tuple[Floats, Floats]:
    """The rows of both, normalized to L2 norm 1."""
    one, other = unit(a), unit(b)
    if one.shape[1] != other.shape[1]:
        raise InvalidError(f"vectors of {one.shape[1]} numbers and of {other.shape[1]}: their spaces differ")
    return one, other


def unit(vectors: Any) -> Floats:
    rows = np.atleast_2d(np.asarray(vectors, dtype=np.float32))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    result: Floats = rows / np.maximum(lengths, np.float32(1e-12))
    return result

