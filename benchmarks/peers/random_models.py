#!/usr/bin/env python3
"""Write a model of a known family's shape with random weights: random_models.py NAME TOKENIZER_MODEL OUT

    modernbert-shaped   ModernBERT-base: 22 layers of 768, gated, local attention; mean pooling
    qwen3-shaped        Qwen3-Embedding-0.6B's layers of 1,024 with grouped keys, 8 of its 28; last token

transformers writes it, as a folder of sentence-transformers. The tokenizer is another model's
(TOKENIZER_MODEL is its folder): texts have the lengths that the workloads want by its tokens.
"""
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

SEED = 11
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt",
                   "vocab.json", "merges.txt")


def modernbert(vocabulary, pad_id):
    from transformers import ModernBertConfig, ModernBertModel

    return ModernBertModel(ModernBertConfig(
        vocab_size=vocabulary, hidden_size=768, intermediate_size=1152, num_hidden_layers=22,
        num_attention_heads=12, pad_token_id=pad_id, bos_token_id=101, eos_token_id=102,
        cls_token_id=101, sep_token_id=102))


def qwen3(vocabulary, pad_id):
    from transformers import Qwen3Config, Qwen3Model

    return Qwen3Model(Qwen3Config(
        vocab_size=vocabulary, hidden_size=1024, intermediate_size=3072, num_hidden_layers=8,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=2048,
        pad_token_id=pad_id, bos_token_id=pad_id, eos_token_id=pad_id))


# name: (maker, pooling)
MODELS = {"modernbert-shaped": (modernbert, "mean"), "qwen3-shaped": (qwen3, "lasttoken")}


def write_transformer(make, tokenizer_model, folder):
    """The folder that transformers reads."""
    import torch
    from transformers import AutoTokenizer

    folder.mkdir()
    for name in TOKENIZER_FILES:
        if (tokenizer_model / name).exists():
            shutil.copy(tokenizer_model / name, folder / name)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
        tokenizer.save_pretrained(folder)
    torch.manual_seed(SEED)
    make(len(tokenizer), tokenizer.pad_token_id).eval().save_pretrained(folder)


def main():
    name, tokenizer_model, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    make, pooling = MODELS[name]
    from sentence_transformers import SentenceTransformer, models

    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        plain = Path(scratch) / "plain"
        write_transformer(make, tokenizer_model, plain)
        transformer = models.Transformer(str(plain), max_seq_length=256)
        dim = transformer.get_word_embedding_dimension()
        SentenceTransformer(modules=[transformer, models.Pooling(dim, pooling_mode=pooling),
                                     models.Normalize()], device="cpu").save(str(Path(scratch) / "made"))
        os.rename(Path(scratch) / "made", target)


if __name__ == "__main__":
    main()
