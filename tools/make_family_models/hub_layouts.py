"""Families whose repositories came with their own code: transformers' names and sizes, and the repositories' own."""
import re

import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from reference import (LENGTHS, POOLINGS, TINY, compute, heads_of, in_double, randomize, read_json, rename, texts,
                       with_pads, write_json, write_pooling, write_reference)
from encoders import ONE, ROBERTA, all_heads


def renamed(pairs):
    """A change of tensors' names by regular expressions, in this order."""
    def change(tensors):
        out = {}
        for name, tensor in tensors.items():
            for old, new in pairs:
                name = re.sub(old, new, name)
            out[name] = tensor
        return out
    return change


def joined(tensors, parts, whole):
    """Tensors of each layer whose names end with `parts`, one below the other, become one."""
    out = dict(tensors)
    for name in tensors:
        if parts[0] in name:
            out[name.replace(parts[0], whole)] = torch.cat([out.pop(name.replace(parts[0], part)) for part in parts])
    return out


# ------------------------------------------------------------------------------------------------- Nomic

def nomic_hub(folder):
    def tensors(old):
        names = renamed([(r"^layers", "encoder.layers"), (r"^embeddings\.LayerNorm", "emb_ln"), (r"self_attn\.o_proj", "attn.out_proj"),
                         (r"up_proj", "fc11"), (r"gate_proj", "fc12"), (r"down_proj", "fc2"),
                         (r"post_attention_layernorm", "norm1"), (r"post_mlp_layernorm", "norm2")])
        return names(joined(old, ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], "attn.Wqkv"))

    def config(old):
        return {
            "activation_function": "swiglu", "architectures": ["NomicBertModel"], "attn_pdrop": 0.0,
            "auto_map": {"AutoConfig": "nomic-ai/nomic-bert-2048--configuration_hf_nomic_bert.NomicBertConfig",
                         "AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
            "bos_token_id": None, "causal": False, "dense_seq_output": True, "embd_pdrop": 0.0, "eos_token_id": None,
            "fused_bias_fc": True, "fused_dropout_add_ln": True, "initializer_range": 0.02, "layer_norm_epsilon": 1e-12,
            "max_trained_positions": 2048, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "model_type": "nomic_bert",
            "n_embd": old["hidden_size"], "n_head": old["num_attention_heads"], "n_inner": old["intermediate_size"],
            "n_layer": old["num_hidden_layers"], "n_positions": old["max_position_embeddings"], "pad_vocab_size_multiple": 64,
            "parallel_block": False, "parallel_block_tied_norm": False, "prenorm": False, "qkv_proj_bias": False,
            "reorder_and_upcast_attn": False, "resid_pdrop": 0.0, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0,
            "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "rotary_scaling_factor": None,
            "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True, "torch_dtype": "float32",
            "transformers_version": "4.37.2", "type_vocab_size": old["type_vocab_size"], "use_cache": True, "use_flash_attn": True,
            "use_rms_norm": False, "use_xentropy": True, "vocab_size": old["vocab_size"]}
    rename(folder, tensors, config)


def nomic(maker):
    config = lambda **more: tf.NomicBertConfig(**{**ONE, "hidden_act": "silu", **more})
    maker.write("nomic-bert", tf.NomicBertModel, config(num_hidden_layers=2, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0}), pooling="mean", pairs=True)
    maker.write("nomic-bert-split", tf.NomicBertModel, config(), pooling="mean", original=False)
    maker.write("nomic-bert-hub", tf.NomicBertModel, config(num_hidden_layers=2), pooling="mean", edit=nomic_hub, original=False)
    heads_of(maker, "nomic-bert", all_heads("NomicBert"), config)


# --------------------------------------------------------------------------------------------------- GTE

def gte_hub(architecture, ntk=None):
    def edit(folder):
        def tensors(old):
            old = joined(old, ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], "attention.qkv_proj")
            old = joined(old, ["mlp.up_proj", "mlp.gate_proj"], "mlp.up_gate_proj")
            names = renamed([(r"^gte\.", ""), (r"^layers", "encoder.layer"), (r"self_attn\.o_proj", "attention.o_proj"),
                             (r"post_attention_layernorm", "attn_ln"), (r"post_mlp_layernorm", "mlp_ln"),
                             (r"^(embeddings|encoder|pooler)", r"new.\1")])
            return names(old)

        def config(old):
            rope = old.pop("rope_parameters")
            for key in ("architectures", "dtype", "default_theta", "bos_token_id", "eos_token_id", "tie_word_embeddings"):
                old.pop(key, None)
            return {**old, "model_type": "new", "architectures": [architecture],
                    "auto_map": {"AutoConfig": "Alibaba-NLP/new-impl--configuration.NewConfig",
                                 "AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"},
                    "layer_norm_type": "layer_norm", "logn_attention_clip1": False, "logn_attention_scale": False, "pack_qkv": True,
                    "position_embedding_type": "rope", "rope_theta": ntk[0] if ntk else rope["rope_theta"],
                    "rope_scaling": {"factor": ntk[1], "type": "ntk"} if ntk else None, "torch_dtype": "float32",
                    "transformers_version": "4.39.1", "unpad_inputs": False, "use_memory_efficient_attention": False}
        rename(folder, tensors, config)
    return edit


def gte_multilingual(ntk):
    """gte-multilingual-base: a token classifier with one row in addition to the encoder, which embeds by its modules."""
    def edit(folder):
        gte_hub("NewForTokenClassification", ntk)(folder)
        path = f"{folder}/reference.safetensors"
        kept = {name: tensor for name, tensor in load_file(path).items() if not name.startswith(("logits", "probs"))}
        save_file(kept, path)
    return edit


def gte(maker):
    config = lambda **more: tf.GteConfig(**{**ONE, "type_vocab_size": 1, "pad_token_id": 1, **more})
    maker.write("gte", tf.GteModel, config(num_hidden_layers=2), pooling="cls")
    maker.write("gte-split", tf.GteModel, config(), pooling="mean", original=False)
    # Their NTK scaling by 8 of theta 20000: theta times 8, and every frequency divided by 8^(2/head size).
    theta, factor, head = 20000.0, 8.0, 8
    ntk = dict(rope_parameters={"rope_type": "linear", "rope_theta": theta * factor, "factor": factor ** (2 / head)})
    maker.write("gte-hub-ntk", tf.GteModel, config(num_hidden_layers=2, **ntk), pooling="cls", edit=gte_hub("NewModel", (theta, factor)),
                original=False)
    maker.write("gte-hub-no-types", tf.GteModel, config(type_vocab_size=0, pad_token_id=0, rope_parameters={
        "rope_type": "default", "rope_theta": 160000.0}), pooling="mean", edit=gte_hub("NewModel"), original=False)
    heads_of(maker, "gte", all_heads("Gte"), config)
    maker.write("gte-hub-multilingual", tf.GteForTokenClassification, config(num_labels=1, num_hidden_layers=2, **ntk), pooling="cls",
                edit=gte_multilingual((theta, factor)), original=False, normalize=True, seed=930)
    maker.write("gte-hub-regression", tf.GteForSequenceClassification, config(num_labels=1, **ntk, **TINY),
                edit=gte_hub("NewForSequenceClassification", (theta, factor)), original=False)


# -------------------------------------------------------------------------------------------------- Jina

TASKS = ["retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"]
INSTRUCTIONS = ["Represent the query for retrieving evidence documents: ", "Represent the document for retrieval: ", "", "", ""]
FLASH = [(r"embeddings\.LayerNorm", "emb_ln"), (r"(^|\.)layers", r"\1encoder.layers"), (r"self_attn\.o_proj", "mixer.out_proj"),
         (r"post_attention_layernorm", "norm1"), (r"post_mlp_layernorm", "norm2")]


def jina_hub(lora):
    """The names of xlm-roberta-flash-implementation; `lora` maps the name of a weight to A and B."""
    def edit(folder):
        def tensors(old):
            new = renamed(FLASH)(joined(old, ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], "mixer.Wqkv"))
            out = {}
            for name, tensor in new.items():
                if name in lora:
                    base = "roberta." + name.removesuffix(".weight")
                    out[f"{base}.parametrizations.weight.original"] = tensor
                    out[f"{base}.parametrizations.weight.0.lora_A"], out[f"{base}.parametrizations.weight.0.lora_B"] = lora[name]
                else:
                    out["roberta." + name] = tensor
            return out

        def config(old):
            rope = old.pop("rope_parameters")
            old.pop("default_theta", None)
            old.pop("dtype", None)
            more = {"lora_adaptations": TASKS, "lora_alpha": 1, "lora_dropout_p": 0.0, "lora_main_params_trainable": False,
                    "lora_rank": 4, "load_trained_adapters": True, "task_instructions": dict(zip(TASKS, INSTRUCTIONS)),
                    "matryoshka_dimensions": [4, 8, 16], "truncate_dim": None} if lora else {}
            return {**old, "model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], "position_embedding_type": "rotary",
                    "auto_map": {"AutoConfig": "jinaai/xlm-roberta-flash-implementation--configuration_xlm_roberta.XLMRobertaFlashConfig",
                                 "AutoModel": "jinaai/xlm-roberta-flash-implementation--modeling_lora.XLMRobertaLoRA"},
                    "rotary_emb_base": rope["rope_theta"], "torch_dtype": "float32", "use_flash_attn": True, "use_cache": True, **more}
        rename(folder, tensors, config)
    return edit


def jina_lora(maker):
    """The weights of the hub with an adapter for each task; the references are of the merged weights, of none and of each."""
    if not maker.wants("jina-v3-hub-lora"):
        return
    folder = maker.folder("jina-v3-hub-lora")
    make = lambda config: tf.JinaEmbeddingsV3Model(config, add_pooling_layer=False)
    config = tf.JinaEmbeddingsV3Config(**{**ONE, **ROBERTA, **TINY})
    model = randomize(make(config), maker.seed)
    model.save_pretrained(folder, save_original_format=False)
    generator = torch.Generator().manual_seed(maker.seed + 1)
    random = lambda *shape: torch.randn(shape, generator=generator) * 0.2
    plain = {k: v.clone() for k, v in model.state_dict().items()}
    fused = renamed(FLASH)(joined(plain, ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], "mixer.Wqkv"))
    lora = {}
    for name, weight in fused.items():
        if weight.dim() == 2:
            rows, columns = weight.shape
            if "embeddings" in name:  # W + A B: A has a row for each id
                lora[name] = random(len(TASKS), rows, 4), random(len(TASKS), 4, columns)
            else:  # W + B A
                lora[name] = random(len(TASKS), 4, columns), random(len(TASKS), rows, 4)
    jina_hub(lora)(folder)
    sentences = [*texts(maker.seed, LENGTHS), with_pads(1)]
    columns = {}
    for task in [None, *TASKS]:
        merged = {}
        for name, weight in plain.items():
            place = renamed(FLASH)({name: 0})
            place = next(iter(place)).replace("self_attn.q_proj", "mixer.Wqkv").replace("self_attn.k_proj", "mixer.Wqkv").replace(
                "self_attn.v_proj", "mixer.Wqkv")
            merged[name] = weight.double()
            if task is None or place not in lora:
                continue
            a, b = (one[TASKS.index(task)].double() for one in lora[place])
            delta = (a @ b if "embeddings" in name else b @ a) * (1 / 4)  # alpha / rank
            if place.endswith("Wqkv.weight"):
                first = ["q", "k", "v"].index(re.search(r"self_attn\.(.)_proj", name)[1]) * weight.shape[0]
                delta = delta[first:first + weight.shape[0]]
            merged[name] = merged[name] + delta
        exact = in_double(make, config, merged)
        hidden = [compute(exact, ids).last_hidden_state for ids in sentences]
        end = f"_{task}" if task else ""
        if not task:
            columns["hidden_f64"] = torch.cat([h[0] for h in hidden])
        columns[f"embedding{end}_f64"] = torch.cat([POOLINGS["mean"](h) for h in hidden])
    write_reference(folder, sentences, columns)
    write_pooling(folder, config.hidden_size, "mean", normalize=True)
    modules = read_json(f"{folder}/modules.json")
    modules[0] = {"idx": 0, "name": "transformer", "path": "", "type": "custom_st.Transformer", "kwargs": ["task"]}  # theirs
    write_json(f"{folder}/modules.json", modules)


def flash_reranker(folder):
    """jina-reranker-v2: XLM-R with positions, in the names of xlm-roberta-flash-implementation."""
    def tensors(old):
        old = joined(old, ["attention.self.query", "attention.self.key", "attention.self.value"], "mixer.Wqkv")
        return renamed([(r"embeddings\.LayerNorm", "emb_ln"), (r"encoder\.layer\.", "encoder.layers."),
                        (r"attention\.output\.dense", "mixer.out_proj"), (r"attention\.output\.LayerNorm", "norm1"),
                        (r"intermediate\.dense", "mlp.fc1"), (r"output\.dense", "mlp.fc2"), (r"output\.LayerNorm", "norm2")])(old)

    def config(old):
        return {**old, "auto_map": {
            "AutoConfig": "configuration_xlm_roberta.XLMRobertaFlashConfig",
            "AutoModel": "modeling_xlm_roberta.XLMRobertaModel",
            "AutoModelForSequenceClassification": "modeling_xlm_roberta.XLMRobertaForSequenceClassification"},
            "position_embedding_type": "absolute", "use_flash_attn": False, "torch_dtype": "float32"}
    rename(folder, tensors, config)


def jina(maker):
    config = lambda **more: tf.JinaEmbeddingsV3Config(**{**ONE, **ROBERTA, **more})
    maker.write("jina-v3", tf.JinaEmbeddingsV3Model, config(num_hidden_layers=2), pooling="mean")
    maker.write("jina-v3-split", tf.JinaEmbeddingsV3Model, config(), pooling="mean", original=False)
    maker.write("jina-v3-hub", lambda config: tf.JinaEmbeddingsV3Model(config, add_pooling_layer=False), config(), pooling="mean",
                edit=jina_hub({}), original=False)
    jina_lora(maker)
    heads_of(maker, "jina-v3", all_heads("JinaEmbeddingsV3"), config)
    maker.write("jina-reranker-hub", tf.XLMRobertaForSequenceClassification, tf.XLMRobertaConfig(**{**ONE, **ROBERTA, **TINY}, num_labels=1),
                edit=flash_reranker)


# ----------------------------------------------------------------------------------------------- ColBERT

def colbert(maker):
    """HF_ColBERT: BERT and a linear layer without bias; the vector of each token has length 1."""
    if not maker.wants("colbert"):
        return
    config = tf.BertConfig(**ONE)
    make = lambda config: tf.BertModel(config)
    folder = maker.folder("colbert")
    model = randomize(make(config), maker.seed)
    model.save_pretrained(folder)
    weight = torch.randn(24, 32, generator=torch.Generator().manual_seed(maker.seed)) * 0.2
    rename(folder, lambda old: {**{"bert." + k: v for k, v in old.items()}, "linear.weight": weight},
           lambda old: {**old, "architectures": ["HF_ColBERT"]})
    exact = in_double(make, config, {k: v.clone() for k, v in model.state_dict().items()})
    sentences = [*texts(maker.seed, LENGTHS), with_pads(0)]
    hidden = torch.cat([compute(exact, ids).last_hidden_state[0] for ids in sentences])
    write_reference(folder, sentences, {"hidden_f64": hidden, "vectors_f64": torch.nn.functional.normalize(
        hidden @ weight.double().T, dim=-1)})


FAMILIES = [nomic, gte, jina, colbert]
