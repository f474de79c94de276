#!/usr/bin/env python3
"""Write tests/data/tokenizers: directories without tokenizer.json, as older models have them, and the ids that
transformers' fast tokenizers give there.

Usage: make_test_tokenizers.py [OUT]        (default tests/data/tokenizers)
Needs transformers; made with 4.46.3.

Each directory has one more file, expected.json: a list of {"text", "pair" or null, "ids", "lower"}; with "lower" the
text went through Python's str.lower() first, as sentence-transformers does it where do_lower_case is set.
"""
import json
import os
import shutil
import sys

from transformers import AutoTokenizer

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../tests/data/tokenizers")
LETTERS = [chr(97 + i) for i in range(26)]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<unk>", "<mask>", "[unused0]", "hello", "world", "Hello", "naive",
         "naïve", "cafe", "##s", "##ing", "the", "Ω", "ο", "##ς", "##σ", "##ο", "λ", "##λ", "中", "文", "中文", "!", ",", ".", "[", "]", "<",
         ">", "/"] + LETTERS + ["##" + c for c in LETTERS] + [c.upper() for c in LETTERS] + ["##" + c.upper() for c in LETTERS]
TEXTS = ["Hello world", "HELLO naïve Café", "[MASK] the <ent> [MASK]s", "a <ent>b <ENT> [unused0] [UNUSED0]", "中文 hello中 world", "",
         "<s> x </s> <mask>", "<e1> new  <e2>tok <e3>", "ΛΟΣ ΛΣΟ Σ ΟΣ.", "K İ ǅ ẞ", "xyz[SEP]abc [CLS]", "newtokens Newtoken"]
CONFIGS = {
    "plain": {},
    "cased": {"tokenizer_config.json": {"do_lower_case": False, "tokenizer_class": "BertTokenizer"}},
    "flags": {"tokenizer_config.json": {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False}},
    "accents": {"tokenizer_config.json": {"do_lower_case": False, "strip_accents": True}},
    "map": {"tokenizer_config.json": {"do_lower_case": True, "cls_token": "[CLS]", "mask_token": "[MASK]"},
            "special_tokens_map.json": {"cls_token": "<s>", "sep_token": "</s>", "unk_token": {"content": "<unk>", "lstrip": False,
                                        "rstrip": False, "normalized": False, "single_word": False},
                                        "mask_token": {"content": "<mask>", "lstrip": True, "rstrip": False, "normalized": False,
                                                       "single_word": False}, "pad_token": "[PAD]"}},
    "added": {"added_tokens.json": {"<e2>": len(WORDS) + 1, "<ent>": len(WORDS), "newtoken": len(WORDS) + 2},
              "special_tokens_map.json": {"additional_special_tokens": ["<ent>"]}},
    "decoder": {"tokenizer_config.json": {"do_lower_case": True, "additional_special_tokens": ["<e1>"], "added_tokens_decoder": {
        str(i): {"content": content, "lstrip": content == "[MASK]", "normalized": normalized, "rstrip": False, "single_word": single,
                 "special": special}
        for i, content, normalized, single, special in (
            (len(WORDS) + 1, "NewToken", True, False, False), (0, "[PAD]", False, False, True), (1, "[UNK]", False, False, True),
            (2, "[CLS]", False, False, True), (3, "[SEP]", False, False, True), (4, "[MASK]", False, False, True),
            (len(WORDS), "<e1>", False, False, True), (len(WORDS) + 2, "<e3>", True, True, False))}},
        "special_tokens_map.json": {"cls_token": "<s>"}, "added_tokens.json": {"zzz": 5000}},
}

for name, files in CONFIGS.items():
    folder = os.path.join(OUT, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for file, content in {"config.json": {"model_type": "bert"}, **files}.items():
        with open(os.path.join(folder, file), "w") as f:
            json.dump(content, f, indent=1)
    with open(os.path.join(folder, "vocab.txt"), "w") as f:
        f.write("\n".join(WORDS) + "\n")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.is_fast
    rows = []
    for lower in (False, True):
        change = (lambda text: text.lower()) if lower else (lambda text: text)
        rows += [{"text": text, "pair": None, "lower": lower, "ids": tokenizer(change(text))["input_ids"]} for text in TEXTS]
        rows += [{"text": a, "pair": b, "lower": lower, "ids": tokenizer([change(a)], [change(b)])["input_ids"][0]}
                 for a, b in zip(TEXTS, TEXTS[1:])]
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump(rows, f, ensure_ascii=False)
        f.write("\n")
    os.remove(os.path.join(folder, "config.json"))
