"""OpenVINO: the IR of prepare.py, in fp32, bf16, or int8 as NNCF quantized it."""
import numpy as np
import openvino as ov

from .common import PaddedEngine, mean_pool, pad

HINTS = {"fp32": "f32", "int8": "f32", "bf16": "bf16"}


class Runner:
    def __init__(self, compiled):
        self.compiled = compiled
        self.idle = [compiled.create_infer_request() for _ in range(8)]

    def run(self, batch):
        ids, mask = pad(batch)
        request = self.idle.pop()               # list.pop and append are atomic
        try:
            result = request.infer({"input_ids": ids, "attention_mask": mask,
                                    "token_type_ids": np.zeros_like(ids)}, share_inputs=True,
                                   share_outputs=True)
            return mean_pool(result[0], [len(tokens) for tokens in batch])
        finally:
            self.idle.append(request)


class OpenVino(PaddedEngine):
    def __init__(self, precision):
        self.precision = precision

    def make_runner(self, paths, workers, threads_each):
        name = "int8.xml" if self.precision == "int8" else "fp32.xml"
        model = ov.Core().read_model(paths["prepared"] / name)
        return Runner(ov.compile_model(model, "CPU", {
            "INFERENCE_PRECISION_HINT": HINTS[self.precision],
            "INFERENCE_NUM_THREADS": workers * threads_each, "NUM_STREAMS": workers,
            "PERFORMANCE_HINT": "LATENCY" if workers == 1 else "THROUGHPUT"}))
