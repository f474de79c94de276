#!/usr/bin/env python3
"""Make lib/text/unicode/generated/unicode_tables.c by asking Hugging Face `tokenizers` about every code point.

Ids must equal those of `tokenizers` on every text, and its Unicode data is of several ages (8.0 for
categories, 9.0 for normalization forms, a recent one for \\w). So nothing is read from a Unicode
file: each property is what the pinned package does to a text that holds the character.

    pip install tokenizers==0.23.3
    python3 tools/unicode_tables.py            write lib/text/unicode/generated/unicode_tables.c
    python3 tools/unicode_tables.py --check    compare instead; exit 1 when they differ
"""
import pathlib
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

PINNED = "0.23.3"
LIMIT = 0x110000
BLOCK = 128
HANGUL = range(0xAC00, 0xAC00 + 11172)
SURROGATES = range(0xD800, 0xE000)
OUTPUT = pathlib.Path(__file__).parent.parent / "lib" / "text" / "unicode" / "generated" / "unicode_tables.c"

# Bits of gsv_unicode_flags; the names are those of lib/text/unicode/unicode.h.
CONTROL, SPACE, PUNCTUATION, WORD, NONSPACING, COMBINING, CHANGES, REORDERS = (1 << i for i in range(8))

# Bits of gsv_unicode_regex: what a regular expression of a "Split" knows, and, the last, "Digits".
REGEX = (r"\p{L}", r"\p{N}", r"\p{M}", r"\p{P}", r"\p{S}", r"\s")
NUMERIC = 1 << len(REGEX)


def code_points():
    for c in range(LIMIT):
        if c not in SURROGATES:
            yield c


class Probe:
    """Flags of each code point, and {code point: its lowercase, decompositions and class} where it has one."""
    CLEAN = normalizers.BertNormalizer(True, False, False, False).normalize_str
    ACCENTS = normalizers.BertNormalizer(False, False, True, False).normalize_str
    MARKS = normalizers.StripAccents().normalize_str
    LOWER = normalizers.Lowercase().normalize_str
    NFD = normalizers.NFD().normalize_str
    NFKD = normalizers.NFKD().normalize_str
    BERT = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    WORDS = pre_tokenizers.Whitespace().pre_tokenize_str

    def __init__(self):
        self.flags = [0] * LIMIT
        self.lowered, self.canonical, self.compatible, self.classes = {}, {}, {}, {}

    def plain(self, block):
        """Whether no code point of a block is changed or moved by anything, and all are of words, or none is:
        then their flags are set. Each stands between two "a", so what happens to one happens to it alone."""
        text = "a" + "".join(chr(c) + "a" for c in block)
        before = "".join("a" + chr(c) + "\u0334" for c in block)
        after = "".join("a\u0345" + chr(c) for c in block)
        # One piece: all are of the word that "a" begins. Two, of which "a" is the first: none is.
        words = self.WORDS("a" + "".join(map(chr, block)))
        if any(change(text) != text for change in (self.CLEAN, self.ACCENTS, self.MARKS, self.LOWER, self.NFKD)) or \
                self.NFD(before) != before or self.NFD(after) != after or len(self.BERT(text)) != 1 or \
                not (len(words) == 1 or len(words) == 2 and words[0][0] == "a"):
            return False
        for c in block:
            self.flags[c] = WORD if len(words) == 1 else 0
        return True

    def one(self, c):
        s = chr(c)
        n = len(self.BERT("a" + s + "a"))
        f = (0 if n == 1 else SPACE if n == 2 else PUNCTUATION)
        if self.CLEAN("a" + s + "a") == "aa":
            f |= CONTROL
        if len(self.WORDS("a" + s + "a")) == 1:
            f |= WORD
        if self.ACCENTS("a" + s) == "a":
            f |= NONSPACING
        if self.MARKS("a" + s) == "a":
            f |= COMBINING
        low, d, k = self.LOWER(s), self.NFD(s), self.NFKD(s)
        if low != s:
            self.lowered[c] = low
        if d != s:
            self.canonical[c] = d
        if k != d:
            self.compatible[c] = k
        # A class is proved by the swaps it makes; its number is fixed by Unicode's stability policy.
        swaps = self.NFD("a" + s + "\u0334") != "a" + d + "\u0334" or self.NFD("a\u0345" + s) != "a\u0345" + d
        if swaps and d == s:
            self.classes[c] = unicodedata.combining(s)
            assert self.classes[c], hex(c)
        self.flags[c] = f


def probe():
    """Per code point: flags, lowercase, canonical and compatibility decomposition, class."""
    found = Probe()
    for start in range(0, LIMIT, BLOCK):
        block = range(start, start + BLOCK)
        if start in SURROGATES or found.plain(block):
            continue
        for c in block:
            found.one(c)
    verify_classes(found.classes, found.NFD)
    for c in code_points():
        d = found.canonical.get(c, chr(c))
        if chr(c) != d or c in found.lowered:
            found.flags[c] |= CHANGES
        if any(ord(x) in found.classes and not found.flags[ord(x)] & NONSPACING for x in d):
            found.flags[c] |= REORDERS
    return found.flags, found.lowered, found.canonical, found.compatible, found.classes


def verify_classes(classes, nfd):
    """Every character with a class sorts against one of each class as the numbers say."""
    one = {}
    for c, k in sorted(classes.items()):
        one.setdefault(k, c)
    for c, k in classes.items():
        for other, o in one.items():
            want = chr(o) + chr(c) if other <= k else chr(c) + chr(o)
            assert nfd("a" + chr(o) + chr(c)) == "a" + want, (hex(c), k, hex(o), other)


def probe_regex():
    """Per code point: which classes of a regular expression it is in."""
    flags = [0] * LIMIT
    text = "".join(map(chr, code_points()))
    for i, pattern in enumerate(REGEX):
        rest = pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str(text)
        others = set("".join(piece for piece, _ in rest))
        for c in text:
            if c not in others:
                flags[ord(c)] |= 1 << i
    pieces = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str("a".join(text))
    for piece, (begin, end) in pieces:
        if end == begin + 1 and begin % 2 == 0 and piece != "a":
            flags[ord(piece)] |= NUMERIC
    return flags


def compositions(canonical):
    """(first, second) -> composed, outside Hangul."""
    nfc = normalizers.NFC().normalize_str
    pairs = {}
    for c, d in canonical.items():
        if c in HANGUL or len(d) < 2 or nfc(chr(c)) != chr(c):
            continue
        first = nfc(d[:-1])
        assert len(first) == 1 and nfc(first + d[-1]) == chr(c), hex(c)
        pairs[(ord(first), ord(d[-1]))] = c
    return pairs


def two_stages(values):
    """values[LIMIT] as (block number of each BLOCK code points, the distinct blocks end to end)."""
    first, second, seen = [], [], {}
    for start in range(0, LIMIT, BLOCK):
        block = tuple(values[start:start + BLOCK])
        if block not in seen:
            seen[block] = len(second) // BLOCK
            second.extend(block)
        first.append(seen[block])
    return first, second


def array(kind, name, values):
    lines, line = [], "   "
    for v in values:
        word = " %d," % v
        if len(line) + len(word) > 98:
            lines.append(line)
            line = "   "
        line += word
    lines.append(line)
    return "const %s %s[%d] = {\n%s\n};\n" % (kind, name, len(values), "\n".join(lines))


def staged(kind, name, values):
    first, second = two_stages(values)
    return array("uint16_t", name + "_blocks", first) + "\n" + array(kind, name, second)


def mappings(name, table, pool):
    """A table of code point -> index into the pool of { length, code points... }; 0 is none."""
    values = [0] * LIMIT
    for c, text in sorted(table.items()):
        if c in HANGUL:
            continue
        key = tuple(ord(x) for x in text)
        if key not in pool["at"]:
            pool["at"][key] = len(pool["values"])
            pool["values"].extend((len(key),) + key)
        values[c] = pool["at"][key]
    return staged("uint16_t", name, values)


def render():
    flags, lowered, canonical, compatible, classes = probe()
    pool = {"at": {}, "values": [0]}
    pairs = compositions(canonical)
    combining = [0] * LIMIT
    for c, k in classes.items():
        combining[c] = k
    parts = [
        "/*\n * unicode_tables.c - generated by tools/unicode_tables.py from tokenizers %s. Do not edit.\n */\n"
        '#include "lib/text/unicode/generated/unicode_tables.h"\n\n/* clang-format off */\n' % PINNED,
        staged("uint8_t", "gsv_unicode_flags", flags),
        staged("uint8_t", "gsv_unicode_regex", probe_regex()),
        staged("uint8_t", "gsv_unicode_class", combining),
        mappings("gsv_unicode_lower", lowered, pool),
        mappings("gsv_unicode_canonical", canonical, pool),
        mappings("gsv_unicode_compatible", compatible, pool),
        array("uint32_t", "gsv_unicode_pool", pool["values"]),
        array("uint32_t", "gsv_unicode_pairs",
              [x for (a, b), c in sorted(pairs.items()) for x in (a, b, c)]),
        "const size_t gsv_unicode_n_pairs = %d;\n" % len(pairs),
    ]
    assert len(pool["values"]) < 65536
    return "\n".join(parts)


def write_or_check(output, make):
    """What make() gives, into the file, or with --check compared with it."""
    if tokenizers.__version__ != PINNED:
        sys.exit("needs tokenizers==%s, found %s" % (PINNED, tokenizers.__version__))
    text = make()
    if "--check" in sys.argv[1:]:
        if output.read_text() != text:
            sys.exit("%s is not what %s gives" % (output, sys.argv[0]))
        print("%s is up to date" % output.name)
        return
    output.write_text(text)


if __name__ == "__main__":
    write_or_check(OUTPUT, render)
