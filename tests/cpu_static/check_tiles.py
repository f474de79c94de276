#!/usr/bin/env python3
"""Checks the machine code of the kernels in tile registers (AMX), as the build compiled it.

    check_tiles.py ARCHIVE

ARCHIVE is the library of the instruction set avx512_amx. For each object of OBJECTS:

    a loop over k     the innermost loop has the product four times and four tileloadd, one for each operand tile;
                      no innermost loop with a product has a tilestored, tilezero, ldtilecfg, tilerelease or call:
                      the sums stay in their tiles
    configuration     on each path from an ldtilecfg to the end of its function is a tilerelease, and no tile is
                      used after it; only a function of the file itself, not gsv_*, may use the tiles of its caller

A jump to an address in a register cannot be followed and is refused in these functions. Prints each finding and
"N passed, N failed", counted in functions. Exits 77, which means "not run", where there is no objdump.
"""
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field

NOT_RUN = 77
# object: the products that its loops over k must have
OBJECTS = {"gemm_amx.c.o": ("tdpbusd", "tdpbf16ps"), "attention_16bit.c.o": ("tdpbf16ps",)}
PRODUCTS = ("tdpbusd", "tdpbf16ps")
USES = (*PRODUCTS, "tileloadd", "tilestored", "tilezero")
NOT_IN_LOOP = ("tilestored", "tilezero", "ldtilecfg", "tilerelease", "call")
OBJECT = re.compile(r"^(\S+):\s+file format ")
FUNCTION = re.compile(r"^[0-9a-f]+ <([^>]+)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\t(?:notrack |bnd )?(\w+)\s*(.*)$")
RELOCATION = re.compile(r"^\s*[0-9a-f]+: R_X86_64")
TARGET = re.compile(r"^([0-9a-f]+) <")


@dataclass
class Instruction:
    address: int
    name: str
    operands: str
    leaves: bool = False  # a jump to another function or section


@dataclass
class Function:
    name: str
    code: list = field(default_factory=list)


def parse(listing):
    """{object: [Function]} of `objdump -dr --no-show-raw-insn`."""
    objects, functions = {}, []
    for line in listing.splitlines():
        if found := OBJECT.match(line):
            functions = objects.setdefault(found[1].rsplit("/", 1)[-1], [])
        elif found := FUNCTION.match(line):
            functions.append(Function(found[1]))
        elif RELOCATION.match(line):
            if functions and functions[-1].code:
                functions[-1].code[-1].leaves = True
        elif (found := INSTRUCTION.match(line)) and functions:
            functions[-1].code.append(Instruction(int(found[1], 16), found[2], found[3]))
    return objects


def is_jump(step):
    return step.name.startswith("j")


def target(step):
    found = TARGET.match(step.operands)
    return int(found[1], 16) if found and not step.leaves else None


def successors(function):
    """For each instruction, the positions of those that may follow it."""
    at = {step.address: i for i, step in enumerate(function.code)}
    following = []
    for i, step in enumerate(function.code):
        to = at.get(target(step)) if is_jump(step) else None
        falls = step.name not in ("jmp", "ud2") and not step.name.startswith("ret") and i + 1 < len(function.code)
        following.append([i + 1] * falls + [to] * (to is not None))
    return following


def dominators(following):
    """For each instruction, a bit set of those that every path to it passes."""
    everything = (1 << len(following)) - 1
    sets = [1] + [everything] * (len(following) - 1)
    before = [[] for _ in following]
    for i, all_of in enumerate(following):
        for to in all_of:
            before[to].append(i)
    changed = True
    while changed:
        changed = False
        for i in range(1, len(following)):
            common = everything
            for come in before[i]:
                common &= sets[come]
            common |= 1 << i
            changed |= common != sets[i]
            sets[i] = common
    return sets, before


def innermost_loops(function):
    """The instructions of each natural loop that holds no other."""
    following = successors(function)
    sets, before = dominators(following)
    loops = {}
    for i, all_of in enumerate(following):
        for head in all_of:
            if sets[i] >> head & 1:
                body, ahead = loops.setdefault(head, {head}), [i]
                while ahead:
                    if (node := ahead.pop()) not in body:
                        body.add(node)
                        ahead += before[node]
    inner = [body for head, body in loops.items() if not any(other != head and other in body for other in loops)]
    return [[function.code[i] for i in sorted(body)] for body in inner]


def check_loops(function):
    wrong = []
    for loop in innermost_loops(function):
        names = [step.name for step in loop]
        if any(name in PRODUCTS for name in names):
            wrong += [f"{function.name}: {name} in the loop over k at {loop[0].address:x}" for name in NOT_IN_LOOP if name in names]
    return wrong


def has_full_loop(functions, product):
    return any([step.name for step in loop].count(product) == 4 and [step.name for step in loop].count("tileloadd") == 4
               for function in functions for loop in innermost_loops(function))


def follow(step, state):
    """(complaint or None, the state after the instruction)."""
    if step.name in USES and state == "released":
        return f"{step.name} at {step.address:x} without a configuration", state
    if step.name in ("ldtilecfg", "tilerelease"):
        state = "configured" if step.name == "ldtilecfg" else "released"
    if (step.name.startswith("ret") or (is_jump(step) and step.leaves)) and state == "configured":
        return f"no tilerelease before the end at {step.address:x}", state
    if is_jump(step) and not step.leaves and target(step) is None:
        return f"the jump at {step.address:x} cannot be followed", state
    return None, state


def check_configuration(function):
    """Follows every path; only a function of this file may use the tiles of its caller."""
    own = function.name.startswith("gsv_") or any(step.name == "ldtilecfg" for step in function.code)
    following, ahead, seen, wrong = successors(function), [(0, "released" if own else "caller's")], set(), []
    while ahead:
        i, state = ahead.pop()
        if (i, state) in seen:
            continue
        seen.add((i, state))
        complaint, state = follow(function.code[i], state)
        if complaint:
            wrong.append(f"{function.name}: {complaint}")
        else:
            ahead += [(to, state) for to in following[i]]
    return wrong


def check(listing):
    """The number of functions with tiles, and the complaints."""
    objects, wrong, count = parse(listing), [], 0
    for name, products in OBJECTS.items():
        functions = [f for found, all_of in objects.items() if found.endswith(name) for f in all_of
                     if any(step.name in (*USES, "ldtilecfg", "tilerelease") for step in f.code)]
        count += len(functions)
        for function in functions:
            wrong += check_loops(function) + check_configuration(function)
        wrong += [f"{name}: no loop over k with four {product} and four tileloadd" for product in products
                  if not has_full_loop(functions, product)]
        if not any(step.name == "ldtilecfg" for function in functions for step in function.code):
            wrong.append(f"{name}: no ldtilecfg")
    return count, wrong


def main():
    if not shutil.which("objdump"):
        print("there is no objdump")
        return NOT_RUN
    listing = subprocess.run(["objdump", "-dr", "--no-show-raw-insn", sys.argv[1]], check=True, capture_output=True, text=True)
    count, wrong = check(listing.stdout)
    print("\n".join(wrong))
    print(f"{max(count - len(wrong), 0)} passed, {len(wrong)} failed")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
