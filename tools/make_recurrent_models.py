#!/usr/bin/env python3
"""Write the small recurrent models of tests/data/recurrent, with random weights and torch's logits.

    tools/make_recurrent_models.py tests/data/recurrent

Each folder is a model as docs/recurrent.md describes it. reference.json beside them holds texts and, for each
model, the logits of torch in float64. The models of layout "keras" hold the weights of a torch model, transposed
and with one bias, as Keras stores them.

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
}
MAX_LENGTH = 12


def tokenizer():
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def logits(config, net, ids):
    pooled = []
    for row in ids:
        out, (h, _) = net["lstm"](net["embedding"](torch.tensor([row[:MAX_LENGTH] or [1]])))
        last = torch.cat(list(h[-2:] if config["bidirectional"] else h[-1:]), dim=1)[0]
        pooled.append({"last": last, "mean": out[0].mean(0), "max": out[0].amax(0)}[config["pooling"]])
    return net["classifier"](torch.stack(pooled))


def reorder(tensor, order):
    """The blocks of i, f, g, o in another order."""
    blocks = dict(zip("ifgo", tensor.chunk(4)))
    return torch.cat([blocks[letter.replace("c", "g")] for letter in order])


def torch_tensors(config, net):
    tensors = {"embedding.weight": net["embedding"].weight, "classifier.weight": net["classifier"].weight,
               "classifier.bias": net["classifier"].bias}
    for name, tensor in net["lstm"].named_parameters():
        tensors["lstm." + name] = reorder(tensor, config["gate_order"])
    return tensors


def keras_tensors(config, net):
    tensors = {"embedding/embeddings": net["embedding"].weight, "dense/kernel": net["classifier"].weight.T,
               "dense/bias": net["classifier"].bias}
    weights = dict(net["lstm"].named_parameters())
    for layer in range(config["num_layers"]):
        for suffix, direction in (("", "forward"), ("_reverse", "backward"))[:1 + config["bidirectional"]]:
            number = f"_{layer}" if layer else ""
            cell = f"lstm{number}/lstm_cell"
            if config["bidirectional"]:
                cell = f"bidirectional{number}/{direction}_{cell}"
            tensors[cell + "/kernel"] = weights[f"weight_ih_l{layer}{suffix}"].T
            tensors[cell + "/recurrent_kernel"] = weights[f"weight_hh_l{layer}{suffix}"].T
            tensors[cell + "/bias"] = weights[f"bias_ih_l{layer}{suffix}"] + weights[f"bias_hh_l{layer}{suffix}"]
    return tensors


def make(folder, options):
    options = dict(options)
    labels = options.pop("labels", 3)
    config = {"model_type": "recurrent", "cell": "lstm", "layout": "torch", "gate_order": "ifgo",
              "vocab_size": len(WORDS), "embedding_size": 8, "hidden_size": 6, "num_layers": 1,
              "bidirectional": False, "pooling": "last", "max_length": MAX_LENGTH, "pad_token_id": 1} | options
    if labels == 1:
        config |= {"problem_type": "multi_label_classification", "id2label": {"0": "positive"}}
    torch.manual_seed(len(folder.name))
    directions = 1 + config["bidirectional"]
    net = {"embedding": torch.nn.Embedding(len(WORDS), config["embedding_size"]),
           "lstm": torch.nn.LSTM(config["embedding_size"], config["hidden_size"], config["num_layers"],
                                 bias=config.get("bias", True), batch_first=True,
                                 bidirectional=config["bidirectional"]),
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
