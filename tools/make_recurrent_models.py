#!/usr/bin/env python3
"""Write the small recurrent models of tests/data/recurrent, with random weights and torch's logits.

    tools/make_recurrent_models.py tests/data/recurrent

Each folder is a model as docs/recurrent.md describes it. reference.json next to them holds texts and, for each
model, the logits of torch in float64. The models of layout "keras" hold the weights of a torch model, transposed
and with one bias, as Keras stores them; those with "reset_after" have both biases of a GRU, and those without it are
computed step by step, since torch.nn.GRU resets after the product.

Needs torch, safetensors, tokenizers.
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

WORDS = "[UNK] [PAD] a fine film bad the plot is thin , . ! not very good \u00e9t\u00e9 42".split()
TEXTS = ["a fine film", "A BAD film, the plot is thin.", "not very good!", "", "xyzzy", "a" * 300,
         "the plot is very very very good . a fine film , a fine plot ! 42 \u00c9t\u00e9", "."]
MODELS = {
    "torch": {},
    "torch-two-layers": {"num_layers": 2, "bidirectional": True, "pooling": "mean"},
    "torch-order": {"gate_order": "ofig", "bidirectional": True},
    "torch-no-bias": {"bias": False, "pooling": "max", "hidden_size": 5, "embedding_size": 3},
    "keras": {"layout": "keras", "gate_order": "ifco"},
    "keras-two-layers": {"layout": "keras", "num_layers": 2, "bidirectional": True, "hidden_size": 7, "labels": 1},
    "gru": {"cell": "gru"},
    "gru-two-layers": {"cell": "gru", "num_layers": 2, "bidirectional": True, "gate_order": "nzr", "hidden_size": 9},
    "gru-no-bias": {"cell": "gru", "bias": False, "pooling": "mean"},
    "gru-keras": {"cell": "gru", "layout": "keras", "num_layers": 2, "bidirectional": True, "hidden_size": 7},
    "gru-keras-before": {"cell": "gru", "layout": "keras", "reset_after": False, "bidirectional": True,
                         "gate_order": "zrh", "hidden_size": 21},
}
ORDERS = {"lstm": ("ifgo", "ifgo"), "gru": ("rzn", "zrh")}  # of torch and Keras
MAX_LENGTH = 12


def tokenizer():
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def reset_before(cell, rows, suffix):
    """The states of Keras' GRU without reset_after, for one direction; both biases of torch are added to the input."""
    weight = dict(cell.named_parameters())
    inputs, states = weight["weight_ih_l0" + suffix], weight["weight_hh_l0" + suffix]
    bias = weight["bias_ih_l0" + suffix] + weight["bias_hh_l0" + suffix]
    h, out = torch.zeros(1, cell.hidden_size, dtype=rows.dtype), []
    for x in rows.flip(0) if suffix else rows:
        r, z, n = (x[None] @ inputs.T + bias).chunk(3, 1)
        u_r, u_z, u_n = states.chunk(3)
        r, z = torch.sigmoid(r + h @ u_r.T), torch.sigmoid(z + h @ u_z.T)
        h = (1 - z) * torch.tanh(n + (r * h) @ u_n.T) + z * h
        out.append(h)
    return torch.cat(out[::-1] if suffix else out), h


def run_layers(config, net, row):
    """The states of all steps [1, steps, units], and of the last steps of both directions."""
    rows = net["embedding"](torch.tensor([row]))
    if config.get("reset_after", True):
        out, h = net["lstm"](rows)
        h = h[0] if config["cell"] == "lstm" else h
        return out, torch.cat(list(h[-2:] if config["bidirectional"] else h[-1:]), dim=1)[0]
    both = [reset_before(net["lstm"], rows[0], suffix) for suffix in ("", "_reverse")]
    return torch.cat([states for states, _ in both], dim=1)[None], torch.cat([h for _, h in both], dim=1)[0]


def logits(config, net, ids):
    pooled = []
    for row in ids:
        out, last = run_layers(config, net, row[:MAX_LENGTH] or [1])
        pooled.append({"last": last, "mean": out[0].mean(0), "max": out[0].amax(0)}[config["pooling"]])
    return net["classifier"](torch.stack(pooled))


def reorder(config, tensor):
    """The blocks of torch's gates in another order."""
    gates = ORDERS[config["cell"]][0]
    blocks = dict(zip(gates, tensor.chunk(len(gates))))
    return torch.cat([blocks[letter.replace("c", "g").replace("h", "n")] for letter in config["gate_order"]])


def torch_tensors(config, net):
    tensors = {"embedding.weight": net["embedding"].weight, "classifier.weight": net["classifier"].weight,
               "classifier.bias": net["classifier"].bias}
    for name, tensor in net["lstm"].named_parameters():
        tensors[config["cell"] + "." + name] = reorder(config, tensor)
    return tensors


def keras_tensors(config, net):
    tensors = {"embedding/embeddings": net["embedding"].weight, "dense/kernel": net["classifier"].weight.T,
               "dense/bias": net["classifier"].bias}
    weights = {name: reorder(config, tensor) for name, tensor in net["lstm"].named_parameters()}
    kind = config["cell"]
    for layer in range(config["num_layers"]):
        for suffix, direction in (("", "forward"), ("_reverse", "backward"))[:1 + config["bidirectional"]]:
            number = f"_{layer}" if layer else ""
            cell = f"{kind}{number}/{kind}_cell"
            if config["bidirectional"]:
                cell = f"bidirectional{number}/{direction}_{cell}"
            tensors[cell + "/kernel"] = weights[f"weight_ih_l{layer}{suffix}"].T
            tensors[cell + "/recurrent_kernel"] = weights[f"weight_hh_l{layer}{suffix}"].T
            both = [weights[f"bias_{part}_l{layer}{suffix}"] for part in ("ih", "hh")]
            is_pair = kind == "gru" and config.get("reset_after", True)
            tensors[cell + "/bias"] = torch.stack(both) if is_pair else both[0] + both[1]
    return tensors


def make(folder, options):
    options = dict(options)
    labels = options.pop("labels", 3)
    usual = ORDERS[options.get("cell", "lstm")][options.get("layout") == "keras"]
    config = {"model_type": "recurrent", "cell": "lstm", "layout": "torch", "gate_order": usual,
              "vocab_size": len(WORDS), "embedding_size": 8, "hidden_size": 6, "num_layers": 1,
              "bidirectional": False, "pooling": "last", "max_length": MAX_LENGTH, "pad_token_id": 1} | options
    if labels == 1:
        config |= {"problem_type": "multi_label_classification", "id2label": {"0": "positive"}}
    torch.manual_seed(len(folder.name))
    directions = 1 + config["bidirectional"]
    layers = torch.nn.LSTM if config["cell"] == "lstm" else torch.nn.GRU
    net = {"embedding": torch.nn.Embedding(len(WORDS), config["embedding_size"]),
           "lstm": layers(config["embedding_size"], config["hidden_size"], config["num_layers"],
                          bias=config.get("bias", True), batch_first=True, bidirectional=config["bidirectional"]),
           "classifier": torch.nn.Linear(directions * config["hidden_size"], labels)}
    for part in net.values():
        for tensor in part.parameters():
            tensor.data = torch.randn_like(tensor) * 0.7
    make_tensors = keras_tensors if config["layout"] == "keras" else torch_tensors
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    tokenizer().save(str(folder / "tokenizer.json"))
    save_file({name: tensor.detach().contiguous() for name, tensor in make_tensors(config, net).items()},
              str(folder / "model.safetensors"))
    ids = [tokenizer().encode(text).ids for text in TEXTS]
    with torch.no_grad():
        return logits(config, {name: part.double() for name, part in net.items()}, ids).tolist()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    reference = {"texts": TEXTS, "logits": {name: make(out / name, options) for name, options in MODELS.items()}}
    (out / "reference.json").write_text(json.dumps(reference, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
