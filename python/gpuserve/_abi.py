"""The structs, numbers and functions of the public headers, for ctypes.

Made by tools/bind_python.py from include/gpuserve/*.h, where their meaning stands: do not edit.
"""

from __future__ import annotations

from ctypes import (
    CDLL,
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int8,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)
from typing import Any, Dict, List, Tuple, Type, TypeVar

LogFunction = CFUNCTYPE(None, c_void_p, c_int32, c_char_p)

ERROR_TEXT_BYTES = 512
VERSION_MAJOR = 0
VERSION_MINOR = 1
VERSION_PATCH = 0
WARMUP_OFF = 0xfffffffe
WARMUP_AUTO = 0xffffffff
MATMUL_MAX_SIDE = 4194304
CHAIN_MAX_STEPS = 65536
DEVICE_MIG = 1
DEVICE_VIRTUAL = 2
OK = 0
E_INVALID = 1
E_NOT_FOUND = 2
E_FORMAT = 3
E_UNSUPPORTED = 4
E_NOMEM = 5
E_TOO_LARGE = 6
E_BUSY = 7
E_DEVICE = 8
E_IO = 9
E_CANCELLED = 10
E_EXPIRED = 11
E_TIMEOUT = 12
E_FORKED = 13
E_NUMERIC = 14
E_INTERNAL = 15
E_MISMATCH = 16
DTYPE_DEFAULT = 0
DTYPE_FLOAT32 = 1
DTYPE_FLOAT16 = 2
DTYPE_BFLOAT16 = 3
DTYPE_TF32 = 4
DTYPE_INT8 = 5
LOG_ERROR = 1
LOG_WARNING = 2
LOG_INFO = 3
LOG_DEBUG = 4
LOST_FAIL = 0
LOST_CPU = 1
LOST_GPU = 2
LOST_GPU_OR_CPU = 3
MEMORY_REFUSE = 0
MEMORY_WAIT = 1
MEMORY_EVICT = 2
STAGE_WARMUP = 1
STAGE_WEIGHTS = 2
SUSPENDED_RESUME = 0
SUSPENDED_REFUSE = 1
POOLING_DEFAULT = 0
POOLING_CLS = 1
POOLING_MEAN = 2
POOLING_MAX = 3
POOLING_MEAN_SQRT_LEN = 4
POOLING_WEIGHTED_MEAN = 5
POOLING_LAST = 6
CHANGE_FINGERPRINT = 1
CHANGE_DIM = 2
CHANGE_LABELS = 4
CHANGE_MAX_TOKENS = 8
TRUNCATE_DEFAULT = 0
TRUNCATE_RIGHT = 1
TRUNCATE_LEFT = 2
TRUNCATE_STRICT = 3
TASK_EMBED = 0
TASK_CLASSIFY = 1
TASK_TOKEN_VECTORS = 2
TASK_SPARSE = 3
NORMALIZE_DEFAULT = 0
NORMALIZE_YES = 1
NORMALIZE_NO = 2
SCORE_DEFAULT = 0
SCORE_RAW = 1
SCORE_SOFTMAX = 2
SCORE_SIGMOID = 3
PRIORITY_NORMAL = 0
PRIORITY_HIGH = 1
PRIORITY_LOW = 2
CACHE_DEFAULT = 0
CACHE_ON = 1
CACHE_OFF = 2
MATMUL_AUTO = 0
MATMUL_NAIVE = 1
MATMUL_TILED = 2
MATMUL_SIMD = 3
MATMUL_TENSOR_CORE = 4
MATMUL_CUBLAS = 5
CHAIN_ADD = 1
CHAIN_MULTIPLY = 2
CHAIN_FMA = 3
CHAIN_MINIMUM = 4
CHAIN_MAXIMUM = 5
CHAIN_ABSOLUTE = 6
CHAIN_RECIPROCAL = 7
CHAIN_SQRT = 8
CHAIN_EXP = 9
CHAIN_LOG = 10
CHAIN_SIN = 11
CHAIN_COS = 12
CHAIN_TANH = 13
CHAIN_ERF = 14
CHAIN_SIGMOID = 15
CHAIN_RELU = 16
CHAIN_GELU = 17
PROFILE_DEFAULT = 0
PROFILE_OPERATIONS = 1
PROFILE_DIFFERENCES = 2
RERANK_DEFAULT = 0
RERANK_CROSS_ENCODER = 1
RERANK_COSINE = 2


class Error(Structure):
    c_name = "gpuserve_error"
    _fields_ = [
        ("struct_size", c_uint32),
        ("status", c_int32),
        ("retry_after_ms", c_uint32),
        ("reserved", c_uint32),
        ("message", c_char * 512),
        ("hint", c_char * 512),
    ]


class ContextOptions(Structure):
    c_name = "gpuserve_context_options"
    _fields_ = [
        ("struct_size", c_uint32),
        ("n_threads", c_uint32),
        ("memory_budget_bytes", c_uint64),
        ("log", c_void_p),
        ("log_user", c_void_p),
        ("log_level", c_int32),
        ("reserved", c_int32),
        ("plugin_dir", c_char_p),
        ("cache_dir", c_char_p),
        ("memory_policy", c_uint32),
        ("memory_wait_ms", c_uint32),
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
        ("warmup", c_uint32),
        ("on_device_lost", c_uint32),
        ("progress", c_void_p),
        ("progress_user", c_void_p),
        ("max_queue_bytes", c_uint64),
        ("cache_bytes", c_uint64),
        ("memory_budget_bytes", c_uint64),
        ("name", c_char_p),
        ("version", c_char_p),
        ("keep", c_uint32),
        ("when_suspended", c_uint32),
        ("lost", c_void_p),
        ("lost_user", c_void_p),
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


class SwapOptions(Structure):
    c_name = "gpuserve_swap_options"
    _fields_ = [
        ("struct_size", c_uint32),
        ("allow", c_uint32),
        ("fingerprint", c_char_p),
    ]


class Span(Structure):
    c_name = "gpuserve_span"
    _fields_ = [
        ("begin", c_uint32),
        ("end", c_uint32),
    ]


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
        ("cached", c_uint32),
        ("reserved", c_uint32 * 4),
    ]


class Result(Structure):
    c_name = "gpuserve_result"
    _fields_ = [
        ("struct_size", c_uint32),
        ("dtype", c_uint32),
        ("n_tokens", c_uint64),
        ("n_truncated", c_uint64),
        ("n_cached", c_uint64),
        ("tokenize_us", c_uint64),
        ("queue_us", c_uint64),
        ("compute_us", c_uint64),
        ("total_us", c_uint64),
        ("device", c_char * 64),
        ("fingerprint", c_char * 40),
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
        ("deadline_us", c_int64),
        ("priority", c_uint32),
        ("cache", c_uint32),
        ("expected_fingerprint", c_char_p),
        ("result", c_void_p),
    ]


class EmbedOptions(Structure):
    c_name = "gpuserve_embed_options"
    _fields_ = [
        ("struct_size", c_uint32),
        ("dimensions", c_uint32),
        ("truncation", c_uint32),
        ("normalize", c_uint32),
        ("prompt_name", c_char_p),
        ("prompt", c_char_p),
        ("items", c_void_p),
        ("deadline_us", c_int64),
        ("priority", c_uint32),
        ("cache", c_uint32),
        ("expected_fingerprint", c_char_p),
        ("result", c_void_p),
    ]


class ClassifyOptions(Structure):
    c_name = "gpuserve_classify_options"
    _fields_ = [
        ("struct_size", c_uint32),
        ("truncation", c_uint32),
        ("score", c_uint32),
        ("reserved", c_uint32),
        ("pairs", c_void_p),
        ("items", c_void_p),
        ("deadline_us", c_int64),
        ("priority", c_uint32),
        ("cache", c_uint32),
        ("expected_fingerprint", c_char_p),
        ("result", c_void_p),
    ]


class ComputeOptions(Structure):
    c_name = "gpuserve_compute_options"
    _fields_ = [
        ("struct_size", c_uint32),
        ("n_threads", c_uint32),
        ("device", c_char_p),
    ]


class MatmulJob(Structure):
    c_name = "gpuserve_matmul_job"
    _fields_ = [
        ("struct_size", c_uint32),
        ("dtype", c_uint32),
        ("variant", c_uint32),
        ("transpose_a", c_uint32),
        ("transpose_b", c_uint32),
        ("alpha", c_float),
        ("beta", c_float),
        ("reserved", c_uint32),
        ("m", c_int64),
        ("n", c_int64),
        ("k", c_int64),
        ("a", c_void_p),
        ("b", c_void_p),
        ("c", c_void_p),
        ("a_stride", c_int64),
        ("b_stride", c_int64),
        ("c_stride", c_int64),
        ("c_capacity", c_size_t),
    ]


class ComputeResult(Structure):
    c_name = "gpuserve_compute_result"
    _fields_ = [
        ("struct_size", c_uint32),
        ("variant", c_uint32),
        ("kernel_seconds", c_double),
        ("copy_seconds", c_double),
    ]


class ChainStep(Structure):
    c_name = "gpuserve_chain_step"
    _fields_ = [
        ("kind", c_uint32),
        ("a", c_float),
        ("b", c_float),
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
        ("held_bytes", c_uint64),
        ("driver_index", c_int32),
        ("load_percent", c_int32),
        ("temperature_celsius", c_int32),
        ("power_milliwatts", c_int32),
        ("n_processes", c_int32),
        ("flags", c_int32),
        ("bus_id", c_char * 32),
        ("limit", c_char * 64),
    ]


class Stats(Structure):
    c_name = "gpuserve_stats"
    _fields_ = [
        ("struct_size", c_uint32),
        ("n_models", c_uint32),
        ("requests", c_uint64),
        ("requests_ok", c_uint64),
        ("requests_busy", c_uint64),
        ("requests_cancelled", c_uint64),
        ("requests_expired", c_uint64),
        ("requests_failed", c_uint64),
        ("items", c_uint64),
        ("items_truncated", c_uint64),
        ("tokens", c_uint64),
        ("batches", c_uint64),
        ("padding_tokens_saved", c_uint64),
        ("queued_requests", c_uint64),
        ("queued_tokens", c_uint64),
        ("tokenize_ns", c_uint64),
        ("compute_ns", c_uint64),
        ("queue_ns", c_uint64),
        ("request_ns", c_uint64),
        ("request_p50_us", c_uint64),
        ("request_p95_us", c_uint64),
        ("request_p99_us", c_uint64),
        ("queue_p50_us", c_uint64),
        ("queue_p95_us", c_uint64),
        ("queue_p99_us", c_uint64),
        ("weights_bytes", c_uint64),
        ("workspace_bytes", c_uint64),
        ("stream_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("queued_bytes", c_uint64),
        ("items_shared", c_uint64),
        ("cache_hits", c_uint64),
        ("cache_misses", c_uint64),
        ("cache_bytes", c_uint64),
    ]


class ProfileOptions(Structure):
    c_name = "gpuserve_profile_options"
    _fields_ = [
        ("struct_size", c_uint32),
        ("text_tokens", c_uint32),
        ("n_texts", c_uint32),
        ("rounds", c_uint32),
        ("timing", c_uint32),
        ("trace", c_uint32),
        ("texts", c_void_p),
    ]


class RerankOptions(Structure):
    c_name = "gpuserve_rerank_options"
    _fields_ = [
        ("struct_size", c_uint32),
        ("method", c_uint32),
        ("score", c_uint32),
        ("truncation", c_uint32),
        ("top_n", c_size_t),
        ("query_size", c_size_t),
        ("document_sizes", c_void_p),
        ("query_prompt", c_char_p),
        ("document_prompt", c_char_p),
        ("items", c_void_p),
        ("deadline_us", c_int64),
        ("priority", c_uint32),
        ("cache", c_uint32),
        ("expected_fingerprint", c_char_p),
        ("result", c_void_p),
    ]


STRUCTS: List[Type[Structure]] = [
    Error,
    ContextOptions,
    ModelOptions,
    Footprint,
    SwapOptions,
    Span,
    TokenizeOptions,
    Item,
    Result,
    Job,
    EmbedOptions,
    ClassifyOptions,
    ComputeOptions,
    MatmulJob,
    ComputeResult,
    ChainStep,
    DeviceInfo,
    Stats,
    ProfileOptions,
    RerankOptions,
]

# name: (result, arguments)
FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "gpuserve_version": (c_char_p, [
    ]),
    "gpuserve_abi_version": (c_uint32, [
    ]),
    "gpuserve_status_name": (c_char_p, [
        c_int,
    ]),
    "gpuserve_context_create": (c_int, [
        POINTER(c_void_p),
        POINTER(ContextOptions),
        POINTER(Error),
    ]),
    "gpuserve_context_ref": (c_void_p, [
        c_void_p,
    ]),
    "gpuserve_context_unref": (None, [
        POINTER(c_void_p),
    ]),
    "gpuserve_context_set_budget": (c_int, [
        c_void_p,
        c_char_p,
        c_uint64,
        POINTER(Error),
    ]),
    "gpuserve_context_models": (c_int, [
        c_void_p,
        c_void_p,
        c_size_t,
        POINTER(c_size_t),
        POINTER(Error),
    ]),
    "gpuserve_context_find": (c_int, [
        POINTER(c_void_p),
        c_void_p,
        c_char_p,
        c_char_p,
        POINTER(Error),
    ]),
    "gpuserve_context_metrics": (c_int, [
        c_void_p,
        c_void_p,
        c_size_t,
        POINTER(c_size_t),
        POINTER(Error),
    ]),
    "gpuserve_context_doctor": (c_int, [
        c_void_p,
        c_void_p,
        c_size_t,
        POINTER(c_size_t),
        POINTER(Error),
    ]),
    "gpuserve_model_inspect": (c_int, [
        c_void_p,
        c_char_p,
        c_void_p,
        c_size_t,
        POINTER(c_size_t),
        POINTER(Error),
    ]),
    "gpuserve_model_footprint": (c_int, [
        c_void_p,
        c_char_p,
        POINTER(ModelOptions),
        POINTER(Footprint),
        POINTER(Error),
    ]),
    "gpuserve_model_open": (c_int, [
        POINTER(c_void_p),
        c_void_p,
        c_char_p,
        POINTER(ModelOptions),
        POINTER(Error),
    ]),
    "gpuserve_model_ref": (c_void_p, [
        c_void_p,
    ]),
    "gpuserve_model_close": (None, [
        POINTER(c_void_p),
    ]),
    "gpuserve_model_swap": (c_int, [
        c_void_p,
        c_char_p,
        POINTER(c_uint32),
        POINTER(ModelOptions),
        POINTER(SwapOptions),
        POINTER(Error),
    ]),
    "gpuserve_model_suspend": (c_int, [
        c_void_p,
        POINTER(Error),
    ]),
    "gpuserve_model_resume": (c_int, [
        c_void_p,
        POINTER(Error),
    ]),
    "gpuserve_model_info": (c_int, [
        c_void_p,
        c_void_p,
        c_size_t,
        POINTER(c_size_t),
        POINTER(Error),
    ]),
    "gpuserve_model_dim": (c_size_t, [
        c_void_p,
    ]),
    "gpuserve_model_max_tokens": (c_size_t, [
        c_void_p,
    ]),
    "gpuserve_model_label_count": (c_size_t, [
        c_void_p,
    ]),
    "gpuserve_model_label": (c_char_p, [
        c_void_p,
        c_size_t,
    ]),
    "gpuserve_model_fingerprint": (c_char_p, [
        c_void_p,
    ]),
    "gpuserve_tokenize": (c_int, [
        c_void_p,
        c_char_p,
        c_size_t,
        c_void_p,
        c_void_p,
        c_size_t,
        POINTER(c_size_t),
        POINTER(TokenizeOptions),
        POINTER(Error),
    ]),
    "gpuserve_detokenize": (c_int, [
        c_void_p,
        c_void_p,
        c_size_t,
        c_int32,
        c_void_p,
        c_size_t,
        POINTER(c_size_t),
        POINTER(Error),
    ]),
    "gpuserve_run": (c_int, [
        c_void_p,
        POINTER(Job),
        POINTER(Error),
    ]),
    "gpuserve_embed": (c_int, [
        c_void_p,
        c_void_p,
        c_size_t,
        c_void_p,
        c_size_t,
        POINTER(EmbedOptions),
        POINTER(Error),
    ]),
    "gpuserve_classify": (c_int, [
        c_void_p,
        c_void_p,
        c_size_t,
        c_void_p,
        c_size_t,
        POINTER(ClassifyOptions),
        POINTER(Error),
    ]),
    "gpuserve_submit": (c_int, [
        POINTER(c_void_p),
        c_void_p,
        POINTER(Job),
        c_void_p,
        c_void_p,
        POINTER(Error),
    ]),
    "gpuserve_wait": (c_int, [
        c_void_p,
        c_int64,
        POINTER(Error),
    ]),
    "gpuserve_cancel": (c_int, [
        c_void_p,
    ]),
    "gpuserve_request_free": (None, [
        POINTER(c_void_p),
    ]),
    "gpuserve_completion_fd": (c_int, [
        c_void_p,
    ]),
    "gpuserve_compute_open": (c_int, [
        POINTER(c_void_p),
        c_void_p,
        POINTER(ComputeOptions),
        POINTER(Error),
    ]),
    "gpuserve_compute_device": (c_char_p, [
        c_void_p,
    ]),
    "gpuserve_compute_close": (None, [
        POINTER(c_void_p),
    ]),
    "gpuserve_matmul": (c_int, [
        c_void_p,
        POINTER(MatmulJob),
        POINTER(ComputeResult),
        POINTER(Error),
    ]),
    "gpuserve_chain": (c_int, [
        c_void_p,
        c_void_p,
        c_size_t,
        c_void_p,
        c_void_p,
        c_size_t,
        POINTER(ComputeResult),
        POINTER(Error),
    ]),
    "gpuserve_device_list": (c_int, [
        c_void_p,
        POINTER(DeviceInfo),
        c_size_t,
        POINTER(c_size_t),
        POINTER(Error),
    ]),
    "gpuserve_device_select": (c_int, [
        c_void_p,
        c_char_p,
        POINTER(DeviceInfo),
        c_void_p,
        c_size_t,
        POINTER(Error),
    ]),
    "gpuserve_device_select_all": (c_int, [
        c_void_p,
        c_char_p,
        POINTER(DeviceInfo),
        c_size_t,
        POINTER(c_size_t),
        POINTER(Error),
    ]),
    "gpuserve_device_refresh": (c_int, [
        c_void_p,
        POINTER(DeviceInfo),
        POINTER(Error),
    ]),
    "gpuserve_device_report": (c_int, [
        c_void_p,
        c_void_p,
        c_size_t,
        POINTER(c_size_t),
        POINTER(Error),
    ]),
    "gpuserve_context_stats": (c_int, [
        c_void_p,
        POINTER(Stats),
        POINTER(Error),
    ]),
    "gpuserve_model_profile": (c_int, [
        c_void_p,
        c_char_p,
        POINTER(ModelOptions),
        POINTER(ProfileOptions),
        c_void_p,
        c_void_p,
        POINTER(Error),
    ]),
    "gpuserve_model_ready": (c_int, [
        c_void_p,
        POINTER(Error),
    ]),
    "gpuserve_model_rerank_method": (c_int, [
        c_void_p,
    ]),
    "gpuserve_rerank": (c_int, [
        c_void_p,
        c_char_p,
        c_void_p,
        c_size_t,
        c_void_p,
        POINTER(c_size_t),
        c_size_t,
        POINTER(RerankOptions),
        POINTER(Error),
    ]),
    "gpuserve_model_sparse_dim": (c_size_t, [
        c_void_p,
    ]),
    "gpuserve_sparse_compact": (c_size_t, [
        c_void_p,
        c_size_t,
        POINTER(c_uint32),
        c_void_p,
        c_size_t,
    ]),
    "gpuserve_dot": (c_float, [
        c_void_p,
        c_void_p,
        c_size_t,
    ]),
    "gpuserve_top_k": (c_size_t, [
        c_void_p,
        c_void_p,
        c_size_t,
        c_size_t,
        c_size_t,
        POINTER(c_size_t),
        c_void_p,
    ]),
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
