"""What nvcc makes of a source: its kernels, what each takes, and its instructions."""
import dataclasses
import pathlib
import re
import subprocess

import occupancy

# ptxas treats what costs speed as an error; the same words stand in kernels/cuda/meson.build.
PTXAS = "--warn-on-spills,--warn-on-local-memory-usage,--warning-as-error"


@dataclasses.dataclass
class Variant:
    """One kernel as compiled for one target, of perhaps many instances of a template."""
    target: str
    name: str  # without its arguments
    threads: int = 0  # most in a block, by __launch_bounds__; 0: it has none
    registers: int = 0
    shared: int = 0  # bytes that the launch does not choose


# Sources for one target alone, as in kernels/cuda/meson.build.
OWN_TARGETS = {"gemm_wgmma.cu": ["sm_90a"]}


def plain_target(arch):
    """sm_90 for sm_90a, which runs on the same processors."""
    return arch.rstrip("a")


def code_flags(targets):
    """nvcc's flags for sm_XX and ptx_XX."""
    flags = []
    for target in targets:
        kind, number = target.split("_")
        flags.append(f"-gencode=arch=compute_{number},code={'compute' if kind == 'ptx' else 'sm'}_{number}")
    return flags


def compile_source(nvcc, root, source, targets, folder):
    """The object's path; raises CalledProcessError on an error."""
    output = pathlib.Path(folder) / (source.stem + ".o")
    command = [*nvcc, "-std=c++17", "-O3", "-DGPUSERVE_BUILDING", "-I", root, "-I", root / "include", *code_flags(OWN_TARGETS.get(source.name, targets)),
               "-Xptxas", PTXAS, "-c", source, "-o", output]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return output


def plain_name(mangled):
    """"_Z..12layernorm_rowILi.." to "layernorm_row": the first name that is not of a namespace."""
    at = 0
    while match := re.search(r"(\d+)([A-Za-z_])", mangled[at:]):
        begin = at + match.start(2)
        at = begin + int(match.group(1))
        name = mangled[begin:at]
        if not name.startswith(("_GLOBAL__N", "_INTERNAL")):
            return name
    return mangled


def template_arguments(mangled, name):
    """"_Z..8gemm_mmaI12gsv_math_f1613gsv_mma_shapeILi128EELb1EEv" to "gsv_math_f16:gsv_mma_shape:128:1", "-" without any."""
    rest = mangled[mangled.index(f"{len(name)}{name}") + len(f"{len(name)}{name}"):]
    words, depth, at = [], 0, 0
    while at < len(rest):
        if number := re.match(r"L[a-z](\d+)E", rest[at:]):
            words.append(number.group(1))
            at += number.end()
        elif word := re.match(r"\d+", rest[at:]):
            begin = at + word.end()
            at = begin + int(word.group())
            words.append(rest[begin:at])
        else:
            depth += {"I": 1, "E": -1}.get(rest[at], 0)
            at += 1
            if depth == 0:
                break
    return ":".join(words) or "-"


def show(cuobjdump, what, compiled):
    return subprocess.run([cuobjdump, what, compiled], check=True, capture_output=True, text=True).stdout


def variants(cuobjdump, compiled):
    """A Variant for each kernel of an object."""
    found = {}
    target = ""
    # Only a kernel has arguments, which lie in constant bank 0.
    pattern = r"^arch = (\w+)$|^ Function (\S+):\s+REG:(\d+) STACK:\d+ SHARED:(\d+) LOCAL:\d+ .*CONSTANT\[0\]"
    for arch, mangled, registers, shared in re.findall(pattern, show(cuobjdump, "-res-usage", compiled), re.M):
        target = plain_target(arch) or target
        if mangled:
            # From sm_90 on the driver's share of a block is counted in where the kernel uses any.
            driver = occupancy.SHARED_RESERVED if int(target[3:]) >= 90 and int(shared) > 0 else 0
            own = int(shared) - driver
            found[target, mangled] = Variant(target, plain_name(mangled), 0, int(registers), own)
    target = mangled = ""
    lines = iter(show(cuobjdump, "-elf", compiled).splitlines())
    for line in lines:
        if match := re.match(r"arch = (\w+)", line):
            target = plain_target(match.group(1))
        elif match := re.match(r"\.nv\.info\.(\S+)$", line):
            mangled = match.group(1)
        elif "EIATTR_MAX_THREADS" in line and (target, mangled) in found:
            next(lines)
            x, y, z = (int(word, 16) for word in next(lines).split()[1:4])
            found[target, mangled].threads = x * y * z
    return list(found.values())


INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+ +)?([A-Z][A-Z0-9_.]*)([^;]*);")
MMA = re.compile(r"(HMMA|IMMA|HGMMA|IGMMA)\b")
# What sets up addresses or divides: it belongs ahead of the loop.
SLOW = re.compile(r"(I2F|F2I|MUFU\.RCP|IMAD\.WIDE|IMAD\.HI)\b")
SHARED_BYTES = {"LDSM": 16, "LDS": 4, "LDGSTS": 4, "STS": 4}  # of a lane, without a width in the name


@dataclasses.dataclass
class Loop:
    """The innermost loop with tensor-core instructions, each of its instructions counted once."""
    instructions: int
    mma: int
    shared_bytes: int  # that a warp moves to and from shared memory
    slow: list  # names of instructions that belong ahead of the loop

    @property
    def density(self):
        """Percent of the instructions that multiply."""
        return 100 * self.mma // self.instructions

    @property
    def bytes_per_mma(self):
        return self.shared_bytes // self.mma


def shared_bytes(name):
    """Bytes that a warp moves: LDSM.16.M88.4 512, LDS.128 512, LDGSTS.E.BYPASS.128 512, STS.64 256."""
    kind = name.split(".")[0]
    if kind not in SHARED_BYTES:
        return 0
    if kind == "LDSM":  # 8 rows of 16 bytes for each matrix
        return 128 * (int(name.split(".")[-1]) if name[-1] in "24" else 1)
    width = re.search(r"\.(64|128)$", re.sub(r"\.(LTC128B|ZFILL|CONSTANT)", "", name))
    return 32 * (int(width.group(1)) // 8 if width else SHARED_BYTES[kind])


def blocks(code):
    """Basic blocks and their edges: [(first, last + 1)] of `code`, and the successors of each block. A BSYNC goes where the
    last BSSY of its barrier says."""
    at = {address: i for i, (address, _, _) in enumerate(code)}
    joins, latest = {}, {}
    for i, (_, name, rest) in enumerate(code):
        if name.startswith("BSSY"):
            latest[rest.split(",")[0].strip()] = at.get(int(rest.split("0x")[1].split()[0], 16))
        elif name.startswith("BSYNC"):
            joins[i] = latest.get(rest.split()[0])

    def target(i):
        _, name, rest = code[i]
        if i in joins:
            return joins[i]
        found = re.search(r"0x([0-9a-f]+)", rest) if name.startswith(("BRA", "JMP")) else None
        return at.get(int(found.group(1), 16)) if found else None

    ends = [i for i, (_, name, _) in enumerate(code) if name.startswith(("BRA", "JMP", "BSYNC", "EXIT", "RET"))]
    leaders = sorted({0, len(code)} | {i + 1 for i in ends} | {t for i in ends if (t := target(i)) is not None})
    spans = list(zip(leaders, leaders[1:]))
    of = {first: n for n, (first, _) in enumerate(spans)}
    successors = []
    for first, last in spans:
        i = last - 1
        jump = target(i) if i in ends else None
        # A predicate lies in front of the name (IF), or is the first operand.
        falls = i not in ends or code[i][2].endswith(" IF") or bool(re.match(r"\s*!?U?P", code[i][2])) or ".DIV" in code[i][1]
        successors.append({of[t] for t in ([jump] if jump is not None else []) + ([last] if falls and last in of else [])})
    return spans, successors


def natural_loops(successors):
    """The blocks of each loop: what reaches one of its backward edges without passing its head, which dominates them."""
    n = len(successors)
    predecessors = [{i for i in range(n) if j in successors[i]} for j in range(n)]
    dominators = [{0}] + [set(range(n)) for _ in range(n - 1)]
    changed = True
    while changed:
        changed = False
        for j in range(1, n):
            known = [dominators[i] for i in predecessors[j]]
            now = {j} | (set.intersection(*known) if known else set())
            if now != dominators[j]:
                dominators[j], changed = now, True
    for head in range(n):
        body, todo = {head}, [i for i in predecessors[head] if head in dominators[i]]
        if not todo:
            continue
        while todo:
            block = todo.pop()
            if block not in body:
                body.add(block)
                todo += predecessors[block]
        yield body


def main_loop(text):
    """The Loop of a function's instructions, None if no loop multiplies."""
    code = [(int(at, 16), name, rest + (" IF" if predicate else "")) for at, predicate, name, rest in INSTRUCTION.findall(text)]
    if not any(MMA.match(name) for _, name, _ in code):
        return None
    spans, successors = blocks(code)
    bodies = [[code[i] for block in body for i in range(*spans[block]) if code[i][1] != "NOP"] for body in natural_loops(successors)]
    bodies = [[name for _, name, _ in body] for body in bodies]
    bodies = [body for body in bodies if any(MMA.match(name) for name in body)]
    if not bodies:
        return None
    body = min(bodies, key=len)
    return Loop(len(body), sum(bool(MMA.match(name)) for name in body), sum(map(shared_bytes, body)),
                sorted({found.group(1) for name in body if (found := SLOW.match(name))}))


def functions(cuobjdump, compiled):
    """(target, kernel, its template arguments, its instructions) of each function."""
    target = ""
    for part in re.split(r"^(?=\s*(?:arch = |Function : ))", show(cuobjdump, "-sass", compiled), flags=re.M):
        if found := re.match(r"\s*arch = (\w+)", part):
            target = plain_target(found.group(1))
        elif found := re.match(r"\s*Function : (\S+)", part):
            name = plain_name(found.group(1))
            yield target, name, template_arguments(found.group(1), name), part
