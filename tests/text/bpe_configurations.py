"""What differential.py tries of a tokenizer.json with BPE: the file as it is, and changed."""
import copy
import functools
import json

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
BEHAVIORS = ("Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext")


def byte_level(prefix=False, trim=True, regex=True):
    return dict(type="ByteLevel", add_prefix_space=prefix, trim_offsets=trim, use_regex=regex)


def split(behavior="Isolated", invert=False, **pattern):
    return dict(type="Split", pattern=pattern, behavior=behavior, invert=invert)


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def words(*parts):
    return sequence("pretokenizers", *parts, byte_level(regex=False))


def two_ids(base):
    """Two tokens for [CLS] and [SEP], whatever they are."""
    vocab = base["model"]["vocab"]
    first, second = sorted(vocab, key=vocab.get)[:2]
    return [first, vocab[first]], [second, vocab[second]]


def roberta(base, trim, prefix):
    cls, sep = two_ids(base)
    return dict(type="RobertaProcessing", sep=sep, cls=cls, trim_offsets=trim, add_prefix_space=prefix)


def template(base):
    cls, sep = two_ids(base)
    special = {token: {"id": token, "ids": [i], "tokens": [token]} for token, i in (cls, sep)}

    def token(t):
        return {"SpecialToken": {"id": t[0], "type_id": 0}}

    def text(name, kind):
        return {"Sequence": {"id": name, "type_id": kind}}

    return dict(type="TemplateProcessing", special_tokens=special,
                single=[token(cls), text("A", 0), token(sep)],
                pair=[token(cls), text("A", 0), token(sep), text("B", 1), token(sep)])


def with_model(base, **change):
    return dict(base, model=dict(base["model"], **change))


def few(base, n=3000):
    """With the first n merges alone, as files with less to read."""
    model = base["model"]
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"][:n]]
    kept = {t for t in model["vocab"] if len(t) == 1} | {"".join(m) for m in merges}
    kept |= {t["content"] for t in base["added_tokens"] if t["content"] in model["vocab"]}
    vocab = {t: i for i, t in enumerate(sorted(kept, key=model["vocab"].get))}
    return dict(base, model=dict(model, merges=merges, vocab=vocab))


def byte_level_configurations(base, more_added):
    """name -> change; all of small files but the first."""
    small = few(base)
    added = base["added_tokens"] + more_added
    sequenced = sequence("processors", byte_level(prefix=False, trim=True), template(small))
    deepseek = [split(Regex=r"\p{N}{1,3}"), split(Regex="[一-龥぀-ゟ゠-ヿ]+"),
                split(Regex="[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
                            "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")]
    changes = {
        "prefix": {"pre_tokenizer": byte_level(prefix=True)},
        "prefix, no pattern": {"pre_tokenizer": byte_level(prefix=True, regex=False)},
        "no pattern": {"pre_tokenizer": byte_level(regex=False)},
        "added": {"added_tokens": added},
        "added, prefix": {"added_tokens": added, "pre_tokenizer": byte_level(prefix=True)},
        "composed": {"added_tokens": added, "normalizer": {"type": "NFC"}},
        "changed": {"normalizer": sequence("normalizers", {"type": "NFKC"}, {"type": "Lowercase"})},
        "Bert": {"post_processor": dict(type="BertProcessing", cls=two_ids(small)[0], sep=two_ids(small)[1])},
        "template": {"post_processor": template(small)},
        "trimmed, template": {"post_processor": sequenced, "added_tokens": added},
        "a sequence of one": {"post_processor": sequence("processors", byte_level(prefix=True))},
        "no post-processor": {"post_processor": None},
        "no decoder": {"decoder": None},
        "a sequence of a decoder": {"decoder": sequence("decoders", byte_level())},
        "no decoders": {"decoder": sequence("decoders")},
        "cl100k": {"pre_tokenizer": words(split(Regex=CL100K))},
        "cl100k, prefix": {"pre_tokenizer": sequence("pretokenizers", split(Regex=CL100K),
                                                     byte_level(prefix=True, regex=False))},
        "qwen2": {"pre_tokenizer": words(split(Regex=QWEN2)), "normalizer": {"type": "NFC"}},
        "gpt2 as a split": {"pre_tokenizer": words(split(Regex=GPT2))},
        "deepseek": {"pre_tokenizer": words(*deepseek)},
        "digits": {"pre_tokenizer": words({"type": "Digits", "individual_digits": True})},
        "numbers": {"pre_tokenizer": sequence("pretokenizers", {"type": "Digits", "individual_digits": False},
                                              byte_level())},
        "punctuation": {"pre_tokenizer": sequence("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"},
                                                  byte_level())},
    }
    for prefix in (False, True):
        for trim in (False, True):
            for before in (False, True):
                changes["Roberta %d %d %d" % (prefix, trim, before)] = {
                    "post_processor": roberta(small, trim, prefix), "added_tokens": added,
                    "pre_tokenizer": byte_level(prefix=before)}
        changes["trimmed %d" % prefix] = {"post_processor": byte_level(prefix=prefix), "added_tokens": added}
    for behavior in BEHAVIORS:
        for invert in (False, True):
            changes["split %s %d" % (behavior, invert)] = {
                "pre_tokenizer": words(split(behavior, invert, String="an"), split(behavior, invert, Regex=QWEN2))}
    for name, change in changes.items():
        yield name, dict(small, **change)
    yield "merges ignored", with_model(small, ignore_merges=True)
    yield "merges ignored, no pattern", dict(with_model(small, ignore_merges=True),
                                             pre_tokenizer=byte_level(regex=False))
    unknown = two_ids(small)[1][0]
    lacking = {t: i for t, i in small["model"]["vocab"].items() if t not in ("Ġ", "Ã", "e", "ģ")}
    merges = [m for m in small["model"]["merges"] if all(t in lacking for t in (*m, "".join(m)))]
    for fuse in (False, True):
        yield "bytes unknown, fused %d" % fuse, with_model(small, vocab=lacking, merges=merges,
                                                           unk_token=unknown, fuse_unk=fuse)


@functools.cache
def corpus():
    from differential import SPECIAL, WORDS
    return [" ".join(WORDS), " ".join(WORDS).upper(), "".join(WORDS), " ".join(SPECIAL),
            "aaaa abab banana bananas, unaffable unaffordable <0x0A> naïve naïveté 東京都 한국어"] * 3


def trained(base, pre_tokenizer, **options):
    """A small BPE model of characters."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>", "<s>"], limit_alphabet=90,
                                  show_progress=False, **options)
    made.train_from_iterator(corpus(), trainer)

    model = json.loads(made.to_str())["model"]
    return dict(base, model=model, added_tokens=[], post_processor=None, decoder=None, normalizer=None,
                pre_tokenizer=json.loads(made.to_str())["pre_tokenizer"])


def with_bytes(configuration, without=()):
    """Tokens of bytes too, of all or nearly."""
    model = copy.deepcopy(configuration["model"])
    for byte in range(256):
        if byte not in without:
            model["vocab"].setdefault("<0x%02X>" % byte, len(model["vocab"]))
    return dict(configuration, model=dict(model, byte_fallback=True))


def character_configurations(base, more_added):
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    spaces = trained(base, pre_tokenizers.Metaspace())
    unsplit = trained(base, pre_tokenizers.Metaspace(split=False))
    cut = trained(base, pre_tokenizers.WhitespaceSplit(), end_of_word_suffix="</w>")
    hashed = trained(base, pre_tokenizers.WhitespaceSplit(), continuing_subword_prefix="##")
    both = trained(base, pre_tokenizers.Whitespace(), continuing_subword_prefix="é", end_of_word_suffix="a")
    decoder = sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                       {"type": "ByteFallback"}, {"type": "Fuse"},
                       {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    yield "characters", spaces
    yield "unknown fused", with_model(spaces, fuse_unk=True)
    yield "unknown left out", with_model(spaces, unk_token=None)
    yield "unknown left out, unsplit", with_model(unsplit, unk_token=None)
    yield "suffix", dict(cut, decoder={"type": "BPEDecoder", "suffix": "</w>"})
    yield "prefix", hashed
    yield "prefix, suffix", with_model(both, fuse_unk=True)
    yield "suffix, merges ignored", with_model(cut, ignore_merges=True)
    yield "bytes", dict(with_bytes(spaces), decoder=decoder)
    yield "bytes, unsplit", dict(with_bytes(unsplit), decoder=decoder, added_tokens=more_added)
    yield "some bytes", dict(with_bytes(unsplit, (0xC3, 0x0A, 0x9F)), decoder=decoder)
    yield "some bytes, fused", with_model(with_bytes(unsplit, (0xC3, 0x0A, 0x9F)), fuse_unk=True)
    yield "some bytes, left out", with_model(with_bytes(unsplit, (0xC3, 0x0A, 0x9F)), unk_token=None)
    yield "bytes, first", dict(with_bytes(unsplit), decoder=decoder, pre_tokenizer=metaspace)
    yield "merges ignored, characters", with_model(with_bytes(unsplit), ignore_merges=True)
    yield "no words", dict(with_bytes(unsplit), decoder={"type": "Fuse"}, pre_tokenizer=None)
    yield "stripped", dict(unsplit, decoder={"type": "Strip", "content": "▁", "start": 2, "stop": 0})


def configurations(original, more_added):
    base = copy.deepcopy(original)
    base["truncation"] = base["padding"] = None
    yield "as it is", base
    yield from byte_level_configurations(base, more_added)
    if len(base["model"]["vocab"]) < 60000:
        yield from character_configurations(base, more_added)
