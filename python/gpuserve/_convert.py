"""Conversion of a model's weights to another type, and pruning."""

from __future__ import annotations

from ctypes import byref
from typing import Dict, NamedTuple, Optional

from ._ffi import abi
from ._ffi.arguments import Path, named
from ._ffi.library import encode_path, library, raise_status
from ._options import Opening, Progress
from ._ffi.values import number
from .context import Context

WEIGHT_DTYPES: Dict[str, int] = {
    "float32": abi.DTYPE_FLOAT32, "float16": abi.DTYPE_FLOAT16, "bfloat16": abi.DTYPE_BFLOAT16,
    "int8": abi.DTYPE_INT8, "fp32": abi.DTYPE_FLOAT32, "fp16": abi.DTYPE_FLOAT16,
    "bf16": abi.DTYPE_BFLOAT16,
}
TASKS: Dict[int, str] = {
    abi.TASK_EMBED: "embeddings", abi.TASK_SPARSE: "sparse vectors",
    abi.TASK_TOKEN_VECTORS: "token vectors",
}


class Conversion(NamedTuple):
    """The outcome of :func:`convert`: the accuracy on the library's probe texts, and the sizes."""

    #: What was compared: ``"embeddings"``, ``"sparse vectors"`` or ``"token vectors"``.
    compared: str
    n_probes: int
    cosine_mean: float
    cosine_min: float
    #: Largest difference of a label's score; 0 without labels of texts.
    score_difference: float
    bytes_before: int
    bytes_after: int
    n_tensors: int
    #: Tensors written as int8.
    n_quantized: int
    seconds: float
    #: Tensors pruned, their values, and the zeros among them.
    n_pruned: int
    pruned_values: int
    zero_values: int


def _ignore(_stage: str, _done: int, _total: int) -> None:
    """The progress of a call that shows none."""


def _pruning(prune: "int | str") -> int:
    if prune == "2:4":
        return abi.PRUNE_2_4
    if isinstance(prune, str):
        raise ValueError(f"prune is {prune!r}: it is a percentage from 1 to 95, or \"2:4\"")
    return number(prune, "prune", 32)


def convert(model_name_or_path: Path, output: Path, dtype: str, *, force: bool = False,
            max_shard_size: int = 0, prune: "int | str" = 0, context: Optional[Context] = None,
            progress: Optional[Progress] = None) -> Conversion:
    """Write a model's directory with weights of another type, and measure what the change costs.

    The output directory appears only when it is complete; after a failure or Ctrl-C nothing remains.

    Args:
        dtype: ``"float32"``, ``"float16"``, ``"bfloat16"`` or ``"int8"``; docs/converting.md describes the
            int8 format, which only gpuserve reads.
        force: replace an existing directory of a model.
        max_shard_size: max bytes of a weight file; 0: 5 GB.
        prune: percent of the values of each layer's matrices to set to zero, those with the smallest
            magnitudes; or ``"2:4"``: two of each four. 0: none. The files stay dense.
        context: loads the models for the comparison; default: a private one.
        progress: called with (stage, done, total); False cancels.
    """
    # Always with a callback: Python delivers Ctrl-C in it.
    opening = Opening({"progress": progress or _ignore})
    options = abi.new(
        abi.ConvertOptions, dtype=named(WEIGHT_DTYPES, dtype, "dtype"), force=int(bool(force)),
        max_file_bytes=number(max_shard_size, "max_shard_size", 64), prune=_pruning(prune), progress=opening.struct.progress)
    report, error = abi.new(abi.ConvertReport), abi.new(abi.Error)
    status = library().gpuserve_convert(
        context._open_handle() if context is not None else None, encode_path(model_name_or_path),
        encode_path(output), byref(options), byref(report), byref(error))
    opening.raise_what_progress_raised()
    if status != abi.OK:
        raise_status(status, error)
    return Conversion(TASKS[report.task], *(getattr(report, name) for name in Conversion._fields[1:]))
