#!/usr/bin/env python3
"""Write the first inputs of fuzz/corpus/torch: small files of torch.save(), and pickles for one storage '0'.

Usage: make_torch_corpus.py [OUT]        (default fuzz/corpus/torch)
Needs torch; made with torch 2.15. fuzz_torch.c says how the inputs are read.
"""
import collections
import io
import os
import pickle
import sys
import zipfile

import torch

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../fuzz/corpus/torch")


def saved(state, **options):
    file = io.BytesIO()
    torch.save(state, file, **options)
    return file.getvalue()


def data_pkl(state, **options):
    with zipfile.ZipFile(io.BytesIO(saved(state, **options))) as archive:
        return archive.read("archive/data.pkl")


def write(name, data):
    with open(os.path.join(OUT, name), "wb") as file:
        file.write(data)


def main():
    os.makedirs(OUT, exist_ok=True)
    small = torch.arange(16.0).reshape(4, 4)
    state = collections.OrderedDict(a=small, b=small[1], c=small.t())
    state._metadata = collections.OrderedDict({"": {"version": 1}})
    write("zip", saved(state))
    write("zip-types", saved({str(t): torch.zeros(3, dtype=t) for t in
                              (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16,
                               torch.int8, torch.uint8, torch.bool)}))
    write("old", saved(state, _use_new_zipfile_serialization=False))
    for protocol in (2, 3, 4, 5):
        write(f"pickle-{protocol}", data_pkl(state, pickle_protocol=protocol))
    write("pickle-parameter", data_pkl({"p": torch.nn.Parameter(small)}))
    write("pickle-wrapped", data_pkl({"epoch": 1, "big": 2**70, "low": -2**40, "x": [1.5, None, (True,), "y" * 300],
                                      "state_dict": {"a": small}}, pickle_protocol=4))
    write("pickle-expanded", data_pkl({"a": torch.arange(16.0).as_strided((1000, 1000), (0, 0))}))  # more elements than bytes
    loop = {"a": small}
    loop["loop"] = [loop]
    write("pickle-loop", data_pkl(loop))
    write("pickle-system", pickle.dumps({"a": os.system}, 2))
    write("pickle-newobj", pickle.dumps(collections.Counter(), 2))


if __name__ == "__main__":
    main()
