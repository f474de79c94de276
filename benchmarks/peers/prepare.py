#!/usr/bin/env python3
"""Convert all-MiniLM-L6-v2 once into what each peer reads: prepare.py MODEL REVIEWS_CSV OUT

    model.onnx         exported by torch       fused.onnx   ONNX Runtime's own fusions, fp32
    int8.onnx          ONNX Runtime, dynamic   fp32.xml     OpenVINO's format
    int8.xml           NNCF, static            ctranslate2/ its converter's output
    fastembed/         model.onnx with the tokenizer's files
    texts.json         the workloads           reference.npy  W2 by sentence-transformers, fp32

OUT appears whole, by a rename. Everything is local: no model hub is asked.
"""
import json
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import numpy as np                                                              # noqa: E402
from tokenizers import Tokenizer                                                # noqa: E402

import workloads                                                                # noqa: E402
from engines.common import pad                                                  # noqa: E402

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
N_CALIBRATION = 200


def untruncated_tokenizer(model):
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def export_onnx(model, out):
    import torch
    from transformers import AutoModel

    class LastHidden(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, input_ids, attention_mask, token_type_ids):
            return self.inner(input_ids=input_ids, attention_mask=attention_mask,
                              token_type_ids=token_type_ids).last_hidden_state

    # Eager attention exports as the pattern that ONNX Runtime's fusion knows.
    inner = AutoModel.from_pretrained(model, attn_implementation="eager").eval()
    ids = torch.ones(2, 8, dtype=torch.long)
    torch.onnx.export(LastHidden(inner), (ids, ids, torch.zeros_like(ids)), str(out / "model.onnx"),
                      input_names=list(INPUTS), output_names=["last_hidden_state"],
                      dynamic_axes={name: {0: "batch", 1: "width"}
                                    for name in (*INPUTS, "last_hidden_state")},
                      opset_version=17, dynamo=False)


def make_onnxruntime(model, out):
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer

    config = json.loads((model / "config.json").read_text())
    fused = optimizer.optimize_model(str(out / "model.onnx"), model_type="bert", opt_level=1,
                                     num_heads=config["num_attention_heads"],
                                     hidden_size=config["hidden_size"])
    counts = fused.get_fused_operator_statistics()
    if counts["Attention"] != config["num_hidden_layers"]:
        raise SystemExit(f"ONNX Runtime fused only {counts}")
    fused.save_model_to_file(str(out / "fused.onnx"))
    quantize_dynamic(out / "fused.onnx", out / "int8.onnx", per_channel=True,
                     weight_type=QuantType.QInt8,
                     extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
    (out / "fastembed").mkdir()
    os.link(out / "model.onnx", out / "fastembed" / "model.onnx")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json",
                 "special_tokens_map.json"):
        shutil.copy(model / name, out / "fastembed" / name)


def make_openvino(out, tokenizer, texts):
    import nncf
    import openvino as ov

    plain = ov.convert_model(out / "model.onnx")
    ov.save_model(plain, out / "fp32.xml", compress_to_fp16=False)
    tokenizer.enable_truncation(workloads.MAX_TOKENS)

    def feed(text):
        ids, mask = pad([tokenizer.encode(text).ids])
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}

    quantized = nncf.quantize(plain, nncf.Dataset(texts[:N_CALIBRATION], feed),
                              model_type=nncf.ModelType.TRANSFORMER, subset_size=N_CALIBRATION)
    ov.save_model(quantized, out / "int8.xml", compress_to_fp16=False)


def make_ctranslate2(model, out):
    import ctranslate2

    ctranslate2.converters.TransformersConverter(str(model)).convert(str(out / "ctranslate2"))


def make_reference(model, out, texts):
    from sentence_transformers import SentenceTransformer

    vectors = SentenceTransformer(str(model), device="cpu").encode(
        texts, batch_size=16, normalize_embeddings=True, show_progress_bar=False)
    np.save(out / "reference.npy", vectors)


def main():
    model, reviews, target = map(Path, sys.argv[1:4])
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        out = Path(scratch) / "made"
        out.mkdir()
        texts = workloads.make_workloads(reviews, untruncated_tokenizer(model))
        (out / "texts.json").write_text(json.dumps(texts), "utf-8")
        for step, make in (
                ("ONNX", lambda: export_onnx(model, out)),
                ("ONNX Runtime", lambda: make_onnxruntime(model, out)),
                ("OpenVINO", lambda: make_openvino(out, untruncated_tokenizer(model),
                                                   texts["tune"])),
                ("CTranslate2", lambda: make_ctranslate2(model, out)),
                ("reference vectors", lambda: make_reference(model, out, texts["w2"]))):
            print(f"==> preparing {step}", file=sys.stderr)
            make()
        os.rename(out, target)


if __name__ == "__main__":
    main()
