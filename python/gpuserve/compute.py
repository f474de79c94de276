"""Arithmetic on a device of your choice, without a model: matrix products, chains of operations.

    with Compute("auto") as compute:
        product = compute.matmul(a, b, dtype="bfloat16")
        y = compute.chain(x, [("multiply", 2.0), ("add", 1.0), "gelu"])
"""

from __future__ import annotations

import threading
from ctypes import POINTER, byref, c_size_t, c_void_p, cast
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from . import _abi, _texts
from ._arguments import DTYPES, named
from ._calls import Floats
from ._closing import Closing
from ._library import call, library
from ._options import number, text
from .context import Context
from .errors import ClosedError, InvalidError

VARIANTS: Dict[str, int] = {
    "auto": _abi.MATMUL_AUTO, "naive": _abi.MATMUL_NAIVE, "tiled": _abi.MATMUL_TILED,
    "simd": _abi.MATMUL_SIMD, "tensor_core": _abi.MATMUL_TENSOR_CORE,
    "cublas": _abi.MATMUL_CUBLAS,
}
STEPS: Dict[str, int] = {
    name: getattr(_abi, "CHAIN_" + name.upper()) for name in (
        "add", "multiply", "fma", "minimum", "maximum", "absolute", "reciprocal", "sqrt", "exp",
        "log", "sin", "cos", "tanh", "erf", "sigmoid", "relu", "gelu")
}

#: ``"exp"``, or ``("add", 1.0)``, or ``("fma", 2.0, 1.0)``.
Step = Union[str, Tuple[Any, ...]]


class Took(NamedTuple):
    """What a call took."""

    variant: str
    kernel_seconds: float
    #: Operands to the device and the result back.
    copy_seconds: float


class Compute(Closing):
    """An open device with the memory of the calls made so far; give it back with ``close()``.

    Thread-safe; calls on one object run one after the other.

    Args:
        device: a selector; default ``"auto"``.
        n_threads: on a CPU, of the context's threads; default all.
        context: shared threads; default: one of its own.
    """

    def __init__(self, device: Optional[str] = None, *, n_threads: int = 0,
                 context: Optional[Context] = None) -> None:
        self._library = library()
        self._handle = None
        self._lock = threading.Lock()
        options = _abi.new(_abi.ComputeOptions, n_threads=number(n_threads, "n_threads"),
                           device=text(device, "device"))
        handle = c_void_p()
        call(self._library.gpuserve_compute_open, byref(handle),
             context._open_handle() if context else None, byref(options))
        self._handle = handle
        #: What it computes on: "cpu", "cuda:0".
        self.device: str = self._library.gpuserve_compute_device(handle).decode()
        #: What the last call took.
        self.took: Optional[Took] = None

    def matmul(self, a: Any, b: Any, c: Optional[Floats] = None, *, alpha: float = 1.0,
               beta: float = 0.0, dtype: Optional[str] = None, variant: str = "auto") -> Floats:
        """alpha * a @ b + beta * c; into ``c`` where it is given, which is returned.

        Args:
            a, b: matrices of numbers; float32 ones are used where they are, also transposed.
            dtype: to multiply in: float32, tf32, float16, bfloat16; sums are float32.
            variant: naive, tiled, simd, tensor_core, cublas; ``"auto"`` is the fastest.
        """
        left, right = _matrix(a, "a"), _matrix(b, "b")
        if left.shape[1] != right.shape[0]:
            raise InvalidError(f"a is {list(left.shape)}, b is {list(right.shape)}: "
                               f"{left.shape[1]} columns meet {right.shape[0]} rows")
        shape = left.shape[0], right.shape[1]
        if c is None:
            if beta:
                raise InvalidError(f"beta is {beta}, but there is no c")
            c = np.empty(shape, dtype=np.float32)
        elif not isinstance(c, np.ndarray) or c.dtype != np.float32 or c.shape != shape:
            raise InvalidError(f"c is no array of float32 of {list(shape)}")
        elif not c.flags.c_contiguous or not c.flags.writeable:
            raise InvalidError("c is not contiguous, or read-only")
        (a_data, a_stride, a_turned), (b_data, b_stride, b_turned) = _laid(left), _laid(right)
        job = _abi.new(
            _abi.MatmulJob, dtype=named(DTYPES, dtype or "default", "dtype"),
            variant=named(VARIANTS, variant, "variant"), transpose_a=a_turned,
            transpose_b=b_turned, alpha=alpha, beta=beta, m=shape[0], n=shape[1],
            k=left.shape[1], a=_texts.address(a_data), b=_texts.address(b_data),
            c=_texts.address(c), a_stride=a_stride, b_stride=b_stride, c_capacity=c.size)
        self._run(self._library.gpuserve_matmul, byref(job))
        return c

    def chain(self, values: Any, steps: Sequence[Step], out: Optional[Floats] = None) -> Floats:
        """Apply a list of operations to every element, in one pass over memory.

        Args:
            values: numbers of any shape.
            steps: a name, or a tuple of a name and its operands: see ``STEPS``.
            out: write here, float32 of the same shape; may be ``values``.
        """
        source = np.ascontiguousarray(values, dtype=np.float32)
        list_of = (_abi.ChainStep * len(steps))(*[_step(step, i) for i, step in enumerate(steps)])
        if out is None:
            out = np.empty(source.shape, dtype=np.float32)
        elif (not isinstance(out, np.ndarray) or out.dtype != np.float32
              or out.shape != source.shape or not out.flags.c_contiguous or not out.flags.writeable):
            raise InvalidError(f"out is no contiguous array of float32 of {list(source.shape)}")
        self._run(self._library.gpuserve_chain, cast(list_of, c_void_p), len(steps),
                  _texts.address(source), _texts.address(out), source.size)
        return out

    def _run(self, function: Any, *arguments: Any) -> None:
        took = _abi.new(_abi.ComputeResult)
        with self._lock:
            if self._handle is None:
                raise ClosedError("the compute handle was closed")
            call(function, self._handle, *arguments, byref(took))
        ran = next(name for name, value in VARIANTS.items() if value == took.variant)
        self.took = Took(ran, took.kernel_seconds, took.copy_seconds)

    def close(self) -> None:
        """Give the device's memory back."""
        with self._lock:
            if self._handle is not None:
                self._library.gpuserve_compute_close(byref(self._handle))
                self._handle = None


def _matrix(values: Any, name: str) -> Floats:
    found: Floats = np.asarray(values, dtype=np.float32)
    if found.ndim != 2:
        raise InvalidError(f"{name} has {found.ndim} dimensions, a matrix has 2")
    return found


def _laid(matrix: Floats) -> Tuple[Floats, int, int]:
    """A matrix as the library reads it: memory, floats from row to row, whether it is transposed."""
    for turned, seen in ((0, matrix), (1, matrix.T)):
        rows, columns = seen.shape
        row, column = seen.strides
        if (columns <= 1 or column == 4) and (rows <= 1 or (row % 4 == 0 and row >= columns * 4)):
            return seen, row // 4 if rows > 1 else 0, turned
    return np.ascontiguousarray(matrix), 0, 0


def _step(step: Step, i: int) -> _abi.ChainStep:
    name, *operands = (step,) if isinstance(step, str) else step
    needed = {"fma": 2, "add": 1, "multiply": 1, "minimum": 1, "maximum": 1}.get(name, 0)
    kind = named(STEPS, name, f"step {i}")
    if len(operands) != needed:
        raise InvalidError(f'step {i}: "{name}" has {needed} operands, {len(operands)} are given')
    return _abi.ChainStep(kind, *(float(operand) for operand in operands))


def top_k(query: Any, rows: Any, k: int) -> Tuple["NDArray[np.int64]", Floats]:
    """The k rows with the highest dot product with a query, best first: (numbers, scores)."""
    matrix = np.ascontiguousarray(_matrix(rows, "rows"))
    vector = np.ascontiguousarray(query, dtype=np.float32).reshape(-1)
    if vector.size != matrix.shape[1]:
        raise InvalidError(f"the query has {vector.size} numbers, the rows have {matrix.shape[1]}")
    n = min(number(k, "k"), matrix.shape[0])
    indices = np.empty(max(n, 1), dtype=np.uint64)
    scores = np.empty(max(n, 1), dtype=np.float32)
    wrote: int = library().gpuserve_top_k(
        _texts.address(vector), _texts.address(matrix), matrix.shape[0], matrix.shape[1], n,
        cast(_texts.address(indices), POINTER(c_size_t)), _texts.address(scores))
    found: List[Any] = [indices[:wrote].astype(np.int64), scores[:wrote]]
    return found[0], found[1]
