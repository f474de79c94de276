"""How fast this machine could compute the model at best: the bound that speeds are shares of.

benchmarks/gemm_chain.c measures the rate of the model's chain of matrix products on packed weights,
with all threads and large batches. The bound counts only those products and attention's, all at
that rate: no tokenization, softmax, LayerNorm, GELU or copying.
"""
import json
import os
import subprocess

LAYERS, HIDDEN, INNER = 6, 384, 1536
W3_TOKENS = 256


def flops(n_tokens):
    """Multiply-adds count two. Linear layers, then scores and their product with the values."""
    linear = 2 * n_tokens * LAYERS * (4 * HIDDEN * HIDDEN + 2 * HIDDEN * INNER)
    attention = 2 * LAYERS * 2 * n_tokens * n_tokens * HIDDEN
    return linear + attention


def measure(program, threads, w2_lengths, isa_limit):
    """{"how", "gflops", "precisions": {name: {"W2": texts/s, "W3": texts/s}}}, or None."""
    if program is None:
        return None
    done = subprocess.run([str(program), "--threads", str(threads)], check=True,
                          stdout=subprocess.PIPE, text=True, env={**os.environ, **isa_limit})
    rates = json.loads(done.stdout)
    mean_w2 = sum(map(flops, w2_lengths)) / len(w2_lengths)
    best = {name: max(engines.values()) * 1e9 for name, engines in rates.items()}
    return {"how": "matrix products alone, at the better rate of our own GEMM chain and oneDNN's",
            "gflops": rates,
            "precisions": {name: {"W2": rate / mean_w2, "W3": rate / flops(W3_TOKENS)}
                           for name, rate in best.items() if rate > 0}}
