#!/usr/bin/env python3
"""check_tiles.py finds what it is there to find: listings with one fault each are complained about; the same
listing without the fault is not."""
import sys
import unittest

import check_tiles

# A product as the compiler writes it; the loop over k is 10 to 1a.
GOOD = """{object}:     file format elf64-x86-64

0000000000000000 <{function}>:
   0:\tldtilecfg (%rsp)
   2:\ttest   %eax,%eax
   4:\tje     22 <{function}+0x22>
   6:\ttilezero %tmm0
  10:\ttileloadd (%rax,%rbx,1),%tmm6
  11:\ttileloadd (%rsi,%rcx,1),%tmm4
  12:\t{product} %tmm6,%tmm4,%tmm0
  13:\ttileloadd (%rdx,%rbx,1),%tmm7
  14:\t{product} %tmm7,%tmm4,%tmm1
  15:\ttileloadd (%rdi,%rcx,1),%tmm5
  16:\t{product} %tmm6,%tmm5,%tmm2
  17:\t{product} %tmm7,%tmm5,%tmm3
  18:\tadd    $0x1,%eax
  1a:\tjne    10 <{function}+0x10>
  1c:\ttilestored %tmm0,(%rax,%rbx,1)
  1e:\tcall   1f <{function}+0x1f>
\t\t\t1f: R_X86_64_PLT32\tfinish-0x4
  20:\tjmp    2 <{function}+0x2>
  22:\ttilerelease
  24:\tret
"""


def listing():
    return "".join(GOOD.format(object=name, function=f"{product}_of_{name[0]}", product=product)
                   for name, products in check_tiles.OBJECTS.items() for product in products)


class Planted(unittest.TestCase):
    def fails(self, words, old, new):
        self.assertIn(old, listing())
        _, wrong = check_tiles.check(listing().replace(old, new, 1))
        self.assertIn(words, "\n".join(wrong))

    def test_good(self):
        self.assertEqual(check_tiles.check(listing()), (3, []))

    def test_nothing(self):
        count, wrong = check_tiles.check("")
        self.assertEqual(count, 0)
        self.assertIn("gemm_amx.c.o: no ldtilecfg", wrong)

    def test_a_spill(self):
        self.fails("tilestored in the loop", "  18:\tadd    $0x1,%eax", "  18:\ttilestored %tmm0,(%rsp,%rbx,1)")

    def test_a_call_in_the_loop(self):
        self.fails("call in the loop", "  18:\tadd    $0x1,%eax", "  18:\tcall   80 <step>")

    def test_another_product(self):
        self.fails("no loop over k with four tdpbusd", "tdpbusd %tmm7,%tmm5,%tmm3", "nop")

    def test_more_loads_than_tiles(self):
        self.fails("no loop over k with four tdpbusd", "  18:\tadd    $0x1,%eax", "  18:\ttileloadd (%rax,%rbx,1),%tmm6")

    def test_no_release(self):
        self.fails("no tilerelease before the end at 24", "tilerelease", "nop")

    def test_no_release_on_one_path(self):
        self.fails("no tilerelease before the end at 24", "  1c:\ttilestored %tmm0,(%rax,%rbx,1)", "  1c:\tje     24 <tdpbusd_of_g+0x24>")

    def test_no_release_before_a_tail_call(self):
        self.fails("no tilerelease before the end at 20", "  20:\tjmp    2 <tdpbusd_of_g+0x2>",
                   "  20:\tjmp    21 <tdpbusd_of_g+0x21>\n\t\t\t21: R_X86_64_PLT32\tother-0x4")

    def test_tiles_after_the_release(self):
        self.fails("tileloadd at 23 without a configuration", "  24:\tret", "  23:\ttileloadd (%rax,%rbx,1),%tmm6\n  24:\tret")

    def test_no_configuration(self):
        self.fails("tilezero at 6 without a configuration", "ldtilecfg (%rsp)", "tilerelease")

    def test_tiles_of_the_caller(self):
        self.fails("gsv_gemm: tilezero at 6 without a configuration",
                   "<tdpbusd_of_g>:\n   0:\tldtilecfg (%rsp)", "<gsv_gemm>:\n   0:\tnop")

    def test_a_jump_by_register(self):
        self.fails("cannot be followed", "  2:\ttest   %eax,%eax", "  2:\tjmp    *%rax")


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    n_wrong = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - n_wrong} passed, {n_wrong} failed")
    sys.exit(1 if n_wrong else 0)
