#!/usr/bin/env python3
"""Write tests/data/tokenizers/family-*: a small tokenizer.json in the configuration that the published checkpoints of each
family have, and the ids, types and spans that Hugging Face `tokenizers` gives there (expected.json, as in
make_test_tokenizers.py).

Usage: make_family_tokenizers.py [OUT]      (default tests/data/tokenizers)
Needs tokenizers and sentencepiece; made with 0.23.3 and 0.2.3.
"""
import base64
import json
import os
import shutil
import sys
import tempfile

from sentencepiece import SentencePieceTrainer, sentencepiece_model_pb2
from tokenizers import Tokenizer

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../tests/data/tokenizers")

# ---------------------------------------------------------------------------- vocabularies

BYTES = [chr(b) for b in (*range(33, 127), *range(161, 173), *range(174, 256))] + [chr(256 + i) for i in range(68)]
MERGES = ["Ġ t", "Ġ a", "h e", "i n", "r e", "o n", "Ġt he", "e r", "Ġ s", "a t", "Ġ w", "e n", "i t", "in g", "l l", "Ġ h", "o u",
          "r o", "o r", "Ġ Ġ", "ĠĠ ĠĠ", "1 1", "Ã ©", "ä ¸", "ä¸ Ń", "H e", "He ll", "Hell o", "Ġw or", "l d", "Ġwor ld", "' s", "Ċ Ċ",
          ". Ċ", "Ġ (", "2 3"]
CLIP_MERGES = ["t h", "th e</w>", "h e", "l l", "he ll", "hell o</w>", "w o", "r l", "wo rl", "worl d</w>", "' s</w>", "i n", "in g</w>",
               "! !</w>", "Ã ©</w>", "a t</w>"]
CORPUS = ["Hello world, the new phones are wonderful and I love them", "Dokumente, die wir haben, werden nicht verändert",
          "a man is eating food while the man is eating bread", "hello hello world worlds wording", "über naïve café 中文 中文",
          "what is the time of the day and the night", "this is a sentence about things and sentences"] * 3
RULES = {"ﬁ": "fi", "Ａ": "A", "\u00a0": " ", "\u3000": " ", "½": "1/2", "\t": " ", "\n": " ", "\u200b": ""}


def byte_bpe(specials, merges=MERGES, suffix="", **options):
    vocab = BYTES + ([b + suffix for b in BYTES] if suffix else []) + [m.replace(" ", "") for m in merges] + specials
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": suffix,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {piece: i for i, piece in enumerate(vocab)}, "merges": merges, **options}


def trained(kind, rules=True, **options):
    """Pieces with scores, and the charsmap, of a small SentencePiece model."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rules.tsv")
        with open(path, "w") as f:
            f.writelines("\t".join(" ".join("%X" % ord(c) for c in side) for side in rule) + "\n" for rule in RULES.items())
        normalization = {"normalization_rule_tsv": path} if rules else {"normalization_rule_name": "identity"}
        SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_prefix=os.path.join(folder, "m"), model_type=kind,
                                   hard_vocab_limit=False, character_coverage=1.0, minloglevel=2, **normalization, **options)
        model = sentencepiece_model_pb2.ModelProto()
        with open(os.path.join(folder, "m.model"), "rb") as f:
            model.ParseFromString(f.read())
    charsmap = base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
    return [[p.piece, p.score] for p in model.pieces], {"type": "Precompiled", "precompiled_charsmap": charsmap}


def unigram(pieces, unknown):
    return {"type": "Unigram", "unk_id": unknown, "vocab": pieces, "byte_fallback": False}


def fallback_bpe(specials, size, **options):
    """A SentencePiece BPE model with bytes, and its merges as transformers' conversion finds them."""
    names = dict(zip(("unk", "bos", "eos", "pad"), specials))
    keys = {"%s_id" % key: i for i, key in enumerate(names)} | {"%s_piece" % key: piece for key, piece in names.items()}
    pieces, _ = trained("bpe", rules=False, vocab_size=size, byte_fallback=True, remove_extra_whitespaces=False, split_digits=True,
                        allow_whitespace_only_pieces=True, **keys, **options)
    vocab = {piece: i for i, (piece, _) in enumerate(pieces)}
    merges = [(left, right, vocab[left + right]) for piece in vocab for cut in range(1, len(piece))
              for left, right in [(piece[:cut], piece[cut:])] if left in vocab and right in vocab]
    merges = [[left, right] for left, right, _ in sorted(merges, key=lambda m: (m[2], vocab[m[0]], vocab[m[1]]))]
    return {"type": "BPE", "dropout": None, "unk_token": specials[0], "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": vocab, "merges": merges}


# ---------------------------------------------------------------------------- parts

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = CL100K.replace("{1,3}", "")
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
CLIP_SPECIAL = r"<\|startoftext\|>|<\|endoftext\|>|" + CLIP
NFC = {"type": "NFC"}
LOWERCASE = {"type": "Lowercase"}
SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
QUOTES = [{"type": "Replace", "pattern": {"String": quote}, "content": "\""} for quote in ("``", "''")]
BYTE_DECODER = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
WORDS = {"type": "WhitespaceSplit"}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def byte_level(prefix=False, trim=True, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, "use_regex": regex}


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def bytes_of(regex):
    return sequence("pretokenizers", split(regex), byte_level(regex=False))


def fallback_decoder(*last):
    return sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                    {"type": "Fuse"}, *last)


def template(vocab, single, pair):
    """Templates as words: "[CLS] $A [SEP]"; in a pair, ":1" is a type."""
    def pieces(text):
        for word in text.split():
            name, _, kind = word.rpartition(":") if word[-2] == ":" else (word, "", "0")
            yield ({"Sequence": {"id": name[1:], "type_id": int(kind)}} if name[0] == "$" else
                   {"SpecialToken": {"id": name, "type_id": int(kind)}})

    names = sorted({p["SpecialToken"]["id"] for text in (single, pair) for p in pieces(text) if "SpecialToken" in p})
    return {"type": "TemplateProcessing", "single": list(pieces(single)), "pair": list(pieces(pair)),
            "special_tokens": {n: {"id": n, "ids": [vocab[n]], "tokens": [n]} for n in names}}


def whole(model, added, normalizer, pre_tokenizer, post, decoder):
    """`added`: name -> flags that are set. `post`: a function of the ids by token, or None."""
    vocab = model["vocab"] if isinstance(model["vocab"], dict) else {piece: i for i, (piece, _) in enumerate(model["vocab"])}
    ids, tokens = dict(vocab), []
    for name, flags in added.items():
        ids.setdefault(name, len(ids))
        tokens.append({"id": ids[name], "content": name, **{flag: flag in flags for flag in
                       ("single_word", "lstrip", "rstrip", "normalized", "special")}})
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": sorted(tokens, key=lambda t: t["id"]),
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": post(ids) if post else None,
            "decoder": decoder, "model": model}


def special(*names):
    return {name: ("special",) for name in names}


# ---------------------------------------------------------------------------- families

def families():
    end, start = "<|endoftext|>", "<|startoftext|>"
    untrimmed = byte_level(trim=False, regex=False)
    chat = special(end, "<|im_start|>", "<|im_end|>")
    yield "qwen2", whole(byte_bpe([]), chat, NFC, bytes_of(QWEN2), lambda _: untrimmed, BYTE_DECODER)
    yield "qwen3-embedding", whole(
        byte_bpe([]), {**chat, "<think>": (), "</think>": ()}, NFC, bytes_of(QWEN2),
        lambda ids: sequence("processors", untrimmed, template(ids, "$A " + end, "$A %s $B:1 %s:1" % (end, end))), BYTE_DECODER)
    bos, eos = "<|begin_of_text|>", "<|end_of_text|>"
    ignoring = byte_bpe([], ignore_merges=True)
    ignoring["vocab"]["wholeword"] = len(ignoring["vocab"])
    yield "llama3", whole(
        ignoring, special(bos, eos), None, bytes_of(CL100K),
        lambda ids: sequence("processors", byte_level(True, False), template(ids, bos + " $A", "%s $A %s:1 $B:1" % (bos, bos))),
        BYTE_DECODER)
    yield "eurobert", whole(ignoring, special(bos, eos), None, bytes_of(CL100K),
                            lambda ids: template(ids, "%s $A %s" % (bos, eos), "%s $A %s $B:1 %s:1" % (bos, eos, eos)), BYTE_DECODER)
    bert = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
    named = special("[UNK]", "[CLS]", "[SEP]", "[PAD]")
    yield "modernbert", whole(byte_bpe([]), {**{" " * n: ("normalized",) for n in range(6, 1, -1)}, **named, "[MASK]": ("special", "lstrip")},
                              NFC, byte_level(), lambda ids: template(ids, *bert), BYTE_DECODER)
    yield "deberta", whole(byte_bpe([]), {**named, "[MASK]": ("special", "lstrip", "normalized")}, None, byte_level(),
                           lambda ids: template(ids, *bert), BYTE_DECODER)

    def clip(regex):
        return whole(byte_bpe([start, end], CLIP_MERGES, "</w>", unk_token=end), {n: ("special", "normalized") for n in (start, end)},
                     sequence("normalizers", NFC, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}, LOWERCASE),
                     sequence("pretokenizers", split(regex, "Removed", True), byte_level()),
                     lambda ids: {"type": "RobertaProcessing", "sep": [end, ids[end]], "cls": [start, ids[start]],
                                  "trim_offsets": False, "add_prefix_space": False}, BYTE_DECODER)

    yield "clip", clip(CLIP)
    yield "clip-special", clip(CLIP_SPECIAL)
    llama = fallback_bpe(["<unk>", "<s>", "</s>"], 350, pad_id=-1)
    first = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    around = ("<s> $A", "<s> $A <s>:1 $B:1")
    yield "llama2", whole(llama, special("<unk>", "<s>", "</s>"), sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, first), None,
                          lambda ids: template(ids, *around), fallback_decoder({"type": "Strip", "content": " ", "start": 1, "stop": 0}))
    yield "mistral", whole(llama, special("<unk>", "<s>", "</s>"), None, {**METASPACE, "prepend_scheme": "first", "split": False},
                           lambda ids: template(ids, "<s> $A </s>", "<s> $A </s> <s>:1 $B:1 </s>:1"),
                           fallback_decoder({"type": "Strip", "content": " ", "start": 1, "stop": 0}))
    gemma = fallback_bpe(["<unk>", "<bos>", "<eos>", "<pad>"], 360, add_dummy_prefix=False,
                         user_defined_symbols="<start_of_turn>,\n,\n\n,▁▁,▁▁▁,\t")
    spaces = {name: () for name in ("<start_of_turn>", "\n", "\n\n", "▁▁", "▁▁▁", "\t")}
    yield "gemma", whole(gemma, {**special("<unk>", "<bos>", "<eos>", "<pad>"), **spaces}, first,
                         {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
                         lambda ids: template(ids, "<bos> $A", "<bos> $A <bos>:1 $B:1"), fallback_decoder())
    pieces, charsmap = trained("unigram", vocab_size=110, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    extra = ["<extra_id_%d>" % i for i in range(3, -1, -1)]
    yield "t5", whole(unigram(pieces + [[e, 0.0] for e in extra], 2), special("<pad>", "</s>", "<unk>", *extra), charsmap,
                      sequence("pretokenizers", WORDS, METASPACE), lambda ids: template(ids, "$A </s>", "$A </s> $B </s>"), METASPACE)
    pieces, charsmap = trained("unigram", vocab_size=110, pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols="[CLS],[SEP],[MASK]",
                               user_defined_symbols="(,),\",-,.")
    yield "albert", whole(unigram(pieces, 1), {**special("<pad>", "<unk>", "[CLS]", "[SEP]"), "[MASK]": ("special", "lstrip")},
                          sequence("normalizers", *QUOTES, {"type": "NFKD"}, {"type": "StripAccents"}, LOWERCASE, charsmap, SPACES),
                          sequence("pretokenizers", WORDS, METASPACE), lambda ids: template(ids, *bert), METASPACE)
    pieces, charsmap = trained("unigram", vocab_size=110, pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]",
                               eos_piece="[SEP]", unk_piece="[UNK]")
    named = {**special("[PAD]", "[CLS]", "[SEP]"), "[UNK]": ("special", "normalized"), "[MASK]": ("special",)}
    yield "deberta-v2", whole(unigram(pieces, 3), named, sequence("normalizers", {"type": "Strip", "strip_left": True, "strip_right": True},
                                                                  charsmap, SPACES),
                              sequence("pretokenizers", METASPACE), lambda ids: template(ids, *bert), METASPACE)
    lines = {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "}
    yield "deberta-v2-newer", whole(unigram(pieces, 3), named, sequence("normalizers", LOWERCASE, lines, NFC, {
        "type": "Strip", "strip_left": False, "strip_right": True}),
        sequence("pretokenizers", {"type": "Punctuation", "behavior": "Isolated"}, METASPACE), lambda ids: template(ids, *bert), METASPACE)


# ---------------------------------------------------------------------------- texts

def texts_of(added):
    name = added[-1]
    return ["Hello world", " Hello  world ", "the %s man%s" % (name, name.upper()), "%s a %s b\t%s\n the" % tuple(added[k % len(added)] for k in range(3)),
            "中文 hello中 WORLD's", "", " ", "\n\n a\r\n\r\n", "wholeword  wholewords a wholeword", "naïve Café 11123 11 😀 e\u0301 É",
            "     the\u00a0 in\u3000ing\u2028x\t y", "<0x41> ▁a▁ the▁▁▁man \ufffd\ufdfa", "it's we'LL  they 're I'D ſ 'ſ", "``hi'' --((2.5%)) \"q\"!!",
            "ﬁne ½ \u200b x \u200b Ａ", "İıßΣς ǅ K", "end\u00a0\n", "</w> hello</w> world</w>"]


def byte_spans(encoding, texts):
    spans = []
    for i, (begin, end) in enumerate(encoding.offsets):
        which = encoding.sequence_ids[i]
        text = texts[which or 0]
        spans.append([0, 0] if which is None else [len(text[:begin].encode()), len(text[:end].encode())])
    return spans


def write(name, tokenizer):
    folder = os.path.join(OUT, "family-" + name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    content = json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        f.write(content + "\n")
    backend, rows = Tokenizer.from_str(content), []
    texts = texts_of([token["content"] for token in tokenizer["added_tokens"]])
    for text, pair in [(text, None) for text in texts] + list(zip(texts, texts[1:])):
        encoding = backend.encode(text, pair)
        rows.append({"text": text, "pair": pair, "ids": encoding.ids, "types": encoding.type_ids,
                     "spans": byte_spans(encoding, (text, pair)), "decoded": backend.decode(encoding.ids)})
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump(rows, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


for family, configuration in families():
    write(family, configuration)
