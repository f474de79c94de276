#!/usr/bin/env python3
"""llama.cpp's own server, in the library of xllamacpp: llama_server.py MODEL TYPE FOLDER PORT [SLOTS]

Converts MODEL to FOLDER/TYPE.gguf, if that is missing, as llama.cpp's converter does
(tools/fixtures/make_test_gguf.py); TYPE is F32 or Q8_0. SLOTS texts are computed in one batch (default 32).
"""
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/fixtures"))

import xllamacpp

THREADS, TOKENS = 2, 256


def converted(model, type_name, folder):
    from make_test_gguf import convert

    path = Path(folder) / f"{type_name}.gguf"
    if not path.exists():
        partial = path.with_suffix(f".{os.getpid()}")
        convert(model, str(partial), type_name)
        partial.rename(path)
    return path


def main():
    model, type_name, folder, port = sys.argv[1:5]
    slots = int(sys.argv[5]) if len(sys.argv) > 5 else 32
    params = xllamacpp.CommonParams()
    params.model.path = str(converted(model, type_name, folder))
    params.embedding = True
    params.hostnames, params.port = ["127.0.0.1"], int(port)
    params.n_parallel = slots
    params.n_ctx = slots * TOKENS
    params.n_batch = params.n_ubatch = slots * TOKENS  # an encoder's batch is computed at once
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    params.warmup = params.ui = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
