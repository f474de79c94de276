#!/usr/bin/env python3
"""Lists the fields of transformers' configuration classes that no family reader mentions.

An ignored field that changes the result makes another model without a message. Each field of a supported
model type is therefore read or refused in lib/model/families (its name is a string there), or listed below
with the reason why it has no effect on what the encoder and its heads compute.

    python3 tools/check_config_fields.py        (needs transformers 5.23.0)

Exits with 1 if a field is in neither place, or if the list has a field that no class has.
"""
import dataclasses
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "lib/model").glob("*.c")) + sorted((ROOT / "lib/model/families").glob("*.c"))

TRAINING = "training only"
TOKENS = "an id that no layer reads: the tokenizer adds the tokens"
GENERATION = "generation only"
DECODER = "of the decoder"
NO_EFFECT = {
    "attention_dropout": TRAINING, "attention_probs_dropout_prob": TRAINING, "classifier_dropout": TRAINING,
    "classifier_dropout_prob": TRAINING, "dropout": TRAINING, "dropout_rate": TRAINING,
    "embedding_dropout": TRAINING, "hidden_dropout_prob": TRAINING, "mlp_dropout": TRAINING,
    "pooler_dropout": TRAINING, "qa_dropout": TRAINING, "seq_classif_dropout": TRAINING,
    "summary_last_dropout": TRAINING, "initializer_cutoff_factor": TRAINING, "initializer_factor": TRAINING,
    "initializer_range": TRAINING, "sparse_pred_ignore_index": TRAINING, "sparse_prediction": TRAINING,
    "deterministic_flash_attn": TRAINING, "activation_dropout": TRAINING, "encoder_layerdrop": TRAINING,
    "decoder_layerdrop": TRAINING, "init_std": TRAINING,
    "bos_token_id": TOKENS, "cls_token_id": TOKENS, "mask_token_id": TOKENS, "sep_token_id": TOKENS,
    "use_cache": GENERATION, "forced_eos_token_id": GENERATION, "pretraining_tp": "not read by the class any more",
    "decoder_start_token_id": DECODER, "num_decoder_layers": DECODER,
    "tie_word_embeddings": "the file has the decoder's tensor if it is not tied",
    "output_embedding_size": "the shape of the decoder's tensor is checked",
    "task_type_vocab_size": "the first row of the table is read",
    "classifier_bias": "the tensor is read if it is in the file",
    "decoder_bias": "the tensor is read if it is in the file",
    "legacy": "the head's tensors have other names: they are looked up by the legacy ones",
    "onnx_export": "not read by the class any more",
    "sinusoidal_pos_embds": "the file holds the table",
    "summary_activation": "of multiple choice", "summary_type": "of multiple choice",
    "summary_use_proj": "of multiple choice",
}


def strings():
    """The names inside the string literals of the readers."""
    found = set()
    for path in SOURCES:
        for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', path.read_text()):
            found.update(text.split("|"))
            found.update(re.findall(r'\\"(\w+)\\"', text))
    return found


def model_types():
    """The model types of the table of families."""
    found = set()
    for path in SOURCES:
        for names in re.findall(r"\.model_types = GSV_NAME_LIST\(([^)]*)\)", path.read_text()):
            found.update(re.findall(r'"([^"]+)"', names))
    return sorted(found)


def fields(config_class, base):
    """The names that a configuration class has beyond the base class."""
    if dataclasses.is_dataclass(config_class):
        names = {field.name for field in dataclasses.fields(config_class)}
    else:
        names = set(config_class().to_dict())
    return names - base - {"model_type"}


def main():
    from transformers import CONFIG_MAPPING, PretrainedConfig

    base = fields(PretrainedConfig, set())
    read, seen, missing, classes = strings(), set(), 0, 0
    for model_type in model_types():
        if model_type not in CONFIG_MAPPING:
            print(f"{model_type}: transformers has no class")
            continue
        names = fields(CONFIG_MAPPING[model_type], base)
        classes += 1
        seen |= names
        for name in sorted(names - read - set(NO_EFFECT)):
            print(f"{model_type}: \"{name}\" is neither read, refused nor listed as without effect")
            missing += 1
    for name in sorted(set(NO_EFFECT) - seen):
        print(f"\"{name}\" is listed, but no class has it")
        missing += 1
    print(f"{classes} classes, {len(seen)} fields, {missing} unknown")
    return missing > 0


if __name__ == "__main__":
    sys.exit(main())
