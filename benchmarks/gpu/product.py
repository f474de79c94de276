"""What a user of the library gets from this GPU, as JSON lines: P8, P10 and P11.

    product.py chain LIBRARY [dry]                 500 operations on a million numbers: generated
                                                   kernel, from the disk's cache, interpreted
    product.py torch_chain                         the same in torch; its compiler takes a minute
    product.py backends LIBRARY MODEL [dry]        texts/s here over texts/s on this machine's CPU
    product.py transfer SERVER [dry]               copies between host memory and the device
    product.py http LIBRARY SERVER MODEL [dry]     texts/s of `gpuserve serve` with 64 clients over
                                                   those of the library on the same texts

`dry` shrinks all sizes to what the emulator runs in seconds. Rounds turn the order of what is compared.
"""
import ctypes
import json
import math
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from compare import DTYPES, Model, load_abi, make_texts, say, spread, time_us, turned, verdict

DRY = sys.argv[-1] == "dry"
CLIENTS, PROCESSES, TEXTS_A_REQUEST = (2, 1, 2) if DRY else (64, 8, 32)
MAX_WORDS = 3 if DRY else 120
SIN, FMA = 11, 3


# --------------------------------------------------------------------------------------------- P8


class Compute:
    """A handle on a device; `nvrtc` as the variable GPUSERVE_NVRTC has it."""

    def __init__(self, library, nvrtc, device="cuda:0"):
        self.abi = load_abi()
        self.library = ctypes.CDLL(library)
        ctypes.CDLL(None).setenv(b"GPUSERVE_NVRTC", nvrtc.encode(), 1)
        self.error = self.abi.Error(struct_size=ctypes.sizeof(self.abi.Error))
        self.handle = ctypes.c_void_p()
        context = ctypes.c_void_p()
        self.check(self.library.gpuserve_context_create(ctypes.byref(context), None, ctypes.byref(self.error)))
        options = self.abi.ComputeOptions(ctypes.sizeof(self.abi.ComputeOptions), 0, device.encode())
        self.check(self.library.gpuserve_compute_open(ctypes.byref(self.handle), context, ctypes.byref(options),
                                                      ctypes.byref(self.error)))
        self.library.gpuserve_context_unref(ctypes.byref(context))

    def check(self, status):
        if status:
            raise RuntimeError(self.error.message.decode())

    def chain(self, steps, values, out):
        """(seconds of the call, seconds on the device, which kernel)"""
        result = self.abi.ComputeResult(ctypes.sizeof(self.abi.ComputeResult))
        begin = time.perf_counter()
        self.check(self.library.gpuserve_chain(self.handle, steps, ctypes.c_size_t(len(steps)), values, out,
                                               ctypes.c_size_t(len(values)), ctypes.byref(result), ctypes.byref(self.error)))
        return time.perf_counter() - begin, result.kernel_seconds, result.variant

    def close(self):
        self.library.gpuserve_compute_close(ctypes.byref(self.handle))


def chain(library):
    pairs, n, runs = (4, 3000, 2) if DRY else (250, 1 << 20, 8)
    abi = load_abi()
    steps = (abi.ChainStep * (2 * pairs))(*([abi.ChainStep(SIN, 0, 0), abi.ChainStep(FMA, 1.5, 0.25)] * pairs))
    values = (ctypes.c_float * n)(*(i % 1000 * 0.002 - 1 for i in range(n)))
    results, files, handles, colds = {}, {}, {}, {}
    cache = tempfile.mkdtemp()
    ctypes.CDLL(None).setenv(b"GPUSERVE_KERNEL_CACHE", cache.encode(), 1)
    # A handle has kernels of its own: the second finds what the first left on the disk.
    for name, nvrtc in (("generated", "1"), ("from the disk's cache", "1"), ("interpreted", "0")):
        handles[name], out = Compute(library, nvrtc), (ctypes.c_float * n)()
        colds[name] = handles[name].chain(steps, values, out)
        results[name] = bytes(out)
        kept = {entry.name: entry.inode() for entry in os.scandir(cache)}
        files = files or kept
        say("chain_cache", name=name, files=len(kept), ok=bool(kept) and kept == files)  # none is written anew
    shutil.rmtree(cache)
    say_chain(handles, colds, steps, values, runs)
    worst = 0.0
    for i in range(0, n, max(1, n // 100)):
        x = float(values[i])
        for _ in range(pairs):
            x = math.sin(x) * 1.5 + 0.25
        worst = max(worst, abs(x - ctypes.c_float.from_buffer_copy(results["generated"], 4 * i).value))
    # Errors of a step shrink or grow in the next by its slope, at most 1.5.
    say("chain_exact", same_bits=results["generated"] == results["interpreted"], max_difference=worst,
        ok=results["generated"] == results["interpreted"] and worst <= 1e-3)


def say_chain(handles, colds, steps, values, runs):
    """The warm calls of all handles, in rounds."""
    out = (ctypes.c_float * len(values))()

    def warm(handle):
        calls = [handle.chain(steps, values, out) for _ in range(runs)]
        return {"call_ms": statistics.median(c[0] for c in calls) * 1e3, "ms": statistics.median(c[1] for c in calls) * 1e3}

    found = turned({name: lambda handle=handle: warm(handle) for name, handle in handles.items()}, 1 if DRY else 3, DRY)
    for name, handle in handles.items():
        for_spread = {key: spread([one[key] for one in found.values(name)]) for key in ("ms", "call_ms")}
        say("chain", name=name, steps=len(steps), n=len(values), variant=colds[name][2], cold_s=colds[name][0],
            ms=for_spread["ms"].get("median"), call_ms=for_spread["call_ms"].get("median"), spread=for_spread)
        handle.close()


def chain_of_torch():
    import torch

    pairs, n = 250, 1 << 20

    def steps(x):
        for _ in range(pairs):
            x = torch.sin(x) * 1.5 + 0.25
        return x

    x = torch.linspace(-1, 1, n, device="cuda")
    say("chain", name="torch, step by step", ms=time_us(torch, lambda: steps(x), 5) / 1e3)
    compiled = torch.compile(steps)
    begin = time.perf_counter()
    compiled(x)
    torch.cuda.synchronize()
    cold = time.perf_counter() - begin
    say("chain", name="torch.compile", ms=time_us(torch, lambda: compiled(x)) / 1e3, cold_s=cold)


# ------------------------------------------------------------------------------------ P10 and P11


def library_texts_a_second(model, texts):
    """Of one call with all of them: its time alone, nothing of Python's."""
    pointers = (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))
    vectors = (ctypes.c_float * (len(texts) * model.dim))()
    begin = time.perf_counter()
    model.check(model.library.gpuserve_embed(model.handle, pointers, ctypes.c_size_t(len(texts)), vectors,
                                             ctypes.c_size_t(len(vectors)), None, ctypes.byref(model.error)))
    return len(texts) / (time.perf_counter() - begin)


def backends(library, path):
    """Texts of the same lengths; fewer of them on the CPU."""
    models, parts = {}, {}
    for device, dtype, count in (("cpu", "float32", 2 if DRY else 512), ("cuda", "float16", 2 if DRY else 20000)):
        models[device], texts = Model(library, path, device, DTYPES[dtype]), make_texts(count, 3)
        parts[device] = lambda model=models[device], texts=texts: library_texts_a_second(model, texts)
    found = turned(parts, 1 if DRY else 3, DRY)
    for model in models.values():
        model.close()
    if not found.kept:
        say("backends", skipped="other processes disturbed every round")
        return
    ratios = found.ratios("cuda", "cpu")
    say("backends", texts_per_s_cpu=spread(found.values("cpu"))["median"], ratio=statistics.median(ratios),
        texts_per_s_gpu=spread(found.values("cuda"))["median"], verdict=verdict(ratios, 20), rounds=found.facts(),
        cores=len(os.sched_getaffinity(0)))


def unique_texts(client, request):
    """Equal texts in flight are computed once: every one is different. None is over the model's limit, which
    the server would refuse."""
    texts = make_texts(TEXTS_A_REQUEST, 1000 * client + request)
    return [f"{client} {request} {i} {' '.join(text.split()[:MAX_WORDS])}" for i, text in enumerate(texts)]


def bodies_of(client):
    for request in range(1 if DRY else 8):
        body = json.dumps({"input": unique_texts(client, request), "encoding_format": "base64"}).encode()
        yield (b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
               b"Content-Length: %d\r\n\r\n" % len(body)) + body


def read_answer(client, buffer):
    """The body is read and thrown away."""
    have = b""
    while b"\r\n\r\n" not in have:
        part = client.recv(65536)
        if not part:
            raise RuntimeError("the server closed a connection")
        have += part
    head, body = have.split(b"\r\n\r\n", 1)
    length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    left = length - len(body)
    status = int(head.split()[1])
    if status != 200:
        raise RuntimeError(f"the server answered {status}: {body.decode(errors='replace')}")
    while left > 0:
        left -= client.recv_into(buffer, min(left, len(buffer)))


def send_and_receive(arguments):
    """One process: its clients in turn send, then each one's answer is read; requests answered."""
    port, first, count, seconds = arguments
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    requests = [list(bodies_of(first + i)) for i in range(count)]
    buffer, answered, end = bytearray(1 << 20), 0, time.monotonic() + seconds
    for i, client in enumerate(clients):
        client.sendall(requests[i][0])
    turn = 0
    while True:
        turn += 1
        going_on = time.monotonic() < end
        for i, client in enumerate(clients):
            read_answer(client, buffer)
            answered += 1
            if going_on:
                client.sendall(requests[i][turn % len(requests[i])])
        if not going_on:
            return answered


def served_texts_a_second(port):
    seconds, each = 0 if DRY else 3, CLIENTS // PROCESSES
    with multiprocessing.Pool(PROCESSES) as pool:
        begin = time.perf_counter()
        answered = sum(pool.map(send_and_receive, [(port, p * each, each, seconds) for p in range(PROCESSES)]))
        return answered * TEXTS_A_REQUEST / (time.perf_counter() - begin)


def http(library, server, path):
    """The library and the server on the same device and texts, in turn."""
    texts = [text for client in range(CLIENTS) for request in range(1 if DRY else 8) for text in unique_texts(client, request)]
    model = Model(library, path, "cuda", DTYPES["float16"])
    process = subprocess.Popen([server, "serve", path, "--port", "0", "--device", "cuda:0", *(["--warmup", "off"] if DRY else [])], stdout=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline().strip().rsplit(":", 1)[1])
        found = turned({"library": lambda: library_texts_a_second(model, texts),
                        "server": lambda: served_texts_a_second(port)}, 1 if DRY else 3, DRY)
    finally:
        process.terminate()
        process.wait(60)
        model.close()
    if not found.kept:
        say("http", skipped="other processes disturbed every round")
        return
    shares = found.ratios("server", "library")
    say("http", clients=CLIENTS, texts_a_request=TEXTS_A_REQUEST, texts_per_s=spread(found.values("server"))["median"],
        texts_per_s_library=spread(found.values("library"))["median"], share=statistics.median(shares),
        verdict=verdict(shares, 0.7), rounds=found.facts())


# -------------------------------------------------------------------------------------- transfers


def transfer(server):
    words = [server, "bench", "--transfer", "--device", "cuda:0", "--json", *(["--max-bytes", "64KiB"] if DRY else [])]
    for row in json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)["rows"]:
        say("transfer", **row)


if __name__ == "__main__":
    stage, rest = sys.argv[1], [word for word in sys.argv[2:] if word != "dry"]
    try:
        {"chain": chain, "torch_chain": chain_of_torch, "backends": backends, "http": http,
         "transfer": transfer}[stage](*rest)
    except ImportError as missing:
        say(stage, skipped=str(missing))
