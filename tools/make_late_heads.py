#!/usr/bin/env python3
"""Write tests/data/late-heads: the heads of a small BGE-M3 with random weights, for the encoder of
tests/data/models/st-xlm-roberta, and what FlagEmbedding's arithmetic gives in float64.

    sparse_linear.pt    token vector -> weight; of each token id the largest weight above 0, except of the tokens
                        <s>, </s>, <pad> and <unk>
    colbert_linear.pt   token vector without the first token -> vector, normalized
    expected.json       texts, ids, "dense", "sparse", "colbert", and "scores": colbert_score() of text 0 and each text

Usage: make_late_heads.py [OUT]      (default tests/data/late-heads)
Needs torch, transformers and tokenizers; made with 2.15, 5.23 and 0.23.3.
"""
import json
import os
import sys

import torch
import transformers as tf
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../tests/data/late-heads")
MODEL = os.path.join(HERE, "../tests/data/models/st-xlm-roberta")
COLBERT_DIM = 24
TEXTS = ["hello world", "the world of the words", "rows of words in rows of words", "", "\u4e2d x world", "d"]
UNWEIGHTED = ("<s>", "</s>", "<pad>", "<unk>")


def heads(hidden):
    torch.manual_seed(11)
    sparse, colbert = torch.nn.Linear(hidden, 1), torch.nn.Linear(hidden, COLBERT_DIM)
    for head in (sparse, colbert):
        torch.nn.init.normal_(head.weight, std=0.5)
        torch.nn.init.normal_(head.bias, std=0.1)
    return sparse, colbert


def of_text(model, sparse, colbert, ids, unweighted):
    hidden = model(torch.tensor([ids])).last_hidden_state[0]
    weights = torch.relu(sparse(hidden))[:, 0].tolist()
    words = {}
    for token, weight in zip(ids, weights):
        if token not in unweighted and weight > words.get(token, 0):
            words[token] = weight
    vectors = torch.nn.functional.normalize(colbert(hidden[1:]), dim=-1)
    dense = torch.nn.functional.normalize(pooled(hidden), dim=-1)
    return dense, words, vectors


def pooled(hidden):
    with open(os.path.join(MODEL, "1_Pooling/config.json"), encoding="utf-8") as file:
        config = json.load(file)
    mode = config.get("pooling_mode") or next(key for key, on in config.items() if key.startswith("pooling_mode_") and on)
    return hidden[0] if "cls" in mode else hidden.mean(0)


@torch.no_grad()
def make():
    model = tf.AutoModel.from_pretrained(MODEL, add_pooling_layer=False, dtype=torch.float32).double().eval()
    tokenizer = Tokenizer.from_file(os.path.join(MODEL, "tokenizer.json"))
    unweighted = {tokenizer.token_to_id(token) for token in UNWEIGHTED}
    sparse, colbert = heads(model.config.hidden_size)
    os.makedirs(OUT, exist_ok=True)
    torch.save(colbert.state_dict(), os.path.join(OUT, "colbert_linear.pt"))
    sparse, colbert = sparse.double(), colbert.double()
    every = [tokenizer.encode(text).ids for text in TEXTS]
    weights = torch.cat([sparse(model(torch.tensor([ids])).last_hidden_state[0]) for ids in every])
    sparse.bias -= weights.median()  # half of the weights are above 0
    torch.save(sparse.float().state_dict(), os.path.join(OUT, "sparse_linear.pt"))
    sparse = sparse.double()
    rows, vectors = [], []
    for text, ids in zip(TEXTS, every):
        dense, words, late = of_text(model, sparse, colbert, ids, unweighted)
        vectors.append(late)
        rows.append({"text": text, "ids": ids, "dense": dense.tolist(),
                     "sparse": {str(token): weight for token, weight in sorted(words.items())},
                     "colbert": late.tolist()})
    for row, late in zip(rows, vectors):
        row["score"] = float((vectors[0] @ late.T).max(-1).values.sum() / len(vectors[0]))
    with open(os.path.join(OUT, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(rows, file)


if __name__ == "__main__":
    make()
