"""The structs and functions of ``gpuserve/gpuserve.h`` and ``gpuserve/types.h`` for ctypes.

Names and order are the header's; tests/python compiles a C program that compares every size and
offset. Meanings stand in the header alone.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    CDLL,
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)
from typing import Any, Dict, List, Tuple, Type, TypeVar

ABI_VERSION = 0
TEXT_BYTES = 512

OK = 0
E_TOO_LARGE = 6
E_BUSY = 7
E_TIMEOUT = 12
E_NUMERIC = 14

TASK_EMBED = 0
TASK_CLASSIFY = 1
TASK_TOKEN_VECTORS = 2

DTYPES: Dict[str, int] = {
    "default": 0,
    "float32": 1, "fp32": 1,
    "float16": 2, "fp16": 2,
    "bfloat16": 3, "bf16": 3,
    "tf32": 4,
    "int8": 5,
}
POOLINGS: Dict[str, int] = {
    "default": 0, "cls": 1, "mean": 2, "max": 3, "mean_sqrt_len": 4, "weighted_mean": 5, "last": 6,
}
TRUNCATIONS: Dict[str, int] = {"default": 0, "right": 1, "left": 2, "strict": 3}
SCORES: Dict[str, int] = {"default": 0, "raw": 1, "softmax": 2, "sigmoid": 3}
LOG_LEVELS: Dict[int, str] = {1: "error", 2: "warning", 3: "info", 4: "debug"}

LogFunction = CFUNCTYPE(None, c_void_p, c_int32, c_char_p)


class Error(Structure):
    c_name = "gpuserve_error"
    _fields_ = [
        ("struct_size", c_uint32),
        ("status", c_int32),
        ("retry_after_ms", c_uint32),
        ("reserved", c_uint32),
        ("message", c_char * TEXT_BYTES),
        ("hint", c_char * TEXT_BYTES),
    ]


class ContextOptions(Structure):
    c_name = "gpuserve_context_options"
    _fields_ = [
        ("struct_size", c_uint32),
        ("n_threads", c_uint32),
        ("memory_budget_bytes", c_uint64),
        ("log", LogFunction),
        ("log_user", c_void_p),
        ("log_level", c_int32),
        ("reserved", c_int32),
        ("plugin_dir", c_char_p),
        ("cache_dir", c_char_p),
    ]


class DeviceInfo(Structure):
    c_name = "gpuserve_device_info"
    _fields_ = [
        ("struct_size", c_uint32),
        ("index", c_int32),
        ("selector", c_char * 64),
        ("name", c_char * 128),
        ("uuid", c_char * 64),
        ("isa", c_char * 64),
        ("memory_bytes", c_uint64),
        ("memory_free_bytes", c_uint64),
        ("n_cores", c_int32),
        ("reserved", c_int32),
    ]


class ModelOptions(Structure):
    c_name = "gpuserve_model_options"
    _fields_ = [
        ("struct_size", c_uint32),
        ("dtype", c_uint32),
        ("device", c_char_p),
        ("head", c_char_p),
        ("max_tokens", c_uint32),
        ("max_batch_tokens", c_uint32),
        ("n_threads", c_uint32),
        ("pooling", c_uint32),
        ("use_mmap", c_uint32),
        ("max_queue_tokens", c_uint32),
    ]


class Footprint(Structure):
    c_name = "gpuserve_footprint"
    _fields_ = [
        ("struct_size", c_uint32),
        ("fits", c_uint32),
        ("weights_bytes", c_uint64),
        ("workspace_bytes", c_uint64),
        ("stream_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("total_bytes", c_uint64),
        ("available_bytes", c_uint64),
        ("max_batch_tokens", c_uint32),
        ("n_streams", c_uint32),
    ]


class Span(Structure):
    c_name = "gpuserve_span"
    _fields_ = [("begin", c_uint32), ("end", c_uint32)]


class TokenizeOptions(Structure):
    c_name = "gpuserve_tokenize_options"
    _fields_ = [
        ("struct_size", c_uint32),
        ("no_special", c_uint32),
        ("max_tokens", c_uint32),
        ("truncation", c_uint32),
    ]


class Item(Structure):
    c_name = "gpuserve_item"
    _fields_ = [
        ("status", c_int32),
        ("n_tokens", c_uint32),
        ("truncated", c_uint32),
        ("reserved", c_uint32 * 5),
    ]


class Job(Structure):
    c_name = "gpuserve_job"
    _fields_ = [
        ("struct_size", c_uint32),
        ("task", c_uint32),
        ("n_items", c_size_t),
        ("texts", c_void_p),
        ("text_sizes", c_void_p),
        ("pairs", c_void_p),
        ("pair_sizes", c_void_p),
        ("ids", c_void_p),
        ("id_offsets", c_void_p),
        ("prompt_name", c_char_p),
        ("prompt", c_char_p),
        ("dimensions", c_uint32),
        ("truncation", c_uint32),
        ("normalize", c_uint32),
        ("score", c_uint32),
        ("output", c_void_p),
        ("output_capacity", c_size_t),
        ("output_stride", c_size_t),
        ("items", c_void_p),
        ("token_offsets", c_void_p),
    ]


STRUCTS: List[Type[Structure]] = [
    Error, ContextOptions, DeviceInfo, ModelOptions, Footprint, Span, TokenizeOptions, Item, Job,
]

_handle = c_void_p
_out_handle = POINTER(c_void_p)
_error = POINTER(Error)
_size_out = POINTER(c_size_t)
_status = c_int

# name: (result, arguments)
FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "gpuserve_version": (c_char_p, []),
    "gpuserve_abi_version": (c_uint32, []),
    "gpuserve_context_create": (_status, [_out_handle, POINTER(ContextOptions), _error]),
    "gpuserve_context_unref": (None, [_out_handle]),
    "gpuserve_context_metrics": (_status, [_handle, c_void_p, c_size_t, _size_out, _error]),
    "gpuserve_context_doctor": (_status, [_handle, c_void_p, c_size_t, _size_out, _error]),
    "gpuserve_device_list": (_status, [_handle, POINTER(DeviceInfo), c_size_t, _size_out, _error]),
    "gpuserve_model_inspect": (_status, [_handle, c_char_p, c_void_p, c_size_t, _size_out, _error]),
    "gpuserve_model_footprint": (
        _status, [_handle, c_char_p, POINTER(ModelOptions), POINTER(Footprint), _error]),
    "gpuserve_model_open": (
        _status, [_out_handle, _handle, c_char_p, POINTER(ModelOptions), _error]),
    "gpuserve_model_close": (None, [_out_handle]),
    "gpuserve_model_info": (_status, [_handle, c_void_p, c_size_t, _size_out, _error]),
    "gpuserve_model_dim": (c_size_t, [_handle]),
    "gpuserve_model_max_tokens": (c_size_t, [_handle]),
    "gpuserve_model_label_count": (c_size_t, [_handle]),
    "gpuserve_model_label": (c_char_p, [_handle, c_size_t]),
    "gpuserve_model_fingerprint": (c_char_p, [_handle]),
    "gpuserve_tokenize": (
        _status, [_handle, c_char_p, c_size_t, c_void_p, c_void_p, c_size_t, _size_out,
                  POINTER(TokenizeOptions), _error]),
    "gpuserve_detokenize": (
        _status, [_handle, c_void_p, c_size_t, c_int32, c_void_p, c_size_t, _size_out, _error]),
    "gpuserve_run": (_status, [_handle, POINTER(Job), _error]),
    "gpuserve_submit": (_status, [_out_handle, _handle, POINTER(Job), c_void_p, c_void_p, _error]),
    "gpuserve_wait": (_status, [_handle, c_int64, _error]),
    "gpuserve_cancel": (_status, [_handle]),
    "gpuserve_request_free": (None, [_out_handle]),
    "gpuserve_completion_fd": (c_int, [_handle]),
}

AnyStruct = TypeVar("AnyStruct", bound=Structure)


def new(kind: Type[AnyStruct], **fields: Any) -> AnyStruct:
    """A struct with its size told and every other field at its default."""
    return kind(struct_size=sizeof(kind), **fields)


def bind(library: CDLL) -> None:
    """Give every function its types; AttributeError for one that the library lacks."""
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments


