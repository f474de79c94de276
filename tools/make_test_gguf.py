#!/usr/bin/env python3
"""Write the GGUF files of tests/data/gguf from the models of tests/data/models.

Usage: make_test_gguf.py [OUT]        (default tests/data/gguf)
Needs gguf, numpy and safetensors; made with gguf 0.19.0. Names, keys and changes are those of llama.cpp's
convert_hf_to_gguf.py for the architecture "bert": the pooler is left out, the position table of RoBERTa loses the rows
before the first position, WordPiece tokens get U+2581 instead of "##".

types.gguf is no model: for each type a tensor of random blocks, named by the type, and "want.TYPE", what gguf
makes of it in float32.
"""
import base64
import json
import re
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import load_file

DATA = Path(__file__).resolve().parent.parent / "tests/data"
BLOCK_TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# Names in the checkpoint, after the prefix of the encoder, and in the file.
NAMES = [
    (r"embeddings\.word_embeddings", "token_embd"),
    (r"embeddings\.position_embeddings", "position_embd"),
    (r"embeddings\.token_type_embeddings", "token_types"),
    (r"embeddings\.LayerNorm", "token_embd_norm"),
    (r"encoder\.layer\.(\d+)\.attention\.self\.query", "blk.{}.attn_q"),
    (r"encoder\.layer\.(\d+)\.attention\.self\.key", "blk.{}.attn_k"),
    (r"encoder\.layer\.(\d+)\.attention\.self\.value", "blk.{}.attn_v"),
    (r"encoder\.layer\.(\d+)\.attention\.output\.dense", "blk.{}.attn_output"),
    (r"encoder\.layer\.(\d+)\.attention\.output\.LayerNorm", "blk.{}.attn_output_norm"),
    (r"encoder\.layer\.(\d+)\.intermediate\.dense", "blk.{}.ffn_up"),
    (r"encoder\.layer\.(\d+)\.output\.dense", "blk.{}.ffn_down"),
    (r"encoder\.layer\.(\d+)\.output\.LayerNorm", "blk.{}.layer_output_norm"),
    (r"transformer\.layer\.(\d+)\.attention\.q_lin", "blk.{}.attn_q"),
    (r"transformer\.layer\.(\d+)\.attention\.k_lin", "blk.{}.attn_k"),
    (r"transformer\.layer\.(\d+)\.attention\.v_lin", "blk.{}.attn_v"),
    (r"transformer\.layer\.(\d+)\.attention\.out_lin", "blk.{}.attn_output"),
    (r"transformer\.layer\.(\d+)\.sa_layer_norm", "blk.{}.attn_output_norm"),
    (r"transformer\.layer\.(\d+)\.ffn\.lin1", "blk.{}.ffn_up"),
    (r"transformer\.layer\.(\d+)\.ffn\.lin2", "blk.{}.ffn_down"),
    (r"transformer\.layer\.(\d+)\.output_layer_norm", "blk.{}.layer_output_norm"),
    (r"classifier\.dense", "cls"),
    (r"classifier\.out_proj", "cls.output"),
]


def file_name(name):
    """The tensor's name in the file; None: it is left out."""
    name = re.sub(r"^(bert|roberta|distilbert)\.", "", name)
    base, _, suffix = name.rpartition(".")
    suffix = {"gamma": "weight", "beta": "bias"}.get(suffix, suffix)
    for pattern, new in NAMES:
        match = re.fullmatch(pattern, base)
        if match and suffix in ("weight", "bias"):
            return f"{new.format(*match.groups())}.{suffix}"
    return None


def add_tensors(writer, tensors, type_name, first_position):
    for name, value in sorted(tensors.items()):
        new = file_name(name)
        if new is None:
            continue
        value = value.astype(np.float32)
        if new == "position_embd.weight":
            value = value[first_position:]
        is_matrix = value.ndim == 2 and not new.startswith(("position_embd", "token_types"))
        if type_name == "F32" or not is_matrix:
            writer.add_tensor(new, value)
        else:
            kind = Type[type_name]
            writer.add_tensor(new, gguf.quants.quantize(value, kind), raw_dtype=kind)


def token_list(tokenizer, n):
    """Texts, types and scores of n ids, from the JSON of tokenizer.json."""
    model, added = tokenizer["model"], {t["id"]: t for t in tokenizer["added_tokens"]}
    is_unigram = model["type"] == "Unigram"
    vocab = dict(enumerate(model["vocab"])) if is_unigram else {i: t for t, i in model["vocab"].items()}
    texts, types, scores = [], [], []
    for i in range(n):
        text = vocab[i][0] if is_unigram and i in vocab else vocab.get(i)
        kind, score = NORMAL, vocab[i][1] if is_unigram and i in vocab else 0.0
        if i in added:
            text, kind = added[i]["content"], CONTROL if added[i]["special"] else USER_DEFINED
            if is_unigram and i == model["unk_id"]:
                kind = UNKNOWN
        elif text is None:
            text, kind, score = f"[PAD{i}]", UNUSED, -10000.0
        elif model.get("byte_fallback") and re.fullmatch("<0x[0-9A-F]{2}>", text):
            kind = BYTE
        elif model["type"] == "WordPiece":
            text = text[2:] if text.startswith("##") else "\u2581" + text
        texts.append(text)
        types.append(kind)
        scores.append(score)
    return texts, types, scores


def find_charsmap(normalizer):
    if not normalizer:
        return None
    if normalizer["type"] == "Precompiled":
        return base64.b64decode(normalizer["precompiled_charsmap"])
    found = [find_charsmap(part) for part in normalizer.get("normalizers", [])]
    return next((one for one in found if one), None)


def add_tokenizer(writer, tokenizer, n, pre):
    texts, types, scores = token_list(tokenizer, n)
    kind = tokenizer["model"]["type"]
    is_llama = kind == "BPE" and tokenizer["model"].get("byte_fallback")
    writer.add_tokenizer_model("llama" if is_llama else {"WordPiece": "bert", "Unigram": "t5", "BPE": "gpt2"}[kind])
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)
    first, last = ("[CLS]", "[SEP]") if kind == "WordPiece" else ("<s>", "</s>")
    writer.add_bos_token_id(texts.index(first))
    writer.add_eos_token_id(texts.index(last))
    writer.add_sep_token_id(texts.index(last))
    for name, add in (("MASK", writer.add_mask_token_id), ("PAD", writer.add_pad_token_id), ("UNK", writer.add_unk_token_id)):
        text = f"[{name}]" if kind == "WordPiece" else f"<{name.lower()}>"
        if text in texts:
            add(texts.index(text))
    if kind == "WordPiece":
        writer.add_bool("tokenizer.ggml.normalizer.lowercase", bool((tokenizer["normalizer"] or {}).get("lowercase")))
    elif kind == "Unigram":
        writer.add_token_scores(scores)
        writer.add_add_space_prefix(True)
        charsmap = find_charsmap(tokenizer["normalizer"])
        if charsmap:
            writer.add_precompiled_charsmap(charsmap)
    elif is_llama:  # tokens are in the order of their scores
        writer.add_token_scores([-float(i) for i in range(len(texts))])
        writer.add_add_space_prefix(False)
    else:
        merges = tokenizer["model"]["merges"]
        writer.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in merges])


def convert(source, out, type_name="F32", pooling="MEAN", pre="default", tokenizer=None, part_tensors=0):
    """Convert a model directory of a BERT, RoBERTa, XLM-RoBERTa or DistilBERT encoder; `tokenizer` is its tokenizer.json
    as JSON; default: tokenizer.json of the directory. `part_tensors`: tensors in each part of a split file; 0: one file."""
    source = Path(source)
    config = json.loads((source / "config.json").read_text())
    tensors = load_file(source / "model.safetensors")
    first = config["pad_token_id"] + 1 if config["model_type"] in ("roberta", "xlm-roberta", "camembert") else 0
    writer = gguf.GGUFWriter(out, "bert", split_max_tensors=part_tensors, small_first_shard=part_tensors > 0)
    writer.add_block_count(config.get("num_hidden_layers", config.get("n_layers")))
    writer.add_context_length(config["max_position_embeddings"] - first)
    writer.add_embedding_length(config.get("hidden_size", config.get("dim")))
    writer.add_feed_forward_length(config.get("intermediate_size", config.get("hidden_dim")))
    writer.add_head_count(config.get("num_attention_heads", config.get("n_heads")))
    writer.add_layer_norm_eps(config.get("layer_norm_eps", 1e-12))
    writer.add_causal_attention(False)
    writer.add_token_type_count(config.get("type_vocab_size", 1))
    if pooling:
        writer.add_pooling_type(gguf.PoolingType[pooling])
    if pooling == "RANK" and config.get("id2label"):
        labels = config["id2label"]
        writer.add_classifier_output_labels([labels[str(i)] for i in range(len(labels))])
    if tokenizer is None and (source / "tokenizer.json").exists():
        tokenizer = json.loads((source / "tokenizer.json").read_text())
    if tokenizer:
        add_tokenizer(writer, tokenizer, config["vocab_size"], pre)
    add_tensors(writer, tensors, type_name, first)
    finish(writer)


def convert_family(source, out, arch):
    """Convert a model directory of another architecture, by gguf's own table of names."""
    config = json.loads((source / "config.json").read_text())
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    names = gguf.get_tensor_name_map(next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == arch), layers)
    writer = gguf.GGUFWriter(out, arch)
    writer.add_block_count(layers)
    writer.add_context_length(config.get("max_position_embeddings", config.get("n_positions")))
    writer.add_embedding_length(config.get("hidden_size", config.get("n_embd")))
    writer.add_feed_forward_length(config.get("intermediate_size", config.get("n_inner")))
    writer.add_head_count(config.get("num_attention_heads", config.get("n_head")))
    rope = config.get("rope_parameters") or {}
    base = rope.get("full_attention", rope).get("rope_theta") or config.get("rope_theta", config.get("rotary_emb_base"))
    if base:
        writer.add_rope_freq_base(float(base))
    if "rms_norm_eps" in config:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(config["head_dim"])
    else:
        writer.add_layer_norm_eps(config.get("norm_eps", config.get("layer_norm_epsilon", config.get("layer_norm_eps"))))
        writer.add_causal_attention(False)
    if "sliding_attention" in rope:
        writer.add_float32(f"{arch}.rope.freq_base_swa", rope["sliding_attention"]["rope_theta"])
        writer.add_sliding_window(config.get("local_attention", config.get("sliding_window")))
        writer.add_sliding_window_pattern(3)
    writer.add_pooling_type(gguf.PoolingType.LAST if arch == "qwen3" else gguf.PoolingType.MEAN)
    for name, value in sorted(load_file(source / "model.safetensors").items()):
        name = re.sub(r"^model\.", "", name)
        new = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if new is None or new.startswith(("output.", "cls.")):
            continue
        value = value.astype(np.float32)
        writer.add_tensor(new, value + np.float32(1) if "gemma" in arch and new.endswith("norm.weight") else value)
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_types(out):
    random = np.random.default_rng(7)
    writer = gguf.GGUFWriter(out, "bert")
    for name in BLOCK_TYPES:
        kind = Type[name]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        rows, blocks = 2, 512 // block
        raw = random.integers(0, 256, (rows, blocks, size), dtype=np.uint8)
        scales = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2),
                  "Q6_K": (208,)}.get(name, (0,))
        for at in scales:  # random bits would be infinite at times; float16 subnormals stay among them
            values = random.standard_normal((rows, blocks)) * 10.0 ** random.integers(-7, 2, (rows, blocks))
            raw[:, :, at:at + 2] = values.astype(np.float16).view(np.uint8).reshape(rows, blocks, 2)
        raw = raw.reshape(rows, -1)
        writer.add_tensor(name, raw, raw_dtype=kind)
        writer.add_tensor(f"want.{name}", gguf.quants.dequantize(raw, kind))
    finish(writer)


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "gguf"
    out.mkdir(parents=True, exist_ok=True)
    models = DATA / "models"
    make_types(out / "types.gguf")
    for type_name in ("F32", "F16", "Q8_0", "Q4_0"):
        convert(models / "bert-pairs", out / f"bert-{type_name.lower()}.gguf", type_name)
    convert(models / "bert-pairs", out / "bert-split.gguf", "Q8_0", part_tensors=20)
    convert(models / "bert", out / "bert-cls.gguf", pooling="CLS")
    convert(models / "roberta", out / "roberta-none.gguf", pooling=None)
    convert(models / "st-xlm-roberta", out / "xlm-roberta.gguf", "F32", "MEAN")
    convert_family(models / "nomic-bert-hub", out / "nomic-bert.gguf", "nomic-bert")
    convert_family(models / "jina-v2-hub", out / "jina-bert-v2.gguf", "jina-bert-v2")
    convert_family(models / "modernbert", out / "modern-bert.gguf", "modern-bert")
    convert_family(models / "qwen3-embedding", out / "qwen3.gguf", "qwen3")
    convert_family(models / "gemma3-bidirectional", out / "gemma-embedding.gguf", "gemma-embedding")
    convert(models / "xlm-roberta-single", out / "xlm-roberta-rank.gguf", pooling="RANK")


if __name__ == "__main__":
    main()
