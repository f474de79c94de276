#!/usr/bin/env python3
"""Write the small sentence-transformers models of tests/data/words, whose modules are WordEmbeddings, LSTM and
Pooling, with random weights and the embeddings of sentence-transformers.

    tools/make_word_models.py tests/data/words

reference.json next to them holds texts and, for each model, the ids of its tokenizer and the embeddings.

Needs torch, sentence-transformers.
"""
import json
import shutil
import sys
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import LSTM, Dense, Normalize, Pooling, WordEmbeddings
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

WORDS = ["PADDING_TOKEN", "a", "fine", "film", "Film", "bad", "plot", "U.S.", "thin", "é", "δρόμος", "ss", "don't",
         "...", "k"]
TEXTS = ["a fine film", "A BAD Film, the plot is thin.", "(U.S.) don't ... \"...\"", "É  ΔΡΌΜΟΣ\u3000fine\u00a0film",
         "a\x1cfine\x1dplot", "\u212a film\n\tbad", "the thin the", "film " * 9, "'film' -bad-plot- ,,plot,,"]
MODELS = {
    "lstm-mean": {"hidden": 5, "pooling": "mean"},
    "lstm-last": {"hidden": 4, "pooling": "lasttoken", "layers": 2, "dense": 3},
    "lstm-forward": {"hidden": 6, "pooling": "max", "bidirectional": False, "lower": True, "limit": 4},
    "average": {"pooling": "mean", "normalize": True},
}
INPUTS = 7


def make(folder, options):
    torch.manual_seed(len(folder.name))
    tokenizer = WhitespaceTokenizer(WORDS, stop_words=["the", "is"], do_lower_case=options.get("lower", False))
    words = WordEmbeddings(tokenizer, torch.randn(len(WORDS), INPUTS), max_seq_length=options.get("limit", 1000000))
    modules, width = [words], INPUTS
    if "hidden" in options:
        lstm = LSTM(INPUTS, options["hidden"], options.get("layers", 1), bidirectional=options.get("bidirectional", True))
        for tensor in lstm.parameters():
            tensor.data = torch.randn_like(tensor) * 0.7
        modules.append(lstm)
        width = lstm.get_embedding_dimension()
    modules.append(Pooling(width, pooling_mode=options["pooling"]))
    if "dense" in options:
        modules.append(Dense(width, options["dense"]))
    if options.get("normalize"):
        modules.append(Normalize())
    model = SentenceTransformer(modules=modules, device="cpu")
    shutil.rmtree(folder, ignore_errors=True)
    model.save(str(folder), create_model_card=False)
    model = SentenceTransformer(str(folder), device="cpu")
    words = model[0]
    ids = [words.tokenizer.tokenize(text)[:words.max_seq_length] for text in TEXTS]
    return {"ids": ids, "embeddings": model.encode(TEXTS, batch_size=4).astype("float64").round(7).tolist()}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    made = {name: make(out / name, options) for name, options in MODELS.items()}
    (out / "reference.json").write_text(json.dumps({"texts": TEXTS, "models": made}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
