"""Load options: Python arguments, validated and stored in the library's struct."""

from __future__ import annotations

from ctypes import c_void_p, cast
from typing import Any, Callable, Dict, List, Optional, Tuple

from ._ffi import abi
from ._ffi.arguments import DTYPES, POOLINGS, named
from ._ffi.library import encode_path
from ._ffi.values import number, text
from .errors import GpuserveError, InvalidError, error_of

LOST_POLICIES: Dict[str, int] = {
    "fail": abi.LOST_FAIL, "cpu": abi.LOST_CPU, "gpu": abi.LOST_GPU,
    "gpu_or_cpu": abi.LOST_GPU_OR_CPU,
}
WHEN_SUSPENDED: Dict[str, int] = {
    "resume": abi.SUSPENDED_RESUME, "refuse": abi.SUSPENDED_REFUSE,
}
STAGES: Dict[int, str] = {
    abi.STAGE_WARMUP: "warmup", abi.STAGE_WEIGHTS: "weights", abi.STAGE_CONVERT: "convert",
}

#: Called with (stage, done, total) during a load; False aborts the load.
Progress = Callable[[str, int, int], Any]
#: Called with (status, device, cause) of a lost device: see gpuserve_lost_fn. From a library thread.
Lost = Callable[[str, Optional[str], GpuserveError], Any]


def _warmup(value: Any, name: str) -> int:
    words = {"off": abi.WARMUP_OFF, "auto": abi.WARMUP_AUTO, "gpu": abi.WARMUP_GPU}
    if isinstance(value, str) and value not in words:
        raise InvalidError(f'{name} "{value}" is unknown', "known are off, auto, gpu and a number of batches")
    return words[value] if value in words else number(value, name)


def _long(value: Any, name: str) -> int:
    return number(value, name, 64)


def _one_of(table: Dict[str, int]) -> Callable[[Any, str], int]:
    return lambda value, name: 0 if value is None else named(table, value, name)


def _path(value: Any, _name: str) -> Optional[bytes]:
    return None if value is None else encode_path(value)


def _flag(value: Any, _name: str) -> int:
    return int(bool(value))


def _files(value: Any, name: str) -> Optional[bytes]:
    """A line NAME=PATH for each adapter or head."""
    if value is None:
        return None
    lines = [(text(key, name) or b"") + b"=" + encode_path(path) for key, path in value.items()]
    if any(b"\n" in line for line in lines):
        raise ValueError(f"{name}: a name or a path has a line break")
    return b"\n".join(lines)


#: Options of a model: the library's name of each, and its converter.
OPTIONS: Dict[str, Tuple[str, Callable[[Any, str], Any]]] = {
    "device": ("device", text),
    "dtype": ("dtype", _one_of(DTYPES)),
    "head": ("head", _path),
    "heads": ("heads", _files),
    "adapters": ("adapters", _files),
    "max_tokens": ("max_tokens", number),
    "max_batch_tokens": ("max_batch_tokens", number),
    "n_threads": ("n_threads", number),
    "pooling": ("pooling", _one_of(POOLINGS)),
    "default_prompt_name": ("default_prompt_name", text),
    "default_prompt": ("default_prompt", text),
    "mmap": ("use_mmap", _flag),
    "deterministic": ("deterministic", _flag),
    "portable_bits": ("portable_bits", _flag),
    "stream_weights": ("stream_weights", _flag),
    "pipeline": ("pipeline", _flag),
    "max_queue_tokens": ("max_queue_tokens", number),
    "warmup": ("warmup", _warmup),
    "on_device_lost": ("on_device_lost", _one_of(LOST_POLICIES)),
    "max_queue_bytes": ("max_queue_bytes", _long),
    "max_queue_ms": ("max_queue_ms", number),
    "max_tokens_per_second": ("max_tokens_per_second", _long),
    "cache_bytes": ("cache_bytes", _long),
    "max_wait_us": ("max_wait_us", number),
    "memory_budget": ("memory_budget_bytes", _long),
    "name": ("name", text),
    "version": ("version", text),
    "keep": ("keep", _flag),
    "when_suspended": ("when_suspended", _one_of(WHEN_SUSPENDED)),
}


class Opening:
    """Load options of one open call as a struct, and the callbacks, which live as long as it."""

    def __init__(self, given: Dict[str, Any]) -> None:
        progress: Optional[Progress] = given.get("progress")
        lost: Optional[Lost] = given.get("lost")
        fields: Dict[str, Any] = {}
        for name, value in given.items():
            if name in ("progress", "lost"):
                continue
            if name not in OPTIONS:
                raise TypeError(f'no option "{name}" of a model; known are '
                                + ", ".join([*OPTIONS, "progress", "lost"]))
            field, made = OPTIONS[name]
            fields[field] = made(value, name)
        self.struct = abi.new(abi.ModelOptions, **fields)
        self._raised: List[BaseException] = []
        self._functions: List[Any] = []
        if progress is not None:
            self.struct.progress = self._kept(abi.ProgressFn(self._telling(progress)))
        if lost is not None:
            self.struct.lost = self._kept(abi.LostFn(_losing(lost)))

    def _kept(self, function: Any) -> Any:
        self._functions.append(function)
        return cast(function, c_void_p)

    def _telling(self, progress: Progress) -> Callable[..., int]:
        def tell(_user: Any, stage: int, done: int, total: int) -> int:
            try:
                return int(progress(STAGES.get(stage, str(stage)), done, total) is False)
            except BaseException as error:  # noqa: B902  (raised again where the model is opened)
                self._raised.append(error)
                return 1

        return tell

    def raise_what_progress_raised(self) -> None:
        """The exception of the caller's callback takes precedence over the library's cancelled load."""
        if self._raised:
            raise self._raised.pop()


def _losing(lost: Lost) -> Callable[..., None]:
    def tell(_user: Any, status: int, device: Optional[bytes], cause: Any) -> None:
        error = cause.contents
        lost({abi.OK: "moved", abi.E_BUSY: "moving"}.get(status, "failed"),
             device.decode() if device else None,
             error_of(error.status, error.message.decode("utf-8", "replace"),
                      error.hint.decode("utf-8", "replace")))

    return tell
