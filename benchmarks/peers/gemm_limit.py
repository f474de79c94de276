"""How fast this machine could compute the model at best: the bounds that speeds are shares of.

benchmarks/gemm_chain.c measures the rate of the model's chain of matrix products on packed weights,
with all threads and large batches, once in each round. A bound counts only those products and
attention's: no tokenization, softmax, LayerNorm, GELU or copying. There are two:

    pure   all products and attention at the rate of the precision
    mix    what the library really computes: in int8 the products that it keeps in a higher
           precision, and attention, at the rate of theirs
"""
import json
import os
import subprocess

W3_TOKENS = 256
# The products of a layer as gpuserve_model_info names them, in the order of shapes_of().
PRODUCTS = ("query-key-value", "attention output", "feed-forward in", "feed-forward out")
NAMES = {"float32": "fp32", "bfloat16": "bf16", "int16": "int16"}
HOW = ("matrix products alone, at the better rate of our own GEMM chain and oneDNN's, measured in the "
       "same rounds")


def shapes_of(config):
    """[(n, k)] of a layer's four products, from the model's config.json."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    inner, size = config["intermediate_size"], config.get("head_dim") or hidden // heads
    queries = heads * size
    keys = (config.get("num_key_value_heads") or heads) * size
    gated = config["model_type"] in ("modernbert", "qwen3")
    return [(queries + 2 * keys, hidden), (hidden, queries), (inner * (2 if gated else 1), hidden),
            (hidden, inner)]


def product_flops(config):
    """{product: operations of one token in one layer}; a multiply-add counts two."""
    return {name: 2 * n * k for name, (n, k) in zip(PRODUCTS, shapes_of(config))}


def attention_flops(config, n_tokens):
    """Scores and their product with the values, of one text in all layers."""
    queries = config["num_attention_heads"] * (
        config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
    layers, pairs = config["num_hidden_layers"], n_tokens * n_tokens
    if config["model_type"] == "qwen3":  # causal
        pairs = n_tokens * (n_tokens + 1) / 2
    local = 0
    if config["model_type"] == "modernbert":
        local = layers - -(-layers // config.get("global_attn_every_n_layers", 3))
    near = min(pairs, n_tokens * (config.get("local_attention", 128) + 1))
    return 4 * queries * ((layers - local) * pairs + local * near)


def kept_flops(config, kept):
    """Operations of one token in the products kept; kept: ["layer 3 feed-forward out", ...]"""
    flops = product_flops(config)
    return sum(flops[one.split(" ", 2)[2]] for one in kept)


class Limit:
    """The chain's rates, one a round."""

    def __init__(self, program, threads, config, environment):
        self.program, self.threads, self.config = program, threads, config
        self.environment, self.rates = environment, []
        shapes = ":".join(f"{n},{k}" for n, k in shapes_of(config))
        self.shapes = f"{config['num_hidden_layers']}:{shapes}"

    def round(self, seconds):
        done = subprocess.run(
            [str(self.program), "--threads", str(self.threads), "--seconds", str(seconds), "--shapes",
             self.shapes], check=True, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **self.environment})
        self.rates.append(json.loads(done.stdout))

    def drop_round(self):
        self.rates.pop()

    def result(self, w2_lengths, int8):
        """{"how", "rates", "bounds": {precision: {kind: {workload: [texts/s of each round]}}}}

        int8: what the library says of an int8 model ("kept", "kept_dtype"), or None.
        """
        lengths = {"W2": w2_lengths, "W3": [W3_TOKENS]}
        bounds = {}
        for precision in ("fp32", "bf16", "int8"):
            if not all(self.best(rates, precision) for rates in self.rates):
                continue
            kinds = {"pure": {"attention": precision, "kept": [], "rest": precision}}
            if precision == "int8" and int8:
                kept = NAMES.get(int8["kept_dtype"], "fp32")
                attention = "fp32" if int8.get("float32_attention") else self.attention_dtype()
                kinds["mix"] = {"attention": attention, "kept": int8["kept"], "rest": kept}
            bounds[precision] = {
                kind: {"attention": how["attention"], "kept": len(how["kept"]), "kept_dtype": how["rest"],
                       **{workload: [self.texts_per_s(rates, precision, how, tokens) for rates in self.rates]
                          for workload, tokens in lengths.items()}}
                for kind, how in kinds.items()}
        return {"how": HOW, "shapes": self.shapes, "rates": self.rates, "bounds": bounds}

    @staticmethod
    def best(rates, precision):
        """Operations a second."""
        return max(rates[precision].values()) * 1e9

    def attention_dtype(self):
        """What attention of an int8 model is computed in. Our backend has int16 where it has no bfloat16 products; what it
        calls bfloat16 there has 16-bit weights alone."""
        return next((dtype for dtype in ("int16", "bf16")
                     if all(rates.get(dtype, {}).get("gpuserve", 0) > 0 for rates in self.rates)), "fp32")

    def texts_per_s(self, rates, precision, how, lengths):
        layers = self.config["num_hidden_layers"]
        kept = kept_flops(self.config, how["kept"])
        others = layers * sum(product_flops(self.config).values()) - kept
        tokens = sum(lengths)
        seconds = (tokens * others / self.best(rates, precision) +
                   tokens * kept / self.best(rates, how["rest"]) +
                   sum(attention_flops(self.config, n) for n in lengths) /
                   self.best(rates, how["attention"]))
        return len(lengths) / seconds
