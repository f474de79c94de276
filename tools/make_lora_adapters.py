#!/usr/bin/env python3
"""Write tests/data/lora: LoRA adapters with random weights in PEFT's format, for two models of tests/data/models, and
what PEFT and transformers compute with them in float64.

Usage: make_lora_adapters.py [OUT]      (default tests/data/lora)
Needs torch, transformers and peft; made with 2.15, 5.23 and 0.21.2. expected.json has the normalized
embeddings or the logits; `ids` are the token ids with special tokens.
"""
import json
import os
import shutil
import sys

import torch
import transformers as tf
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../tests/data/lora")
MODELS = os.path.join(HERE, "../tests/data/models")
TEXT, PAIRS, TOKENS = tf.AutoModel, tf.AutoModelForSequenceClassification, tf.AutoModelForTokenClassification
ADAPTERS = {  # name: base, class, arguments of the class, those of LoraConfig
    "attention": ("bert", TEXT, {}, {"task_type": "FEATURE_EXTRACTION", "r": 4, "lora_alpha": 8, "target_modules": ["query", "value"]}),
    "all": ("bert", TEXT, {}, {
        "r": 3, "lora_alpha": 6, "use_rslora": True, "bias": "lora_only",
        "target_modules": ["query", "key", "value", "dense", "word_embeddings"],
        "rank_pattern": {"intermediate.dense": 5}, "alpha_pattern": {"layer.1.attention.self.key": 24}}),
    "words": ("bert", TEXT, {}, {"r": 5, "target_modules": ["query", "value", "dense", "word_embeddings"]}),
    "modern": ("modernbert", TEXT, {}, {"r": 2, "lora_alpha": 6, "target_modules": ["Wqkv", "Wi", "Wo"]}),
    "relative": ("deberta-v3", TEXT, {}, {"r": 2, "target_modules": ["query_proj", "key_proj"]}),
    "classes": ("bert", PAIRS, {"num_labels": 3}, {"task_type": "SEQ_CLS", "r": 2, "target_modules": ["query", "key"]}),
    "tokens": ("bert", TOKENS, {"num_labels": 4}, {"task_type": "TOKEN_CLS", "r": 2, "target_modules": ["query", "dense"]}),
    "decoder": ("qwen3", TEXT, {}, {"r": 4, "lora_alpha": 4, "target_modules": "all-linear"}),
}
IDS = [[2, 11, 12, 13, 3], [2, 40, 3], [2, *range(10, 40), 3]]  # of a vocabulary [PAD] [UNK] [CLS] [SEP] [MASK] w5 w6 ...


def compute(model, ids):
    with torch.no_grad():
        output = model(input_ids=torch.tensor([ids]))
    if "logits" in output:
        return output.logits[0]
    rows = output.last_hidden_state[0]
    kind = type(model.get_base_model()).__name__
    row = rows.mean(0) if "Bert" == kind[:4] else rows[-1] if "Qwen" in kind else rows[0]  # as its module Pooling says
    return torch.nn.functional.normalize(row, dim=0)


def main():
    torch.manual_seed(20)
    shutil.rmtree(OUT, ignore_errors=True)
    expected = {}
    for name, (base, kind, arguments, options) in ADAPTERS.items():
        folder = os.path.join(OUT, name)
        start = kind.from_pretrained(os.path.join(MODELS, base), **arguments)
        model = get_peft_model(start, LoraConfig(**options))
        for key, weight in model.named_parameters():
            if weight.requires_grad:
                torch.nn.init.normal_(weight, std=0.3 if "lora_" in key else 0.5)
        model.save_pretrained(folder, save_embedding_layers=False)
        os.remove(os.path.join(folder, "README.md"))
        if name == "modern":  # older versions of PEFT wrote a pickle
            path = os.path.join(folder, "adapter_model.safetensors")
            torch.save(load_file(path), os.path.join(folder, "adapter_model.bin"))
            os.remove(path)
        # As a user does it: the base, and the adapter on it.
        start = kind.from_pretrained(os.path.join(MODELS, base), **arguments).double()
        model = PeftModel.from_pretrained(start, folder, autocast_adapter_dtype=False).double().eval()
        expected[name] = {"base": base, "ids": IDS, "output": [compute(model, ids).tolist() for ids in IDS]}
        path = os.path.join(folder, "adapter_config.json")
        with open(path) as file:
            config = json.load(file)
        config["base_model_name_or_path"] = "org/" + base
        if isinstance(config["target_modules"], list):
            config["target_modules"].sort()
        with open(path, "w") as file:
            json.dump(config, file, indent=1, sort_keys=True)
            file.write("\n")
    with open(os.path.join(OUT, "expected.json"), "w") as file:
        json.dump(expected, file)
        file.write("\n")


main()
