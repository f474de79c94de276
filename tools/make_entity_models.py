#!/usr/bin/env python3
"""Write the small GLiNER models of tests/data/entities, with random weights and the entities of the reference package.

    tools/make_entity_models.py tests/data/entities            writes the models and reference.json of each
    tools/make_entity_models.py --compare tests/data/entities  compares gpuserve with the reference on 1,000 texts of each

Each folder is an ordinary GLiNER directory: gliner_config.json, pytorch_model.bin or model.safetensors, tokenizer files.
reference.json holds cases: settings, labels (of all texts, or of each), texts, and the entities of each text as
[first byte, end byte, index of the label, score]. Texts are left out that have a word without tokens (has_tokens()), or whose result hangs on a rounding error: a score within 2e-5 of the threshold, or two scores within 2e-6 of each other.

Needs torch, transformers, tokenizers and gliner (0.2.29); --compare needs gpuserve's Python package instead of nothing.
"""
import argparse
import json
import random
import shutil
import sys
import warnings
from pathlib import Path

import torch
import transformers
from gliner import GLiNER
from gliner.config import UniEncoderSpanConfig, UniEncoderTokenConfig
from gliner.model import UniEncoderSpanGLiNER, UniEncoderTokenGLiNER
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

WORDS = ("Ada Lovelace wrote the first program in London for Charles Babbage . Marie Curie , born in Warsaw , won two Nobel "
         "Prizes at the University of Paris ! on 7 November 1867 she said : radium is well-known and state-of-the-art ; call "
         "+44 20 7946 0958 or mail ada@example.org about the order_id 4711 from Berlin to New York ? it cost $ 3.50 ( about "
         "3 \u20ac ) at the caf\u00e9 na\u00efve \u6771\u4eac \u0939\u093f\u0928\u094d\u0926\u0940 \U0001f600 O'Neill's e-mail -- _x_").split(" ")
LABELS = ["person", "city", "date", "organization", "phone number", "email address", "product", "price"]
DEBERTA = {"model_type": "deberta-v2", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
           "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16, "max_relative_positions": -1,
           "max_position_embeddings": 128, "norm_rel_ebd": "layer_norm", "share_att_key": True, "position_biased_input": False,
           "type_vocab_size": 0, "layer_norm_eps": 1e-7, "initializer_range": 0.3}
BERT = {"model_type": "bert", "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
        "max_position_embeddings": 128, "initializer_range": 0.3}
MODERNBERT = {"model_type": "modernbert", "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
              "intermediate_size": 24, "max_position_embeddings": 256, "local_attention": 8, "initializer_range": 0.3,
              "pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
MODELS = {
    "deberta-spans": {"encoder": DEBERTA, "tokenizer": "unigram", "hidden_size": 16, "safe": False},
    "bert-spans": {"encoder": BERT, "tokenizer": "wordpiece", "hidden_size": 24, "num_rnn_layers": 0, "subtoken_pooling": "mean",
                   "max_width": 4, "max_len": 24, "safe": True},
    "modernbert-spans": {"encoder": MODERNBERT, "tokenizer": "bytes", "hidden_size": 20, "num_rnn_layers": 2,
                         "embed_ent_token": False, "subtoken_pooling": "last", "safe": True},
    "deberta-tokens": {"encoder": DEBERTA, "tokenizer": "unigram", "hidden_size": 16, "span_mode": "token_level",
                       "subtoken_pooling": "max", "safe": True},
}
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]


def texts_of(n, seed):
    draw = random.Random(seed)
    for _ in range(n):
        words = [draw.choice(WORDS) for _ in range(draw.choice((0, 1, 4, 9, 14, 20, 34)))]
        yield "".join(word + draw.choice((" ", " ", " ", "  ", "", "\n")) for word in words)


def make_tokenizer(kind, folder):
    if kind == "unigram":
        made = Tokenizer(models.Unigram())
        made.normalizer = normalizers.NFKC()
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        made.decoder = decoders.Metaspace(prepend_scheme="always")
        trainer = trainers.UnigramTrainer(vocab_size=180, special_tokens=SPECIAL, unk_token="[UNK]", show_progress=False)
    elif kind == "wordpiece":
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer = normalizers.BertNormalizer(lowercase=True)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=180, special_tokens=SPECIAL, show_progress=False)
    else:
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=SPECIAL, show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(list(texts_of(300, 1)) + LABELS, trainer)
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]",
                                                        special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    made.add_special_tokens(["[FLERT]", "<<ENT>>", "<<SEP>>"])
    made.save(str(folder / "tokenizer.json"))
    with open(folder / "tokenizer_config.json", "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]",
                   "unk_token": "[UNK]"}, f, indent=1)
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


def make_model(folder, options):
    """Random weights, scaled until scores are spread over 0 to 1."""
    options = dict(options)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tokenizer = make_tokenizer(options.pop("tokenizer"), folder)
    encoder = dict(options.pop("encoder"), vocab_size=len(tokenizer))
    safe = options.pop("safe")
    by_token = options.get("span_mode") == "token_level"
    options.setdefault("max_len", 32)
    config = (UniEncoderTokenConfig if by_token else UniEncoderSpanConfig)(
        model_name=str(folder), encoder_config=encoder, vocab_size=len(tokenizer),
        class_token_index=tokenizer.convert_tokens_to_ids("<<ENT>>"), dropout=0.0, **options)
    torch.manual_seed(11)
    made = (UniEncoderTokenGLiNER if by_token else UniEncoderSpanGLiNER)(config, tokenizer=tokenizer)
    with torch.no_grad():
        for name, tensor in made.model.named_parameters():
            if "bert_layer" not in name:
                tensor.mul_(1.7)
        last = made.model.scorer.out_mlp[3] if by_token else made.model.prompt_rep_layer[3]
        scores = logits(made, list(texts_of(20, 2)), LABELS[:4])
        for tensor in last.parameters():
            tensor.mul_(3.0 / scores.std())
    made.eval()
    if safe:
        (folder / "model.safetensors").unlink(missing_ok=True)
    made.save_pretrained(folder, safe_serialization=safe)
    shorten(folder)
    for name in ("special_tokens_map.json", "added_tokens.json"):
        (folder / name).unlink(missing_ok=True)


def shorten(folder):
    """The path of the folder is no part of the model."""
    path = folder / "gliner_config.json"
    config = json.loads(path.read_text())
    config["model_name"] = "random"
    path.write_text(json.dumps(config, indent=1) + "\n")


def logits(made, texts, labels):
    texts = [text for text in texts if text.strip()]
    batch = made.collate_batch(made.prepare_batch(texts, labels, None)["input_x"], labels)
    return made.run_batch(batch).logits


def probabilities(made, text, labels):
    """All probabilities of one text that a threshold or an overlap compares."""
    if not text.strip():
        return torch.zeros(0)
    found = torch.sigmoid(logits(made, [text], labels)[0])
    if made.config.span_mode == "markerV0":  # spans that end within the text
        words, widths = found.shape[:2]
        found = found[torch.arange(words)[:, None] + torch.arange(widths)[None] < words]
    return found.flatten()


def has_tokens(made, text):
    """True if every word has a token. The reference gives a word without one the vector of the next word, and shifts all
    words after it; gpuserve leaves the word out."""
    words = [word for word, _, _ in made.data_processor.words_splitter(text)]
    ids = made.data_processor.transformer_tokenizer(words, add_special_tokens=False)["input_ids"] if words else []
    return all(ids)


def is_stable(made, text, labels, threshold):
    if not has_tokens(made, text):
        return False
    found = probabilities(made, text, labels)
    above = found[found > threshold - 1e-4].sort().values
    return not bool(((found - threshold).abs() < 2e-5).any()) and not bool((above.diff() < 2e-6).any())


def bytes_of(text, characters):
    return len(text[:characters].encode())


def reference(made, texts, labels, threshold, nested, multi_label):
    """Entities of each text; labels are a list, or a list for each text."""
    rows = made.inference(texts, labels, flat_ner=not nested, threshold=threshold, multi_label=multi_label)
    lists = labels if texts and labels and isinstance(labels[0], list) else [labels] * len(texts)
    return [[[bytes_of(text, one["start"]), bytes_of(text, one["end"]), names.index(one["label"]), one["score"]] for one in row]
            for text, names, row in zip(texts, lists, rows)]


def settings(made):
    """Thresholds that some of the random scores exceed."""
    found = torch.cat([probabilities(made, text, LABELS[:4]) for text in texts_of(20, 6)])

    def above(part):
        part = part if made.config.span_mode == "markerV0" else 3 * part  # an entity needs several scores
        return round(min(float(found.quantile(1 - part)), 0.999), 4)

    for part in (0.1, 0.04, 0.3):
        yield above(part), False, False
    yield above(0.1), True, False
    yield above(0.1), False, True
    yield above(0.2), True, True


def cases(made, n, seed):
    """Cases of `n` texts each."""
    draw = random.Random(seed)
    for threshold, nested, multi_label in settings(made):
        for own in (False, True):
            labels = [draw.sample(LABELS, draw.randint(1, 4)) for _ in range(n)] if own else draw.sample(LABELS, 3)
            pool = list(texts_of(4 * n, draw.random()))
            texts = []
            for text in pool:
                if len(texts) == n:
                    break
                names = labels[len(texts)] if own else labels
                if is_stable(made, text, names, threshold):
                    texts.append(text)
            labels = labels[:len(texts)] if own else labels
            yield {"threshold": threshold, "nested": nested, "multi_label": multi_label, "labels": labels, "texts": texts,
                   "entities": reference(made, texts, labels, threshold, nested, multi_label)}


def load(folder):
    made = GLiNER.from_pretrained(str(folder), local_files_only=True)
    made.eval()
    return made


def write(folder, options):
    make_model(folder, options)
    rows = list(cases(load(folder), 4, 3))
    with open(folder / "reference.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    n = sum(len(found) for row in rows for found in row["entities"])
    print(f"{folder.name}: {len(rows)} cases, {sum(len(row['texts']) for row in rows)} texts, {n} entities")


def compare(folder, n):
    """Differences to gpuserve on n texts: (texts, entities, texts that differ, greatest difference of a score)."""
    import gpuserve
    made, ours = load(folder), gpuserve.Model(str(folder), device="cpu")
    texts = entities = wrong = 0
    greatest = 0.0
    for row in cases(made, n // 12 + 1, 5):
        found = ours.entities(row["texts"], labels=row["labels"], threshold=row["threshold"], nested=row["nested"],
                              multi_label=row["multi_label"])
        lists = row["labels"] if isinstance(row["labels"][0], list) else [row["labels"]] * len(row["texts"])
        for text, names, expected, got in zip(row["texts"], lists, row["entities"], found):
            got = [[bytes_of(text, one["start"]), bytes_of(text, one["end"]), names.index(one["entity_group"]), one["score"]]
                   for one in got]
            texts += 1
            entities += len(expected)
            if [one[:3] for one in expected] != [one[:3] for one in got]:
                wrong += 1
            else:
                greatest = max([greatest, *(abs(a[3] - b[3]) for a, b in zip(expected, got))])
    print(f"{folder.name}: {texts} texts, {entities} entities, {wrong} texts differ, scores within {greatest:.2g}")
    return wrong == 0 and greatest <= 1e-5


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--texts", type=int, default=1000)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    if args.compare:
        results = [compare(args.folder / name, args.texts) for name in MODELS]
        sys.exit(not all(results))
    for name, options in MODELS.items():
        write(args.folder / name, options)


main()
