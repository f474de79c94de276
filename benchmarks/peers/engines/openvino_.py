"""OpenVINO: the IR of prepare.py, in fp32, bf16, or int8 as NNCF quantized it."""
import openvino as ov

from .common import PaddedEngine, inputs_of, need, pool

HINTS = {"fp32": "f32", "int8": "f32", "bf16": "bf16"}


class Runner:
    def __init__(self, compiled, model):
        self.model = model
        self.idle = [compiled.create_infer_request() for _ in range(8)]

    def run(self, batch):
        request = self.idle.pop()               # list.pop and append are atomic
        try:
            result = request.infer(inputs_of(self.model, batch), share_inputs=True, share_outputs=True)
            return pool(result[0], [len(tokens) for tokens in batch], self.model["pooling"])
        finally:
            self.idle.append(request)


class OpenVino(PaddedEngine):
    def __init__(self, precision):
        self.precision = precision

    def make_runner(self, paths, workers, threads_each):
        name = "int8.xml" if self.precision == "int8" else "fp32.xml"
        model = ov.Core().read_model(need(paths, name))
        return Runner(ov.compile_model(model, "CPU", {
            "INFERENCE_PRECISION_HINT": HINTS[self.precision],
            "INFERENCE_NUM_THREADS": workers * threads_each, "NUM_STREAMS": workers,
            "PERFORMANCE_HINT": "LATENCY" if workers == 1 else "THROUGHPUT"}), self.model)
