"""The statements of a C file, as far as tools/limits needs them: no types, no preprocessor.

A function is a tree of statements; every token knows its place in the text, so that an edit can be
made there. Understood is the code of this repository, formatted by clang-format: macros that open a
loop (`json_array_foreach(...) {`) are loops, others are calls.
"""
import re
from dataclasses import dataclass, field

TOKEN = re.compile(r"""
    (?P<skip>\s+|/\*.*?\*/|//[^\n]*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
  | (?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
  | (?P<mark>->|\+\+|--|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\.\.\.|.)
""", re.VERBOSE | re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*(?:\\\n(?:[^\n\\]|\\.)*)*", re.MULTILINE | re.DOTALL)
OPENING, CLOSING = "([{", ")]}"


@dataclass
class Token:
    text: str
    begin: int
    end: int


@dataclass
class Statement:
    """kind: block, if, loop (for, while, switch, a macro), or plain, which ends at its semicolon."""
    kind: str
    tokens: list = field(default_factory=list)   # plain: all of them; if, loop: what is in parentheses
    parts: list = field(default_factory=list)    # block: its statements; if: then, else; loop: its body

    def walk(self):
        yield self
        for part in self.parts:
            yield from part.walk()


@dataclass
class Function:
    name: str
    returns: str     # the words before the name
    body: Statement


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def tokens_of(text):
    found = []
    for match in TOKEN.finditer(DIRECTIVE.sub(blank, text)):
        if match.lastgroup != "skip":
            found.append(Token(match.group(), match.start(), match.end()))
    return found


def partner(tokens, at):
    """The place of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(tokens)):
        if tokens[i].text in OPENING:
            depth += 1
        elif tokens[i].text in CLOSING:
            depth -= 1
            if depth == 0:
                return i
    raise ValueError(f"nothing closes the bracket at byte {tokens[at].begin}")


def statement_end(tokens, at):
    depth = 0
    while True:
        text = tokens[at].text
        depth += (text in OPENING) - (text in CLOSING)
        if text == ";" and depth == 0:
            return at
        at += 1


def read_block(tokens, at):
    block, at = Statement("block"), at + 1
    while tokens[at].text != "}":
        part, at = read_statement(tokens, at)
        block.parts.append(part)
    return block, at + 1


def read_statement(tokens, at):
    word = tokens[at].text
    if word == "{":
        return read_block(tokens, at)
    if word in ("case", "default") or (tokens[at + 1].text == ":" and word.isidentifier()):
        while tokens[at].text != ":":
            at += 1
        if tokens[at + 1].text == "}":
            return Statement("block"), at + 1
        return read_statement(tokens, at + 1)
    if word == "do":
        body, at = read_statement(tokens, at + 1)
        return Statement("loop", [], [body]), statement_end(tokens, at) + 1
    if tokens[at + 1].text == "(" and word.isidentifier() and word != "return":
        close = partner(tokens, at + 1)
        inner = tokens[at + 2:close]
        if word == "if":
            then, at = read_statement(tokens, close + 1)
            parts = [then]
            if tokens[at].text == "else":
                other, at = read_statement(tokens, at + 1)
                parts.append(other)
            return Statement("if", inner, parts), at
        if word in ("for", "while", "switch") or tokens[close + 1].text == "{":
            body, at = read_statement(tokens, close + 1)
            return Statement("loop", inner, [body]), at
    end = statement_end(tokens, at)
    return Statement("plain", tokens[at:end]), end + 1


def functions_of(text):
    tokens, at, since, found = tokens_of(text), 0, 0, []
    while at < len(tokens):
        mark = tokens[at].text
        if mark == "(":
            close = partner(tokens, at)
            if close + 1 < len(tokens) and tokens[close + 1].text == "{" and at > since:
                body, end = read_block(tokens, close + 1)
                returns = " ".join(token.text for token in tokens[since:at - 1])
                found.append(Function(tokens[at - 1].text, returns, body))
                at = since = end
                continue
            at = close
        elif mark in "[{":
            at = partner(tokens, at)
            if mark == "{" and at + 1 < len(tokens) and tokens[at + 1].text != ";":
                since = at + 1
        elif mark == ";":
            since = at + 1
        at += 1
    return found


def calls_in(tokens):
    """The names of the functions called in them."""
    return {tokens[i].text for i in range(len(tokens) - 1)
            if tokens[i + 1].text == "(" and tokens[i].text.isidentifier()}


def split(tokens, mark):
    """At every `mark` outside of brackets."""
    parts, depth, since = [], 0, 0
    for i, token in enumerate(tokens):
        depth += (token.text in OPENING) - (token.text in CLOSING)
        if token.text == mark and depth == 0:
            parts.append(tokens[since:i])
            since = i + 1
    return parts + [tokens[since:]]


def has(tokens, mark):
    return len(split(tokens, mark)) > 1
