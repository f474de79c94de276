#!/usr/bin/env python3
"""Write tests/data/models/roberta-tokens and deberta-v3-entities, small token classifiers with byte-level BPE and Unigram, and
aggregations.json of them and of bert-tokens: the entities that transformers' pipeline finds in float64 with each aggregation strategy.

Usage: make_aggregations.py [MODELS]        (default tests/data/models)
Needs torch and transformers; made with 2.15 and 5.23.
"""
import json
import os
import shutil
import sys
import warnings

import torch
import transformers as tf

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../tests/data/models")
STRATEGIES = ("none", "simple", "first", "average", "max")
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC"]
TEXTS = ["A cat sat on the mat.", "  two spaces  and\ta tab\n", "It's what they'd call 1234 times 56!", "na\u00efve caf\u00e9 \U0001f600",
         "don't   stop the cats", "they call the cat", "left right", "."]


def make_roberta():
    source, folder = os.path.join(MODELS, "roberta-texts"), os.path.join(MODELS, "roberta-tokens")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    shutil.copy(os.path.join(source, "tokenizer.json"), folder)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>",
                   "pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>"}, f, indent=1)
    torch.manual_seed(5)
    vocab = len(tf.PreTrainedTokenizerFast.from_pretrained(folder))
    config = tf.RobertaConfig(vocab_size=vocab, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                              max_position_embeddings=66, type_vocab_size=1, pad_token_id=1, initializer_range=0.5,
                              id2label=dict(enumerate(LABELS)), label2id={label: i for i, label in enumerate(LABELS)})
    model = tf.RobertaForTokenClassification(config)
    model.save_pretrained(folder)
    return folder


def make_deberta():
    folder = os.path.join(MODELS, "deberta-v3-entities")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    shutil.copy(os.path.join(MODELS, "../tokenizers/family-deberta-v2-newer/tokenizer.json"), folder)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]",
                   "sep_token": "[SEP]", "mask_token": "[MASK]"}, f, indent=1)
    torch.manual_seed(6)
    vocab = len(tf.PreTrainedTokenizerFast.from_pretrained(folder))
    config = tf.DebertaV2Config(
        vocab_size=vocab, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_position_embeddings=128,
        relative_attention=True, pos_att_type=["p2c", "c2p"], share_att_key=True, norm_rel_ebd="layer_norm", position_buckets=8,
        position_biased_input=False, type_vocab_size=0, max_relative_positions=-1, initializer_range=0.5,
        id2label=dict(enumerate(LABELS)), label2id={label: i for i, label in enumerate(LABELS)})
    tf.DebertaV2ForTokenClassification(config).save_pretrained(folder)
    return folder


def entities(folder, tokenizer, texts):
    pipeline = tf.pipeline("token-classification", model=folder, tokenizer=tokenizer, dtype=torch.float64, ignore_labels=[])
    for text in texts:
        row = {"text": text}
        for strategy in STRATEGIES:
            row[strategy] = [{**one, "score": float(one["score"])} for one in pipeline(text, aggregation_strategy=strategy)]
        yield row


def write(folder, tokenizer, texts):
    with open(os.path.join(folder, "aggregations.json"), "w") as f:
        json.dump(list(entities(folder, tokenizer, texts)), f)
        f.write("\n")


warnings.simplefilter("ignore")
roberta = make_roberta()
deberta = make_deberta()
write(deberta, tf.PreTrainedTokenizerFast.from_pretrained(deberta), TEXTS)
write(roberta, tf.PreTrainedTokenizerFast.from_pretrained(roberta), TEXTS)
bert = os.path.join(MODELS, "bert-tokens")
with open(os.path.join(bert, "entities.json")) as f:
    short = [row["text"] for row in json.load(f) if row["text"].strip() and len(row["ids"]) < 40]
write(bert, tf.BertTokenizerFast.from_pretrained(bert), short)
