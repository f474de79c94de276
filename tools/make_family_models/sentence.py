"""Chains of sentence-transformers and other directories with a tokenizer, as the package saves them.

In addition to reference.safetensors each has expected.json: texts, and what encode() makes of them in float64, by task.
"""
import os
import shutil
import tempfile

import torch
import transformers as tf
from encoders import ONE
from reference import LENGTHS, InDouble, randomize, read_json, texts, write_json, write_reference
from safetensors.torch import save_file
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling, StaticEmbedding, WeightedLayerPooling
from sentence_transformers.cross_encoder.modules.logit_score import LogitScore
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = ["[PAD]", "<pad>", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [chr(97 + i) for i in range(12)] \
    + ["##" + chr(97 + i) for i in range(12)] + [f"w{i}" for i in range(18)]
TEXTS = ["w1 w2 w3", "cab", "", "w4 bad w5 unknown", "W7 w8 w9 w10 w11 w12", "w0 " * 40]


def tiny_bert(folder, seed, make=tf.BertModel, **more):
    randomize(make(tf.BertConfig(**{**ONE, "vocab_size": len(WORDS), **more})), seed).save_pretrained(folder)
    with open(f"{folder}/vocab.txt", "w") as file:
        file.write("\n".join(WORDS) + "\n")
    tf.BertTokenizerFast(vocab=f"{folder}/vocab.txt", model_max_length=33).save_pretrained(folder)


def tidy(folder):
    for top, _, files in os.walk(folder):
        for name in files:
            if name in ("README.md", "special_tokens_map.json", "generation_config.json"):
                os.remove(f"{top}/{name}")


def exact(model):
    """encode() in float64."""
    def encode(sentences, **more):
        with InDouble():
            return model.double().encode(sentences, convert_to_numpy=True, **more).astype("float64")
    return encode


def chain(maker, name, modules, seed, tasks=(None,), token_level=False, **options):
    """Saves the modules, loads them again, and computes texts by ids and by words."""
    folder = maker.folder(name)
    saved = SentenceTransformer(modules=modules, device="cpu", **options)
    for module in modules:
        if isinstance(module, (Dense, LayerNorm, WeightedLayerPooling)):
            for one in module.parameters():
                one.copy_(torch.randn(one.shape, generator=torch.Generator().manual_seed(seed)) * 0.2 + (
                    1.0 if one.dim() == 1 and not isinstance(module, Dense) else 0.0))
    saved.save(folder, create_model_card=False)
    tidy(folder)
    model = SentenceTransformer(folder, device="cpu").double().eval()
    encode = exact(model)
    rows = {task or "": encode(TEXTS, **({"task": task} if task else {})).tolist() for task in tasks}
    write_json(f"{folder}/expected.json", {"texts": TEXTS, "embeddings": rows})
    if tasks == (None,):
        sentences = texts(seed, LENGTHS, len(WORDS))
        with InDouble():
            vectors = [model({"input_ids": s, "attention_mask": torch.ones_like(s)})["sentence_embedding"] for s in sentences]
        write_reference(folder, sentences, {"embedding_f64": torch.cat(vectors)})
    return folder


def with_bert(maker, name, modules, tasks=(None,), **bert):
    if not maker.wants(name, listed=tasks == (None,)):
        return
    torch.manual_seed(maker.seed)  # the Dense modules inside a Router keep their first weights
    with tempfile.TemporaryDirectory() as base:
        tiny_bert(base, maker.seed, **bert)
        chain(maker, name, modules(Transformer(base, max_seq_length=33)), maker.seed, tasks)


def sentence_chains(maker):
    with_bert(maker, "st-layer-norm", lambda bert: [bert, Pooling(32, "mean"), LayerNorm(32), Dense(32, 16, bias=False,
              activation_function=torch.nn.Identity()), Normalize()])
    with_bert(maker, "st-weighted-layers", lambda bert: [bert, WeightedLayerPooling(32, num_hidden_layers=3, layer_start=1),
              Pooling(32, "mean")], num_hidden_layers=3, output_hidden_states=True, intermediate_size=16)
    with_bert(maker, "st-dense-kinds", lambda bert: [
        bert, Dense(32, 24, activation_function=torch.nn.ReLU(), module_input_name="token_embeddings"), Pooling(24, "mean"),
        Dense(24, 24, activation_function=torch.nn.GELU(), use_residual=True),
        Dense(24, 16, activation_function=torch.nn.SiLU(), use_residual=True), Dense(16, 12, activation_function=torch.nn.Sigmoid())])
    with_bert(maker, "st-router-dense", lambda bert: [bert, Pooling(32, "cls"), Router.for_query_document(
              query_modules=[Dense(32, 16)], document_modules=[Dense(32, 16, bias=False)]), Normalize()], tasks=("query", "document"))
    if maker.wants("st-router-static", listed=False):
        with tempfile.TemporaryDirectory() as base:
            tiny_bert(base, maker.seed)
            static = static_embedding(maker.seed, 32)
            router = Router.for_query_document(query_modules=[static], document_modules=[
                Transformer(base, max_seq_length=33), Pooling(32, "mean")])
            chain(maker, "st-router-static", [router, Normalize()], maker.seed, ("query", "document"))
    older_asym(maker)


def older_asym(maker):
    """The Router's former name: Asym, with its own configuration."""
    if not maker.wants("st-asym", listed=False):
        return
    folder = maker.folder("st-asym")
    source = os.path.join(maker.out, "st-router-dense")
    shutil.copytree(source, folder, dirs_exist_ok=True)
    modules = read_json(f"{folder}/modules.json")
    for module in modules:
        kind = module["type"].split(".")[-1]
        module["type"] = "sentence_transformers.models." + ("Asym" if kind == "Router" else kind)
        if kind == "Router":
            place = f"{folder}/{module['path']}"
            router = read_json(f"{place}/router_config.json")
            os.remove(f"{place}/router_config.json")
            write_json(f"{place}/config.json", {
                "types": {k: "sentence_transformers.models." + v.split(".")[-1] for k, v in router["types"].items()},
                "structure": router["structure"], "parameters": {"allow_empty_key": True}})
    write_json(f"{folder}/modules.json", modules)


def word_tokenizer():
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def static_embedding(seed, width):
    weights = torch.randn(len(WORDS), width, generator=torch.Generator().manual_seed(seed))
    return StaticEmbedding(word_tokenizer(), embedding_weights=weights)


def static(maker):
    """StaticEmbedding of sentence-transformers, and the directory of model2vec with its mapping and weights."""
    spoken = [t for t in TEXTS if t]
    if maker.wants("st-static", listed=False):
        folder = maker.folder("st-static")
        SentenceTransformer(modules=[static_embedding(maker.seed, 16), Normalize()], device="cpu").save(folder, create_model_card=False)
        tidy(folder)
        encode = exact(SentenceTransformer(folder, device="cpu"))
        write_json(f"{folder}/expected.json", {"texts": spoken, "embeddings": {"": encode(spoken).tolist()}})
    for name, mapped in (("model2vec", False), ("model2vec-mapping", True)):
        if not maker.wants(name, listed=False):
            continue
        folder = maker.folder(name)
        generator = torch.Generator().manual_seed(maker.seed)
        weights = {"embeddings": torch.randn(20 if mapped else len(WORDS), 16, generator=generator)}
        if mapped:
            weights["mapping"] = torch.randint(0, 20, (len(WORDS),), generator=generator)
            weights["weights"] = torch.rand(len(WORDS), generator=generator) + 0.5
        save_file(weights, f"{folder}/model.safetensors")
        word_tokenizer().save(f"{folder}/tokenizer.json")
        write_json(f"{folder}/config.json", {
            "model_type": "model2vec", "architectures": ["StaticModel"], "tokenizer_name": "tiny", "apply_pca": 16, "apply_zipf": True,
            "hidden_dim": 16, "seq_length": 1000000, "normalize": True})
        write_json(f"{folder}/modules.json", [
            {"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"},
            {"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"}])
        os.makedirs(f"{folder}/1_Normalize")
        encode = exact(SentenceTransformer(folder, device="cpu"))
        write_json(f"{folder}/expected.json", {"texts": spoken, "embeddings": {"": encode(spoken).tolist()}})
        os.rmdir(f"{folder}/1_Normalize")


def word_model(folder, model):
    """A model with the tokenizer of words, which adds [CLS] and [SEP]."""
    model.save_pretrained(folder)
    tokenizer = word_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 3), ("[SEP]", 4)])
    tf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
                               mask_token="[MASK]", model_max_length=33).save_pretrained(folder)


def embeddinggemma(maker):
    """The chain of EmbeddingGemma: mean, two Dense modules without bias or activation, Normalize, and prompts."""
    if not maker.wants("embeddinggemma"):
        return
    config = tf.Gemma3TextConfig(**{
        **ONE, "num_key_value_heads": 1, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8, "num_hidden_layers": 2,
        "use_bidirectional_attention": True, "layer_types": ["sliding_attention", "full_attention"], "bos_token_id": 3, "eos_token_id": 4})
    linear = dict(bias=False, activation_function=torch.nn.Identity())
    with tempfile.TemporaryDirectory() as base:
        word_model(base, randomize(tf.Gemma3TextModel(config), maker.seed))
        chain(maker, "embeddinggemma", [Transformer(base, max_seq_length=33), Pooling(32, "mean"), Dense(32, 48, **linear),
              Dense(48, 32, **linear), Normalize()], maker.seed, prompts={"query": "w1 w2 : ", "document": "w3 : "})


def multi_vector(maker):
    """Late interaction as sentence-transformers 6 saves it: token vectors, a mask of words, expanded queries."""
    if not maker.wants("st-multi-vector", listed=False):
        return
    folder = maker.folder("st-multi-vector")
    with tempfile.TemporaryDirectory() as base:
        tiny_bert(base, maker.seed)
        dense = Dense(32, 16, bias=False, activation_function=torch.nn.Identity(), module_input_name="token_embeddings")
        bert = Transformer(base, max_seq_length=33, query_expansion={"strategy": "fixed", "length": 12, "token": "[MASK]", "attend": False})
        dense.linear.weight.copy_(torch.randn(16, 32, generator=torch.Generator().manual_seed(maker.seed)) * 0.2)
        MultiVectorEncoder(modules=[bert, dense, MultiVectorMask(skiplist_words=["w1", "a"]), Normalize(
            module_input_name="token_embeddings")], device="cpu", prompts={"query": "w16 ", "document": "w17 "}).save(
                folder, create_model_card=False)
    tidy(folder)
    model = MultiVectorEncoder(folder, device="cpu").double().eval()
    words = [t for t in TEXTS if t]
    with InDouble():
        queries = [v.tolist() for v in model.encode_query(words[:2], convert_to_numpy=True)]
        documents = [v.tolist() for v in model.encode_document(words, convert_to_numpy=True)]
        scores = model.similarity(model.encode_query(words[:2]), model.encode_document(words)).tolist()
    write_json(f"{folder}/expected.json", {"texts": words, "query": queries, "document": documents, "maxsim": scores})


def reranker(maker):
    """A causal language model as a CrossEncoder: yes minus no of the next token (LogitScore)."""
    if not maker.wants("st-logit-score", listed=False):
        return
    folder = maker.folder("st-logit-score")
    config = tf.Qwen3Config(**{**ONE, "num_key_value_heads": 2, "head_dim": 8, "bos_token_id": 3, "eos_token_id": 4,
                               "tie_word_embeddings": True})
    with tempfile.TemporaryDirectory() as base:
        word_model(base, randomize(tf.Qwen3ForCausalLM(config), maker.seed))
        model = CrossEncoder(modules=[Transformer(base, transformer_task="text-generation", max_seq_length=33),
                                      LogitScore(true_token_id=30, false_token_id=31)], device="cpu")
        model.save(folder, create_model_card=False)
    tidy(folder)
    pairs = [("w1 w2", "w3 w4"), ("cab", "w5"), ("w6 w7 w8", "bad")]
    model = CrossEncoder(folder, device="cpu")
    model.double()
    with InDouble():
        raw = model.predict(pairs, activation_fn=torch.nn.Identity(), convert_to_numpy=True).astype("float64").tolist()
        default = model.predict(pairs, convert_to_numpy=True).astype("float64").tolist()
    write_json(f"{folder}/expected.json", {"pairs": pairs, "logits": raw, "scores": default})


FAMILIES = [sentence_chains, embeddinggemma, static, multi_vector, reranker]
