#!/usr/bin/env python3
"""Check the direction of includes between folders.

    text -> base    model -> text, base, kernels.h    runtime -> all of them
    kernels -> base, the backend ABI, never a model
    http, cli, examples -> only <gpuserve/*.h> and themselves; of base http takes the plain helpers,
                           cli the one that writes floats
    lib and the public headers -> never a CUDA header

RULES is a folder and what its files may include of this repository; headers of other packages
are free, except CUDA's. LAYERS is the order of the folders of a tree; an include never goes up.
Tests, benchmarks and fuzz targets see everything. Prints each violation
and "N passed, N failed", counted in includes.
"""
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = tuple(f"include/gpuserve/{name}.h" for name in ("compute", "context", "convert", "devices", "entities", "gpuserve",
                                                         "long_texts", "model", "retrieval", "run", "tokenizer", "types"))
BACKEND = "include/gpuserve/sys/"

# The longest folder that matches a file decides. An entry that ends in / allows the folder.
RULES = {
    "include/gpuserve/": [*PUBLIC],
    "include/gpuserve/sys/": [*PUBLIC, BACKEND],
    "lib/base/": [*PUBLIC, "lib/base/"],
    "lib/text/": [*PUBLIC, "lib/base/", "lib/text/"],
    "lib/model/": [*PUBLIC, BACKEND, "lib/base/", "lib/text/", "lib/model/", "kernels/kernels.h"],
    "lib/": [*PUBLIC, BACKEND, "lib/base/", "lib/text/", "lib/model/", "lib/", "kernels/kernels.h"],
    "lib/http/": [*PUBLIC, "include/gpuserve/http.h", "lib/base/", "lib/http/"],
    "kernels/": [*PUBLIC, BACKEND, "lib/base/", "kernels/"],
    "cli/": [*PUBLIC, "include/gpuserve/http.h", "lib/base/number.h", "cli/"],
    "examples/": [*PUBLIC, "include/gpuserve/http.h", "examples/"],
}
# The folders of a tree from the highest layer to the lowest; "" is the tree's own folder. An include
# never goes up. A subfolder that is not named here belongs to the layer of its parent.
LAYERS = {
    "lib/base/": ["host/", ""],
    "lib/text/": ["", "load/", "pipeline/", "models/", "unicode/"],
    "lib/model/": ["", "int8/", "encoder/", "weights/", "modules/", "families/", "formats/"],
    "lib/runtime/": ["", "api/", "convert/", "observe/", "models/", "scheduler/", "compute/", "memory/", "plan/", "devices/", "core/"],
    "lib/http/": ["", "server/", "dialects/", "batch/", "inference/", "protocol/", "models/", "traces/", "net/", "core/"],
    "kernels/cpu/": ["", "compute/", "attention/", "gemm/", "rows/", "runtime/"],
    "kernels/cuda/": ["", "compute/", "attention/", "ops/", "runtime/"],
    "cli/": ["", "commands/", "serve/", "pull/", "fit/", "plot/", "io/", "options/"],
}
# Headers of a tree's own folder that each layer may include: they declare state that is passed to all
# layers. Nothing else may be added here without a reason next to it.
SHARED = {
    "cli/cli.h": "memory, messages and signals of the program",
    "cli/model.h": "how commands open a model",
    "lib/text/scratch.h": "buffers of one encoding",
    "lib/text/tokenizer.h": "the interface of the tree",
    "lib/text/tokenizer_parts.h": "the parts of a tokenizer",
    "lib/model/model.h": "the interface of the tree",
    "lib/model/spec.h": "what a model is made of: the parts of the tree build it, load it and run it",
    "lib/model/weight_map.h": "how each part of an encoder names its tensors",
    "lib/runtime/model.h": "one loaded model: the scheduler runs its batches, and models/ loads and replaces it",
}
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|curand|nccl|nvml|nvrtc|nvtx|cuComplex|mma\.h)")
CUDA_FOLDERS = ("kernels/cuda/", "tests/", "benchmarks/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)
SUFFIXES = (".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".cuh")


def sources():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, text=True,
                            stdout=subprocess.PIPE).stdout.split("\n")
    return [name for name in listed if name.endswith(SUFFIXES)]


def resolve(includer, name):
    """The file of this repository that `name` means, or None for another package's header."""
    beside = PurePosixPath(includer).parent / name
    for candidate in (name, f"include/{name}", str(beside)):
        if (ROOT / candidate).is_file():
            return candidate
    return None


def rule_of(path):
    folders = [folder for folder in RULES if path.startswith(folder)]
    return RULES[max(folders, key=len)] if folders else None


def allowed(path, target):
    rule = rule_of(path)
    if rule is None:
        return True
    return any(target.startswith(entry) if entry.endswith("/") else target == entry
               for entry in rule)


def layer_of(path):
    """(tree, number of the layer) of a file, or None."""
    for tree, layers in LAYERS.items():
        if path.startswith(tree):
            folder = str(PurePosixPath(path[len(tree):]).parent) + "/"
            fitting = [layer for layer in layers if layer and folder.startswith(layer)] or [""]
            return tree, layers.index(max(fitting, key=len))
    return None


def goes_up(path, target):
    here, there = layer_of(path), layer_of(target)
    return bool(here and there and here[0] == there[0] and there[1] < here[1] and target not in SHARED)


def check(path):
    """(includes seen, sentences about the wrong ones)"""
    wrong = []
    found = INCLUDE.findall((ROOT / path).read_text("utf-8", "replace"))
    for _, name in found:
        target = resolve(path, name)
        if target is None:
            if CUDA_HEADER.match(name) and not path.startswith(CUDA_FOLDERS):
                wrong.append(f"{path}: includes CUDA's {name}")
        elif not allowed(path, target):
            wrong.append(f"{path}: may not include {target}")
        elif goes_up(path, target):
            wrong.append(f"{path}: {target} is of a higher layer")
        elif path.startswith("include/") and not target.startswith("include/"):
            wrong.append(f"{path}: a public header includes {target}")
    return len(found), wrong


def main():
    n_includes, wrong = 0, []
    for path in sources():
        n, sentences = check(path)
        n_includes += n
        wrong += sentences
    print("\n".join(wrong), end="\n" if wrong else "")
    print(f"{n_includes - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong or not n_includes else 0


if __name__ == "__main__":
    sys.exit(main())
