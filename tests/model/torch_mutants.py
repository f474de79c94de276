#!/usr/bin/env python3
"""Mutants of PyTorch files: refused with place and reason, or read as Python's own unpickler reads them.

Usage: torch_mutants.py VERDICT_PROGRAM FIXTURES [N] [SEED]

Half of the mutants change the pickle (opcodes, numbers, names, whole parts), a quarter any bytes of an archive, a quarter those
of the old layout. Python's unpickler, with classes that only note their arguments, is the reference: gpuserve may
refuse what it accepts, but what gpuserve accepts must have the same names, shapes, and places in the storages.
"""
import collections
import io
import itertools
import os
import pathlib
import pickle
import pickletools
import random
import subprocess
import sys
import tempfile
import zipfile

from torch_bytes import MAGIC, Entry, archive

STATUSES = {"3", "4", "6"}  # corrupt, unsupported, over a limit
ELEMENT = {"FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2, "DoubleStorage": 8, "LongStorage": 8, "IntStorage": 4,
           "ShortStorage": 2, "CharStorage": 1, "ByteStorage": 1, "BoolStorage": 1}
NUMBERS = [b"K\0", b"K\1", b"K\xff", b"M\xff\xff", b"J\xff\xff\xff\xff", b"J\0\0\0\x80", b"\x8a\x08" + b"\xff" * 7 + b"\x7f",
           b"\x8a\x09" + b"\xff" * 8 + b"\x01", b"\x8a\0", b"G" + b"\0" * 8, b"N", b"\x88", b")", b"]", b"}", b"X\0\0\0\0"]
CODES = [op.code.encode("latin-1") for op in pickletools.opcodes]
GLOBALS = [b"cos\nsystem\n", b"ctorch\nHalfStorage\n", b"ctorch\nDoubleStorage\n", b"ccollections\nOrderedDict\n",
           b"ctorch._utils\n_rebuild_parameter\n", b"ctorch._utils\n_rebuild_tensor\n"]


class Tensor:
    def __init__(self, storage, offset, shape, stride, *_):
        self.storage, self.offset, self.shape, self.stride = storage, offset, shape, stride


class State(collections.OrderedDict):
    """An OrderedDict with attributes."""


class Reader(pickle._Unpickler):  # the one in Python: C's has a memo as large as its largest index
    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return State
        if module == "torch" and name in ELEMENT:
            return (name,)
        known = {"_rebuild_tensor": Tensor, "_rebuild_tensor_v2": Tensor, "_rebuild_parameter": lambda tensor, *_: tensor}
        if module == "torch._utils" and name in known:
            return known[name]
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, pid):
        return pid


def reference(data):
    """What a state dict's pickle has: {name: (key of the storage, offset and size in bytes)}; None if it cannot be read."""
    try:
        state = Reader(io.BytesIO(data)).load()
        for wrapper in ("state_dict", "model_state_dict"):
            if isinstance(state.get(wrapper), dict):
                state = state[wrapper]
                break
        found = {}
        for name, tensor in state.items():
            if isinstance(name, str) and isinstance(tensor, Tensor):
                _, kind, key, _, _ = tensor.storage[:5]
                count, dense, expected = 1, True, 1
                for n, stride in zip(reversed(tensor.shape), reversed(tensor.stride)):
                    dense = dense and (n <= 1 or stride == expected)
                    count, expected = count * n, expected * max(n, 1)
                size = ELEMENT[kind[0]]
                found[name] = (key, tensor.offset * size, count * size if dense or count == 0 else 0)
        return found
    except Exception:
        return None


def change_opcodes(data, rng):
    """One to three opcodes replaced, left out, repeated or exchanged."""
    at = [op[2] for op in pickletools.genops(data)] + [len(data)]
    ops = [data[a:b] for a, b in zip(at, at[1:])]
    for _ in range(rng.choice((1, 1, 2, 3))):
        i, kind = rng.randrange(1, len(ops)), rng.randrange(8)
        integers = [k for k, op in enumerate(ops) if op[:1] in (b"K", b"M", b"J")]
        if kind <= 1 and integers:
            ops[rng.choice(integers)] = rng.choice(NUMBERS)
        elif kind == 2:
            ops[i] = rng.choice(CODES) + ops[i][1:]
        elif kind == 3:
            ops[i] = b""
        elif kind == 4:
            ops[i] += ops[i]
        elif kind == 5:
            k = rng.randrange(1, len(ops))
            ops[i], ops[k] = ops[k], ops[i]
        elif kind == 6:
            names = [k for k, op in enumerate(ops) if op[:1] == b"c"] or [i]
            ops[rng.choice(names)] = rng.choice(GLOBALS)
        else:
            ops[i] = rng.choice(NUMBERS) + ops[i]
    return b"".join(ops)


def change_bytes(data, rng, head):
    """One to four bytes among the first `head` or the last 4096 changed, or the file cut."""
    data = bytearray(data)
    if rng.random() < 0.1:
        return bytes(data[:rng.randrange(len(data))])
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(min(head, len(data))) if rng.random() < 0.5 else len(data) - 1 - rng.randrange(min(4096, len(data)))
        data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256), data[at] ^ 1 << rng.randrange(8)))
    return bytes(data)


def parts(path):
    """The pickle and the storages of an archive."""
    with zipfile.ZipFile(path) as file:
        names = {name.partition("/")[2]: name for name in file.namelist()}
        return file.read(names["data.pkl"]), {name: file.read(whole) for name, whole in names.items() if name.startswith("data/")}


def pack(data, storages):
    entries = [Entry("a/data.pkl", data)] + [Entry(f"a/{name}", content) for name, content in storages.items()]
    places, at = {}, 0
    for entry in entries:
        places[entry.name.decode().rpartition("/")[2]] = at + len(entry.local())
        at += len(entry.local()) + len(entry.data)
    return archive(entries), places


def make_mutants(fixtures, n, rng):
    """(file, pickle or None, places of storages)"""
    files = sorted(pathlib.Path(fixtures).rglob("*.bin"))
    old = [path.read_bytes() for path in files if path.read_bytes().startswith(MAGIC)]
    modern = [path for path in files if not path.read_bytes().startswith(MAGIC)]
    packed = [parts(path) for path in modern]
    whole = [path.read_bytes() for path in modern]
    for i in range(n):
        if i % 2:
            data, storages = rng.choice(packed)
            data = change_opcodes(data, rng)
            yield *pack(data, storages), data
        elif i % 4:
            yield change_bytes(rng.choice(whole), rng, 16384), None, None
        else:
            yield change_bytes(rng.choice(old), rng, 8192), None, None


def is_right(line, place, places, data):
    verdict, _, rest = line.partition(" ")
    if verdict != "1":
        status, _, message = rest.partition(" ")
        return verdict == "0" and status in STATUSES and message.startswith(place)
    if data is None:
        return True
    want = reference(data)
    return want is not None and sorted(rest.split()[1:]) == sorted(
        f"{name}:{offset + places[key]}:{size}" for name, (key, offset, size) in want.items())


def main():
    program, fixtures = sys.argv[1:3]
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 2000
    rng = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    counts, wrong, ends = collections.Counter(), 0, 0
    mutants = make_mutants(fixtures, n, rng)
    for begin in range(0, n, 500):
        some = list(itertools.islice(mutants, 500))
        with tempfile.TemporaryDirectory() as folder:
            for i, (file, _, _) in enumerate(some):
                with open(os.path.join(folder, str(i)), "wb") as to:
                    to.write(file)
            done = subprocess.run([program, "torch", folder], input="".join(f"{i}\n" for i in range(len(some))).encode(),
                                  stdout=subprocess.PIPE)
            lines = done.stdout.decode(errors="replace").split("\n")
            ends += done.returncode != 0 or len(lines) != len(some) + 1
            for i, ((_, places, data), line) in enumerate(zip(some, lines)):
                counts["opened" if line.startswith("1") else "refused"] += 1
                if not is_right(line, f"{folder}/{i}", places, data):
                    wrong += 1
                    print(f"{begin + i}: {line[:300]}\n    want {str(reference(data))[:300] if data else ''}")
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) + f"; {wrong} wrong, {ends} ended badly")
    return 1 if wrong or ends or len(counts) != 2 else 0


if __name__ == "__main__":
    sys.exit(main())
