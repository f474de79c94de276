"""fastembed, with the plain ONNX file in place of its download."""
import numpy as np
from fastembed import TextEmbedding

from .common import Engine


class FastEmbed(Engine):
    def load(self, paths, threads):
        self.model = TextEmbedding("sentence-transformers/all-MiniLM-L6-v2", threads=threads,
                                   specific_model_path=str(paths["prepared"] / "fastembed"))

    def embed(self, texts, setting):
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)
        result = np.stack(list(self.model.embed([texts[i] for i in order],
                                                batch_size=setting["batch"])))
        vectors = np.empty_like(result, dtype=np.float32)
        vectors[order] = result
        return vectors
