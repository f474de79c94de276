"""Texts of one kind each, made to cost a subword tokenizer as much as can be: words without an end,
characters that become many, long tokens that do not come to their end."""
import random

LETTERS = "abcdefghijklmnopqrstuvwxyz"
REPEATED = {
    "one letter": "a", "two letters in turn": "ab", "dashes": "-", "equals signs": "=", "underscores": "_",
    "full stops": ".", "asterisks": "*", "zeros": "0", "spaces": " ", "the mark of spaces": "\u2581", "line ends": "\n",
    "control characters": "\x01", "Thai": "\u0e01\u0e32", "Chinese": "\u4e2d\u6587", "jamo": "\u1100\u1161\u11a8",
    "accents": "e\u0301", "marks upon marks": "\u0301", "joined emoji": "\U0001f469\u200d\U0001f467\u200d",
    "ligatures": "\ufb01", "full width": "\uff21", "one that becomes 18": "\ufdfa", "unknown": "\U00012000",
    "replacement characters": "\ufffd", "Hangul syllables": "\uac01",
}
RANDOM = {  # characters by chance
    "digits": "0123456789", "DNA": "ACGT", "two letters": "ab", "letters of four kinds": "etao", "letters": LETTERS,
    "capitals and letters": LETTERS + LETTERS.upper(), "white space": " \t\n\r\u00a0", "punctuation": "!.,;-#[]()=*_",
    "CJK": range(0x4E00, 0x9FA5), "kana": range(0x3041, 0x30FF), "Hangul": range(0xAC00, 0xD7A4),
    "Cyrillic": range(0x430, 0x450), "Arabic forms": range(0xFB50, 0xFDFC), "marks": range(0x300, 0x36F),
    "emoji": range(0x1F300, 0x1F600), "compatible forms": range(0x3300, 0x3400),
    "any character": [*range(0x20, 0xD800), *range(0xE000, 0x110000)],
}


def cut(text, size):
    """The first `size` bytes of a text, less of a character that these would cut."""
    return text.encode()[:size].decode(errors="ignore")


def parts(text, size):
    """The text in parts of `size` bytes or a few less."""
    found = []
    data = text.encode()
    while data:
        found.append(data[:size].decode(errors="ignore"))
        data = data[len(found[-1].encode()):]
    return found


def by_chance(rng, alphabet, size):
    """Of that many bytes at least; long ones repeat what is far apart, so that they are made quickly."""
    some = "".join(c if isinstance(c, str) else chr(c) for c in rng.choices(alphabet, k=min(size, 200_000)))
    return some * (1 + size // len(some.encode()))


def words(rng, make, size):
    some = " ".join(make() for _ in range(min(size, 100_000) // 8))
    return some * (1 + size // len(some.encode()))


def texts(size, tokens, slow_letters):
    """name -> text of `size` bytes or a few less. `tokens`: texts of the vocabulary; `slow_letters`: a set
    of letters that was found to be slow."""
    rng = random.Random(2)
    found = {name: part * (size // len(part.encode())) for name, part in REPEATED.items()}
    for name, alphabet in {**RANDOM, "the slowest of 30 sets of letters": slow_letters}.items():
        found[name] = by_chance(rng, alphabet, size)
    long_tokens = sorted((t for t in tokens if t.isascii() and t.isalpha()), key=len)[-2000:]
    found["tokens without their end"] = words(rng, lambda: "".join(rng.choice(long_tokens)[:-1] for _ in range(40)), size)
    found["tokens end to end"] = words(rng, lambda: "".join(rng.choice(tokens) for _ in range(40)), size)
    for n in (8, 20, 100):
        found["letters, words of %d" % n] = words(rng, lambda n=n: "".join(rng.choices(LETTERS, k=n)), size)
    found["numbers, words of 30"] = words(rng, lambda: "".join(rng.choices("0123456789", k=30)), size)
    return {name: cut(text, size) for name, text in found.items()}
