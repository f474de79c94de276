"""Mutants of JSON files: half of them with another meaning, half with other bytes."""
import copy
import json

VALUES = [0, 1, 2, 3, 4, 7, 31, 100, 2**31, 2**32, 2**53, 2**63, -1, 1.0, 0.5, 1e300, "", "4", "x", "[CLS]", "é" * 9,
          "WordPiece", None, True, False, [], {}, [1], {"a": 1}, [[]]]


def places(value, path=()):
    """Every place in a tree, as the way to it."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, path + (key,))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from places(inner, path + (i,))


def change_meaning(tree, rng):
    """One or two places of a copy changed: another value, gone, twice, renamed, exchanged."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 2))):
        ways = [path for path in places(tree) if path]
        if not ways:
            break
        # The deep lists (a vocabulary) are most of a file: every depth has its turn.
        depth = rng.choice(sorted({len(path) for path in ways}))
        path = rng.choice([p for p in ways if len(p) == depth])
        holder = tree
        for step in path[:-1]:
            holder = holder[step]
        last, kind = path[-1], rng.randrange(6)
        if kind <= 1:
            holder[last] = copy.deepcopy(rng.choice(VALUES))
        elif kind == 2:
            del holder[last]
        elif kind == 3 and isinstance(holder, list):
            holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(holder[last]))
        elif kind == 3:
            holder[rng.choice(["", "extra", "type", last + "x"])] = holder.pop(last)
        elif kind == 4:
            other = rng.choice([p[-1] for p in ways if p[:-1] == path[:-1]])
            holder[last], holder[other] = holder[other], holder[last]
        elif isinstance(holder[last], (int, float)) and not isinstance(holder[last], bool):
            holder[last] += rng.choice((-1, 1, 1000, 2**40))
        elif isinstance(holder[last], str):
            holder[last] = rng.choice((holder[last][1:], holder[last] + "x", holder[last].upper(), "\0", "x" * 5000))
        else:
            holder[last] = [holder[last]]
    return tree


def change_bytes(text, rng):
    """Cut, with something before or after it, or one to three bytes that become others, go, or come."""
    kind = rng.randrange(8)
    if kind == 0:
        return text[:rng.randrange(len(text))]
    if kind == 1:
        return rng.choice([b" ", b"\n", b"[", b"\xef\xbb\xbf"]) + text
    if kind == 2:
        return text + rng.choice([b" ", b"\n\t ", b"x", b"}", b"\0", b","])
    changed = bytearray(text)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed))
        if rng.random() < 0.5:
            changed[at] = rng.randrange(256)
        elif rng.random() < 0.5:
            del changed[at]
        else:
            changed.insert(at, rng.choice(b'0123456789,:{}[]"\\-.eE '))
    return bytes(changed)


def mutant(tree, rng):
    text = json.dumps(tree, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, 2)))
    if rng.random() < 0.5:
        return json.dumps(change_meaning(tree, rng), ensure_ascii=rng.random() < 0.5).encode()
    return change_bytes(text.encode(), rng)


def has_duplicates(data):
    """A key twice in one object: refused here on purpose, where some readers take the last one."""
    def check(pairs):
        if len({k for k, _ in pairs}) != len(pairs):
            raise KeyError
        return dict(pairs)

    try:
        json.loads(data, object_pairs_hook=check)
    except KeyError:
        return True
    except (ValueError, RecursionError):
        pass
    return False
