"""gpuserve itself, through the public API of libgpuserve.so."""
import ctypes
import os
from pathlib import Path

import numpy as np

from .common import Engine, Unavailable

DTYPES = {"float32": 1, "bfloat16": 3, "int8": 5}
TEXT_BYTES = 512


class Error(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("status", ctypes.c_int32),
                ("retry_after_ms", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
                ("message", ctypes.c_char * TEXT_BYTES), ("hint", ctypes.c_char * TEXT_BYTES)]


class ModelOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("dtype", ctypes.c_uint32),
                ("device", ctypes.c_char_p), ("head", ctypes.c_char_p),
                ("max_tokens", ctypes.c_uint32), ("max_batch_tokens", ctypes.c_uint32),
                ("n_threads", ctypes.c_uint32), ("pooling", ctypes.c_uint32),
                ("use_mmap", ctypes.c_uint32), ("max_queue_tokens", ctypes.c_uint32),
                ("defaults", ctypes.c_uint64 * 11)]


class Gpuserve(Engine):
    """Its batcher packs tokens: the whole workload is one call, and nothing is to be chosen."""

    latency_setting = {}

    def __init__(self, dtype):
        self.dtype = dtype

    def load(self, paths, threads):
        self.lib = ctypes.CDLL(str(Path(os.environ["GPUSERVE_LIBRARY"])))
        self.lib.gpuserve_model_dim.restype = ctypes.c_size_t
        self.error = Error(struct_size=ctypes.sizeof(Error))
        self.model = ctypes.c_void_p()
        options = ModelOptions(struct_size=ctypes.sizeof(ModelOptions), dtype=DTYPES[self.dtype],
                               device=b"cpu", n_threads=threads)
        if self.lib.gpuserve_model_open(ctypes.byref(self.model), None,
                                        str(paths["model"]).encode(), ctypes.byref(options),
                                        ctypes.byref(self.error)) != 0:
            raise Unavailable(self.error.message.decode())
        self.dim = self.lib.gpuserve_model_dim(self.model)

    def settings(self):
        return [{}]

    def embed(self, texts, setting):
        n = len(texts)
        vectors = np.empty((n, self.dim), np.float32)
        array = (ctypes.c_char_p * n)(*[text.encode() for text in texts])
        if self.lib.gpuserve_embed(self.model, array, ctypes.c_size_t(n),
                                   vectors.ctypes.data_as(ctypes.c_void_p),
                                   ctypes.c_size_t(vectors.size), None,
                                   ctypes.byref(self.error)) != 0:
            raise RuntimeError(self.error.message.decode())
        return vectors
