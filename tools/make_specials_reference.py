#!/usr/bin/env python3
"""Write what transformers makes of special tokens inside texts, in float64, for the tiny models of tests/data/models.

Usage: make_specials_reference.py [MODELS]        (default tests/data/models)
Needs torch, transformers, sentence-transformers and safetensors; made with torch 2.15, transformers 5.23 and
sentence-transformers 6.2 on a CPU.

For each family MODEL/specials.safetensors:
    ids, n_tokens   the texts, as token ids one after the other: each special token at the start, inside, at the end,
                    twice, and alone
    hidden_f64      the last hidden state, a row for each token
For models with a tokenizer MODEL/specials.json: texts, their token ids and their embeddings.
tests/data/models/camembert is written whole: the weights of "roberta" under the other name.
"""
import json
import os
import sys

import torch
import transformers as tf
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer

torch.set_grad_enabled(False)
MODELS = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../tests/data/models")
FAMILIES = ["bert", "distilbert-single", "roberta", "xlm-roberta-single", "camembert", "mpnet"]
WITH_TOKENIZER = ["st-newer", "st-xlm-roberta"]
SPECIALS = range(6)  # [PAD] <pad> [UNK] [CLS] [SEP] [MASK]: see make_test_models.py


def id_texts():
    for special in SPECIALS:
        yield [special]
        yield [special, 11, 12]
        yield [3, 11, special, 12, 13, 4]
        yield [3, 11, special, special, 12, special, 13, 4]
        yield [3, 11, 12, 4, special]
    yield [3, *SPECIALS, 20, *reversed(SPECIALS), 21, 4]


def refer_ids(folder):
    model = tf.AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64).eval()
    texts = list(id_texts())
    hidden = [model(input_ids=torch.tensor([t]), attention_mask=torch.ones(1, len(t), dtype=torch.long))
              .last_hidden_state[0] for t in texts]
    save_file({"ids": torch.tensor(sum(texts, [])).int(), "n_tokens": torch.tensor([len(t) for t in texts]).int(),
               "hidden_f64": torch.cat(hidden).contiguous()}, f"{folder}/specials.safetensors")


def refer_texts(folder):
    model = SentenceTransformer(folder, device="cpu").double()
    tokenizer = model.tokenizer
    names = [t for t in tokenizer.all_special_tokens if len(t) > 1]
    words = [w for w in sorted(tokenizer.get_vocab()) if w.strip("▁").isalnum()][:4]
    texts = []
    for name in names:
        texts += [name, f"{words[0]} {name} {words[1]}", f"{name} {words[2]}", f"{words[2]} {name}{name} {words[3]} {name}"]
    texts.append(" ".join(f"{n} {words[0]}" for n in names))
    rows = [model.encode(t, prompt="", convert_to_numpy=True).tolist() for t in texts]
    with open(f"{folder}/specials.json", "w") as file:
        json.dump({"texts": texts, "ids": [tokenizer(t)["input_ids"] for t in texts],
                   "embeddings": [[round(x, 9) for x in row] for row in rows]}, file, ensure_ascii=False)


def make_camembert():
    source = tf.RobertaModel.from_pretrained(f"{MODELS}/roberta")
    config = tf.CamembertConfig(**{k: v for k, v in source.config.to_dict().items()
                                   if k not in ("model_type", "architectures", "transformers_version")})
    model = tf.CamembertModel(config)
    model.load_state_dict(source.state_dict())
    model.save_pretrained(f"{MODELS}/camembert")


make_camembert()
for name in FAMILIES:
    refer_ids(f"{MODELS}/{name}")
for name in WITH_TOKENIZER:
    refer_texts(f"{MODELS}/{name}")
