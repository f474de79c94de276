"""Matrix products, elementwise chains and LSTMs on a device, without a model.

    with Compute("auto") as compute:
        lstm = compute.lstm(torch_lstm.state_dict(), dtype="float16")
        output, (h_n, c_n) = lstm(list_of_arrays)
        product = compute.matmul(a, b, dtype="bfloat16")
        y = compute.chain(x, [("multiply", 2.0), ("add", 1.0), "gelu"])
"""

from __future__ import annotations

import threading
from ctypes import POINTER, byref, c_size_t, c_uint32, c_void_p, cast
from typing import (Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple,
                    Union)
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from ._ffi import abi, texts as _texts
from ._ffi.arguments import DTYPES, named
from ._ffi.calls import Floats
from ._ffi.closing import Closing
from ._ffi.library import call, library
from ._ffi.values import number, text
from .context import Context
from .errors import ClosedError, InvalidError

VARIANTS: Dict[str, int] = {
    "auto": abi.MATMUL_AUTO, "naive": abi.MATMUL_NAIVE, "tiled": abi.MATMUL_TILED,
    "simd": abi.MATMUL_SIMD, "tensor_core": abi.MATMUL_TENSOR_CORE,
    "cublas": abi.MATMUL_CUBLAS,
}
LSTM_VARIANTS: Dict[str, int] = {
    "auto": abi.LSTM_AUTO, "steps": abi.LSTM_STEPS, "fused": abi.LSTM_FUSED,
    "cudnn": abi.LSTM_CUDNN,
}
RANDOM_VARIANTS: Dict[str, int] = {"auto": abi.RANDOM_AUTO, "curand": abi.RANDOM_CURAND}
DIRECTIONS: Dict[str, int] = {"to_device": abi.TRANSFER_TO_DEVICE, "from_device": abi.TRANSFER_FROM_DEVICE}
STEPS: Dict[str, int] = {
    name: getattr(abi, "CHAIN_" + name.upper()) for name in (
        "add", "multiply", "fma", "minimum", "maximum", "absolute", "reciprocal", "sqrt", "exp",
        "log", "sin", "cos", "tanh", "erf", "sigmoid", "relu", "gelu")
}

#: ``"exp"``, or ``("add", 1.0)``, or ``("fma", 2.0, 1.0)``.
Step = Union[str, Tuple[Any, ...]]


class Took(NamedTuple):
    """Timings of a call."""

    variant: str
    kernel_seconds: float
    #: Time to copy operands to the device and the result back.
    copy_seconds: float


class Compute(Closing):
    """An open device with a buffer for operands; release it with ``close()``.

    Thread-safe; calls on one object are serialised.

    Args:
        device: a selector; default ``"auto"``.
        n_threads: on a CPU, number of the context's threads; default all.
        context: shared threads; default: a private one.
    """

    def __init__(self, device: Optional[str] = None, *, n_threads: int = 0,
                 context: Optional[Context] = None) -> None:
        self._library = library()
        self._handle = c_void_p()
        self._lock = threading.RLock()  # reentrant: close() from the garbage collector may acquire it again
        self._lstms: "WeakSet[Lstm]" = WeakSet()
        options = abi.new(abi.ComputeOptions, n_threads=number(n_threads, "n_threads"),
                           device=text(device, "device"))
        call(self._library.gpuserve_compute_open, byref(self._handle),
             context._open_handle() if context else None, byref(options))
        #: The device: "cpu", "cuda:0".
        self.device: str = self._library.gpuserve_compute_device(self._handle).decode()
        #: Timings of the last call.
        self.took: Optional[Took] = None

    def matmul(self, a: Any, b: Any, c: Optional[Floats] = None, *, alpha: float = 1.0,
               beta: float = 0.0, dtype: Optional[str] = None, variant: str = "auto") -> Floats:
        """alpha * a @ b + beta * c; written into ``c`` if given, which is returned.

        Args:
            a, b: numeric matrices; float32 ones are used without a copy, also transposed.
            dtype: of the products: float32, tf32, float16, bfloat16; sums are float32.
            variant: naive, tiled, simd, tensor_core, cublas; ``"auto"`` is the fastest.
        """
        left, right = _matrix(a, "a"), _matrix(b, "b")
        if left.shape[1] != right.shape[0]:
            raise InvalidError(f"a is {list(left.shape)}, b is {list(right.shape)}: "
                               f"{left.shape[1]} columns meet {right.shape[0]} rows")
        shape = left.shape[0], right.shape[1]
        if c is None:
            if beta:
                raise InvalidError(f"beta is {beta}, but c is missing")
            c = np.empty(shape, dtype=np.float32)
        elif not isinstance(c, np.ndarray) or c.dtype != np.float32 or c.shape != shape:
            raise InvalidError(f"c is not an array of float32 of {list(shape)}")
        elif not c.flags.c_contiguous or not c.flags.writeable:
            raise InvalidError("c is not contiguous, or read-only")
        (a_data, a_stride, a_turned), (b_data, b_stride, b_turned) = _laid(left), _laid(right)
        job = abi.new(
            abi.MatmulJob, dtype=named(DTYPES, dtype or "default", "dtype"),
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
            out: output array, float32 of the same shape; may be ``values``.
        """
        source = np.ascontiguousarray(values, dtype=np.float32)
        list_of = (abi.ChainStep * len(steps))(*[_step(step, i) for i, step in enumerate(steps)])
        if out is None:
            out = np.empty(source.shape, dtype=np.float32)
        elif (not isinstance(out, np.ndarray) or out.dtype != np.float32
              or out.shape != source.shape or not out.flags.c_contiguous or not out.flags.writeable):
            raise InvalidError(f"out is not a contiguous array of float32 of {list(source.shape)}")
        self._run(self._library.gpuserve_chain, cast(list_of, c_void_p), len(steps),
                  _texts.address(source), _texts.address(out), source.size)
        return out

    def random_numbers(self, n: int, *, seed: int = 0, first: int = 0, variant: str = "auto") -> Any:
        """The raw numbers of random models: an array of ``n`` uint32 from number ``first`` on, a multiple of 4.

        They are the outputs of Philox4x32-10 in the order of cuRAND's legacy ordering, equal on every device.

        Args:
            variant: curand: by cuRAND, which must be installed, on a GPU.
        """
        out = np.empty(number(n, "n"), dtype=np.uint32)
        arguments = (named(RANDOM_VARIANTS, variant, "variant"), number(seed, "seed", 64), number(first, "first", 64),
                     cast(_texts.address(out), POINTER(c_uint32)), out.size)
        self._call(self._library.gpuserve_random_numbers, RANDOM_VARIANTS, lambda handle: (handle, *arguments))
        return out

    def transfer(self, size_bytes: int, direction: str = "to_device", *, pinned: bool = False, copies: int = 5) -> List[float]:
        """The seconds of each of ``copies`` copies between host memory and this device.

        Args:
            direction: to_device or from_device.
            pinned: page-locked host memory, on a GPU.
        """
        n = number(copies, "copies")
        seconds = np.zeros(min(n, abi.TRANSFER_MAX_COPIES), dtype=np.float64)  # the library refuses more
        job = abi.new(abi.TransferJob, direction=named(DIRECTIONS, direction, "direction"),
                      host_memory=abi.HOST_PINNED if pinned else abi.HOST_PAGEABLE, n_copies=n,
                      size_bytes=number(size_bytes, "size_bytes", 64), seconds=_texts.address(seconds))
        with self._lock:
            if not self._handle:
                raise ClosedError("the compute handle was closed")
            call(self._library.gpuserve_transfer, self._handle, byref(job))
        return [float(one) for one in seconds]

    def lstm(self, weights: Mapping[str, Any], dtype: Optional[str] = None) -> "Lstm":
        """An LSTM on this device; closed together with this object.

        Args:
            weights: named as in torch.nn.LSTM's state_dict(): ``weight_ih_l0``,
                ``weight_hh_l0``, ``bias_ih_l0``, ``bias_hh_l0``, ``..._l0_reverse``, ``..._l1``.
            dtype: of the products: float32, or float16 on a GPU.
        """
        return Lstm(self, weights, dtype)

    def _run(self, function: Any, *arguments: Any) -> None:
        self._call(function, VARIANTS, lambda handle: (handle, *arguments))

    def _call(self, function: Any, names: Dict[str, int],
              arguments: Callable[[c_void_p], Tuple[Any, ...]]) -> None:
        took = abi.new(abi.ComputeResult)
        with self._lock:
            if not self._handle:
                raise ClosedError("the compute handle was closed")
            call(function, *arguments(self._handle), byref(took))
        ran = next(name for name, value in names.items() if value == took.variant)
        self.took = Took(ran, took.kernel_seconds, took.copy_seconds)

    def close(self) -> None:
        """Release the device memory."""
        with self._lock:
            for lstm in list(self._lstms):
                lstm._end()
            if self._handle:
                self._library.gpuserve_compute_close(byref(self._handle))


class Lstm(Closing):
    """LSTM layers on a device: created by ``Compute.lstm()``, called with sequences."""

    def __init__(self, compute: Compute, weights: Mapping[str, Any], dtype: Optional[str]) -> None:
        self._compute = compute
        self._handle = c_void_p()
        directions = 2 if "weight_ih_l0_reverse" in weights else 1
        layers = 0
        parts: List[Any] = []
        kept: List[Floats] = []
        while f"weight_ih_l{layers}" in weights:
            for suffix in ("", "_reverse")[:directions]:
                arrays = [_part(weights, f"{name}_l{layers}{suffix}") for name in _PARTS]
                kept += [array for array in arrays if array is not None]
                parts.append(abi.LstmWeights(*(
                    None if array is None else _texts.address(array) for array in arrays)))
            layers += 1
        self.input_size, self.hidden_size = _shape_of(weights, layers, directions)
        self.n_layers, self.n_directions = layers, directions
        list_of = (abi.LstmWeights * len(parts))(*parts)
        network = abi.new(
            abi.LstmNetwork, dtype=named(DTYPES, dtype or "default", "dtype"),
            input_size=self.input_size, hidden_size=self.hidden_size, n_layers=layers,
            bidirectional=directions - 1, weights=cast(list_of, c_void_p), n_weights=len(parts))
        with compute._lock:
            if not compute._handle:
                raise ClosedError("the compute handle was closed")
            compute._lstms.add(self)  # before the handle can be open
            call(compute._library.gpuserve_lstm_create, byref(self._handle), compute._handle,
                 byref(network))
        del kept  # copied by the library

    def __call__(self, sequences: Sequence[Any], state: Optional[Tuple[Any, Any]] = None,
                 variant: str = "auto") -> Tuple[List[Floats], Tuple[Floats, Floats]]:
        """Run sequences of any lengths, in any order.

        Args:
            sequences: each [steps, input_size].
            state: h_0 and c_0, each [layers * directions, sequences, hidden_size]; default zeros.
            variant: steps, fused, cudnn; cudnn needs a GPU and cuDNN 9.

        Returns:
            For each sequence [steps, directions * hidden_size], and the final (h_n, c_n).
        """
        rows = [_matrix(s, f"sequence {i}") for i, s in enumerate(sequences)]
        for i, row in enumerate(rows):
            if row.shape[1] != self.input_size:
                raise InvalidError(f"sequence {i} is {row.shape[1]} wide, not {self.input_size}")
        shape = self.n_layers * self.n_directions, len(rows), self.hidden_size
        ends = np.concatenate([[0], np.cumsum([row.shape[0] for row in rows])]).astype(np.int64)
        if ends[-1] > np.iinfo(np.int32).max:
            raise InvalidError(f"{ends[-1]} steps, more than {np.iinfo(np.int32).max}")
        cu_seqlens = ends.astype(np.int32)
        packed = np.concatenate(rows or [np.empty((0, self.input_size), np.float32)])
        start = [None if s is None else np.ascontiguousarray(s, dtype=np.float32)
                 for s in (state or (None, None))]
        for name, given in zip(("h_0", "c_0"), start):
            if given is not None and given.shape != shape:
                raise InvalidError(f"{name} is {list(given.shape)}, not {list(shape)}")
        output = np.empty((int(ends[-1]), self.n_directions * self.hidden_size), np.float32)
        h_n, c_n = np.empty(shape, np.float32), np.empty(shape, np.float32)
        job = abi.new(
            abi.LstmJob, variant=named(LSTM_VARIANTS, variant, "variant"), n_sequences=len(rows),
            cu_seqlens=_texts.address(cu_seqlens),
            input=_texts.address(packed),
            h_0=None if start[0] is None else _texts.address(start[0]),
            c_0=None if start[1] is None else _texts.address(start[1]),
            output=_texts.address(output), h_n=_texts.address(h_n), c_n=_texts.address(c_n),
            output_capacity=output.size, h_n_capacity=h_n.size, c_n_capacity=c_n.size)
        self._compute._call(self._compute._library.gpuserve_lstm_run, LSTM_VARIANTS,
                            lambda _: (self._handle, byref(job)))
        return [output[ends[i]:ends[i + 1]] for i in range(len(rows))], (h_n, c_n)

    def _end(self) -> None:
        # In a reference cycle the garbage collector may close the device first, which frees the weights.
        if self._handle and self._compute._handle:
            self._compute._library.gpuserve_lstm_free(byref(self._handle))

    def close(self) -> None:
        """Free the weights."""
        with self._compute._lock:
            self._end()


_PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _part(weights: Mapping[str, Any], name: str) -> Optional[Floats]:
    if name not in weights:
        if name.startswith("bias"):
            return None
        raise InvalidError(f"{name} is missing")
    return np.ascontiguousarray(weights[name], dtype=np.float32)


def _shape_of(weights: Mapping[str, Any], layers: int, directions: int) -> Tuple[int, int]:
    """(input_size, hidden_size), validated against all weights."""
    if layers == 0:
        raise InvalidError("weight_ih_l0 is missing")
    rows, width = np.shape(weights["weight_ih_l0"])
    hidden = rows // 4
    for layer in range(layers):
        wide = width if layer == 0 else hidden * directions
        for suffix in ("", "_reverse")[:directions]:
            for part, shape in zip(_PARTS, ((4 * hidden, wide), (4 * hidden, hidden),
                                            (4 * hidden,), (4 * hidden,))):
                name = f"{part}_l{layer}{suffix}"
                if name in weights and np.shape(weights[name]) != shape:
                    raise InvalidError(f"{name} is {list(np.shape(weights[name]))}, "
                                       f"not {list(shape)}")
    return int(width), int(hidden)


def _matrix(values: Any, name: str) -> Floats:
    found: Floats = np.asarray(values, dtype=np.float32)
    if found.ndim != 2:
        raise InvalidError(f"{name} has {found.ndim} dimensions, a matrix has 2")
    return found


def _laid(matrix: Floats) -> Tuple[Floats, int, int]:
    """Layout of a matrix for the library: memory, floats between rows, whether it is transposed."""
    for turned, seen in ((0, matrix), (1, matrix.T)):
        rows, columns = seen.shape
        row, column = seen.strides
        if (columns <= 1 or column == 4) and (rows <= 1 or (row % 4 == 0 and row >= columns * 4)):
            return seen, row // 4 if rows > 1 else 0, turned
    return np.ascontiguousarray(matrix), 0, 0


def _step(step: Step, i: int) -> abi.ChainStep:
    name, *operands = (step,) if isinstance(step, str) else step
    needed = {"fma": 2, "add": 1, "multiply": 1, "minimum": 1, "maximum": 1}.get(name, 0)
    kind = named(STEPS, name, f"step {i}")
    if len(operands) != needed:
        raise InvalidError(f'step {i}: "{name}" has {needed} operands, {len(operands)} are given')
    return abi.ChainStep(kind, *(float(operand) for operand in operands))


def top_k(query: Any, rows: Any, k: int) -> Tuple["NDArray[np.int64]", Floats]:
    """The k rows with the highest dot product with a query, best first: (indices, scores)."""
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
