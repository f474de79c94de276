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
    command = [*nvcc, "-std=c++17", "-O3", "-DGPUSERVE_BUILDING", "-I", root, "-I", root / "include", *code_flags(targets),
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


def show(cuobjdump, what, compiled):
    return subprocess.run([cuobjdump, what, compiled], check=True, capture_output=True, text=True).stdout


def variants(cuobjdump, compiled):
    """A Variant for each kernel of an object."""
    found = {}
    target = ""
    # Only a kernel has arguments, which lie in constant bank 0.
    pattern = r"^arch = (\w+)$|^ Function (\S+):\s+REG:(\d+) STACK:\d+ SHARED:(\d+) LOCAL:\d+ .*CONSTANT\[0\]"
    for arch, mangled, registers, shared in re.findall(pattern, show(cuobjdump, "-res-usage", compiled), re.M):
        target = arch or target
        if mangled:
            # From sm_90 on the driver's share of a block is counted in where the kernel uses any.
            driver = occupancy.SHARED_RESERVED if int(target[3:]) >= 90 and int(shared) > 0 else 0
            own = int(shared) - driver
            found[target, mangled] = Variant(target, plain_name(mangled), 0, int(registers), own)
    target = mangled = ""
    lines = iter(show(cuobjdump, "-elf", compiled).splitlines())
    for line in lines:
        if match := re.match(r"arch = (\w+)", line):
            target = match.group(1)
        elif match := re.match(r"\.nv\.info\.(\S+)$", line):
            mangled = match.group(1)
        elif "EIATTR_MAX_THREADS" in line and (target, mangled) in found:
            next(lines)
            x, y, z = (int(word, 16) for word in next(lines).split()[1:4])
            found[target, mangled].threads = x * y * z
    return list(found.values())


def functions(cuobjdump, compiled):
    """(target, kernel, its instructions) of each function."""
    target = ""
    for part in re.split(r"^(?=\s*(?:arch = |Function : ))", show(cuobjdump, "-sass", compiled), flags=re.M):
        if found := re.match(r"\s*arch = (\w+)", part):
            target = found.group(1)
        elif found := re.match(r"\s*Function : (\S+)", part):
            yield target, plain_name(found.group(1)), part
