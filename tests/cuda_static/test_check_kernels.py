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
# A product of tensor cores in a loop, with WORK in addition.
MULTIPLY = """__global__ void __launch_bounds__(128) planted(float *x, unsigned *y, int n)
{
    extern __shared__ unsigned shared[];
    float d[4] = { 0, 0, 0, 0 };
    unsigned a[6];
    for (int i = 0; i < 6; i++)
        a[i] = y[threadIdx.x + 128 * i];
    #pragma unroll 1
    for (int i = 0; i < n; i++) {
        WORK
        for (int j = 0; j < 4; j++)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                         "{%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]));
    }
    x[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
"""
SLOW_WORK = {
    "IMAD.WIDE": "a[0] ^= y[i * n + (int)threadIdx.x];",
    "MUFU.RCP": "a[0] ^= (n * 7919) % (i | 3);",
    "products in": "for (int j = 0; j < 40; j++) asm volatile(\"lop3.b32 %0, %0, %1, %2, 0x96;\" : \"+r\"(a[j % 4]) : \"r\"(a[4]), \"r\"(i + j));",
    "bytes of shared memory": "for (int j = 0; j < 5; j++) a[j] ^= ((volatile unsigned *)shared)[threadIdx.x + 128 * j];",
}
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


def loop(density=25, most_bytes=0, slow="-", instance="-"):
    """A line of loops.txt."""
    return f"planted.cu planted {instance} {density} {most_bytes} {slow}"


class Planted(unittest.TestCase):
    def check(self, source, *budgets, loops=()):
        """The exit status and the output for one source of sm_80."""
        with tempfile.TemporaryDirectory() as root:
            folder = pathlib.Path(root, "kernels", "cuda")
            folder.mkdir(parents=True)
            folder.joinpath("planted.cu").write_text(source, encoding="utf-8")
            table = pathlib.Path(root, "budgets.txt")
            table.write_text("\n".join([HEAD, *budgets]) + "\n", encoding="utf-8")
            loops_table = pathlib.Path(root, "loops.txt")
            loops_table.write_text("\n".join(loops) + "\n", encoding="utf-8")
            done = subprocess.run([sys.executable, CHECK, root, "--targets", "sm_80", "--budgets", table, "--loops", loops_table],
                                  check=False, capture_output=True, text=True)
        if done.returncode == 77:
            self.skipTest(done.stdout)
        return done.returncode, done.stdout + done.stderr

    def fails(self, words, source, *budgets, loops=()):
        status, said = self.check(source, *budgets, loops=loops)
        self.assertEqual(status, 1, said)
        self.assertIn(words, said)

    def passes(self, source, *budgets, loops=()):
        status, said = self.check(source, *budgets, loops=loops)
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

    def test_loops_that_multiply(self):
        budget = line(registers=64, warps=4)
        self.passes(MULTIPLY.replace("WORK", ""), budget, loops=[loop()])
        for words, work in SLOW_WORK.items():
            with self.subTest(words):
                self.fails(words, MULTIPLY.replace("WORK", work), budget, loops=[loop(density=25 if "in" in words.split() else 1)])
        self.fails("is not in loops.txt", MULTIPLY.replace("WORK", ""), budget, loops=[loop(instance="another")])
        self.fails("there is no such loop", GOOD, line(), loops=[loop()])

    def test_slow_instructions_may_be_allowed(self):
        self.passes(MULTIPLY.replace("WORK", SLOW_WORK["IMAD.WIDE"]), line(registers=64, warps=4),
                    loops=[loop(density=1, slow="IMAD.WIDE+I2F")])


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    n_wrong = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - n_wrong - len(result.skipped)} passed, {n_wrong} failed")
    sys.exit(1 if n_wrong else 77 if result.skipped else 0)
