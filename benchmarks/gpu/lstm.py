"""P9, as JSON lines: an LSTM's fused path against our step-by-step path and against cuDNN.

    lstm.py LIBRARY [dry]

Sizes are (input, hidden, directions, sequences, steps); times are the device's, medians of several calls, in rounds
whose order turns. cuDNN runs as
a path of the library (GPUSERVE_LSTM_CUDNN), whose time includes the copies into cuDNN's layouts. What torch.nn.LSTM
runs on a GPU is cudnnRNNForward too, on the same numbers; without torch it is left out. All outputs must agree.
cudnn_lstm.cu times the same sizes by cuDNN alone. `dry` shrinks all sizes to what the emulator runs in seconds.
"""
import array
import ctypes
import random
import statistics
import sys

from compare import load_abi, say, time_us, turned, verdict
from product import Compute

DRY = sys.argv[-1] == "dry"
SIZES = [(8, 40, 2, 3, 4)] if DRY else [(1024, 1024, 1, 64, 100), (512, 512, 2, 64, 100), (256, 256, 1, 8, 200)]
DTYPES = {"float32": 1, "float16": 2}
STEPS, FUSED, CUDNN = 1, 2, 3
BOUND = {"float32": 1e-5, "float16": 1e-2}  # of |got - want| / |want|, over many steps


def floats(count, scale, seed):
    source = random.Random(seed)
    few = [source.uniform(-scale, scale) for _ in range(4099)]  # a prime: rows do not repeat
    return (ctypes.c_float * count).from_buffer(array.array("f", (few * (count // len(few) + 1))[:count]))


class Network:
    """Random weights in torch's layout, and the sequences' inputs."""

    def __init__(self, size):
        self.input, self.hidden, self.directions, self.sequences, self.steps = size
        scale = self.hidden ** -0.5
        shapes = (4 * self.hidden * self.input, 4 * self.hidden * self.hidden, 4 * self.hidden, 4 * self.hidden)
        self.parts = [[floats(n, scale, 10 * d + i) for i, n in enumerate(shapes)] for d in range(self.directions)]
        self.rows = self.sequences * self.steps
        self.values = floats(self.rows * self.input, 1.0, 99)
        self.ends = (ctypes.c_int32 * (self.sequences + 1))(*(i * self.steps for i in range(self.sequences + 1)))
        self.output = (ctypes.c_float * (self.rows * self.directions * self.hidden))()


def run_ours(compute, net, dtype, variant, runs):
    """Milliseconds of the device, the median of `runs`."""
    abi, library = compute.abi, compute.library
    void = ctypes.c_void_p
    weights = (abi.LstmWeights * net.directions)(*(abi.LstmWeights(*(ctypes.cast(p, void) for p in parts))
                                                   for parts in net.parts))
    network = abi.LstmNetwork(ctypes.sizeof(abi.LstmNetwork), DTYPES[dtype], net.input, net.hidden, 1,
                              net.directions - 1, ctypes.cast(weights, void), net.directions)
    handle, times = void(), []
    compute.check(library.gpuserve_lstm_create(ctypes.byref(handle), compute.handle, ctypes.byref(network),
                                               ctypes.byref(compute.error)))
    job = abi.LstmJob(struct_size=ctypes.sizeof(abi.LstmJob), variant=variant, n_sequences=net.sequences,
                      cu_seqlens=ctypes.cast(net.ends, void), input=ctypes.cast(net.values, void),
                      output=ctypes.cast(net.output, void), output_capacity=len(net.output))
    for _ in range(runs + 1):
        result = abi.ComputeResult(ctypes.sizeof(abi.ComputeResult))
        compute.check(library.gpuserve_lstm_run(handle, ctypes.byref(job), ctypes.byref(result),
                                                ctypes.byref(compute.error)))
        times.append(result.kernel_seconds * 1e3)
    library.gpuserve_lstm_free(ctypes.byref(handle))
    return statistics.median(times[1:])


def distance(got, want):
    apart = sum((a - b) ** 2 for a, b in zip(got, want))
    return (apart / max(sum(b * b for b in want), 1e-30)) ** 0.5


class Torch:
    """cudnnRNNForward as torch calls it, with the same weights and inputs."""

    def __init__(self, net, dtype):
        import torch

        self.torch = torch
        lstm = torch.nn.LSTM(net.input, net.hidden, bidirectional=net.directions == 2).cuda()
        with torch.no_grad():
            for parameter, values in zip(lstm.parameters(), (part for parts in net.parts for part in parts)):
                parameter.copy_(torch.frombuffer(values, dtype=torch.float32).reshape(parameter.shape))
        self.lstm = lstm.to(getattr(torch, dtype))
        self.lstm.flatten_parameters()
        values = torch.frombuffer(net.values, dtype=torch.float32).reshape(net.sequences, net.steps, net.input)
        self.values = values.transpose(0, 1).contiguous().cuda().to(getattr(torch, dtype))

    def ms(self):
        with self.torch.no_grad():
            return time_us(self.torch, lambda: self.lstm(self.values), 5) / 1e3

    def apart(self, output):
        """|ours - its| / |its|"""
        with self.torch.no_grad():
            want = self.lstm(self.values)[0].transpose(0, 1).reshape(-1).float().cpu()
        ours = self.torch.frombuffer(output, dtype=self.torch.float32)
        return float((ours - want).norm() / want.norm())


def outputs(compute, net, dtype, variants):
    """{variant: a part of its output} of those that run, and why others do not."""
    some = slice(0, len(net.output), max(1, len(net.output) // 10000))
    found, missing = {}, {}
    for name, variant in variants.items():
        try:
            run_ours(compute, net, dtype, variant, 1)
            found[name] = net.output[some]
        except RuntimeError as error:
            missing[name] = str(error)
    return found, missing


def measure_size(compute, net, dtype, kept):
    variants = {"steps": STEPS, "fused": FUSED, "cudnn_path": CUDNN}
    found, missing = outputs(compute, net, dtype, variants)
    parts = {name: lambda name=name: run_ours(compute, net, dtype, variants[name], 1 if DRY else 5) for name in found}
    peer = None
    if not DRY:
        try:
            peer = Torch(net, dtype)
            parts["torch"] = peer.ms
        except ImportError as error:
            missing["torch"] = str(error)
    rounds = turned(parts, 1 if DRY else 5, DRY)
    ms = {name: statistics.median(rounds.values(name)) for name in parts} if rounds.kept else {}
    for name, why in missing.items():
        say("lstm", name={"cudnn_path": "gpuserve by cuDNN", "torch": "cudnn"}.get(name, name), skipped=why)
    if not ms:
        say("lstm", skipped="other processes disturbed every round", **kept)
        return
    apart = distance(found["fused"], found["steps"])
    say("lstm", name="gpuserve", steps_ms=ms["steps"], fused_ms=ms["fused"], ratio=ms["steps"] / ms["fused"], apart=apart,
        ok=apart <= BOUND[dtype], verdict=verdict(rounds.ratios("steps", "fused"), 5), **kept)
    if "cudnn_path" in ms:
        apart = distance(found["cudnn_path"], found["steps"])
        say("lstm", name="gpuserve by cuDNN", ms=ms["cudnn_path"], ours_over_it=ms["fused"] / ms["cudnn_path"],
            apart=apart, ok=apart <= BOUND[dtype], **kept)
    if peer:
        run_ours(compute, net, dtype, FUSED, 1)
        apart = peer.apart(net.output)
        say("lstm", name="cudnn", ms=ms["torch"], ours_over_it=ms["fused"] / ms["torch"], apart=apart,
            ok=apart <= BOUND[dtype], verdict=verdict(rounds.ratios("fused", "torch"), 1.3, at_most=True), **kept)


def load_cudnn():
    """That of torch first, which accepts no other; the library then uses it too. Its float32 is no TF32."""
    try:
        import torch

        torch.backends.cudnn.version()
        torch.backends.cudnn.allow_tf32 = False
    except ImportError:
        pass  # said by measure_size


def main(library):
    load_abi()
    if not DRY:
        load_cudnn()
    compute = Compute(library, "0")
    for i, size in enumerate(SIZES):
        net = Network(size)
        for dtype in DTYPES:
            measure_size(compute, net, dtype, {"size": size, "dtype": dtype, "large": i == 0 and dtype == "float16"})
    compute.close()


if __name__ == "__main__":
    main(sys.argv[1])
