"""Every check of what comes from outside, found in the sources; and a copy of them in which each can
be switched off.

A check is a condition that decides over a refusal. A refusal is a call of a function that tells the
caller what is wrong (SEEDS), or of one that always ends in such a call, which is found by itself:

    if (A || B) return gsv_fail(...);           A and B are a check each
    return A ? GPUSERVE_OK : gsv_fail(...);     so is A, and so in `return A || gsv_refuse(...);`
    ... return gsv_fail(...); }                 without a condition: that all before did not apply

A function that answers a question in such a condition (`if (!fits(x))`) checks as well: in it each
`if (A) return false;`, and each operand of `return A && B;`. So a new check is found on the day it is
written. Refusals that tell of the machine and not of the input (out of memory, a file that cannot be
read, a lost device) are not meant: those faults are injected by tests of their own.
"""
import re
from dataclasses import dataclass
from pathlib import Path

from csource import calls_in, functions_of, has, split

SEEDS = {"gsv_fail", "gsv_hint", "gsv_refuse", "gsv_refuse_error", "gsv_client_refuse",
         "gsv_retry_after"}
REFUSED_STATE = "GSV_FRAMING_REFUSED"
STATUS = re.compile(r"\b(?:GPUSERVE_E|GSV_P)_(\w+)")
# What the machine does, not the input.
OF_THE_MACHINE = {"NOMEM", "IO", "DEVICE", "INTERNAL", "TIMEOUT", "CANCELLED", "FORKED", "NUMERIC",
                  "UNAVAILABLE", "BACKEND", "EXPIRED"}
# A comparison with a greatest size or number is a check wherever it stands, as in `if (n > MAX) n = MAX;`.
GREATEST = re.compile(r"\b(?!U?INT\d*_MAX|SIZE_MAX|PTRDIFF_MAX)(?:\w+_)?(?:MAX|MOST)(?:_\w+)?\b|"
                      r"\bmax_body(?:_bytes)?\b|\bmaximum\b")
# Only passes on what somebody else has found.
PASSED_ON = re.compile(r"(?:st|status) [=!]= GPUSERVE_\w+$")
# What the kernel answers is the machine's, too; so is whether memory is left, which is all that the last
# ones tell.
SYSTEM_CALLS = {"fstat", "socketpair", "epoll_ctl", "MHD_add_connection", "gsv_connection_expect"}
SUCCESS = {"gpuserve_status": "GPUSERVE_OK", "bool": "true"}
GOOD = {"GPUSERVE_OK", "true"}


@dataclass
class Check:
    path: str
    line: int
    function: str
    begin: int
    end: int
    how: str      # "refuses": the condition is of the fault; "holds": of the good case; "always"
    text: str
    success: str = ""


def text_of(tokens):
    return " ".join(token.text for token in tokens)


# ------------------------------------------------------------------------------------- refusals

def is_refusal(tokens, refusing):
    """Whether these tokens refuse, and because of the input."""
    called = calls_in(tokens) & refusing
    named = set(STATUS.findall(text_of(tokens)))
    if not called or (called == {"gsv_hint"} and not named):    # a hint for an error there already
        return False
    return not named or not named <= OF_THE_MACHINE


def simple_statements(statement):
    return [s for s in statement.walk() if s.kind == "plain" and s.tokens]


def always_refuses(function, refusing):
    plain = simple_statements(function.body)
    returns = [s.tokens for s in plain if s.tokens[0].text == "return"]
    direct = [s for s in function.body.parts if s.kind == "plain" and s.tokens]
    if any(token.text in GOOD for tokens in returns for token in tokens):
        return False
    if any(token.text == REFUSED_STATE for s in direct for token in s.tokens) and \
            any(token.text == "=" for s in direct for token in s.tokens):
        return True
    named = set(STATUS.findall(" ".join(text_of(s.tokens) for s in plain)))
    if named and named <= OF_THE_MACHINE:
        return False
    if returns and all(calls_in(tokens) & refusing and not has(tokens, "?") and not has(tokens, "||")
                       for tokens in returns):
        return True
    fixed = all(len(tokens) <= 3 for tokens in returns)    # `return false;`, `return -1;`
    return fixed and any(calls_in(s.tokens) & refusing for s in direct)


def find_refusing(functions):
    """The names of all functions that always refuse, those of SEEDS among them."""
    refusing, before = set(SEEDS), 0
    while len(refusing) != before:
        before = len(refusing)
        refusing |= {f.name for f in functions if always_refuses(f, refusing)}
    return refusing


# ----------------------------------------------------------------------------------- conditions

def leaves(tokens, how):
    """A condition's parts that refuse each alone, with what they say."""
    while tokens and tokens[0].text == "(" and closes_at_end(tokens, 0):
        tokens = tokens[1:-1]
    if len(tokens) > 2 and tokens[0].text == "!" and tokens[1].text == "(" and closes_at_end(tokens, 1):
        yield from leaves(tokens[2:-1], "holds" if how == "refuses" else "refuses")
        return
    if has(tokens, "?") or has(tokens, "="):
        yield tokens, how
        return
    mark, other = ("||", "&&") if how == "refuses" else ("&&", "||")
    if has(tokens, mark) and not (mark == "&&" and has(tokens, other)):
        for part in split(tokens, mark):
            yield from leaves(part, how)
        return
    yield tokens, how


def is_comparison(tokens):
    return any(token.text in (">", ">=", "<", "<=", "==") for token in tokens)


def closes_at_end(tokens, at):
    depth = 0
    for i in range(at, len(tokens)):
        depth += (tokens[i].text in "([{") - (tokens[i].text in ")]}")
        if depth == 0:
            return i == len(tokens) - 1
    return False


class Finder:
    """The checks of one file."""

    def __init__(self, path, text, refusing):
        self.path, self.text, self.refusing = path, text, refusing
        self.found, self.function = [], None

    def add(self, tokens, how):
        for part, sense in leaves(tokens, how):
            if PASSED_ON.match(text_of(part)) or calls_in(part) & SYSTEM_CALLS:
                continue
            begin, end = part[0].begin, part[-1].end
            self.found.append(Check(self.path, self.text.count("\n", 0, begin) + 1,
                                    self.function.name, begin, end, sense,
                                    " ".join(self.text[begin:end].split())))

    def add_always(self, tokens):
        success = SUCCESS.get(self.function.returns.split()[-1]) if self.function.returns else None
        parts = split(tokens, "=")
        value = tokens[1:] if tokens[0].text == "return" else parts[1] if len(parts) == 2 else None
        if success and value:
            begin, end = value[0].begin, value[-1].end
            self.found.append(Check(self.path, self.text.count("\n", 0, begin) + 1,
                                    self.function.name, begin, end, "always",
                                    " ".join(self.text[begin:end].split())[:100], success))

    def refuses(self, statement):
        """Whether it does so itself, not under a further condition of its own."""
        if statement.kind == "plain":
            return is_refusal(statement.tokens, self.refusing) and not self.decides(statement.tokens)
        if statement.kind == "block":
            return any(self.refuses(part) for part in statement.parts)
        return False

    def decides(self, tokens):
        """The condition within a statement that refuses by `?` or `||`: (tokens, how), or None."""
        start = 1 if tokens[0].text == "return" else 0
        assigned = split(tokens, "=")
        tokens = assigned[-1] if len(assigned) == 2 else tokens[start:]
        if has(tokens, "?"):
            condition, rest = split(tokens, "?")[0], tokens[len(split(tokens, "?")[0]) + 1:]
            branches = split(rest, ":")
            bad = [is_refusal(branch, self.refusing) for branch in (branches[0], rest[len(branches[0]):])]
            if bad[0] != bad[1]:
                return condition, "refuses" if bad[0] else "holds"
            return None
        parts = split(tokens, "||")
        if len(parts) > 1 and is_refusal(parts[-1], self.refusing):
            return tokens[:len(tokens) - len(parts[-1]) - 1], "holds"
        return None

    def visit(self, statement, governed):
        if statement.kind == "plain":
            if not statement.tokens or not is_refusal(statement.tokens, self.refusing):
                return
            decision = self.decides(statement.tokens)
            if decision:
                self.add(*decision)
            elif not governed:
                self.add_always(statement.tokens)
        elif statement.kind == "if":
            then_refuses = self.refuses(statement.parts[0])
            else_refuses = len(statement.parts) > 1 and self.refuses(statement.parts[1])
            if then_refuses != else_refuses:
                self.add(statement.tokens, "refuses" if then_refuses else "holds")
            elif comparisons := [part for part in leaves(statement.tokens, "refuses")
                                 if GREATEST.search(text_of(part[0])) and is_comparison(part[0])]:
                for part, how in comparisons:
                    self.add(part, how)
            self.visit(statement.parts[0], True)
            if len(statement.parts) > 1:
                self.visit(statement.parts[1], True)
        else:
            for part in statement.parts:
                self.visit(part, governed and statement.kind == "block")

    def visit_function(self, function):
        self.function = function
        if function.name in self.refusing:
            return
        self.visit(function.body, False)

    # A function that answers: what makes it say "no".
    def visit_predicate(self, function, no):
        self.function = function
        for statement in function.body.walk():
            if statement.kind == "if" and self.says(statement.parts[0], no):
                self.add(statement.tokens, "refuses")
            elif statement.kind == "plain" and statement.tokens and statement.tokens[0].text == "return":
                answer = statement.tokens[1:]
                if len(answer) > 1 and function.returns.split()[-1] == "bool" and not has(answer, "?"):
                    self.add(answer, "holds" if no == "false" else "refuses")

    def says(self, statement, no):
        if statement.kind == "block":
            return bool(statement.parts) and self.says(statement.parts[-1], no)
        return statement.kind == "plain" and text_of(statement.tokens) in (f"return {no}",)


def predicates_of(checks, functions):
    """Those asked in these conditions: name -> what it answers when it refuses."""
    returns = {f.name: f.returns.split()[-1] for f in functions if f.returns}
    found = {}
    for check in checks:
        if check.how == "always":
            continue
        for name in set(re.findall(r"\b([a-z_]\w*)\(", check.text)):
            if returns.get(name) == "bool":
                negated = re.search(r"!\s*" + name + r"\(", check.text) is not None
                found[name] = "false" if negated == (check.how == "refuses") else "true"
            elif returns.get(name) in ("int", "int32_t", "int64_t"):
                found[name] = "- 1"
    return found


def find_checks(root, paths):
    """All of them, in the order of the paths and of the text."""
    files = {path: (root / path).read_text("utf-8") for path in paths}
    functions = {path: functions_of(text) for path, text in files.items()}
    refusing = find_refusing([f for some in functions.values() for f in some])
    finders = {path: Finder(path, text, refusing) for path, text in files.items()}
    for path, finder in finders.items():
        for function in functions[path]:
            finder.visit_function(function)
    done, before = {}, -1
    while len(done) != before:
        before = len(done)
        for path, finder in finders.items():
            # A name of this file means the one of this file; any other means the shared one.
            asked = predicates_of(finder.found, functions[path])
            for other in finders:
                if other != path:
                    asked |= {n: no for n, no in predicates_of(finders[other].found, functions[path]).items()
                              if n.startswith("gsv_")}
            for function in functions[path]:
                if function.name in asked and (path, function.name) not in done:
                    done[path, function.name] = True
                    if function.name not in refusing:
                        finder.visit_predicate(function, asked[function.name])
    checks = []
    for finder in finders.values():
        unique = {(check.begin, check.end): check for check in finder.found}
        checks += sorted(unique.values(), key=lambda check: (check.begin, -check.end))
    return checks


def sources(root):
    """Where input from outside is looked at."""
    return sorted(str(path.relative_to(root)) for path in Path(root, "lib").rglob("*.c"))


# --------------------------------------------------------------------------------- instrumenting

def switchable(text, checks):
    """The text with check i of [(i, check)] behind a switch."""
    for number, check in sorted(checks, key=lambda item: -item[1].begin):
        inner = text[check.begin:check.end]
        if check.how == "always":
            inner = f"(gsv_check_acts({number}) ? ({inner}) : {check.success})"
        elif check.how == "refuses":
            inner = f"(({inner}) && gsv_check_acts({number}))"
        else:
            inner = f"(({inner}) || !gsv_check_acts({number}))"
        text = text[:check.begin] + inner + text[check.end:]
    # On the first line, so that those after it keep their numbers.
    return "int gsv_check_acts(int number) __attribute__((visibility(\"hidden\"))); " + text


def write_switchable(root, checks):
    """Change the files under `root`: its own copy of the tree."""
    by_path = {}
    for number, check in enumerate(checks):
        by_path.setdefault(check.path, []).append((number, check))
    for path, numbered in by_path.items():
        text = (root / path).read_text("utf-8")
        (root / path).write_text(switchable(text, numbered), "utf-8")
