#!/usr/bin/env python3
"""Writes tests/data/gguf/llama.safetensors: what llama.cpp computes from the GGUF files of tests/data/gguf.

    python3 tools/compare_llama.py [--check] tests/data/gguf

Needs xllamacpp (2026.10.11549 holds llama.cpp), numpy and safetensors. The texts are token ids. Each vector has length
1. llama.cpp needs more keys than our files have: a copy has them. --check compares with the file in place of writing.
tests/model/test_model_gguf.c compares our vectors with the stored ones: the same file means the same model to both.
"""
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np
import xllamacpp
from safetensors.numpy import load_file, save_file

STRING, UINT32 = 8, 4
LENGTHS = (1, 2, 7, 16, 32, 5)
FIRST, VOCABULARY = 6, 48  # ids that are tokens of every file
# Files with embeddings, and the keys that llama.cpp needs in addition.
NO_VOCABULARY = {"tokenizer.ggml.model": "no_vocab"}
FILES = {
    "bert-f32": {}, "bert-f16": {}, "bert-q8_0": {}, "bert-q4_0": {}, "xlm-roberta": {},
    "bert-cls": {**NO_VOCABULARY, "bert.vocab_size": 96},
    "nomic-bert": {**NO_VOCABULARY, "nomic-bert.vocab_size": 48, "tokenizer.ggml.token_type_count": 2},
    "jina-bert-v2": {**NO_VOCABULARY, "jina-bert-v2.vocab_size": 48, "tokenizer.ggml.token_type_count": 2},
    "modern-bert": {**NO_VOCABULARY, "modern-bert.vocab_size": 48},
    "qwen3": {**NO_VOCABULARY, "qwen3.vocab_size": 48, "qwen3.attention.value_length": 16},
    "gemma-embedding": {**NO_VOCABULARY, "gemma-embedding.vocab_size": 48},
}


def key_values(keys):
    out = b""
    for key, value in keys.items():
        out += struct.pack("<Q", len(key)) + key.encode()
        if isinstance(value, str):
            out += struct.pack("<IQ", STRING, len(value)) + value.encode()
        else:
            out += struct.pack("<II", UINT32, value)
    return out


def with_keys(file, keys):
    """The file with more keys. Its tensors keep their alignment: a last key fills 32 bytes up."""
    (n_values,) = struct.unpack_from("<Q", file, 16)
    size = len(key_values({**keys, "filler": ""}))
    added = key_values({**keys, "filler": "." * (-size % 32)})
    return file[:16] + struct.pack("<Q", n_values + len(keys) + 1) + added + file[24:]


def texts():
    generator = np.random.default_rng(1)
    return [generator.integers(FIRST, VOCABULARY, n).tolist() for n in LENGTHS]


def embed(path, rows):
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.embedding = True
    params.n_ctx = params.n_batch = params.n_ubatch = 128
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.embd_normalize = 2
    params.warmup = False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)
    vectors = [server.handle_embeddings({"input": [ids], "model": "x"})["data"][0]["embedding"] for ids in rows]
    return np.array(vectors, np.float64)


def main():
    arguments = [one for one in sys.argv[1:] if one != "--check"]
    folder = Path(arguments[0])
    out, rows = folder / "llama.safetensors", texts()
    found = {"ids": np.concatenate(rows).astype(np.int32), "n_tokens": np.array(LENGTHS, np.int32)}
    with tempfile.TemporaryDirectory() as temporary:
        for name, keys in FILES.items():
            file = (folder / f"{name}.gguf").read_bytes()
            path = Path(temporary) / f"{name}.gguf"
            path.write_bytes(with_keys(file, keys) if keys else file)
            found[name] = embed(path, rows)
    if "--check" in sys.argv[1:]:
        stored = load_file(out)
        worst = max(float(np.abs(found[name] - stored[name]).max()) for name in found)
        print(f"largest difference to {out}: {worst:.1e}")
        return worst > 1e-5
    save_file(found, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
