"""The raw numbers of random models, as JSON lines: the CPU's, the own kernel's and cuRAND's are equal.

    random_numbers.py LIBRARY [dry]

Each part of the sequence begins elsewhere: at its start, beyond one turn of cuRAND's 65,536 threads, and far out. A
machine without cuRAND says so; the own kernel is compared all the same.
"""
import ctypes
import sys

from compare import load_abi, say
from product import Compute

DRY = sys.argv[-1] == "dry"
OWN, CURAND = 0, 1
PARTS = [(0x123456789, 0, 1 << 12 if DRY else 1 << 26), (7, 4 * 65535, 4099), (2**64 - 1, 2**40, 100001 if DRY else 1 << 20)]


def numbers(compute, variant, seed, first, n):
    out = (ctypes.c_uint32 * n)()
    result = compute.abi.ComputeResult(ctypes.sizeof(compute.abi.ComputeResult))
    compute.check(compute.library.gpuserve_random_numbers(
        compute.handle, ctypes.c_uint32(variant), ctypes.c_uint64(seed), ctypes.c_uint64(first), out, ctypes.c_size_t(n),
        ctypes.byref(result), ctypes.byref(compute.error)))
    return bytes(out), result.kernel_seconds * 1e3


def main(library):
    load_abi()
    cpu, gpu = Compute(library, "0", "cpu"), Compute(library, "0")
    for seed, first, n in PARTS:
        want, cpu_ms = numbers(cpu, OWN, seed, first, n)
        for name, variant in (("own kernel", OWN), ("curandGenerate", CURAND)):
            try:
                got, ms = numbers(gpu, variant, seed, first, n)
            except RuntimeError as missing:
                say("random", name=name, skipped=str(missing))
                continue
            say("random", name=name, seed=seed, first=first, n=n, ms=ms, cpu_ms=cpu_ms, ok=got == want)
    cpu.close()
    gpu.close()


if __name__ == "__main__":
    main(sys.argv[1])
