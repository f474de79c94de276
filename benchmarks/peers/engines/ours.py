"""gpuserve itself, through its Python package over the library just built (GPUSERVE_LIBRARY)."""
import sys
from pathlib import Path

import numpy as np

from .common import Engine, Unavailable

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "python"))


class Gpuserve(Engine):
    """Its batcher packs tokens: the whole workload is one call, and nothing is to be chosen."""

    latency_setting = {}

    def __init__(self, dtype):
        self.dtype = dtype

    def load(self, paths, threads):
        import gpuserve

        try:
            self.model = gpuserve.Model(str(paths["model"]), dtype=self.dtype, device="cpu",
                                        n_threads=threads)
        except gpuserve.GpuserveError as error:
            raise Unavailable(str(error)) from None

    def facts(self):
        import gpuserve

        cpu = [device for device in gpuserve.devices() if device.selector == "cpu"]
        return {"int8": self.model.info().get("int8"), "isa": cpu[0].isa if cpu else None}

    def settings(self):
        return [{}]

    def embed(self, texts, setting):
        from gpuserve._ffi import abi as _abi, calls as _calls

        if len(texts) == 1:
            return self.model.encode(texts)
        vectors = np.empty((len(texts), self.model.dim), np.float32)
        # Equal texts are computed as often as they come, as the others do.
        call = _calls.Call(texts, vectors, task=_abi.TASK_EMBED, cache=_abi.CACHE_OFF)
        _calls.run(self.model, call)
        return vectors
