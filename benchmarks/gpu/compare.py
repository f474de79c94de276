"""What the libraries of others do on the same GPU in the same run, as JSON lines.

    compare.py ceilings                     copy bandwidth and matrix rate that this device reaches
    compare.py products                     the encoders' matrix products in cuBLASLt, as torch calls it
    compare.py attention                    torch's attention at the lengths of P5
    compare.py oracle LIBRARY MODEL         our vectors against transformers in float32, each dtype
    compare.py library LIBRARY MODEL        texts/s against sentence-transformers, default and best

A stage that lacks a package says so in its line and is no failure. Medians of at least 20 runs. Speeds
of libraries are of rounds whose order turns; those disturbed are dropped.
"""
import ctypes
import importlib.util
import json
import math
import pathlib
import random
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "common"))

import measure  # noqa: E402
from verdict import MIN_COSINE, least_cosine, spread, verdict  # noqa: E402

SHAPES = {"minilm": (6, 384, 12, 1536), "base": (12, 768, 12, 3072), "large": (24, 1024, 16, 4096)}
TOKENS = 16384
DTYPES = {"float32": 1, "float16": 2, "bfloat16": 3, "tf32": 4}
BOUNDS = {"float32": (0.999999, 1e-5), "tf32": (0.99999, 1e-3), "float16": (0.99999, 1e-3), "bfloat16": (0.9998, 5e-3)}


def say(stage, **fields):
    print(json.dumps({"stage": stage, **fields}), flush=True)


class Undisturbed:
    """A watch for a dry run, whose times mean nothing."""

    def stop(self):
        return {"seconds": 0.0, "others_share": 0.0, "disturbed": False}


def turned(parts, n, dry=False):
    """Rounds of parts ({name: function}) in an order that turns, each called once before."""
    if not dry:
        for part in parts.values():
            part()
    return measure.rounds(n, parts, watch=Undisturbed if dry else measure.Watch)


def time_us(torch, call, runs=20):
    """Median microseconds of call(), by events around it."""
    for _ in range(3):
        call()
    times = []
    for _ in range(runs):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def ceilings(torch):
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    us = time_us(torch, lambda: target.copy_(source))
    say("ceiling", name="copy", gb_per_s=2 * source.numel() * 4 / us * 1e-3)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for n in (4096, 8192):
            a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
            us = time_us(torch, lambda: a @ b)
            say("ceiling", name="matmul", n=n, dtype=str(dtype), us=us, tflops=2 * n**3 / us * 1e-6)


def products(torch):
    for name, (layers, hidden, _, inner) in SHAPES.items():
        total = 0.0
        for n, k in ((3 * hidden, hidden), (hidden, hidden), (inner, hidden), (hidden, inner)):
            x = torch.randn(TOKENS, k, device="cuda", dtype=torch.float16)
            w = torch.randn(n, k, device="cuda", dtype=torch.float16)
            b = torch.randn(n, device="cuda", dtype=torch.float16)
            total += time_us(torch, lambda: torch.nn.functional.linear(x, w, b))
        say("peer_products", model=name, tokens=TOKENS, us_a_layer=total, us=layers * total)


def attention(torch):
    for length in (128, 256, 512):
        q, k, v = (torch.randn(TOKENS // length, 12, length, 64, device="cuda", dtype=torch.float16) for _ in range(3))
        us = time_us(torch, lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v))
        say("peer_attention", length=length, heads=12, head_size=64, us=us)


# ------------------------------------------------------------------------------ our library


def load_abi():
    """The structs of the public headers, without the package around them."""
    path = pathlib.Path(__file__).resolve().parents[2] / "python/gpuserve/_ffi/abi.py"
    spec = importlib.util.spec_from_file_location("gpuserve_abi", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Model:
    def __init__(self, library, path, device, dtype):
        self.library = ctypes.CDLL(library)
        self.library.gpuserve_model_dim.restype = ctypes.c_size_t
        abi = load_abi()
        self.error = abi.Error(struct_size=ctypes.sizeof(abi.Error))
        self.handle = ctypes.c_void_p()
        options = abi.ModelOptions(ctypes.sizeof(abi.ModelOptions), dtype, device.encode())
        self.check(self.library.gpuserve_model_open(ctypes.byref(self.handle), None, path.encode(),
                                                    ctypes.byref(options), ctypes.byref(self.error)))
        self.dim = self.library.gpuserve_model_dim(self.handle)

    def check(self, status):
        if status:
            raise RuntimeError(f"{self.error.message.decode()} {self.error.hint.decode()}")

    def run(self, texts):
        """The vectors as the library wrote them, one after the other."""
        pointers = (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))
        vectors = (ctypes.c_float * (len(texts) * self.dim))()
        self.check(self.library.gpuserve_embed(self.handle, pointers, ctypes.c_size_t(len(texts)), vectors,
                                               ctypes.c_size_t(len(vectors)), None, ctypes.byref(self.error)))
        return vectors

    def embed(self, texts):
        vectors = self.run(texts)
        return [vectors[i * self.dim : (i + 1) * self.dim] for i in range(len(texts))]

    def close(self):
        self.library.gpuserve_model_close(ctypes.byref(self.handle))


WORDS = ("the quick river bank opens at nine and people walk along it while a model turns words into numbers "
         "that say how near two sentences are in meaning not in letters").split()


def make_texts(count, seed):
    """Log-normal lengths (mu 3.35, sigma 0.8), as in the CPU benchmarks."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=max(1, min(250, round(draw.lognormvariate(3.35, 0.8)))))) for _ in range(count)]


def cosine(a, b):
    dot, aa, bb = sum(x * y for x, y in zip(a, b)), sum(x * x for x in a), sum(y * y for y in b)
    return dot / math.sqrt(aa * bb) if aa > 0 and bb > 0 else 0.0


def unit(row):
    length = math.sqrt(sum(x * x for x in row)) or 1.0
    return [x / length for x in row]


def oracle(library, path, device, count):
    """Of vectors of length 1: not every model normalizes."""
    texts = make_texts(count, 1)
    if device == "cuda":
        import torch
        from sentence_transformers import SentenceTransformer

        # Else a checkpoint in float16 would be computed in float16.
        want = SentenceTransformer(path, device="cuda", model_kwargs={"dtype": torch.float32}).encode(texts, convert_to_numpy=True, normalize_embeddings=True)
        want = [list(map(float, row)) for row in want]
    else:  # the dry run: our own float32 on the CPU
        model = Model(library, path, "cpu", DTYPES["float32"])
        want = [unit(row) for row in model.embed(texts)]
        model.close()
    for name, dtype in DTYPES.items():
        model = Model(library, path, "cuda", dtype)
        got = [unit(row) for row in model.embed(texts)]
        model.close()
        least = min(cosine(a, b) for a, b in zip(got, want))
        most = max(abs(x - y) for a, b in zip(got, want) for x, y in zip(a, b))
        least_allowed, most_allowed = BOUNDS[name]
        say("oracle", dtype=name, texts=count, min_cosine=least, max_difference=most,
            ok=bool(least >= least_allowed and most <= most_allowed))


def peers_of(path):
    """{name: call} of sentence-transformers, as it comes and at its best."""
    from sentence_transformers import SentenceTransformer

    plain, compiled = (SentenceTransformer(path, device="cuda").half() for _ in range(2))
    # The module whose forward encode() calls: torch.compile(peer) would leave it as it is.
    compiled[0].auto_model.compile(dynamic=True)
    return {"sentence-transformers default": plain.encode,
            "sentence-transformers batch 256": lambda texts: plain.encode(texts, batch_size=256),
            "sentence-transformers compiled, batch 256": lambda texts: compiled.encode(texts, batch_size=256)}


def library_speed(library, path):
    texts, checked = make_texts(10000, 2), make_texts(64, 3)
    model, peers = Model(library, path, "cuda", DTYPES["float16"]), peers_of(path)
    wanted = model.embed(checked)
    for name, call in peers.items():
        cosine_least = least_cosine(wanted, [list(map(float, row)) for row in call(checked)])
        say("library_check", name=name, least_cosine=cosine_least, ok=cosine_least >= MIN_COSINE["bf16"])

    def rate(call):
        begin = time.perf_counter()
        call(texts)
        return len(texts) / (time.perf_counter() - begin)

    # Ours counts the conversion of the texts, and like encode() ends with an array of floats.
    calls = {"gpuserve": model.run, **peers}
    found = turned({name: lambda call=call: rate(call) for name, call in calls.items()}, 3)
    model.close()
    for name in calls:
        speeds = spread(found.values(name))
        say("library", name=name, texts_per_s=speeds.get("median"), spread=speeds, rounds=found.facts(),
            **({} if name == "gpuserve" else {"ours_over_it": spread(found.ratios("gpuserve", name))}))
    if found.kept:
        best = max(peers, key=lambda name: statistics.median(found.values(name)))
        for what, name, goal in (("default", "sentence-transformers default", 3), ("best", best, 1.3)):
            say("library_verdict", of=what, name=name, **verdict(found.ratios("gpuserve", name), goal))


def main():
    stage, rest = sys.argv[1], sys.argv[2:]
    try:
        if stage == "oracle":
            return oracle(rest[0], rest[1], rest[2], int(rest[3]))
        if stage == "library":
            return library_speed(rest[0], rest[1])
        import torch

        return {"ceilings": ceilings, "products": products, "attention": attention}[stage](torch)
    except ImportError as missing:
        say(stage, skipped=str(missing))


if __name__ == "__main__":
    main()
