"""The texts of the workloads, cut from real film reviews to the lengths wanted.

    W1-n   one text of exactly n tokens
    W2     2,000 texts, log-normal lengths (mu 3.35, sigma 0.8 of the logarithm), at most 256 tokens;
           of a model larger than all-MiniLM-L6-v2 as many fewer as a token costs more, 100 at least
    W3     32 texts of 256 tokens

Lengths count the special tokens. Texts begin and end at words. The seed is fixed: the same
reviews give the same texts everywhere. They are read from a package and never kept here.
"""
import csv
import hashlib
import random

import gemm_limit

W1_LENGTHS = (8, 32, 128, 256)
W2_TEXTS = 2000
W3_TEXTS = 32
MAX_TOKENS = 256
MIN_W2_TEXTS = 100
# Operations of one token in the products of all-MiniLM-L6-v2.
FLOPS_OF_MINILM = 2 * 6 * 384 * 384 * 12


class TextCutter:
    """Cuts texts of a given number of tokens out of one long stream of reviews."""

    def __init__(self, reviews_csv, tokenizer, seed):
        self.tokenizer = tokenizer
        self.n_special = len(tokenizer.encode("").ids)
        self.random = random.Random(seed)
        csv.field_size_limit(1 << 24)
        with open(reviews_csv, encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))[1:]
        reviews = [max(row, key=len).replace("<br />", " ") for row in rows]
        self.reviews = [review for review in reviews if len(review) > 2000]

    def cut(self, n_tokens):
        """One text of exactly n_tokens, special ones included."""
        while True:
            review = self.random.choice(self.reviews)
            encoded = self.tokenizer.encode(review, add_special_tokens=False)
            wanted = n_tokens - self.n_special
            if len(encoded.ids) < wanted + 2:
                continue
            first = self.random.randrange(len(encoded.ids) - wanted)
            text = review[encoded.offsets[first][0]:encoded.offsets[first + wanted - 1][1]]
            # A cut inside a word changes how it splits; such a text is not taken.
            if len(self.tokenizer.encode(text).ids) == n_tokens:
                return text


def w2_texts(config):
    """How many texts W2 has for the model of this config.json."""
    flops = config["num_hidden_layers"] * sum(gemm_limit.product_flops(config).values())
    return max(MIN_W2_TEXTS, min(W2_TEXTS, round(W2_TEXTS * FLOPS_OF_MINILM / flops)))


def w2_lengths(rng, n):
    return [min(MAX_TOKENS, max(4, round(rng.lognormvariate(3.35, 0.8)))) for _ in range(n)]


def make_workloads(reviews_csv, tokenizer, n_texts=W2_TEXTS):
    cutter = TextCutter(reviews_csv, tokenizer, seed=20)
    rng = random.Random(7)
    lengths = w2_lengths(rng, n_texts)
    texts = {
        "w1": {str(n): [cutter.cut(n) for _ in range(8)] for n in W1_LENGTHS},
        "w2": [cutter.cut(n) for n in lengths],
        "w3": [cutter.cut(MAX_TOKENS) for _ in range(W3_TEXTS)],
        # Other texts, to choose batch sizes on and to calibrate int8 with.
        "tune": [cutter.cut(n) for n in w2_lengths(rng, 300)],
    }
    texts["w2_lengths"] = lengths
    texts["sha256"] = hashlib.sha256("\n".join(texts["w2"]).encode()).hexdigest()
    return texts
