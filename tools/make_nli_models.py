#!/usr/bin/env python3
"""Write tests/data/nli: a small DeBERTa-v3 and a small BART with random weights that classify pairs by entailment, their
tokenizers, and the scores of transformers' zero-shot-classification pipeline in float64 (expected.json).

Usage: make_nli_models.py [OUT]      (default tests/data/nli)
Needs torch and transformers; made with 2.15 and 5.23.
"""
import json
import os
import shutil
import sys

import torch
import transformers as tf

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "make_family_models"))
from reference import in_double, randomize  # noqa: E402

torch.set_grad_enabled(False)
OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../tests/data/nli")
TOKENIZERS = os.path.join(HERE, "../tests/data/tokenizers")
MAX_TOKENS = 64
#: Names and order of the labels in published models; the tests write them into config.json.
ORDERS = {"first": ["entailment", "neutral", "contradiction"],  # DeBERTa-v3-base-mnli-fever-anli
          "last": ["CONTRADICTION", "NEUTRAL", "ENTAILMENT"],  # bart-large-mnli, deberta-large-mnli
          "middle": ["contradiction", "entailment", "neutral"]}  # cross-encoder/nli-deberta-v3-base
TEXTS = ["Hello world, the phones are wonderful", "a man is eating bread", "naïve café 中文 \n x",
         "this is a sentence about the things of the day and the night " * 6]
LABELS = ["food", "things", "the night time", "ü"]
TEMPLATES = ["This example is {}.", "{} is the {} subject"]


#: The orders of each model, and texts beside those of all. BART's classifier reads the last end token.
MODELS = {"deberta-v3": (ORDERS, []), "bart": (["last"], ["ends </s> here", "</s>"])}


def asked(more):
    for text in TEXTS + more:
        for template in TEMPLATES:
            for multi_label in (False, True):
                yield text, LABELS, template, multi_label
    yield TEXTS[0], LABELS[:1], TEMPLATES[0], False
    yield TEXTS[0], LABELS[:2], TEMPLATES[0], False


def scores(model, tokenizer, text, labels, template, multi_label):
    """The pipeline fills every {} of a template: here only the first one is the label's."""
    filled = template.replace("{}", "{0}", 1).replace("{}", "{{}}")
    pipe = tf.pipeline("zero-shot-classification", model=model, tokenizer=tokenizer)
    found = pipe(text, labels, hypothesis_template=filled, multi_label=multi_label)
    of = dict(zip(found["labels"], found["scores"]))
    return [of[label] for label in labels]


def copy_files(name, folder, files, config):
    for file in files:
        shutil.copy(os.path.join(TOKENIZERS, name, file), folder)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"model_max_length": MAX_TOKENS, **config}, f, indent=1)


def deberta(folder):
    name = "family-deberta-v2-newer"
    copy_files(name, folder, ["tokenizer.json"], {"tokenizer_class": "DebertaV2TokenizerFast"})
    tokenizer = tf.PreTrainedTokenizerFast(tokenizer_file=os.path.join(TOKENIZERS, name, "tokenizer.json"), cls_token="[CLS]",
                                           sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]",
                                           model_max_length=MAX_TOKENS)
    config = tf.DebertaV2Config(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=MAX_TOKENS, relative_attention=True, pos_att_type=["p2c", "c2p"], share_att_key=True,
        norm_rel_ebd="layer_norm", position_buckets=8, position_biased_input=False, type_vocab_size=0, max_relative_positions=-1,
        pooler_hidden_size=16, id2label=dict(enumerate(ORDERS["first"])), problem_type="single_label_classification")
    return tf.DebertaV2ForSequenceClassification, config, tokenizer


def bart(folder):
    """Without tokenizer.json, and without the name of the class, as in facebook/bart-large-mnli's first files."""
    copy_files("roberta-added", folder, ["vocab.json", "merges.txt"], {})
    tokenizer = tf.BartTokenizer.from_pretrained(folder)
    config = tf.BartConfig(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=MAX_TOKENS, pad_token_id=1, bos_token_id=0, eos_token_id=2,
        decoder_start_token_id=2, forced_eos_token_id=2, id2label=dict(enumerate(ORDERS["last"])))
    return tf.BartForSequenceClassification, config, tokenizer


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    rows = []
    for name, describe in (("deberta-v3", deberta), ("bart", bart)):
        folder = os.path.join(OUT, name)
        os.makedirs(folder)
        make, config, tokenizer = describe(folder)
        model = randomize(make(config), 77)
        model.save_pretrained(folder)
        exact = in_double(make, config, {k: v.clone() for k, v in model.state_dict().items()})
        orders, more = MODELS[name]
        for order in orders:
            exact.config.id2label = dict(enumerate(ORDERS[order]))
            exact.config.label2id = {label: i for i, label in enumerate(ORDERS[order])}
            rows += [{"model": name, "order": order, "text": text, "labels": labels, "template": template, "multi_label": multi_label,
                      "scores": scores(exact, tokenizer, text, labels, template, multi_label)}
                     for text, labels, template, multi_label in asked(more)]
    with open(os.path.join(OUT, "expected.json"), "w") as f:
        json.dump({"orders": ORDERS, "rows": rows}, f, ensure_ascii=False, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
