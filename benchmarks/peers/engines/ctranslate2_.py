"""CTranslate2's encoder."""
import ctranslate2
import numpy as np

from .common import PaddedEngine, need, pool


class Runner:
    def __init__(self, encoder, model):
        self.encoder, self.model = encoder, model

    def run(self, batch):
        hidden = np.array(self.encoder.forward_batch(batch).last_hidden_state)
        return pool(hidden, [len(tokens) for tokens in batch], self.model["pooling"])


class CTranslate2(PaddedEngine):
    def __init__(self, compute_type):
        self.compute_type = compute_type

    def make_runner(self, paths, workers, threads_each):
        return Runner(ctranslate2.Encoder(
            str(need(paths, "ctranslate2")), device="cpu", compute_type=self.compute_type,
            inter_threads=workers, intra_threads=threads_each), self.model)
