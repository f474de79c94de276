#!/usr/bin/env python3
"""check_kernels.py finds what it is there to find: planted kernels, each with one fault, are compiled and
complained about; the same kernel without the fault is not.

Exits 77, which means "not run", where there is no nvcc.
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).with_name("check_kernels.py")
HEAD = " ".join(["# file", "kernel", "threads", "registers", "shared", "must", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100",
                 "sm_103", "sm_110", "sm_120", "sm_121"])
GOOD = "__global__ void __launch_bounds__(128) planted(float *x) { x[threadIdx.x] += 1.f; }\n"
WIDE = "__global__ void __launch_bounds__(128) planted(float4 *x) { float4 y = x[threadIdx.x]; y.x += y.w; x[threadIdx.x] = y; }\n"
LOCAL = """__global__ void __launch_bounds__(128) planted(float *x, int i)
{
    float many[64];
    for (int j = 0; j < 64; j++)
        many[j] = x[j * 7];
    for (int j = 0; j < i; j++)
        many[(j * 5) % 64] += many[(i + j) % 64];
    x[threadIdx.x] = many[i % 64];
}
"""
STATIC = """__global__ void __launch_bounds__(128) planted(float *x)
{
    __shared__ float y[128];
    y[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = y[127 - threadIdx.x];
}
"""


def line(registers=16, shared=0, must="-", warps=64, kernel="planted", threads=128):
    """A line of budgets.txt, with `warps` wanted on sm_80 and nothing elsewhere."""
    return f"planted.cu {kernel} {threads} {registers} {shared} {must} {warps} 0 0 0 0 0 0 0 0"


class Planted(unittest.TestCase):
    def check(self, source, *budgets):
        """The exit status and the output for one source of sm_80."""
        with tempfile.TemporaryDirectory() as root:
            folder = pathlib.Path(root, "kernels", "cuda")
            folder.mkdir(parents=True)
            folder.joinpath("planted.cu").write_text(source, encoding="utf-8")
            table = pathlib.Path(root, "budgets.txt")
            table.write_text("\n".join([HEAD, *budgets]) + "\n", encoding="utf-8")
            done = subprocess.run([sys.executable, CHECK, root, "--targets", "sm_80", "--budgets", table], check=False,
                                  capture_output=True, text=True)
        if done.returncode == 77:
            self.skipTest(done.stdout)
        return done.returncode, done.stdout + done.stderr

    def fails(self, words, source, *budgets):
        status, said = self.check(source, *budgets)
        self.assertEqual(status, 1, said)
        self.assertIn(words, said)

    def passes(self, source, *budgets):
        status, said = self.check(source, *budgets)
        self.assertEqual(status, 0, said)

    def test_without_a_fault(self):
        self.passes(GOOD, line())
        self.passes(WIDE, line(must="128"))

    def test_registers(self):
        self.fails("registers, 1 are allowed", GOOD, line(registers=1))

    def test_occupancy(self):
        self.fails("an SM holds 4 warps, 64 are wanted", GOOD, line(shared=100000))

    def test_a_kernel_without_a_line(self):
        self.fails("are not in the budgets", GOOD)

    def test_a_line_without_a_kernel(self):
        self.fails("there is no such kernel", GOOD, line(), line(kernel="gone"))

    def test_no_launch_bounds(self):
        self.fails("no __launch_bounds__", GOOD.replace("__launch_bounds__(128) ", ""), line())

    def test_local_memory(self):
        self.fails("ocal memory", LOCAL, line(registers=255, warps=1))

    def test_static_shared_memory(self):
        self.fails("512 bytes of shared memory that its launch does not choose", STATIC, line())

    def test_instructions(self):
        self.fails("no 128-bit load", GOOD, line(must="128"))
        self.fails("no 128-bit load", GOOD, line(must="128?"))
        self.fails("no tensor-core instruction (HMMA)", WIDE, line(must="HMMA+128"))
        self.fails("no tensor-core instruction (IMMA)", WIDE, line(must="IMMA+128"))


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    n_wrong = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - n_wrong - len(result.skipped)} passed, {n_wrong} failed")
    sys.exit(1 if n_wrong else 77 if result.skipped else 0)
