#!/usr/bin/env python3
"""Convert a model once into what each peer reads: prepare.py NAME MODEL REVIEWS_CSV OUT

    model.onnx         exported by torch       fused.onnx   ONNX Runtime's own fusions, fp32
    int8.onnx          ONNX Runtime, dynamic   fp32.xml     OpenVINO's format
    int8.xml           NNCF, static            ctranslate2/ its converter's output
    fastembed/         model.onnx with the tokenizer's files
    texts.json         the workloads           reference.npy  W2 by sentence-transformers, fp32
    facts.json         what the engines need to know of the model, and conversions that failed

A conversion that fails is a peer that cannot run the model, and the report names it with the reason;
of all-MiniLM-L6-v2 every one must succeed. OUT appears whole, by a rename. Everything is local: no
model hub is asked.
"""
import inspect
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
from engines import DEFAULT_MODEL                                               # noqa: E402
from engines.common import inputs_of                                            # noqa: E402

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
N_CALIBRATION = 200


def untruncated_tokenizer(model):
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def pooling_of(model):
    """From the second module's configuration, in the older form or the newer."""
    path = model / "1_Pooling" / "config.json"
    config = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if config.get("pooling_mode_cls_token") or config.get("pooling_mode") == "cls":
        return "cls"
    if config.get("pooling_mode_lasttoken") or config.get("pooling_mode") == "lasttoken":
        return "lasttoken"
    return "mean"


def inputs_taken(inner):
    """The inputs of the exported graph, in order."""
    taken = inspect.signature(inner.forward).parameters
    return [name for name in INPUTS if name in taken and
            (name != "token_type_ids" or getattr(inner.config, "type_vocab_size", 0))]


def load_transformer(model):
    import torch
    from transformers import AutoModel

    # Eager attention exports as the pattern that ONNX Runtime's fusion knows.
    return AutoModel.from_pretrained(model, attn_implementation="eager", dtype=torch.float32).eval()


def export_onnx(inner, names, out):
    import torch

    class LastHidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, *values):
            return self.inner(**dict(zip(names, values))).last_hidden_state

    ids = torch.ones(2, 8, dtype=torch.long)
    values = {"input_ids": ids, "attention_mask": ids, "token_type_ids": torch.zeros_like(ids)}
    torch.onnx.export(LastHidden(), tuple(values[name] for name in names), str(out / "model.onnx"),
                      input_names=names, output_names=["last_hidden_state"],
                      dynamic_axes={name: {0: "batch", 1: "width"}
                                    for name in (*names, "last_hidden_state")},
                      opset_version=17, dynamo=False)


def make_onnxruntime(name, config, out):
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer

    fused = optimizer.optimize_model(str(out / "model.onnx"), model_type="bert", opt_level=1,
                                     num_heads=config["num_attention_heads"],
                                     hidden_size=config["hidden_size"])
    counts = fused.get_fused_operator_statistics()
    if name == DEFAULT_MODEL and counts["Attention"] != config["num_hidden_layers"]:
        raise ValueError(f"ONNX Runtime fused only {counts}")
    fused.save_model_to_file(str(out / "fused.onnx"))
    quantize_dynamic(out / "fused.onnx", out / "int8.onnx", per_channel=True,
                     weight_type=QuantType.QInt8,
                     extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
    return {key: count for key, count in counts.items() if count}


def make_fastembed(model, out):
    (out / "fastembed").mkdir()
    os.link(out / "model.onnx", out / "fastembed" / "model.onnx")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json",
                 "special_tokens_map.json"):
        shutil.copy(model / name, out / "fastembed" / name)


def make_openvino_fp32(out):
    import openvino as ov

    ov.save_model(ov.convert_model(out / "model.onnx"), out / "fp32.xml", compress_to_fp16=False)


def make_openvino_int8(out, facts, tokenizer, texts):
    import nncf
    import openvino as ov

    tokenizer.enable_truncation(workloads.MAX_TOKENS)

    def feed(text):
        return inputs_of(facts, [tokenizer.encode(text).ids])

    quantized = nncf.quantize(ov.convert_model(out / "model.onnx"), nncf.Dataset(texts[:N_CALIBRATION], feed),
                              model_type=nncf.ModelType.TRANSFORMER, subset_size=N_CALIBRATION)
    ov.save_model(quantized, out / "int8.xml", compress_to_fp16=False)


def make_ctranslate2(model, out):
    import ctranslate2

    ctranslate2.converters.TransformersConverter(str(model)).convert(str(out / "ctranslate2"))


def make_reference(model, out, texts):
    import torch
    from sentence_transformers import SentenceTransformer

    # Without a dtype transformers computes in that of the file.
    vectors = SentenceTransformer(str(model), device="cpu", model_kwargs={"dtype": torch.float32}).encode(
        texts, batch_size=16, normalize_embeddings=True, show_progress_bar=False)
    np.save(out / "reference.npy", vectors)


def convert(name, model, out, config, texts):
    """Every peer's files; the facts."""
    inner = load_transformer(model)
    facts = {"model": name, "config": config, "inputs": inputs_taken(inner), "pooling": pooling_of(model),
             "pad_id": config.get("pad_token_id") or 0, "failed": {}}
    steps = (
        (("model.onnx",), lambda: export_onnx(inner, facts["inputs"], out)),
        (("fused.onnx", "int8.onnx"), lambda: make_onnxruntime(name, config, out)),
        (("fastembed",), lambda: make_fastembed(model, out)),
        (("fp32.xml",), lambda: make_openvino_fp32(out)),
        (("int8.xml",), lambda: make_openvino_int8(out, facts, untruncated_tokenizer(model),
                                                   texts["tune"])),
        (("ctranslate2",), lambda: make_ctranslate2(model, out)))
    for names, make in steps:
        print(f"==> preparing {', '.join(names)}", file=sys.stderr)
        try:
            facts[names[0]] = make()
        except Exception as error:  # the peer's own: what it cannot convert it cannot run
            if name == DEFAULT_MODEL:
                raise
            first = (str(error).strip().splitlines() or [""])[0]
            facts["failed"].update(dict.fromkeys(names, f"{type(error).__name__}: {first[:200]}"))
    return facts


def main():
    name, model, reviews, target = sys.argv[1], *map(Path, sys.argv[2:5])
    config = json.loads((model / "config.json").read_text("utf-8"))
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        out = Path(scratch) / "made"
        out.mkdir()
        print("==> preparing texts and reference vectors", file=sys.stderr)
        texts = workloads.make_workloads(reviews, untruncated_tokenizer(model), workloads.w2_texts(config))
        (out / "texts.json").write_text(json.dumps(texts), "utf-8")
        make_reference(model, out, texts["w2"])
        facts = convert(name, model, out, config, texts)
        (out / "facts.json").write_text(json.dumps(facts, indent=1), "utf-8")
        os.rename(out, target)


if __name__ == "__main__":
    main()
