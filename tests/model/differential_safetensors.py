#!/usr/bin/env python3
"""Mutants of safetensors files: gpuserve must accept exactly those that the package safetensors accepts.

Usage: differential_safetensors.py VERDICT_PROGRAM MODEL_FILE [N] [SEED]

Half of the mutants change the header's meaning (offsets, shapes, types, names, lengths), half its bytes. One
difference is meant: a header with the same key twice is refused here, where the package takes the last one;
such mutants are left out.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

from json_mutants import change_bytes as change_text
from safetensors import deserialize

VALUES = [0, 1, 2, 4, 8, 31, 32, 33, 2**31, 2**32, 2**53, 2**62, -1, 1.0, 1.5, "4", None, True, [], {}]
TYPES = ["F32", "F16", "BF16", "F64", "I64", "I32", "I16", "I8", "U8", "U16", "U32", "U64", "BOOL", "F8_E5M2", "F8_E4M3",
         "F8_E8M0", "F4", "F6_E2M3", "F6_E3M2", "C64", "f32", "F128", "", None, 3]


def small_file(path, rng):
    """A few tensors of the model, so that a mutation often hits something."""
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(size))
        data = f.read()
    header.pop("__metadata__", None)
    names = sorted(header, key=lambda n: header[n]["data_offsets"][1] - header[n]["data_offsets"][0])[:20]
    out, blob = {"__metadata__": {"format": "pt"}} if rng.random() < 0.7 else {}, b""
    for name in rng.sample(names, rng.randint(1, 5)):
        begin, end = header[name]["data_offsets"]
        out[name] = {**header[name], "data_offsets": [len(blob), len(blob) + end - begin]}
        blob += data[begin:end]
    return out, blob


def change_meaning(header, blob, rng):
    names = [n for n in header if n != "__metadata__"]
    info = header[rng.choice(names)]
    kind = rng.randrange(14)
    if kind == 0:
        info["data_offsets"][rng.randrange(2)] = rng.choice(VALUES)
    elif kind == 1:
        info["shape"][rng.randrange(len(info["shape"]))] = rng.choice(VALUES)
    elif kind == 2:
        info["dtype"] = rng.choice(TYPES)
    elif kind == 3:
        del info[rng.choice(sorted(info))]
    elif kind == 4:
        info[rng.choice(["extra", "strides", "é"])] = rng.choice(VALUES)
    elif kind == 5:
        header["__metadata__"] = rng.choice([{}, None, [], {"a": 1}, {"a": "b"}, {"a": None}, "x", 5])
    elif kind == 6:
        info["shape"] = rng.choice([[], [0], [1], [2**32, 2**32], [2**32, 2**32, 0], [0, 2**62], None, 7, [1] * 40])
    elif kind == 7:
        info["data_offsets"] = rng.choice([[], [0], [0, 0], [0, 0, 0], [8, 4], None, "x", [0, len(blob)]])
    elif kind == 8:
        header[f"empty{rng.random()}"] = {"dtype": rng.choice(TYPES[:6]), "shape": [rng.choice([0, 1, 3]), 0],
                                          "data_offsets": [rng.choice([0, 4, len(blob)])] * 2}
    elif kind == 9:
        blob = blob[:-1] if rng.random() < 0.5 else blob + b"\0"
    elif kind == 10:
        header[rng.choice(["", "x" * 300, "new"])] = header.pop(rng.choice(names))
    elif kind == 11:
        a, b = rng.choice(names), rng.choice(names)
        header[a]["data_offsets"], header[b]["data_offsets"] = header[b]["data_offsets"], header[a]["data_offsets"]
    elif kind == 12:
        count = 1
        for n in info["shape"]:
            count *= n
        info["shape"] = [count, 1] if rng.random() < 0.5 else [1, count]
    else:
        header[rng.choice(names)] = rng.choice(VALUES)
    return blob


def pack(text, blob, length=None):
    return struct.pack("<Q", (len(text) if length is None else length) & (2**64 - 1)) + text + blob


def change_bytes(text, blob, rng):
    length = None
    kind = rng.randrange(6)
    if kind == 0:
        length = rng.choice([0, 1, len(text) - 1, len(text) + 1, len(text) + len(blob), 100000001, 2**63, 2**64 - 1])
    elif kind == 1:
        return pack(text, blob)[:rng.randrange(len(text) + 8)]
    else:
        text = change_text(text, rng)
    return pack(text, blob, length)


def has_duplicates(data):
    def check(pairs):
        if len({k for k, _ in pairs}) != len(pairs):
            raise KeyError
        return dict(pairs)

    try:
        json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]], object_pairs_hook=check)
    except KeyError:
        return True
    except Exception:
        pass
    return False


def reference_accepts(data):
    try:
        deserialize(data)
        return True
    except Exception:
        return False


def main():
    program, model = sys.argv[1:3]
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 2000
    rng = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    mutants = []
    while len(mutants) < n:
        header, blob = small_file(model, rng)
        if len(mutants) % 2:
            blob = change_meaning(header, blob, rng)
        text = json.dumps(header, ensure_ascii=rng.random() < 0.5).encode()
        data = pack(text, blob) if len(mutants) % 2 else change_bytes(text, blob, rng)
        if not has_duplicates(data):
            mutants.append(data)
    with tempfile.TemporaryDirectory() as folder:
        for i, data in enumerate(mutants):
            with open(os.path.join(folder, str(i)), "wb") as f:
                f.write(data)
        names = "".join(f"{i}\n" for i in range(n))
        lines = subprocess.run([program, "safetensors", folder], input=names.encode(), capture_output=True, check=True).stdout
    lines = lines.decode(errors="replace").split("\n")
    accepted = [reference_accepts(data) for data in mutants]
    wrong = [i for i in range(n) if accepted[i] != lines[i].startswith("1")]
    for i in wrong[:10]:
        print(f"mutant {i}: the package {'accepts' if accepted[i] else 'refuses'} it, gpuserve says: {lines[i]}")
        print("   ", mutants[i][:300])
    print(f"{n} mutants, {sum(accepted)} accepted by the package, {len(wrong)} differences")
    return 1 if wrong or not 0 < sum(accepted) < n else 0


if __name__ == "__main__":
    sys.exit(main())
