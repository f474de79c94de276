"""ONNX Runtime, on a graph whose attention, GELU and LayerNorm its own optimizer fused."""
import numpy as np
import onnxruntime as ort

from .common import PaddedEngine, mean_pool, pad


class Runner:
    def __init__(self, sessions):
        self.idle = sessions

    def run(self, batch):
        ids, mask = pad(batch)
        session = self.idle.pop()               # one for each worker; pop and append are atomic
        try:
            hidden = session.run(None, {"input_ids": ids, "attention_mask": mask,
                                        "token_type_ids": np.zeros_like(ids)})[0]
        finally:
            self.idle.append(session)
        return mean_pool(hidden, [len(tokens) for tokens in batch])


class OnnxRuntime(PaddedEngine):
    def __init__(self, file):
        self.file = file

    def make_runner(self, paths, workers, threads_each):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads_each
        options.inter_op_num_threads = 1
        return Runner([ort.InferenceSession(str(paths["prepared"] / self.file), options,
                                            providers=["CPUExecutionProvider"])
                       for _ in range(workers)])
