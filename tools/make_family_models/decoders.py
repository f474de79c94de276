"""Decoders that serve as text encoders: the vector of the last token, or a causal or bidirectional mean."""
import torch
import transformers as tf
from reference import TINY, VOCABULARY, compute, heads_of, in_double, read_json, write_json, write_reference
from safetensors.torch import load_file

SMALL = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=24, max_position_embeddings=33, pad_token_id=0, bos_token_id=3, eos_token_id=4)
ONE = dict(SMALL, num_hidden_layers=1, intermediate_size=16)
FEW = dict(TINY, num_key_value_heads=1)


def older(config):
    """config.json as transformers 4 wrote it, and as most repositories have it."""
    rope = config.pop("rope_parameters", None) or {}
    if "full_attention" in rope:  # gemma3_text
        config["rope_theta"] = rope["full_attention"]["rope_theta"]
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rest = {k: v for k, v in rope["full_attention"].items() if k != "rope_theta"}
    else:
        config["rope_theta"] = rope.pop("rope_theta")
        rest = rope
    config["rope_scaling"] = None if rest.get("rope_type", "default") == "default" else rest
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.51.3"
    return config


def with_older_config(folder):
    write_json(f"{folder}/config.json", older(read_json(f"{folder}/config.json")))


def as_embedding(folder):
    """Qwen3-Embedding: the class is the language model's, the tensors are the base model's."""
    def change(config):
        config = older(config)
        config["architectures"] = ["Qwen3ForCausalLM"]
        return config
    write_json(f"{folder}/config.json", change(read_json(f"{folder}/config.json")))
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    write_json(f"{folder}/1_Pooling/config.json", {
        "word_embedding_dimension": 32, **{f"pooling_mode_{mode}": mode == "lasttoken" for mode in modes}, "include_prompt": True})
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    write_json(f"{folder}/modules.json", [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(modules)])
    write_json(f"{folder}/config_sentence_transformers.json", {
        "prompts": {"query": "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:",
                    "document": ""}, "default_prompt_name": None, "similarity_fn_name": "cosine"})


def next_token(maker, name, make, config):
    """A language model as a reranker uses it: the logits of the token after each text."""
    folder = maker.write(name, make, config, hidden=False, edit=with_older_config)
    if not folder:
        return
    model = in_double(make, config, {**load_file(f"{folder}/model.safetensors"), **(
        {"lm_head.weight": load_file(f"{folder}/model.safetensors")["model.embed_tokens.weight"]} if config.tie_word_embeddings else {})})
    stored = load_file(f"{folder}/reference.safetensors")
    sentences = [ids[None].long() for ids in torch.split(stored["ids"], stored["n_tokens"].tolist())]
    logits = torch.cat([compute(model, ids).logits[:, -1] for ids in sentences])
    write_reference(folder, sentences, {"next_f64": logits})


class Bidirectional:
    """Attends to all tokens: transformers takes a mask of four dimensions as it is."""

    def forward(self, input_ids, attention_mask, **more):
        n = input_ids.shape[1]
        return super().forward(input_ids=input_ids, attention_mask=torch.zeros(1, 1, n, n, dtype=self.dtype), **more)


class LlamaBidirectionalModel(Bidirectional, tf.LlamaModel):
    """As nvidia/llama-embed-nemotron-8b is published."""


class Qwen2BidirectionalModel(Bidirectional, tf.Qwen2Model):
    pass


def as_qwen2(folder):
    write_json(f"{folder}/config.json", {**older(read_json(f"{folder}/config.json")), "architectures": ["Qwen2Model"], "is_causal": False})


def as_nemotron(folder):
    config = older(read_json(f"{folder}/config.json"))
    write_json(f"{folder}/config.json", {**config, "model_type": "llama_bidirec", "pooling": "avg", "auto_map": {
        "AutoConfig": "llama_bidirectional_model.LlamaBidirectionalConfig", "AutoModel": "llama_bidirectional_model.LlamaBidirectionalModel"}})


def qwen(maker):
    config = lambda make=tf.Qwen3Config, **more: make(**{**ONE, **({"head_dim": 16} if make is tf.Qwen3Config else {}), **more})
    maker.write("qwen2", tf.Qwen2Model, config(tf.Qwen2Config, num_hidden_layers=2), pooling="lasttoken")
    maker.write("qwen2-older", tf.Qwen2Model, config(tf.Qwen2Config, rope_parameters={
        "rope_type": "default", "rope_theta": 1000000.0}), pooling="mean", edit=with_older_config)
    maker.write("qwen2-window", tf.Qwen2Model, config(tf.Qwen2Config, num_hidden_layers=3, use_sliding_window=True,
                sliding_window=8, max_window_layers=1), pooling="lasttoken")
    maker.write("qwen3", tf.Qwen3Model, config(num_hidden_layers=2, attention_bias=True), pooling="lasttoken", normalize=False)
    maker.write("qwen3-embedding", tf.Qwen3Model, config(num_hidden_layers=2, rope_parameters={
        "rope_type": "default", "rope_theta": 1000000.0}), pooling="lasttoken", edit=as_embedding)
    maker.write("qwen2-bidirectional", Qwen2BidirectionalModel, config(tf.Qwen2Config, num_hidden_layers=2), pooling="lasttoken",
                edit=as_qwen2, seed=920)
    heads_of(maker, "qwen2", {"single": tf.Qwen2ForSequenceClassification}, lambda **more: config(tf.Qwen2Config, **more), FEW, seed=921)
    heads_of(maker, "qwen3", {"single": tf.Qwen3ForSequenceClassification, "tokens": tf.Qwen3ForTokenClassification}, config, FEW)
    heads_of(maker, "qwen3-reranker", {"regression": tf.Qwen3ForSequenceClassification}, config, FEW, edit=with_older_config)
    next_token(maker, "qwen3-causal", tf.Qwen3ForCausalLM, config(tie_word_embeddings=True, **FEW))
    next_token(maker, "qwen3-causal-untied", tf.Qwen3ForCausalLM, config(tie_word_embeddings=False, **FEW))


def mistral(maker):
    config = lambda **more: tf.MistralConfig(**{**ONE, **more})
    maker.write("mistral", tf.MistralModel, config(num_hidden_layers=2, sliding_window=8), pooling="lasttoken")
    maker.write("mistral-no-window", tf.MistralModel, config(sliding_window=None, head_dim=6), pooling="lasttoken",
                edit=with_older_config)
    heads_of(maker, "mistral", {"tokens": tf.MistralForTokenClassification}, config, FEW, seed=922)
    heads_of(maker, "mistral", {"multi": tf.MistralForSequenceClassification}, config, FEW)


def llama(maker):
    config = lambda **more: tf.LlamaConfig(**{**ONE, **more})
    maker.write("llama", tf.LlamaModel, config(num_hidden_layers=2), pooling="mean")
    maker.write("llama-biases", tf.LlamaModel, config(attention_bias=True, mlp_bias=True, num_key_value_heads=4, head_dim=16,
                hidden_act="gelu"), pooling="lasttoken")
    heads_of(maker, "llama", {"single": tf.LlamaForSequenceClassification, "tokens": tf.LlamaForTokenClassification}, config, FEW)
    maker.write("llama-bidirectional", LlamaBidirectionalModel, config(num_hidden_layers=2), pooling="mean", edit=as_nemotron, seed=923)
    kinds = {
        "linear": {"factor": 2.0},
        "dynamic": {"factor": 2.0},
        "yarn": {"factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1},
        "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
        "longrope": {"short_factor": [1.0, 1.1, 1.25, 1.5], "long_factor": [1.0, 2.0, 3.0, 4.0], "factor": 4.0,
                     "original_max_position_embeddings": 16},
    }
    for kind, settings in kinds.items():
        rope = {"rope_type": kind, "rope_theta": 10000.0, **settings}
        maker.write(f"llama-{kind}", tf.LlamaModel, config(rope_parameters=rope, max_position_embeddings=64), pooling="mean",
                    edit=with_older_config if kind in ("yarn", "llama3") else None, lengths=[1, 7, 16, 17, 60])
    rope = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 0.7,
            "mscale_all_dim": 0.5, "truncate": False, "beta_fast": 16, "beta_slow": 2}
    maker.write("llama-yarn-scales", tf.LlamaModel, config(rope_parameters=rope, max_position_embeddings=64), pooling="mean")


def gemma(maker):
    config = lambda make=tf.Gemma2Config, **more: make(**{
        **SMALL, "head_dim": 8, "query_pre_attn_scalar": 16, "sliding_window": 8, **more})
    maker.write("gemma2", tf.Gemma2Model, config(attn_logit_softcapping=2.0, final_logit_softcapping=3.0), pooling="lasttoken")
    maker.write("gemma2-no-caps", tf.Gemma2Model, config(attn_logit_softcapping=None, final_logit_softcapping=None,
                attention_bias=True), pooling="mean", edit=with_older_config)
    both = dict(use_bidirectional_attention=True, layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                num_hidden_layers=3, rope_parameters={
                    "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})
    maker.write("gemma3-bidirectional", tf.Gemma3TextModel, config(tf.Gemma3TextConfig, **both), pooling="mean")
    maker.write("gemma3-older", tf.Gemma3TextModel, config(tf.Gemma3TextConfig, **{**both, "num_key_value_heads": 1}), pooling="mean",
                edit=with_older_config)
    maker.write("gemma3-causal", tf.Gemma3TextModel, config(tf.Gemma3TextConfig, **{
        **both, "use_bidirectional_attention": False, "num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"],
        "attention_bias": True}), pooling="lasttoken")
    heads_of(maker, "gemma3", {"single": tf.Gemma3TextForSequenceClassification}, lambda **more: config(tf.Gemma3TextConfig, **{
        **both, "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "use_bidirectional_attention": False,
        **more}), dict(FEW, head_dim=8), seed=924)


FAMILIES = [qwen, mistral, llama, gemma]
