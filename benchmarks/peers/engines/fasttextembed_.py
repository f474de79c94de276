"""fasttextembed, a C engine for bge-small (12 layers). Its model comes with its own download."""
import os
from pathlib import Path

import numpy as np
from fasttextembed import TextEmbedding

from .common import Engine, Unavailable


class FastTextEmbed(Engine):
    latency_setting = {}

    def load(self, paths, threads):
        folder = Path(os.environ.get("FTE_MODEL_DIR", Path.home() / ".cache" / "fasttextembed"))
        if not (folder / "model.fte").is_file():
            raise Unavailable(f"its model.fte is not in {folder}; running it once online gets it")
        self.threads = threads
        self.model = TextEmbedding(str(folder / "model.fte"), str(folder / "vocab.tsv"))

    def settings(self):
        return [{}]

    def embed(self, texts, setting):
        return np.asarray(self.model.embed(texts, threads=self.threads), np.float32)
