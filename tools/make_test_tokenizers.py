#!/usr/bin/env python3
"""Write tests/data/tokenizers: directories without tokenizer.json, as older models have them, and the ids that
transformers' fast tokenizers give there: BERT's with a vocab.txt, RoBERTa's and GPT-2's with vocab.json and merges.txt,
XLM-RoBERTa's and CamemBERT's with sentencepiece.bpe.model.

Usage: make_test_tokenizers.py [OUT [NAME...]]        (default tests/data/tokenizers, all)
Needs transformers and sentencepiece; made with 4.46.3 and 0.2.3, but gpt2-bos, gpt2-eos and gpt2-bos-eos with 5.23: version 4 ignores
add_eos_token, and adds no second bos_token to a pair.

Each directory has one more file, expected.json: a list of {"text", "pair" or null, "ids", "lower"}; with "lower" the
text went through Python's str.lower() first, as sentence-transformers does it where do_lower_case is set. For all but BERT {"text", "pair", "ids", "types",
"spans" in bytes, "decoded" with special tokens left out}.
"""
import json
import os
import shutil
import sys

from sentencepiece import SentencePieceTrainer
from transformers import AutoTokenizer

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../tests/data/tokenizers")
NAMES = sys.argv[2:]
LETTERS = [chr(97 + i) for i in range(26)]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<unk>", "<mask>", "[unused0]", "hello", "world", "Hello", "naive",
         "naïve", "cafe", "##s", "##ing", "the", "Ω", "ο", "##ς", "##σ", "##ο", "λ", "##λ", "中", "文", "中文", "!", ",", ".", "[", "]", "<",
         ">", "/"] + LETTERS + ["##" + c for c in LETTERS] + [c.upper() for c in LETTERS] + ["##" + c.upper() for c in LETTERS]
TEXTS = ["Hello world", "HELLO naïve Café", "[MASK] the <ent> [MASK]s", "a <ent>b <ENT> [unused0] [UNUSED0]", "中文 hello中 world", "",
         "<s> x </s> <mask>", "<e1> new  <e2>tok <e3>", "ΛΟΣ ΛΣΟ Σ ΟΣ.", "K İ ǅ ẞ", "xyz[SEP]abc [CLS]", "newtokens Newtoken"]
CONFIGS = {
    "plain": {},
    "cased": {"tokenizer_config.json": {"do_lower_case": False, "tokenizer_class": "BertTokenizer"}},
    "flags": {"tokenizer_config.json": {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False,
                                        "pad_token": None}},
    "accents": {"tokenizer_config.json": {"do_lower_case": False, "strip_accents": True}},
    "map": {"tokenizer_config.json": {"do_lower_case": True, "cls_token": "[CLS]", "mask_token": "[MASK]"},
            "special_tokens_map.json": {"cls_token": "<s>", "sep_token": "</s>", "unk_token": {"content": "<unk>", "lstrip": False,
                                        "rstrip": False, "normalized": False, "single_word": False},
                                        "mask_token": {"content": "<mask>", "lstrip": True, "rstrip": False, "normalized": False,
                                                       "single_word": False}, "pad_token": "[PAD]"}},
    "added": {"added_tokens.json": {"<e2>": len(WORDS) + 1, "<ent>": len(WORDS), "newtoken": len(WORDS) + 2, "[MASK]": 4},
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

# RoBERTa's and GPT-2's: bytes, and merges that are some of GPT-2's first ones.
BYTES = [chr(b) for b in (*range(33, 127), *range(161, 173), *range(174, 256))] + [chr(256 + i) for i in range(68)]
MERGES = ["Ġ t", "Ġ a", "h e", "i n", "r e", "o n", "Ġt he", "e r", "Ġ s", "a t", "Ġ w", "Ġ o", "e n", "Ġ c", "i t", "i s", "a n", "o r", "e s",
          "Ġ b", "e d", "Ġ f", "in g", "l l", "Ġ h", "o u", "Ġ m", "r o", "Ġ Ġ", "ĠĠ ĠĠ", "1 1", "Ã ©", "ä ¸", "ä¸ Ń", "H e", "He ll", "Hell o",
          "Ġw or", "l d", "Ġwor ld", "' s", "Ċ Ċ"]
PIECES = ["<s>", "<pad>", "</s>", "<unk>"] + BYTES + [merge.replace(" ", "") for merge in MERGES] + ["<mask>"]
BPE_TEXTS = ["Hello world", " Hello  world ", "<mask> the <ent> <mask>s", "a <ent>b  <ENT>\t<mask>\n the", "中文 hello中 world's", "", " ", "\n\n a",
             "</s> x <s><mask>", "<e1> new  <e2>tok <e3> the", "NewToken newtoken newtokens", "naïve Café 1111 11 😀 e\u0301", "     the\u00a0 in\u3000ing",
             "<|endoftext|> the <unk><pad>", "it's we'LL  they 're"]
MASK = {"content": "<mask>", "single_word": False, "lstrip": True, "rstrip": True, "normalized": True}


def entry(content, **flags):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": False, **flags}


BPE_CONFIGS = {
    "roberta": {"config.json": {"model_type": "roberta"}},
    "roberta-added": {"config.json": {"model_type": "roberta"},
                      "added_tokens.json": {"<e2>": len(PIECES) + 1, "<mask>": len(PIECES) - 1, "<ent>": len(PIECES), "newtoken": len(PIECES) + 2},
                      "special_tokens_map.json": {"additional_special_tokens": ["<ent>"]}},
    "roberta-map": {"tokenizer_config.json": {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True, "cls_token": "</s>"},
                    "added_tokens.json": {"<mask>": len(PIECES) - 1},
                    "special_tokens_map.json": {"cls_token": "<pad>", "bos_token": "<unk>", "mask_token": MASK, "pad_token": None}},
    "roberta-untrimmed": {"tokenizer_config.json": {"tokenizer_class": "RobertaTokenizerFast", "trim_offsets": False, "mask_token": None,
                                                    "bos_token": {"__type": "AddedToken", **MASK, "content": "<s>"}}},
    "roberta-decoder": {"tokenizer_config.json": {"tokenizer_class": "RobertaTokenizer", "additional_special_tokens": ["<e1>"],
                        "added_tokens_decoder": {
                            str(len(PIECES) + 1): entry("NewToken", normalized=True), "0": entry("<s>", special=True),
                            str(len(PIECES) - 1): entry("<mask>", special=True), str(len(PIECES)): entry("<e1>", special=True),
                            str(len(PIECES) + 2): entry("<e3>", rstrip=True, single_word=True)}},
                        "special_tokens_map.json": {"cls_token": "<pad>"}, "added_tokens.json": {"zzz": 5000}},
    "roberta-named": {"tokenizer_config.json": {"tokenizer_class": "RobertaTokenizer", "mask_token": "<mask>", "sep_token": "[SEP]",
                                                "added_tokens_decoder": {str(len(PIECES) - 1): entry("<mask>", rstrip=True)}}},
    "gpt2": {"config.json": {"model_type": "gpt2"}},
    "gpt2-eos": {"config.json": {"model_type": "gpt2"}, "tokenizer_config.json": {"add_eos_token": True}},
    "gpt2-bos-eos": {"config.json": {"model_type": "bert", "tokenizer_class": "GPT2Tokenizer"}, "tokenizer_config.json": {
        "add_bos_token": True, "add_eos_token": True, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}},
    "gpt2-bos": {"config.json": {"model_type": "bert", "tokenizer_class": "GPT2Tokenizer"},
                 "tokenizer_config.json": {"add_bos_token": True, "add_prefix_space": True, "bos_token": "<s>", "eos_token": "</s>",
                                           "unk_token": "<unk>", "pad_token": None, "mask_token": "<mask>"}},
}
# What a merges.txt may look like in addition to the usual: lines that end as on Windows, merges that come twice.
MERGES_TXT = {"gpt2": lambda lines: "\r\n".join(lines) + "\r\n",
              "roberta": lambda lines: "\n".join(lines + ["h e", "Ġ t", "i t"]) + "\n"}

# XLM-RoBERTa's and CamemBERT's: a small SentencePiece model with a charsmap of its own.
SPM_TRAINING = ["Hello world, the new phones are wonderful and I love them", "Dokumente, die wir haben, werden nicht verändert",
                "a man is eating food while the man is eating bread", "hello hello world worlds wording", "über naïve café 中文 中文",
                "what is the time of the day and the night", "this is a sentence about things and sentences"] * 3
SPM_RULES = {"ﬁ": "fi", "Ａ": "A", "\u00a0": " ", "\u3000": " ", "½": "1/2", "\t": " ", "\n": " ", "\u200b": ""}
SPM_TEXTS = BPE_TEXTS[:10] + ["  the   man  is eating\u3000bread ", "the <ent> of <ENT>s<s>NOTUSED </s>NOTUSED<unk>NOTUSED", "ﬁne ½ \u200b x \u200b", "<pad><unk> <s>\n\n", "a▁man ▁ is"]
SPM_CONFIGS = {
    "xlm-roberta": {"config.json": {"model_type": "xlm-roberta"}},
    "camembert": {"config.json": {"model_type": "camembert"}},
    "camembert-added": {"tokenizer_config.json": {"tokenizer_class": "CamembertTokenizer", "additional_special_tokens": ["<s>NOTUSED", "<e1>"],
                                                  "pad_token": "<ent>"}, "added_tokens.json": {"newtoken": 77}},
    "xlm-roberta-added": {"tokenizer_config.json": {"tokenizer_class": "XLMRobertaTokenizer", "sep_token": "<e1>",
                                                    "additional_special_tokens": ["NewToken"]},
                          "special_tokens_map.json": {"bos_token": {**MASK, "content": "<s>", "normalized": False},
                                                      "mask_token": {**MASK, "normalized": False}},
                          "added_tokens.json": {"<e1>": 75, "newtoken": 76}},
}
# SentencePiece files of DeBERTa-v2, T5 and ALBERT: name of the file, how it was trained, files next to it.
SPM_FAMILIES = {
    "deberta-v2": ("spm.model", "deberta-v2", {}), "deberta-v2-lower": ("spm.model", "deberta-v2", {"tokenizer_config.json": {
        "tokenizer_class": "DebertaV2Tokenizer", "do_lower_case": True, "split_by_punct": True, "additional_special_tokens": ["<e1>"],
        "unk_token": {"__type": "AddedToken", **entry("[UNK]", special=True)}}}),
    "t5": ("spiece.model", "t5", {}), "t5-few": ("spiece.model", "t5", {"tokenizer_config.json": {
        "tokenizer_class": "T5Tokenizer", "extra_ids": 3, "legacy": False}}),
    "mt5": ("spiece.model", "mt5", {"tokenizer_config.json": {"tokenizer_class": "T5Tokenizer", "extra_ids": 0,
                                                              "additional_special_tokens": None}}),
    "albert": ("spiece.model", "albert", {}), "albert-cased": ("spiece.model", "albert", {"tokenizer_config.json": {
        "tokenizer_class": "AlbertTokenizer", "do_lower_case": False, "keep_accents": True}}),
}
SPM_OPTIONS = {
    "deberta-v2": dict(pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]", unk_piece="[UNK]"),
    "t5": dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1), "mt5": dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
    "albert": dict(pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols="[CLS],[SEP],[MASK]", user_defined_symbols="(,),\",-,.,▁1,,7,"),
}
FAMILY_TEXTS = ["Hello world", " Hello  World ", "[MASK] the <extra_id_0>  man [mask]", "a <extra_id_2>b [SEP] <e1> \n the", "中文 hello中 WORLDS", "",
                " ", "\n\n a", "``hi'' --(2.5) 1,7, 11,", "naïve Café über ÜBER", "  the   man\u3000is\u00a0eating ", "ﬁne ½ \u200b x", "a▁man ▁ is",
                "<pad><unk></s> [UNK][PAD]", "it's, WE'LL!"]
# DeBERTa's: GPT-2's bytes in BERT's template.
DEBERTA = {"deberta": {"config.json": {"model_type": "deberta"}}, "deberta-prefix": {"tokenizer_config.json": {
    "tokenizer_class": "DebertaTokenizer", "add_prefix_space": True, "do_lower_case": False}}}
SPM_USER_DEFINED = {"xlm-roberta-added": ["<ent>"]}


def write_files(folder, files):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for file, content in files.items():
        with open(os.path.join(folder, file), "w") as f:
            json.dump(content, f, indent=1)


def byte_spans(encoding, texts):
    """`tokenizers` counts characters."""
    spans = []
    for i, (begin, end) in enumerate(encoding.offsets):
        text = texts[encoding.sequence_ids[i] or 0]
        spans.append([len(text[:begin].encode()), len(text[:end].encode())])
    return spans


def write_bert(name, files):
    folder = os.path.join(OUT, name)
    write_files(folder, {"config.json": {"model_type": "bert"}, **files})
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


def write_bpe(name, files):
    folder = os.path.join(OUT, name)
    write_files(folder, files)
    with open(os.path.join(folder, "vocab.json"), "w") as f:
        json.dump({piece: i for i, piece in enumerate(PIECES)}, f, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(folder, "merges.txt"), "w", newline="") as f:
        f.write(MERGES_TXT.get(name, lambda lines: "\n".join(lines) + "\n")(["#version: 0.2", *MERGES]))
    write_expected(folder, BPE_TEXTS)


def write_spm(name, files):
    folder = os.path.join(OUT, name)
    write_files(folder, files)
    rules = os.path.join(folder, "rules.tsv")
    with open(rules, "w") as f:
        f.writelines("\t".join(" ".join("%X" % ord(c) for c in side) for side in rule) + "\n" for rule in SPM_RULES.items())
    model = os.path.join(folder, "sentencepiece.bpe")
    SentencePieceTrainer.train(sentence_iterator=iter(SPM_TRAINING), model_prefix=model, vocab_size=110, hard_vocab_limit=False,
                               normalization_rule_tsv=rules, user_defined_symbols=SPM_USER_DEFINED.get(name, []),
                               character_coverage=1.0, minloglevel=2)
    os.remove(rules)
    os.remove(model + ".vocab")
    write_expected(folder, SPM_TEXTS)


def write_family(name, file, kind, files):
    folder = os.path.join(OUT, name)
    write_files(folder, files or {"config.json": {"model_type": kind}})
    rules, model = os.path.join(folder, "rules.tsv"), os.path.join(folder, file[:-len(".model")])
    with open(rules, "w") as f:
        f.writelines("\t".join(" ".join("%X" % ord(c) for c in side) for side in rule) + "\n" for rule in SPM_RULES.items())
    SentencePieceTrainer.train(sentence_iterator=iter(SPM_TRAINING), model_prefix=model, vocab_size=110, hard_vocab_limit=False,
                               normalization_rule_tsv=rules, character_coverage=1.0, minloglevel=2, **SPM_OPTIONS[kind])
    os.remove(rules)
    os.remove(model + ".vocab")
    write_expected(folder, FAMILY_TEXTS)


def write_deberta(name, files):
    folder = os.path.join(OUT, name)
    write_files(folder, files)
    pieces = ["[CLS]", "[PAD]", "[SEP]", "[UNK]"] + PIECES[4:-1] + ["[MASK]"]
    with open(os.path.join(folder, "vocab.json"), "w") as f:
        json.dump({piece: i for i, piece in enumerate(pieces)}, f, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(folder, "merges.txt"), "w") as f:
        f.write("\n".join(["#version: 0.2", *MERGES]) + "\n")
    write_expected(folder, [text.replace("<mask>", "[MASK]") for text in BPE_TEXTS])


def write_expected(folder, texts):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.is_fast
    rows = []
    for text, pair in [(text, None) for text in texts] + list(zip(texts, texts[1:])):
        encoding = tokenizer.backend_tokenizer.encode(text, pair)
        assert encoding.ids == (tokenizer([text], [pair]) if pair is not None else tokenizer([text]))["input_ids"][0]
        rows.append({"text": text, "pair": pair, "ids": encoding.ids, "types": encoding.type_ids,
                     "spans": byte_spans(encoding, (text, pair)), "decoded": tokenizer.backend_tokenizer.decode(encoding.ids)})
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump(rows, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


for function, configs in ((write_bert, CONFIGS), (write_bpe, BPE_CONFIGS), (write_spm, SPM_CONFIGS), (write_deberta, DEBERTA)):
    for name, files in configs.items():
        if name in NAMES or not NAMES:
            function(name, files)
for name, arguments in SPM_FAMILIES.items():
    if name in NAMES or not NAMES:
        write_family(name, *arguments)
