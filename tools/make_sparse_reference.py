#!/usr/bin/env python3
"""Write tests/data/oracle/sparse/splade-tiny.safetensors: what transformers makes of some reference texts in float64.

Usage: make_sparse_reference.py MODEL      (the folder that `./dev models splade-tiny` prints)
Needs torch, transformers and safetensors; made with 1.13, 4.46.3 on a CPU.

    row                which line of tests/data/oracle/texts.jsonl
    offsets            where each row's numbers begin in the two below
    indices, values    token ids and max over the text's tokens of log(1 + relu(logit)) in float64, above zero
"""
import json
import os
import sys

import torch
import transformers as tf
from safetensors.torch import save_file

torch.set_grad_enabled(False)
ORACLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/data/oracle")

tokenizer = tf.AutoTokenizer.from_pretrained(sys.argv[1])
model = tf.AutoModelForMaskedLM.from_pretrained(sys.argv[1]).eval().double()
with open(f"{ORACLE}/texts.jsonl", encoding="utf-8") as file:
    texts = [json.loads(line)["text"] for line in file]
rows = list(range(0, len(texts), 12))
offsets, indices, values = [0], [], []
for row in rows:
    inputs = tokenizer(texts[row], truncation=True, max_length=512, return_tensors="pt")
    weights = torch.log1p(torch.relu(model(**inputs).logits[0])).max(0).values
    found = weights.nonzero()[:, 0]
    indices.append(found.int())
    values.append(weights[found])
    offsets.append(offsets[-1] + len(found))
os.makedirs(f"{ORACLE}/sparse", exist_ok=True)
save_file({"row": torch.tensor(rows).int(), "offsets": torch.tensor(offsets).int(),
           "indices": torch.cat(indices), "values": torch.cat(values)}, f"{ORACLE}/sparse/splade-tiny.safetensors")
print(len(rows), "rows,", offsets[-1], "numbers")
