"""fastembed, with the plain ONNX file in place of its download."""
import numpy as np
from fastembed import TextEmbedding

from . import DEFAULT_MODEL
from .common import Engine, Unavailable, need, prepared_facts


class FastEmbed(Engine):
    def load(self, paths, threads):
        if prepared_facts(paths)["model"] != DEFAULT_MODEL:
            raise Unavailable("its list of models has not this one")
        self.model = TextEmbedding("sentence-transformers/all-MiniLM-L6-v2", threads=threads,
                                   specific_model_path=str(need(paths, "fastembed")))

    def embed(self, texts, setting):
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)
        result = np.stack(list(self.model.embed([texts[i] for i in order],
                                                batch_size=setting["batch"])))
        vectors = np.empty_like(result, dtype=np.float32)
        vectors[order] = result
        return vectors
