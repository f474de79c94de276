#!/usr/bin/env python3
"""Compare lib/text with Hugging Face `tokenizers` on Unigram tokenizers and texts of all scripts.

    differential_unigram.py ENCODE_SERVER MODEL... [--count N] [--seed S] [--only CONFIGURATION]

Each model is tried as it is, and with a part of its vocabulary in many settings: XLM-R's, T5's and
ALBERT's chains, other unknown pieces or none, byte fallback, equal scores, texts that are there
twice, charsmaps of our own making. What is equal is what differential.py compares.
"""
import copy
import pathlib
import sys

import differential
from differential import LEFT, RIGHT, Difference, compare, compare_decoding

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
from charsmap import precompiled  # noqa: E402

SENTENCES = (
    "ประเทศไทย รวมเลือดเนื้อชาติเชื้อไทย", "सभी मनुष्यों को गौरव और अधिकारों के मामले में", "क्षत्रिय स्त्री",
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪🇫🇷🇬 ❤️ ©️ ®️", "한국어 한국어 ᄀ각", "ﷺ ﻻ ﺷﻜﺮﺍ ﭐ العَرَبِيَّة", "ＦＵＬＬ　ｗｉｄｔｈ　１２３ ｶﾞ",
    "ﬁne oﬀice ﬄ ĳ ǆ №℡™ ㍿ ½ ⅷ ①", "ệ ậ Ṩ̣ ḍ̇ e\u0301\u0323 \u0301", "Tiếng Việt: đường phố", "Привет, мир! ёЁй",
    "עִבְרִית שָׁלוֹם", "ქართული ენა", "አማርኛ ቋንቋ", "ភាសាខ្មែរ", "မြန်မာဘာသာ", "বাংলা ভাষা", "தமிழ் மொழி",
    "日本語の文章です。中文字符，测试。", "x² + y₂ ≤ ∞ ∑ ∫ →", "don't ``quoted'' text -- really...",
    "https://example.com/a_b?c=d&e=%20f", "\u2581\u2581a \u2581", "<0x41><0xFF>", "<s></s><unk>[UNK]",
)
PARTS = (
    "\u200d", "\u200b", "\ufeff", "\ufffd", "\u00ad", "\u200c", "\u0000", "\u0001", "\u001f", "\u007f", "\u0085",
    "\u009f", "\u00a0", "\u2028", "\u3000", "\r\n", "\r", "\n", "\t", " ", "  ", "   ", "\u2581", "\u0301",
    "\u0308\u0301", "\u0e33", "\u0e4d", "\u0600", "\u06dd", "\u0903", "\u094d", "\u0915", "\u093e", "\u00a9", "\u00ae",
    "\u1100", "\u1161", "\u11a8", "\uac00", "\uac01", "\U0001f1e6", "\U0001f600", "\U0001f3fd", "\ufe0f",
    "\u20e3", "a", "e", "A", ".", ",", "1", "\u00e9", "\u4e2d", "\ufb01", "\ufdfa", "\u2122", "\u3300",
    "\U00011f02", "\U000110bd", "\U00016d63", "\U0001d165", "\u302a", "\u17d2", "\u1781", "\u0d4e", "\u0378",
)


def text(rng, pieces, added):
    kind = rng.randrange(10)
    n = rng.choice((0, 1, 2, 3, 5, 8, 13, 30))
    if kind < 3:
        return differential.text(rng, added)
    if kind == 3:  # what clusters and charsmaps are about
        return "".join(rng.choice(PARTS) for _ in range(n))
    if kind == 4:
        return "".join(rng.choice(PARTS) if rng.random() < 0.5 else differential.character(rng)
                       for _ in range(n))
    if kind == 5:  # known pieces end to end
        return "".join(rng.choice(pieces) for _ in range(n)).replace("\u2581", rng.choice((" ", "", "\u2581")))
    if kind == 6:  # cut and mixed sentences
        chosen = [rng.choice(SENTENCES) for _ in range(1 + n // 4)]
        return rng.choice((" ", "", "  ")).join(s[rng.randrange(len(s)):] for s in chosen)
    if kind == 7 and rng.random() < 0.1:  # very long words
        return rng.choice(("a", "\u0e01", "ab", "-", "\u2581", "\u4e2d\u6587", "e\u0301", "\U0001f600\u200d")) * 3000
    return " ".join(rng.choice(pieces) if rng.random() < 0.7 else rng.choice(SENTENCES) for _ in range(n))


# ---------------------------------------------------------------------------- configurations

def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def normalizers(*parts):
    return {"normalizer": sequence("normalizers", *parts)}


def metaspace(**more):
    return dict({"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}, **more)


def replace_regex(content):
    return {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": content}


def replace_text(text, content):
    return {"type": "Replace", "pattern": {"String": text}, "content": content}


def random_charsmap(rng):
    """Short texts of few characters: clusters, parts of them, removals and growth."""
    letters = [p for p in PARTS if "\0" not in p and p != " "]
    texts = {}
    for _ in range(40):
        key = "".join(rng.choice(letters) for _ in range(rng.randrange(1, 3))).encode()
        if rng.random() < 0.15:
            key = key[:rng.randrange(1, len(key) + 1)]
        texts[key] = "".join(rng.choice(letters) for _ in range(rng.choice((0, 0, 1, 1, 2, 3))))
    return precompiled(texts)


def charsmap_of(configuration):
    """The model's own map."""
    normalizer = configuration["normalizer"]
    return next(n for n in normalizer.get("normalizers", [normalizer]) if n["type"] == "Precompiled")


def some_pieces(model, rng, n):
    """The model with a part of its vocabulary: the first pieces, the bytes, others by chance."""
    vocab = model["vocab"]
    chosen = sorted(set(range(300)) | set(rng.sample(range(len(vocab)), n)))
    return [vocab[i] for i in chosen]


def configurations(original, rng):
    """name -> tokenizer.json; the first is the file as it is."""
    base = copy.deepcopy(original)
    base["truncation"] = base["padding"] = None
    yield "as it is", base
    own = charsmap_of(base)
    vocab = some_pieces(base["model"], rng, 6000)
    base["model"] = dict(base["model"], vocab=vocab)
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    right = dict(strip, strip_left=False)
    words = {"type": "WhitespaceSplit"}
    changes = {
        "part of it": {},
        "XLM-R": dict(normalizers(own), pre_tokenizer=sequence("pretokenizers", words, metaspace())),
        "newer XLM-R": dict(normalizers(own, right, replace_regex("\u2581")),
                            pre_tokenizer=metaspace(split=True)),
        "T5": {"normalizer": own, "pre_tokenizer": sequence("pretokenizers", words, metaspace())},
        "ALBERT": normalizers({"type": "Replace", "pattern": {"String": "``"}, "content": "\""},
                              {"type": "Replace", "pattern": {"String": "''"}, "content": "\""},
                              {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, own,
                              replace_regex(" ")),
        "Nmt": normalizers({"type": "Nmt"}, {"type": "NFKC"}, replace_regex(" ")),
        "Nmt, map": normalizers({"type": "Nmt"}, own, strip),
        "no normalizer": {"normalizer": None},
        "prepend": dict(normalizers(own, {"type": "Prepend", "prepend": "\u2581"}), pre_tokenizer=None),
        "prepend, whole texts": dict(
            normalizers({"type": "Prepend", "prepend": "ab"}, replace_regex("")), pre_tokenizer=None),
        "not split": {"pre_tokenizer": metaspace(split=False)},
        "first": {"pre_tokenizer": metaspace(prepend_scheme="first"),
                  "decoder": metaspace(prepend_scheme="first")},
        "never": {"pre_tokenizer": metaspace(prepend_scheme="never"),
                  "decoder": metaspace(prepend_scheme="never")},
        "marks before others": {"pre_tokenizer": sequence(
            "pretokenizers", metaspace(split=False), {"type": "Digits", "individual_digits": True},
            {"type": "Punctuation", "behavior": "Isolated"})},
        "marks twice": {"pre_tokenizer": sequence("pretokenizers", metaspace(prepend_scheme="first"), words,
                                                  metaspace(replacement="e"))},
        "longer and shorter": normalizers(own, replace_text("e", "eae"), replace_text("an", "n"),
                                          replace_text(" ", "  "), replace_regex(" ")),
        "other replacement": {"pre_tokenizer": metaspace(replacement="e"),
                              "decoder": metaspace(replacement="e", prepend_scheme="never")},
        "no decoder": {"decoder": None},
        "added": {"added_tokens": base["added_tokens"] + differential.MORE_ADDED},
        "added, XLM-R": dict(normalizers(own, replace_regex(" ")),
                             pre_tokenizer=sequence("pretokenizers", words, metaspace()),
                             added_tokens=base["added_tokens"] + differential.MORE_ADDED),
        "no post-processor": {"post_processor": None},
    }
    for i in range(6):
        changes["charsmap %d" % i] = {"normalizer": random_charsmap(rng)}
        changes["charsmaps %d" % i] = normalizers(random_charsmap(rng), {"type": "NFC"},
                                                  random_charsmap(rng), replace_regex("\u2581"))
    for name, change in changes.items():
        yield name, dict(base, **change)
    yield from other_models(base, vocab, rng)


def other_models(base, vocab, rng):
    """Other scores, unknown pieces and ways with them."""
    bytes_ = [["<0x%02X>" % byte, -20.0] for byte in range(256)]
    without = [[p, s] for p, s in vocab if not p.startswith("<0x")]
    small = [[p, s] for p, s in without if len(p) < 3][:2000]
    models = {
        "byte fallback": {"vocab": without + bytes_, "byte_fallback": True},
        "byte fallback, some bytes": {"vocab": without + bytes_[:200], "byte_fallback": True},
        "no unknown piece": {"unk_id": None, "vocab": without},
        "unknown is a letter": {"unk_id": rng.randrange(300, len(vocab)), "vocab": vocab},
        "equal scores": {"vocab": [[p, -1] for p, _ in vocab]},
        "whole scores": {"vocab": [[p, round(s)] for p, s in vocab]},
        "better than unknown": {"vocab": [[p, 100 + s / 10] for p, s in vocab]},
        "unknown is better": {"vocab": [[p, 30 + rng.randrange(5)] for p, _ in small]},
        "twice": {"vocab": vocab + [[p, s + rng.choice((-1, 0, 1))] for p, s in rng.sample(vocab, 500)]},
        "long numbers": {"vocab": [[p, s * rng.random()] for p, s in vocab]},
        "empty piece": {"vocab": vocab + [["", 5.0]]},
    }
    for name, change in models.items():
        change = dict(dict(base["model"], byte_fallback=False), **change)
        yield name, dict(base, model=change)


# ---------------------------------------------------------------------------- comparing

def knows(oracle, server, t):
    """Whether there is something to compare: without an unknown piece both may refuse a text."""
    try:
        oracle.encode(t)
        return True
    except Exception:  # noqa: BLE001 - the package raises nothing more special
        if server.encode(t.encode())[0] != 1:
            raise Difference("not refused: %r" % t) from None
        return False


def one_round(server, oracle, rng, pieces, added):
    t = text(rng, pieces, added)
    if not knows(oracle, server, t):
        return
    ids = compare(server, oracle, [t])
    kind = rng.randrange(8)
    if kind == 0:
        compare(server, oracle, [t], rng.randrange(6, 20), rng.choice((LEFT, RIGHT)))
    elif kind == 1:
        other = text(rng, pieces, added)
        if knows(oracle, server, other):
            compare(server, oracle, [t, other], rng.choice((0, rng.randrange(8, 24))), rng.choice((LEFT, RIGHT)),
                    rng.random() < 0.8)
    elif kind in (2, 3):
        compare_decoding(server, oracle, ids, rng.random() < 0.5)
    elif kind == 4:
        compare_decoding(server, oracle, [rng.randrange(oracle.get_vocab_size()) for _ in range(rng.randrange(12))],
                         rng.random() < 0.5)


def compare_texts(server, oracle, configuration, count, rng):
    added = [t["content"] for t in configuration["added_tokens"]] + ["NEW", "mixed CASE"]
    pieces = [p for p, _ in configuration["model"]["vocab"]]
    for _ in range(count):
        one_round(server, oracle, rng, pieces, added)
    return count


if __name__ == "__main__":
    differential.main(configurations, compare_texts, 20000)
