"""Families that only their authors' files compute: references in float64 from the published facts.

transformers has no class for them, so these functions are the reference. Their results are not compared with the
authors' code.
"""
import math

import torch
from reference import LENGTHS, VOCABULARY, texts, types_of, with_pads, write_json, write_pairs, write_reference
from safetensors.torch import save_file

SIZES = dict(hidden=32, heads=4, wide=16)


class Weights:
    """Random float32 weights by name, read in float64."""

    def __init__(self, seed):
        self.generator, self.tensors = torch.Generator().manual_seed(seed), {}

    def add(self, name, *shape, scale=0.2, start=0.0):
        self.tensors[name] = torch.randn(shape, generator=self.generator) * scale + start

    def linear(self, name, rows, columns, bias=True):
        self.add(f"{name}.weight", rows, columns)
        if bias:
            self.add(f"{name}.bias", rows, scale=0.1)

    def norm(self, name, columns):
        self.add(f"{name}.weight", columns, scale=0.1, start=1.0)
        self.add(f"{name}.bias", columns, scale=0.1)

    def __getitem__(self, name):
        return self.tensors[name].double()

    def apply(self, name, x):
        """The linear of this name."""
        y = x @ self[f"{name}.weight"].T
        return y + self[f"{name}.bias"] if f"{name}.bias" in self.tensors else y

    def normalize(self, name, x, eps=1e-12):
        return torch.nn.functional.layer_norm(x, x.shape[-1:], self[f"{name}.weight"], self[f"{name}.bias"], eps)


def attend(q, k, v, heads, bias=0.0):
    """Attention of one text; `bias` is added to the scaled scores, [heads, tokens, tokens]."""
    q, k, v = (x.view(len(x), heads, -1).transpose(0, 1) for x in (q, k, v))
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]) + bias
    return (torch.softmax(scores, -1) @ v).transpose(0, 1).flatten(1)


def rotate(x, heads, theta):
    x = x.view(len(x), heads, -1)
    size = x.shape[-1]
    angles = torch.arange(len(x)).double()[:, None] / theta ** (torch.arange(0, size, 2).double() / size)
    cos, sin = (torch.cat([f(angles)] * 2, -1)[:, None] for f in (torch.cos, torch.sin))
    a, b = x.chunk(2, -1)
    return (x * cos + torch.cat([-b, a], -1) * sin).flatten(1)


def write(maker, name, make_weights, config, compute, pairs=False, **more):
    """One directory: `make_weights(weights)`, config.json, and compute(weights, ids) of each text, mean pooled."""
    if not maker.wants(name):
        return
    folder = maker.folder(name)
    weights = Weights(maker.seed)
    make_weights(weights, **more)
    save_file(weights.tensors, f"{folder}/model.safetensors", metadata={"format": "pt"})
    write_json(f"{folder}/config.json", config)
    sentences = [*texts(maker.seed, LENGTHS), with_pads(config["pad_token_id"])]
    hidden = [compute(weights, ids[0], **more) for ids in sentences]
    write_reference(folder, sentences, {"hidden_f64": torch.cat(hidden), "embedding_f64": torch.stack([h.mean(0) for h in hidden])})
    if pairs:
        sentences = texts(maker.seed + 7000, [2, 9, 33, 5])
        write_pairs(folder, sentences, [compute(weights, ids[0], types=types_of(ids)[0], **more) for ids in sentences])


# ------------------------------------------------------------------------------------------------- Nomic

EXPERTS, TOP_K = 4, 2


def nomic_moe_weights(w, layers, every, hidden=SIZES["hidden"], wide=SIZES["wide"]):
    w.add("embeddings.word_embeddings.weight", VOCABULARY, hidden, scale=0.5)
    w.add("embeddings.token_type_embeddings.weight", 1, hidden, scale=0.5)
    w.norm("emb_ln", hidden)
    for i in range(layers):
        at = f"encoder.layers.{i}"
        w.linear(f"{at}.attn.Wqkv", 3 * hidden, hidden)
        w.linear(f"{at}.attn.out_proj", hidden, hidden)
        w.norm(f"{at}.norm1", hidden)
        if i % every == 1:
            w.add(f"{at}.mlp.router.layer.weight", EXPERTS, hidden, scale=0.5)
            w.add(f"{at}.mlp.experts.mlp.w1", EXPERTS * wide, hidden)
            w.add(f"{at}.mlp.experts.mlp.w2", EXPERTS * wide, hidden)
            w.add(f"{at}.mlp.experts.bias", hidden, scale=0.1)
        else:
            w.linear(f"{at}.mlp.fc1", wide, hidden)
            w.linear(f"{at}.mlp.fc2", hidden, wide)
        w.norm(f"{at}.norm2", hidden)


def mixture(w, at, x):
    """Softmax over all experts; the weights of the largest ones are not divided by their sum; one bias after the sum."""
    scores = torch.softmax(x @ w[f"{at}.router.layer.weight"].T, -1)
    chosen = torch.zeros_like(scores).scatter_(1, *reversed(scores.topk(TOP_K)))
    w1, w2 = (w[f"{at}.experts.mlp.{name}"].view(EXPERTS, -1, x.shape[-1]) for name in ("w1", "w2"))
    out = sum(chosen[:, e:e + 1] * (torch.nn.functional.gelu(x @ w1[e].T) @ w2[e]) for e in range(EXPERTS))
    return out + w[f"{at}.experts.bias"]


def nomic_moe(maker):
    def compute(w, ids, layers, every):
        heads = SIZES["heads"]
        x = w.normalize("emb_ln", w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0])
        for i in range(layers):
            at = f"encoder.layers.{i}"
            q, k, v = w.apply(f"{at}.attn.Wqkv", x).chunk(3, -1)
            a = attend(rotate(q, heads, 10000.0), rotate(k, heads, 10000.0), v, heads)
            x = w.normalize(f"{at}.norm1", x + w.apply(f"{at}.attn.out_proj", a))
            f = mixture(w, f"{at}.mlp", x) if i % every == 1 else w.apply(
                f"{at}.mlp.fc2", torch.nn.functional.gelu(w.apply(f"{at}.mlp.fc1", x)))
            x = w.normalize(f"{at}.norm2", x + f)
        return x

    def config(layers, every):
        return {
            "activation_function": "gelu", "architectures": ["NomicBertModel"],
            "auto_map": {"AutoConfig": "nomic-ai/nomic-bert-2048--configuration_hf_nomic_bert.NomicBertConfig",
                         "AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
            "causal": False, "expert_choice_router": False, "ffn_div": 1, "layer_norm_epsilon": 1e-12, "max_trained_positions": 2048,
            "mlp_fc1_bias": True, "mlp_fc2_bias": True, "model_type": "nomic_bert", "moe_every_n_layers": every, "moe_impl": "megablocks",
            "moe_normalize_expert_weights": False, "moe_resid_pdrop": 0.0, "moe_top_k": TOP_K, "n_embd": SIZES["hidden"],
            "n_head": SIZES["heads"], "n_inner": SIZES["wide"], "n_layer": layers, "n_positions": 64, "num_experts": EXPERTS,
            "num_shared_experts": 0, "pad_token_id": 1, "parallel_block": False, "prenorm": False, "qkv_proj_bias": True,
            "rotary_emb_base": 10000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
            "rotary_scaling_factor": None, "torch_dtype": "float32", "type_vocab_size": 1, "use_rms_norm": False, "vocab_size": VOCABULARY}

    for name, layers, every in (("nomic-moe-hub", 2, 2), ("nomic-moe-hub-every-3", 3, 3)):
        write(maker, name, nomic_moe_weights, config(layers, every), compute, layers=layers, every=every)


# ------------------------------------------------------------------------------------------ Jina v2, ALiBi

def slopes(heads):
    """Press et al. 2021: powers of 2; of other numbers those of the power below, then every other one of twice that."""
    below = 2 ** math.floor(math.log2(heads))
    power = lambda n: [2 ** (-8 * (i + 1) / n) for i in range(n)]
    return power(below) + power(2 * below)[0::2][:heads - below]


def distances(ids, heads):
    """The bias of attention: the distance times the head's slope."""
    steps = torch.arange(len(ids)).double()
    return -torch.tensor(slopes(heads)).double()[:, None, None] * (steps[None, :, None] - steps[None, None, :]).abs()


def jina_v2_weights(w, heads, hidden, glu, wide=SIZES["wide"]):
    w.add("embeddings.word_embeddings.weight", VOCABULARY, hidden, scale=0.5)
    w.add("embeddings.token_type_embeddings.weight", 2, hidden, scale=0.5)
    w.norm("embeddings.LayerNorm", hidden)
    for i in range(2):
        at = f"encoder.layer.{i}"
        for name in ("query", "key", "value"):
            w.linear(f"{at}.attention.self.{name}", hidden, hidden)
        w.linear(f"{at}.attention.output.dense", hidden, hidden)
        w.norm(f"{at}.attention.output.LayerNorm", hidden)
        w.linear(f"{at}.mlp.gated_layers", 2 * wide, hidden, bias=False)
        w.linear(f"{at}.mlp.wo", hidden, wide)
        w.norm(f"{at}.mlp.layernorm", hidden)


def jina_code_weights(w, heads, hidden, glu, wide=SIZES["wide"]):
    w.add("embeddings.word_embeddings.weight", VOCABULARY, hidden, scale=0.5)
    w.add("embeddings.token_type_embeddings.weight", 2, hidden, scale=0.5)
    w.norm("embeddings.LayerNorm", hidden)
    for i in range(2):
        at = f"encoder.layer.{i}"
        for name in ("query", "key", "value"):
            w.linear(f"{at}.attention.self.{name}", hidden, hidden)
        for name in ("q", "k"):
            w.norm(f"{at}.attention.self.layer_norm_{name}", hidden)
        w.linear(f"{at}.attention.output.dense", hidden, hidden)
        w.norm(f"{at}.attention.output.LayerNorm", hidden)
        w.norm(f"{at}.layer_norm_1", hidden)
        w.linear(f"{at}.mlp.up_gated_layer", 2 * wide, hidden, bias=False)
        w.linear(f"{at}.mlp.down_layer", hidden, wide)
        w.norm(f"{at}.layer_norm_2", hidden)


def jina_v2(maker):
    def compute_code(w, ids, heads, hidden, glu):
        """Norms of query and key over all heads, and a second norm after attention, of its output and the layer's input."""
        act = {"geglu": torch.nn.functional.gelu, "reglu": torch.relu}[glu]
        x = w.normalize("embeddings.LayerNorm", w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0])
        for i in range(2):
            at = f"encoder.layer.{i}"
            q, k, v = (w.apply(f"{at}.attention.self.{name}", x) for name in ("query", "key", "value"))
            q, k = (w.normalize(f"{at}.attention.self.layer_norm_{name}", y) for name, y in (("q", q), ("k", k)))
            a = w.apply(f"{at}.attention.output.dense", attend(q, k, v, heads, distances(ids, heads)))
            x = w.normalize(f"{at}.layer_norm_1", x + w.normalize(f"{at}.attention.output.LayerNorm", x + a))
            values, gate = w.apply(f"{at}.mlp.up_gated_layer", x).chunk(2, -1)
            x = w.normalize(f"{at}.layer_norm_2", x + w.apply(f"{at}.mlp.down_layer", act(gate) * values))
        return x

    def compute(w, ids, heads, hidden, glu, types=None):
        act = {"geglu": torch.nn.functional.gelu, "reglu": torch.relu}[glu]
        bias = distances(ids, heads)
        types = torch.zeros_like(ids) if types is None else types
        x = w.normalize("embeddings.LayerNorm",
                        w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][types])
        for i in range(2):
            at = f"encoder.layer.{i}"
            q, k, v = (w.apply(f"{at}.attention.self.{name}", x) for name in ("query", "key", "value"))
            a = w.apply(f"{at}.attention.output.dense", attend(q, k, v, heads, bias))
            x = w.normalize(f"{at}.attention.output.LayerNorm", x + a)
            gate, values = w.apply(f"{at}.mlp.gated_layers", x).chunk(2, -1)
            x = w.normalize(f"{at}.mlp.layernorm", x + w.apply(f"{at}.mlp.wo", act(gate) * values))
        return x

    def config(heads, hidden, glu):
        return {
            "architectures": ["JinaBertForMaskedLM"], "attention_probs_dropout_prob": 0.0, "attn_implementation": None,
            "auto_map": {"AutoConfig": "jinaai/jina-bert-implementation--configuration_bert.JinaBertConfig",
                         "AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"},
            "emb_pooler": "mean", "feed_forward_type": glu, "gradient_checkpointing": False, "hidden_act": "gelu",
            "hidden_dropout_prob": 0.1, "hidden_size": hidden, "initializer_range": 0.02, "intermediate_size": SIZES["wide"],
            "layer_norm_eps": 1e-12, "max_position_embeddings": 64, "model_type": "bert", "num_attention_heads": heads,
            "num_hidden_layers": 2, "pad_token_id": 0, "position_embedding_type": "alibi", "torch_dtype": "float32",
            "type_vocab_size": 2, "vocab_size": VOCABULARY}

    for name, more in (("jina-v2-hub", dict(heads=4, hidden=32, glu="geglu")),
                       ("jina-v2-hub-six-heads", dict(heads=6, hidden=24, glu="reglu"))):
        write(maker, name, jina_v2_weights, config(**more), compute, pairs=name == "jina-v2-hub", **more)
    code = dict(heads=4, hidden=32, glu="geglu")
    auto_map = {"AutoConfig": "jinaai/jina-bert-v2-qk-post-norm--configuration_bert.JinaBertConfig",
                "AutoModel": "jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel"}
    write(maker, "jina-v2-code-hub", jina_code_weights, {**config(**code), "auto_map": auto_map}, compute_code, **code)


FAMILIES = [nomic_moe, jina_v2]
