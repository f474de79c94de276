#!/usr/bin/env python3
"""Every source that is generated at run time compiles in the real NVRTC, and well.

    check_generated.py PRINT_CHAINS [--targets sm_80,sm_90]

PRINT_CHAINS writes the sources into a folder and prints the compiler's options. NVRTC needs no GPU. What
it says of each kernel must have no spilled register, no local memory, and at most MAX_REGISTERS
registers, so that an SM holds all the threads it can. Exits 77, which means "not run", where there
is no libnvrtc.
"""
import argparse
import concurrent.futures
import ctypes
import glob
import os
import pathlib
import re
import subprocess
import sys
import tempfile

NOT_RUN = 77
MAX_REGISTERS = 32
PLACES = ["libnvrtc.so.13", "{CUDA_HOME}/lib64/libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13",
          "{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.13"]
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def open_nvrtc():
    for place in PLACES:
        try:
            pattern = place.format(**os.environ)
        except KeyError:
            continue
        for path in [pattern] if "/" not in pattern else glob.glob(pattern):
            try:
                return ctypes.CDLL(path)
            except OSError:
                continue
    return None


def text_of(nvrtc, program, name):
    """What nvrtcGet`name`Size and nvrtcGet`name` give."""
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{name}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{name}")(program, text)
    return text.raw


def check(nvrtc, path, target, options):
    """Complaints about one source."""
    program = ctypes.c_void_p()
    words = [f"--gpu-architecture={target}", *options, "--ptxas-options=-v"]
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), path.read_bytes(), b"generated.cu", 0, None, None)
    code = nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*(word.encode() for word in words)))
    log = text_of(nvrtc, program, "ProgramLog").decode(errors="replace")
    what = f"{path.stem} for {target}"
    wrong = []
    if code:
        wrong.append(f"{what}: NVRTC's error {code}: {log}")
    else:
        frames, registers = FRAME.findall(log), re.findall(r"Used (\d+) registers", log)
        if not frames or not registers:
            wrong.append(f"{what}: ptxas said nothing of its registers: {log}")
        wrong += [f"{what}: {frame[0]} bytes of local memory, {frame[1]} stored and {frame[2]} loaded by spills"
                  for frame in frames if frame != ("0", "0", "0")]
        wrong += [f"{what}: {n} registers, {MAX_REGISTERS} are allowed" for n in registers if int(n) > MAX_REGISTERS]
        if not text_of(nvrtc, program, "CUBIN").startswith(b"\x7fELF"):
            wrong.append(f"{what}: no machine code")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("print_chains")
    parser.add_argument("--targets", default="sm_80,sm_90")
    arguments = parser.parse_args()
    nvrtc = open_nvrtc()
    if not nvrtc:
        print("no libnvrtc.so.13 in the loader's path, the toolkit or the environment: generated sources not compiled")
        return NOT_RUN
    targets = arguments.targets.split(",")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        options = subprocess.run([arguments.print_chains, folder], check=True, text=True,
                                 stdout=subprocess.PIPE).stdout.split()
        sources = sorted(pathlib.Path(folder).glob("*.cu"))
        results = [pool.submit(check, nvrtc, path, target, options) for path in sources for target in targets]
        wrong = [line for result in results for line in result.result()]
    print(f"{len(sources)} generated sources for {arguments.targets}: {len(wrong)} wrong")
    print("\n".join(wrong))
    return 1 if wrong or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
