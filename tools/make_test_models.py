#!/usr/bin/env python3
"""Write the tiny random models of tests/data/models, with what torch computes of them in float64.

Usage: make_test_models.py [OUT]        (default tests/data/models)
Needs torch, transformers and sentence-transformers; made with 1.13, 4.46.3 and 3.3.1 on a CPU, those of tokens with
torch 2.15 and transformers 5.23, st-xlm-roberta with these and sentence-transformers 6.2.

Each model is an ordinary directory with one more file, reference.safetensors:
    ids, n_tokens   the texts, as token ids one after the other
    hidden_f64      the last hidden state, a row for each token
    embedding_f64   one row a text, where the model embeds
    logits_f64      one row a text, where the model classifies; probs_f64 as its problem_type says
    sparse_f64      one row a text of max over its tokens of log(1 + relu(logit)), of masked language models
or, for models with a tokenizer, texts.json: texts, ids, mean embeddings; pairs.json: texts, second texts or null, and the logits; for those that label tokens
entities.json: texts, the logits of each token, and the entities of transformers' pipeline.
"""
import json
import os
import shutil
import sys
import tempfile
import unicodedata

import tokenizers
import torch
import transformers as tf
from charsmap import precompiled
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer, models
from tokenizers import Tokenizer, trainers

torch.set_grad_enabled(False)
OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../tests/data/models")
VOCAB = ["[PAD]", "<pad>", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [chr(97 + i) for i in range(26)] \
    + ["##" + chr(97 + i) for i in range(26)] + [f"w{i}" for i in range(38)]
BERT = dict(vocab_size=len(VOCAB), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=64, max_position_embeddings=40)
LENGTHS = [1, 2, 7, 16, 33, 5]


def randomize(model, seed):
    """transformers' own start values are so small that most mistakes would not show."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if p.dim() == 2:
            p.copy_(noise * (0.5 if "embedding" in name else 0.2))
        else:
            p.copy_(noise * 0.1 + (1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0))
    return model.eval()


def texts(seed, lengths):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(6, len(VOCAB), (1, n), generator=generator) for n in lengths]


def mean(hidden):
    return hidden.mean(1)


def refer(folder, model, sentences, embed=mean, probs=None, sparse=False):
    """Compute the reference of a transformers model from the folder's own weights."""
    model = model.double()
    encoder = model.base_model
    out = {"ids": torch.cat([s[0] for s in sentences]).int(),
           "n_tokens": torch.tensor([s.shape[1] for s in sentences]).int()}
    hidden = [encoder(input_ids=s).last_hidden_state for s in sentences]
    out["hidden_f64"] = torch.cat([h[0] for h in hidden])
    if embed:
        out["embedding_f64"] = torch.cat([embed(h) for h in hidden])
    if probs:
        logits = torch.cat([model(input_ids=s).logits for s in sentences])
        out["logits_f64"], out["probs_f64"] = logits, probs(logits)
    if sparse:
        logits = [model(input_ids=s).logits[0] for s in sentences]
        out["sparse_f64"] = torch.stack([torch.log1p(torch.relu(one)).max(0).values for one in logits])
    save_file({k: v.contiguous() for k, v in out.items()}, f"{folder}/reference.safetensors")


def folder_of(name):
    folder = os.path.join(OUT, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def plain(name, make, config, seed, lengths=LENGTHS, dtype=torch.float32, embed=mean, probs=None, sparse=False, **save):
    """A model as transformers saves it, referred to what the saved numbers are."""
    folder = folder_of(name)
    model = randomize(make(config), seed).to(dtype)
    model.save_pretrained(folder, safe_serialization=True, **save)
    refer(folder, model, texts(seed, lengths), embed, probs, sparse)
    return folder


def old_names(folder):
    """LayerNorm.gamma and .beta, as the first BERT checkpoints and their descendants have them."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.startswith("model") and name.endswith(".safetensors"):
            rename = lambda k: k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            save_file({rename(k): v for k, v in load_file(path).items()}, path, metadata={"format": "pt"})
        elif name.endswith(".index.json"):
            with open(path) as f:
                text = f.read()
            with open(path, "w") as f:
                f.write(text.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"))


def sentence_model(name, seed, poolings, dense, normalize, prompts=None, default=None):
    """A directory as sentence-transformers saves it, and what its modules compute."""
    folder = folder_of(name)
    with tempfile.TemporaryDirectory() as base:
        randomize(tf.BertModel(tf.BertConfig(**BERT)), seed).save_pretrained(base)
        with open(f"{base}/vocab.txt", "w") as f:
            f.write("\n".join(VOCAB) + "\n")
        tf.BertTokenizerFast(f"{base}/vocab.txt").save_pretrained(base)
        chain = [models.Transformer(base, max_seq_length=36)]
        chain.append(models.Pooling(32, **{"pooling_mode_mean_tokens": False, **{p: True for p in poolings}}))
        if dense:
            chain.append(models.Dense(chain[-1].get_sentence_embedding_dimension(), dense,
                                      activation_function=torch.nn.Tanh()))
            randomize(chain[-1], seed + 1)
        if normalize:
            chain.append(models.Normalize())
        model = SentenceTransformer(modules=chain, prompts=prompts, default_prompt_name=default, device="cpu")
        model.save(folder, create_model_card=False)
    sentences = texts(seed, LENGTHS)
    model = model.double().eval()
    vectors = [model({"input_ids": s, "attention_mask": torch.ones_like(s)})["sentence_embedding"] for s in sentences]
    refer(folder, chain[0].auto_model, sentences)
    path = f"{folder}/reference.safetensors"
    save_file({**load_file(path), "embedding_f64": torch.cat(vectors).contiguous()}, path)
    for extra in ("special_tokens_map.json", "README.md"):
        if os.path.exists(f"{folder}/{extra}"):
            os.remove(f"{folder}/{extra}")
    return folder


PAIRS = [("w1 w2 w3", "w4 w5"), ("cab", "w30 w31 w32 w33"), ("", "w7"), ("w8", ""), ("w1", None),
         ("w2 bad w3 w3", None), ("w1 w2 w3", "w3 w2 w1"), ("w1 w2 w3", "w4 w5 " * 3), (" ".join(["w9"] * 30), "w10 w11"),
         ("w12 w13", " ".join(["w14 w15"] * 20)), (" ".join(["w16"] * 30), " ".join(["w17"] * 31))]


def classifier_of_text(name, config, seed):
    """A classifier with its tokenizer, and what transformers makes of texts and pairs of texts, cut to 40 tokens."""
    folder = folder_of(name)
    model = randomize(tf.BertForSequenceClassification(config), seed)
    model.save_pretrained(folder, safe_serialization=True)
    with open(f"{folder}/vocab.txt", "w") as f:
        f.write("\n".join(VOCAB) + "\n")
    tokenizer = tf.BertTokenizerFast(f"{folder}/vocab.txt", model_max_length=40)
    tokenizer.save_pretrained(folder)
    os.remove(f"{folder}/special_tokens_map.json")
    model = model.double()
    rows = [{"text": a, "pair": b, "logits": model(**tokenizer(
        [a], [b] if b is not None else None, truncation=True, return_tensors="pt")).logits[0].tolist()} for a, b in PAIRS]
    with open(f"{folder}/pairs.json", "w") as f:
        json.dump(rows, f, indent=1)


ENTITIES = ["w1 w2 w3 w4", "cab w30 bad w31 caf\u00e9 w32, w33", "W1 \u00c4B \U0001f600 w7 unknown\u4e2d w8", "", "w9",
            " ".join(f"w{i} ab" for i in range(9)), " ".join(["w9 bad w3"] * 30)]


def token_classifier(name, make, config, seed):
    """Labels of tokens with a tokenizer: the logits, and what transformers' pipeline makes of them, cut to 40 tokens."""
    folder = folder_of(name)
    model = randomize(make(config), seed)
    model.classifier.weight.mul_(3)  # so that neighbours now and then agree
    model.save_pretrained(folder, safe_serialization=True)
    with open(f"{folder}/vocab.txt", "w") as f:
        f.write("\n".join(VOCAB) + "\n")
    tokenizer = tf.BertTokenizerFast(f"{folder}/vocab.txt", model_max_length=40)
    tokenizer.save_pretrained(folder)
    for extra in ("special_tokens_map.json", "README.md"):
        if os.path.exists(f"{folder}/{extra}"):
            os.remove(f"{folder}/{extra}")
    pipeline = tf.pipeline("token-classification", model=folder, tokenizer=tokenizer, dtype=torch.float64)
    rows = []
    for text in ENTITIES:
        encoded = tokenizer([text], truncation=True, return_tensors="pt", return_offsets_mapping=True)
        offsets = encoded.pop("offset_mapping")[0].tolist()
        encoded.pop("token_type_ids") if make is tf.DistilBertForTokenClassification else None
        row = {"text": text, "offsets": offsets, "ids": encoded["input_ids"][0].tolist(),
               "logits": model.double()(**encoded).logits[0].tolist()}
        cut = text[:max([end for _, end in offsets] + [0])]
        for strategy in ("none", "simple"):
            found = pipeline(cut, aggregation_strategy=strategy) if cut else []
            row[strategy] = [{**one, "score": float(one["score"])} for one in found]
        rows.append(row)
    with open(f"{folder}/entities.json", "w") as f:
        json.dump(rows, f)
        f.write("\n")


BYTES = ["A cat sat on the mat.", "  two spaces  and\ta tab\n", "na\u00efve caf\u00e9 \U0001f600 \u6771\u4eac", "", "It's what they'd call 1234 times 56!",
         "left <mask> right", "don't   stop " * 20]


def embedder_of_text(name, seed):
    """RoBERTa with a byte-level tokenizer, and the mean of what it computes of texts, cut to 38 tokens."""
    folder = folder_of(name)
    bpe = Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    bpe.train_from_iterator(BYTES * 3, tokenizers.trainers.BpeTrainer(
        vocab_size=330, special_tokens=special, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    bpe.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True, special=True)])
    bpe.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    bpe.save(f"{folder}/tokenizer.json")
    model = randomize(tf.RobertaModel(tf.RobertaConfig(**{**BERT, "vocab_size": bpe.get_vocab_size()}, pad_token_id=1, type_vocab_size=1),
                                      add_pooling_layer=False), seed)
    model.save_pretrained(folder, safe_serialization=True)
    tokenizer = tf.PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json", model_max_length=38)
    rows = []
    for text in BYTES:
        ids = tokenizer(text, truncation=True, return_tensors="pt", return_token_type_ids=False)
        hidden = model.double()(**ids).last_hidden_state
        rows.append({"text": text, "ids": ids["input_ids"][0].tolist(), "embedding": mean(hidden)[0].tolist()})
    with open(f"{folder}/texts.json", "w") as f:
        json.dump(rows, f)
        f.write("\n")


MULTILINGUAL = ["query: how much protein should a female eat", "passage: As a general guideline, the CDC's average", "",
                "Schöne Grüße aus Köln! ﬁne ＦＵＬＬ １２３ ½ ™", "  two   spaces\u3000and\ttabs \u2581 ", "ประเทศไทย  รวมเลือดเนื้อ", "東京の天気はどうですか。",
                "सभी मनुष्यों को", "Привет, мир! Ё", "e\u0301 \u1112\u1161\u11ab 한국", "👩\u200d👩\u200d👧 👍🏽 ❤️", "<s> </s><mask> unk \ufffd",
                "word " * 60]


def unigram_tokenizer(folder):
    """XLM-R's tokenizer.json on a small scale: NFKC of some characters as charsmap, Metaspace, some pieces."""
    characters = "ﬁ½™ＦＵＬ１２３\u3000\t\n"
    texts = {c.encode(): " " if c.isspace() else unicodedata.normalize("NFKC", c) for c in characters}
    texts.update({"e\u0301".encode(): "é", "\u200d".encode(): " "})
    space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    whole = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": [
            precompiled(texts), {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
        "pre_tokenizer": space, "post_processor": None, "decoder": space,
        "model": {"type": "Unigram", "unk_id": 3, "vocab": [[t, 0.0] for t in special]}}
    trained = Tokenizer.from_str(json.dumps(whole))
    trained.train_from_iterator(MULTILINGUAL * 3, trainers.UnigramTrainer(
        vocab_size=250, special_tokens=special, unk_token="<unk>", show_progress=False))
    whole["model"] = json.loads(trained.to_str())["model"]
    whole["model"]["vocab"] = [p for p in whole["model"]["vocab"] if p[0] not in "👩👍東"] + [["<mask>", 0.0]]
    n = len(whole["model"]["vocab"])
    whole["added_tokens"] = [
        {"id": i, "content": t, "single_word": False, "lstrip": t == "<mask>", "rstrip": False, "normalized": False,
         "special": True} for i, t in [*enumerate(special), (n - 1, "<mask>")]]
    ends = {t: {"id": t, "ids": [i], "tokens": [t]} for i, t in ((0, "<s>"), (2, "</s>"))}
    begin, end = ({"SpecialToken": {"id": t, "type_id": 0}} for t in ends)
    a, b = ({"Sequence": {"id": which, "type_id": 0}} for which in "AB")
    whole["post_processor"] = {"type": "TemplateProcessing", "single": [begin, a, end],
                               "pair": [begin, a, end, end, b, end], "special_tokens": ends}
    with open(f"{folder}/tokenizer.json", "w") as f:
        json.dump(whole, f, ensure_ascii=False)
    with open(f"{folder}/tokenizer_config.json", "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 40, "bos_token": "<s>",
                   "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>",
                   "pad_token": "<pad>", "mask_token": "<mask>"}, f, indent=1)
    return n


def multilingual(name, seed):
    """An XLM-R embedder with its tokenizer; what sentence-transformers makes of texts in float64."""
    folder = folder_of(name)
    n = unigram_tokenizer(folder)
    config = tf.XLMRobertaConfig(**{**BERT, "vocab_size": n, "max_position_embeddings": 42}, pad_token_id=1,
                                 type_vocab_size=1)
    randomize(tf.XLMRobertaModel(config), seed).save_pretrained(folder)
    with tempfile.TemporaryDirectory() as saved:
        chain = [models.Transformer(folder, max_seq_length=40), models.Pooling(32), models.Normalize()]
        SentenceTransformer(modules=chain, device="cpu").save(saved, create_model_card=False)
        for part in ("modules.json", "1_Pooling", "sentence_bert_config.json"):
            (shutil.copytree if part == "1_Pooling" else shutil.copy)(f"{saved}/{part}", f"{folder}/{part}")
    model = SentenceTransformer(folder, device="cpu").double()
    with open(f"{folder}/expected.json", "w") as f:
        json.dump({"texts": MULTILINGUAL, "embeddings": model.encode(MULTILINGUAL).astype("float64").tolist()}, f)
        f.write("\n")


def without_prompt(folder):
    """Pooling leaves the prompt out: texts through sentence-transformers' encode with each prompt."""
    with open(f"{folder}/1_Pooling/config.json") as f:
        pooling = json.load(f)
    with open(f"{folder}/1_Pooling/config.json", "w") as f:
        json.dump({**pooling, "include_prompt": False}, f, indent=2)
    model = SentenceTransformer(folder, device="cpu").double()
    sentences = ["w1 w2 w3", "cab", "w4 " * 60, "w5 w6 w7 w8 w9 bad", "w30"]
    rows = [{"prompt_name": name, "texts": sentences, "embeddings": model.encode(
        sentences, prompt_name=name).astype("float64").tolist()} for name in ("query", "empty", None)]
    with open(f"{folder}/expected.json", "w") as f:
        json.dump(rows, f)
        f.write("\n")


def newer_names(folder):
    """The same directory as release 6 of sentence-transformers writes it."""
    kinds = {"Transformer": "base.modules.transformer.Transformer",
             "Pooling": "sentence_transformer.modules.pooling.Pooling",
             "Normalize": "sentence_transformer.modules.normalize.Normalize",
             "Dense": "base.modules.dense.Dense"}
    with open(f"{folder}/modules.json") as f:
        modules = json.load(f)
    for module in modules:
        module["type"] = "sentence_transformers." + kinds[module["type"].split(".")[-1]]
    with open(f"{folder}/modules.json", "w") as f:
        json.dump(modules, f, indent=2)
    with open(f"{folder}/1_Pooling/config.json", "w") as f:
        json.dump({"embedding_dimension": 32, "pooling_mode": "cls", "include_prompt": True}, f, indent=2)


softmax = lambda logits: torch.softmax(logits, 1)
config = tf.BertConfig(**BERT)
plain("bert", tf.BertModel, config, 1)
plain("bert-f16", tf.BertModel, config, 2, dtype=torch.float16)
plain("bert-bf16", tf.BertModel, config, 3, dtype=torch.bfloat16)
plain("bert-gelu-new", tf.BertModel, tf.BertConfig(**BERT, hidden_act="gelu_new"), 4)
old_names(plain("bert-sharded", tf.BertForMaskedLM, config, 5, max_shard_size="50KB"))
plain("bert-single", tf.BertForSequenceClassification,
      tf.BertConfig(**BERT, id2label={0: "bad", 1: "good", 2: "so so"}, problem_type="single_label_classification"),
      6, embed=None, probs=softmax)
plain("bert-multi", tf.BertForSequenceClassification,
      tf.BertConfig(**BERT, num_labels=4, problem_type="multi_label_classification"),
      7, embed=None, probs=torch.sigmoid)
plain("bert-regression", tf.BertForSequenceClassification, tf.BertConfig(**BERT, num_labels=1), 8, embed=None,
      probs=lambda logits: logits.clone())
plain("mpnet", tf.MPNetModel, tf.MPNetConfig(**{**BERT, "max_position_embeddings": 202}), 9, lengths=LENGTHS + [200])
plain("roberta", tf.RobertaModel, tf.RobertaConfig(**BERT, pad_token_id=1, type_vocab_size=1), 10)
plain("xlm-roberta-single", tf.XLMRobertaForSequenceClassification,
      tf.XLMRobertaConfig(**BERT, pad_token_id=1, type_vocab_size=1), 11, embed=None, probs=softmax)
DISTIL = dict(vocab_size=len(VOCAB), dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=40)
plain("distilbert-single", tf.DistilBertForSequenceClassification, tf.DistilBertConfig(**DISTIL, num_labels=3), 12,
      embed=None, probs=softmax)
sentence_model("st-dense", 13, ["pooling_mode_mean_tokens", "pooling_mode_max_tokens"], 24, True,
               {"query": "query: ", "passage": "passage: "}, "query")
sentence_model("st-poolings", 14, ["pooling_mode_cls_token", "pooling_mode_max_tokens", "pooling_mode_mean_tokens",
                                   "pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens",
                                   "pooling_mode_lasttoken"], 0, False)
newer_names(sentence_model("st-newer", 15, ["pooling_mode_cls_token"], 0, True))
for family, model, masked in (("bert", tf.BertForMaskedLM, config),
                              ("distilbert", tf.DistilBertForMaskedLM, tf.DistilBertConfig(**DISTIL)),
                              ("roberta", tf.RobertaForMaskedLM, tf.RobertaConfig(**BERT, pad_token_id=1, type_vocab_size=1)),
                              ("mpnet", tf.MPNetForMaskedLM, tf.MPNetConfig(**BERT))):
    plain(family + "-masked", model, masked, 16, sparse=True)
classifier_of_text("bert-cross-encoder", tf.BertConfig(**BERT, num_labels=1), 17)
classifier_of_text("bert-pairs", tf.BertConfig(**BERT, id2label={0: "no", 1: "maybe", 2: "yes"}), 18)
classifier_of_text("bert-pairs-multi", tf.BertConfig(**BERT, num_labels=4, problem_type="multi_label_classification"), 19)
without_prompt(sentence_model("st-no-prompt", 20, ["pooling_mode_cls_token", "pooling_mode_mean_tokens", "pooling_mode_mean_sqrt_len_tokens"], 0, True,
                              {"query": "w20 w21: ", "empty": ""}))
LABELS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC", 5: "MISC"}
token_classifier("bert-tokens", tf.BertForTokenClassification, tf.BertConfig(**BERT, id2label=LABELS), 21)
token_classifier("distilbert-tokens", tf.DistilBertForTokenClassification, tf.DistilBertConfig(**DISTIL, id2label=LABELS), 22)
embedder_of_text("roberta-texts", 23)
multilingual("st-xlm-roberta", 24)
