#!/usr/bin/env python3
"""Compare lib/text with Hugging Face `tokenizers` on texts made to be nasty.

    differential.py ENCODE_SERVER MODEL... [--count N] [--seed S] [--only CONFIGURATION]

Each model is tried as it is and with its tokenizer.json changed (other normalizers, pre-tokenizers,
added tokens, post-processors). Ids, type ids and spans must be equal, alone and in pairs, cut at
either end, and so must what the ids are decoded to.
"""
import argparse
import copy
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

import bpe_configurations

RIGHT, LEFT = 1, 2
NO_PAIR = 0xFFFFFFFF


class Server:
    """The tokenizer under test, behind a pipe."""

    def __init__(self, program, directory):
        self.process = subprocess.Popen([program, str(directory)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def read(self, form):
        size = struct.calcsize(form)
        data = self.process.stdout.read(size)
        if len(data) != size:
            raise RuntimeError("encode_server died: %s" % self.process.poll())
        return struct.unpack(form, data)

    def encode(self, a, b=None, max_tokens=0, truncation=0, special=True):
        head = struct.pack("<5I", max_tokens, truncation, not special, len(a),
                           NO_PAIR if b is None else len(b))
        self.process.stdin.write(b"E" + head + a + (b or b""))
        self.process.stdin.flush()
        status, n, truncated = self.read("<3I")
        if status:
            return status, None, None, None, None
        ids = list(self.read("<%di" % n))
        flat = self.read("<%dI" % (2 * n))
        types = list(self.read("<%dB" % n))
        return status, ids, list(zip(flat[::2], flat[1::2])), types, bool(truncated)

    def decode(self, ids, skip_special):
        self.process.stdin.write(b"D" + struct.pack("<2I", skip_special, len(ids)) +
                                 struct.pack("<%di" % len(ids), *ids))
        self.process.stdin.flush()
        status, size = self.read("<2I")
        return self.process.stdout.read(size).decode() if status == 0 else None

    def close(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise RuntimeError("encode_server ended with %d" % self.process.returncode)


def find_model(name):
    """The folder of a real model, or a path."""
    if "/" in name:
        return pathlib.Path(name)
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(os.environ.get("GPUSERVE_TEST_MODELS") or
                          pathlib.Path(cache) / "gpuserve" / "models") / name
    if not (folder / "tokenizer.json").exists():
        sys.exit("%s: no tokenizer.json; run `./dev models %s`" % (folder, name))
    return folder


# ---------------------------------------------------------------------------- texts

RANGES = [
    (0x00, 0x20), (0x20, 0x7F), (0x7F, 0xA0), (0xA0, 0x250), (0x250, 0x370), (0x300, 0x370),
    (0x370, 0x400), (0x400, 0x530), (0x590, 0x700), (0x900, 0xE00), (0xE00, 0x1000),
    (0x1100, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2070), (0x20D0, 0x2100), (0x2100, 0x2800),
    (0x3000, 0x3100), (0x302A, 0x3030), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0xD7B0, 0xD800),
    (0xE000, 0xE100), (0xF900, 0xFB00), (0xFB00, 0xFE00), (0xFE00, 0xFF00), (0xFF00, 0x10000),
    (0x10000, 0x11000), (0x11000, 0x12000), (0x1D100, 0x1D250), (0x1D400, 0x1D800),
    (0x1E000, 0x1F000), (0x1F000, 0x20000), (0x20000, 0x2FA20), (0xE0000, 0xE0200),
    (0xF0000, 0x110000),
]
SPECIAL = list("İıßẞΣςσǅŸÅﬁſKΩ̇") + [
    "\0", "\ufffd", "\ufeff", "\u200b", "\u200d", "\u00ad", "\u0085", "\u00a0", "\u2028", "\u3000",
    "\u1680", "\u180e", "\u0344", "\u0f73", "\u0345", "\u0334", "\u302e", "\u302f", "\U0001d165",
    "\U0001d16d", "\U0001d15e", "\u1e9b\u0323", "e\u0301", "e\u0323\u0301", "\u1100\u1161\u11a8",
    "\uac00\u11a8", "\uf900", "\U0002f800", "\U0001e922", "\u16fe4", "\u037e", "\u1fef", "\u2126",
    "\ufdfa", "\u0958", "\u2adc", "don't", " do not", "'s", "##ing", "##", "[", "]", "[[MASK]]",
]
WORDS = ("the of and a to in is you that it he was for on are as with his they I at be this have from "
         "unaffable tokenization Straße naïve café МОСКВА привет Ελλάς ὈΔΥΣΣΕΎΣ 東京 한국어 日本語 "
         "internationalization antidisestablishmentarianism 3.14 x86_64 U.S.A. e-mail @user #tag "
         "http://example.com/a?b=c").split()

ALPHABETS = ("abcdefghijklmnopqrstuvwxyzABCXYZ0189", "abcdefghijklmnopqrstuvwxyz", "0123456789", "acgt", "ab", "etao ",
             "-", "=-_", " \n", "字東", "éa", "\ufdfa", "\u200d\U0001f469")


def character(rng):
    kind = rng.random()
    if kind < 0.35:
        return chr(rng.randrange(0x20, 0x7F))
    if kind < 0.5:
        return rng.choice(SPECIAL)
    if kind < 0.55:
        c = rng.randrange(0x110000)
        return "x" if 0xD800 <= c <= 0xDFFF else chr(c)
    low, high = rng.choice(RANGES)
    return chr(rng.randrange(low, high))


def text(rng, added):
    """One string; every kind of trouble has its turn."""
    kind = rng.randrange(10)
    n = rng.choice((0, 1, 2, 3, 5, 8, 13, 30, 80))
    if kind == 0:
        return "".join(character(rng) for _ in range(n))
    if kind == 1:
        return " ".join("".join(character(rng) for _ in range(rng.randrange(1, 5))) for _ in range(n))
    if kind == 2:  # marks upon marks
        low, high = rng.choice(((0x300, 0x370), (0x302A, 0x3030), (0x1D165, 0x1D16E), (0x5B0, 0x5BD)))
        return "".join(rng.choice("aeo 한!字") if rng.random() < 0.3 else
                       (chr(rng.randrange(low, high)) if rng.random() < 0.6 else rng.choice(SPECIAL))
                       for _ in range(n))
    if kind == 3:  # one range
        low, high = rng.choice(RANGES)
        return "".join(chr(rng.randrange(low, high)) if rng.random() < 0.85 else " " for _ in range(n))
    if kind == 4:  # long words, around the limit of 100
        return " ".join(rng.choice("aé字b") * rng.randrange(95, 106) for _ in range(rng.randrange(1, 4)))
    if kind == 5:  # added tokens glued into text
        return "".join(rng.choice(added) if rng.random() < 0.4 else
                       rng.choice((" ", "  ", "a", "Word", "é", "\t", "_", ".", "字", "\u3000"))
                       for _ in range(n))
    if kind == 6:
        return "".join(rng.choice(WORDS)[:rng.randrange(1, 12)] + rng.choice(("", " ", "-", "\u200b"))
                       for _ in range(n))
    if kind == 7:  # letters alone: many pieces, and words without an end
        letters = rng.choice(ALPHABETS)
        return "".join(rng.choice(letters) for _ in range(n * rng.choice((1, 1, 1, 5, 40))))
    words = [rng.choice(WORDS) for _ in range(n)]
    return " ".join(w.upper() if rng.random() < 0.1 else w for w in words)


# ---------------------------------------------------------------------------- configurations

def added_token(content, **flags):
    token = dict(id=0, content=content, single_word=False, lstrip=False, rstrip=False,
                 normalized=False, special=False)
    token.update(flags)
    return token


MORE_ADDED = [
    added_token("[NEW]", special=True), added_token("[NEWER]", special=True),
    added_token("<l>", lstrip=True), added_token("<r>", rstrip=True),
    added_token("<lr>", lstrip=True, rstrip=True, special=True),
    added_token("word", single_word=True), added_token("Néw", normalized=True),
    added_token("MiXed case", normalized=True), added_token("single", normalized=True, single_word=True),
    added_token("字", normalized=True), added_token("<n>", normalized=True, lstrip=True, rstrip=True),
    added_token("naï"), added_token("[", normalized=True),
]


def bert(**options):
    normalizer = dict(type="BertNormalizer", clean_text=True, handle_chinese_chars=True,
                      strip_accents=None, lowercase=True)
    normalizer.update(options)
    return normalizer


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


PUNCTUATION = [{"type": "Punctuation", "behavior": b}
               for b in ("Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext")]


def roberta(trim, prefix):
    return dict(type="RobertaProcessing", sep=["[SEP]", 102], cls=["[CLS]", 101], trim_offsets=trim,
                add_prefix_space=prefix)


def configurations(original):
    """name -> tokenizer.json; the first is the file as it is."""
    if original["model"].get("type") == "BPE":
        yield from bpe_configurations.configurations(original, MORE_ADDED)
        return
    base = copy.deepcopy(original)
    base["truncation"] = base["padding"] = None
    changes = {
        "as it is": {},
        "cased": {"normalizer": bert(lowercase=False)},
        "cased, accents stripped": {"normalizer": bert(lowercase=False, strip_accents=True)},
        "accents kept": {"normalizer": bert(strip_accents=False)},
        "not cleaned": {"normalizer": bert(clean_text=False)},
        "not cleaned, no Chinese": {"normalizer": bert(clean_text=False, handle_chinese_chars=False)},
        "no Chinese": {"normalizer": bert(handle_chinese_chars=False)},
        "no normalizer": {"normalizer": None},
        "lowercase": {"normalizer": {"type": "Lowercase"}},
        "added": {"added_tokens": base["added_tokens"] + MORE_ADDED},
        "added, cased": {"added_tokens": base["added_tokens"] + MORE_ADDED,
                         "normalizer": bert(lowercase=False)},
        "forms": {"normalizer": sequence("normalizers", {"type": "NFKC"}, {"type": "NFD"},
                                         {"type": "StripAccents"}, {"type": "Lowercase"})},
        "NFC": {"normalizer": {"type": "NFC"}}, "NFKD": {"normalizer": {"type": "NFKD"}},
        "NFKC": {"normalizer": {"type": "NFKC"}}, "NFD": {"normalizer": {"type": "NFD"}},
        "strip, replace": {"normalizer": sequence(
            "normalizers", {"type": "Strip", "strip_left": True, "strip_right": False},
            {"type": "Replace", "pattern": {"String": "a"}, "content": "éé"},
            {"type": "Replace", "pattern": {"String": "  "}, "content": ""}, bert())},
        "words": {"pre_tokenizer": {"type": "Whitespace"}},
        "spaces": {"pre_tokenizer": {"type": "WhitespaceSplit"}},
        "no pre-tokenizer": {"pre_tokenizer": None},
        "Roberta": {"post_processor": roberta(True, True), "added_tokens": base["added_tokens"] + MORE_ADDED},
        "Roberta, no prefix": {"post_processor": roberta(True, False),
                               "added_tokens": base["added_tokens"] + MORE_ADDED},
        "Roberta, not trimmed": {"post_processor": roberta(False, True)},
        "Bert": {"post_processor": dict(type="BertProcessing", sep=["[SEP]", 102], cls=["[CLS]", 101])},
        "no post-processor": {"post_processor": None},
        "no decoder": {"decoder": None},
        "no cleanup": {"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False}},
    }
    for p in PUNCTUATION:
        changes["punctuation " + p["behavior"]] = {
            "pre_tokenizer": sequence("pretokenizers", {"type": "WhitespaceSplit"}, p)}
    for scheme in ("always", "first", "never"):
        for more in ({}, {"split": False}, {"replacement": "a"}):
            changes["metaspace %s %s" % (scheme, more)] = {"pre_tokenizer": dict(
                {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme}, **more)}
    changes["old metaspace"] = {"pre_tokenizer": sequence(
        "pretokenizers", {"type": "WhitespaceSplit"},
        {"type": "Metaspace", "replacement": "i", "add_prefix_space": True})}
    for name, change in changes.items():
        yield name, dict(base, **change)
    model = dict(base["model"], continuing_subword_prefix="", max_input_chars_per_word=7)
    yield "other prefix", dict(base, model=model)


# ---------------------------------------------------------------------------- comparing

class Difference(Exception):
    pass


def byte_spans(encoding, texts):
    """tokenizers' spans in characters as bytes of each token's own text."""
    at = []
    for t in texts:
        starts = [0]
        for c in t:
            starts.append(starts[-1] + len(c.encode()))
        at.append(starts)
    spans = []
    for (begin, end), which in zip(encoding.offsets, encoding.sequence_ids):
        starts = at[which or 0]
        spans.append((0, 0) if which is None else (starts[begin], starts[end]))
    return spans


def compare(server, oracle, texts, max_tokens=0, direction=RIGHT, special=True):
    if max_tokens:
        oracle.enable_truncation(max_tokens, strategy="longest_first",
                                 direction="left" if direction == LEFT else "right")
    want = oracle.encode(*texts, add_special_tokens=special)
    if max_tokens:
        oracle.no_truncation()
    status, ids, spans, types, _ = server.encode(*(t.encode() for t in texts), max_tokens=max_tokens,
                                                 truncation=direction, special=special)
    for what, ours, theirs in (("status", status, 0), ("ids", ids, want.ids),
                               ("types", types, want.type_ids),
                               ("spans", spans, byte_spans(want, texts))):
        if ours != theirs:
            raise Difference("%s of %r, at most %d from %d, special %s:\n  ours   %s\n  theirs %s" %
                             (what, texts, max_tokens, direction, special, ours, theirs))
    return want.ids


def compare_decoding(server, oracle, ids, skip):
    ours, theirs = server.decode(ids, skip), oracle.decode(ids, skip_special_tokens=skip)
    if ours != theirs:
        raise Difference("decoded %s, skip %s:\n  ours   %r\n  theirs %r" % (ids, skip, ours, theirs))


def one_round(server, oracle, rng, added, ends):
    """Compare on one or two texts, cut at one of `ends`; returns how many there were."""
    t = text(rng, added)
    ids = compare(server, oracle, [t])
    kind = rng.randrange(12)
    if kind == 0:
        compare(server, oracle, [t], special=False)
    elif kind == 1:
        compare(server, oracle, [t], rng.randrange(5, 20), rng.choice(ends))
    elif kind in (2, 3):
        limit = rng.choice((0, rng.randrange(5, 24)))
        special = rng.random() < 0.8
        compare(server, oracle, [t, text(rng, added)], limit, rng.choice(ends), special)
        return 2
    elif kind == 4:
        compare_decoding(server, oracle, ids, rng.random() < 0.5)
    elif kind == 5:
        random_ids = [rng.randrange(oracle.get_vocab_size()) for _ in range(rng.randrange(12))]
        compare_decoding(server, oracle, random_ids, rng.random() < 0.5)
    return 1


def compare_invalid(server, rng):
    """Bytes that are no UTF-8 are refused (status 1)."""
    for _ in range(200):
        data = bytearray(text(rng, ["[MASK]"]).encode())
        data.insert(rng.randrange(len(data) + 1), rng.choice((0x80, 0xC0, 0xE2, 0xF8, 0xFF)))
        try:
            data.decode()
        except UnicodeDecodeError:
            if server.encode(bytes(data))[0] != 1:
                raise Difference("not refused: %r" % bytes(data))


def compare_texts(server, oracle, configuration, count, rng):
    """Compare on `count` texts or some more; returns how many."""
    added = [t["content"] for t in configuration["added_tokens"]] + ["[mask]", "mixed CASE", "NEW"]
    ends = (LEFT, RIGHT)
    done = 0
    while done < count:
        done += one_round(server, oracle, rng, added, ends)
    compare_invalid(server, rng)
    return done


# ------------------------------------------------------------------ the program, of every kind of model

def shares(model, count, arguments, configurations):
    """(name, tokenizer.json, how many texts) of a model: half of them for the file as it is."""
    original = json.loads((find_model(model) / "tokenizer.json").read_text("utf-8"))
    named = list(configurations(original, random.Random(arguments.seed)))
    other = count // 2 // max(1, len(named) - 1) + 1
    return [(name, configuration, count // 2 if i == 0 else other)
            for i, (name, configuration) in enumerate(named) if arguments.only in (None, name)]


def with_server(program, configuration, count, rng, compare_some):
    whole = json.dumps(configuration)
    with tempfile.TemporaryDirectory() as directory:
        (pathlib.Path(directory) / "tokenizer.json").write_text(whole, "utf-8")
        server = Server(program, directory)
        try:
            return compare_some(server, Tokenizer.from_str(whole), configuration, count, rng)
        finally:
            server.close()


def main(configurations, compare_some, count):
    """Try the models of the command line; a configuration's texts do not depend on the others'."""
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--count", type=int, default=count, help="strings for all models together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="the one configuration to try")
    arguments = parser.parse_args()
    total, failed = 0, 0
    for model in arguments.models:
        for name, configuration, n in shares(model, arguments.count // len(arguments.models), arguments,
                                             configurations):
            rng = random.Random("%d %s" % (arguments.seed, name))
            try:
                total += with_server(arguments.server, configuration, n, rng, compare_some)
            except Difference as difference:
                failed += 1
                print("%s, %s: %s" % (model, name, difference))
    print("%d strings, %d configurations differ" % (total, failed))
    sys.exit(1 if failed or total == 0 else 0)


if __name__ == "__main__":
    main(lambda original, _: configurations(original), compare_texts, 50000)
