"""What nvcc makes of a source: its kernels, what each takes, and its instructions."""
import dataclasses
import pathlib
import re
import subprocess

# ptxas treats what costs speed as an error; the same words stand in kernels/cuda/meson.build.
PTXAS = "-v,--warn-on-spills,--warn-on-local-memory-usage,--warning-as-error"


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
    """The object's path and what ptxas said; raises CalledProcessError on an error."""
    output = pathlib.Path(folder) / (source.stem + ".o")
    command = [*nvcc, "-std=c++17", "-O3", "-DGPUSERVE_BUILDING", "-I", root, "-I", root / "include", *code_flags(targets),
               "-Xptxas", PTXAS, "-c", source, "-o", output]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return output, done.stderr


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


def variants(cuobjdump, compiled, said):
    """A Variant for each kernel of an object; `said` is ptxas's."""
    found = {}
    pattern = r"Compiling entry function '(\S+)' for '(\w+)'.*?Used (\d+) registers([^\n]*)"
    for mangled, target, registers, rest in re.findall(pattern, said, re.S):
        shared = re.search(r"(\d+) bytes smem", rest)
        found[target, mangled] = Variant(target, plain_name(mangled), 0, int(registers), int(shared.group(1)) if shared else 0)
    text = subprocess.run([cuobjdump, "-elf", compiled], check=True, capture_output=True, text=True).stdout
    target = mangled = ""
    lines = iter(text.splitlines())
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
    code = subprocess.run([cuobjdump, "-sass", compiled], check=True, capture_output=True, text=True).stdout
    target = ""
    for part in re.split(r"^(?=\s*(?:arch = |Function : ))", code, flags=re.M):
        if found := re.match(r"\s*arch = (\w+)", part):
            target = found.group(1)
        elif found := re.match(r"\s*Function : (\S+)", part):
            yield target, plain_name(found.group(1)), part
