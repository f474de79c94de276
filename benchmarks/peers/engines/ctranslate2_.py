"""CTranslate2's encoder."""
import ctranslate2
import numpy as np

from .common import PaddedEngine, mean_pool


class Runner:
    def __init__(self, encoder):
        self.encoder = encoder

    def run(self, batch):
        hidden = np.array(self.encoder.forward_batch(batch).last_hidden_state)
        return mean_pool(hidden, [len(tokens) for tokens in batch])


class CTranslate2(PaddedEngine):
    def __init__(self, compute_type):
        self.compute_type = compute_type

    def make_runner(self, paths, workers, threads_each):
        return Runner(ctranslate2.Encoder(
            str(paths["prepared"] / "ctranslate2"), device="cpu", compute_type=self.compute_type,
            inter_threads=workers, intra_threads=threads_each))
