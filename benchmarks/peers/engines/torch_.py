"""sentence-transformers on torch; encode() sorts by length itself."""
import torch
from sentence_transformers import SentenceTransformer

from .common import Engine


class SentenceTransformers(Engine):
    def load(self, paths, threads):
        torch.set_num_threads(threads)
        self.model = SentenceTransformer(str(paths["model"]), device="cpu", model_kwargs={"dtype": torch.float32})

    def embed(self, texts, setting):
        return self.model.encode(texts, batch_size=setting["batch"], normalize_embeddings=True,
                                 show_progress_bar=False)
