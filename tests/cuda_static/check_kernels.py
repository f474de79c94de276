#!/usr/bin/env python3
"""Compiles every CUDA source and holds its kernels to what they may use.

    check_kernels.py SOURCE_ROOT [--targets sm_80,sm_90] [--jobs N] [--write]

Each .cu file of kernels/cuda is compiled by nvcc for each target, where spilled registers and local
memory are errors. What ptxas tells of each kernel is compared with budgets.json beside this file,
the registers of the kernel's largest variant, rounded up to 16, so that a kernel that grows is noticed. In the machine
code, which the cuobjdump of tests/requirements.txt shows, the kernels named in MMA_KERNELS must hold
tensor-core instructions and 128-bit loads; no kernel may touch local memory; and those that are launched
to overlap the one ahead of them must wait for it and let the next one go, from sm_90 on and only there.
--write writes the table anew. Exits 77, which means "not run", where
there is no nvcc.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

NOT_RUN = 77
BUDGETS = pathlib.Path(__file__).with_name("budgets.json")
# What multiplies in them: halves and tf32, or bytes.
MMA_KERNELS = {name: re.compile(rf"\b{word}\b") for name, word in {
    "attention_mma.cu": "HMMA", "gemm_mma.cu": "HMMA", "gemm_s8.cu": "IMMA", "lstm_fused.cu": "HMMA", "matmul_mma.cu": "HMMA",
}.items()}
WIDE_LOAD = re.compile(r"\b(LDG\.E\.[A-Z.]*128|LDGSTS\.E\.[A-Z.]*128)")


OVERLAPPING = re.compile(r"GSV_LAUNCH_OVERLAP\(\(?\s*(\w+)")
# griddepcontrol.wait and .launch_dependents, as the machine has them.
WAIT, LET_GO = re.compile(r"\bACQBULK\b"), re.compile(r"\bPREEXIT\b")


def find_tool(name):
    """nvcc and its kin: in the path, in the toolkit's usual folder, or in an environment of the path."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    folders = [f"{home}/bin"]
    for folder in os.get_exec_path():
        environment = pathlib.Path(folder).parent
        folders += map(str, environment.glob("lib/python3*/site-packages/nvidia/cu*/bin"))
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def compile_source(nvcc, root, source, targets, folder):
    """The object's path and what ptxas said; raises CalledProcessError on an error."""
    output = pathlib.Path(folder) / (source.stem + ".o")
    command = [nvcc, "-std=c++17", "-O3", "-DGPUSERVE_BUILDING", "-I", root, "-I", root / "include"]
    for target in targets:
        command.append(f"-gencode=arch={target.replace('sm_', 'compute_')},code={target}")
    command += ["-Xptxas", "-v,--warn-on-spills,--warn-on-local-memory-usage,--warning-as-error",
                "-c", source, "-o", output]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return output, done.stderr


def plain_name(mangled):
    """"_Z..12layernorm_rowILi.." to "layernorm_row": the longest name in the mangled one."""
    names = []
    at = 0
    while match := re.search(r"(\d+)([A-Za-z_])", mangled[at:]):
        begin = at + match.start(2)
        names.append(mangled[begin:begin + int(match.group(1))])
        at = begin + int(match.group(1))
        if names[-1].startswith("_GLOBAL__N") or names[-1].startswith("_INTERNAL"):
            names.pop()
            continue
        break
    return names[0] if names else mangled


def registers_by_kernel(source, text):
    """{"file: kernel sm_90": registers of the largest variant}"""
    found = {}
    pattern = r"Compiling entry function '(\S+)' for '(\w+)'.*?Used (\d+) registers"
    for mangled, target, registers in re.findall(pattern, text, re.S):
        key = f"{source.name}: {plain_name(mangled)} {target}"
        found[key] = max(found.get(key, 0), int(registers))
    return found


def overlapping_kernels(root):
    """The names of all kernels that GSV_LAUNCH_OVERLAP launches."""
    names = set()
    for path in (root / "kernels" / "cuda").glob("*.cu*"):
        names.update(OVERLAPPING.findall(path.read_text(encoding="utf-8")))
    return names - {"kernel"}  # the macro's own


def functions(code):
    """(target, kernel, its instructions) of each function in cuobjdump's text."""
    target = ""
    for part in re.split(r"^(?=\s*(?:arch = |Function : ))", code, flags=re.M):
        if found := re.match(r"\s*arch = (\w+)", part):
            target = found.group(1)
        elif found := re.match(r"\s*Function : (\S+)", part):
            yield target, plain_name(found.group(1)), part


def check_overlap(source, code, overlapping):
    """Complaints about kernels that wait, or let go, where they should not or fail to."""
    wrong = []
    for target, kernel, text in functions(code):
        wanted = kernel in overlapping and int(re.sub(r"\D", "", target)) >= 90
        has = bool(WAIT.search(text)), bool(LET_GO.search(text))
        if has != (wanted, wanted):
            wrong.append(f"{source.name}: {kernel} for {target} waits: {has[0]}, lets go: {has[1]}; "
                         f"both should be {wanted}")
    return wrong


def check_machine_code(cuobjdump, source, compiled, overlapping):
    """What is wrong in the machine code, as a list of complaints."""
    code = subprocess.run([cuobjdump, "-sass", compiled], check=True, capture_output=True,
                          text=True).stdout
    wrong = []
    if source.name in MMA_KERNELS:
        if not MMA_KERNELS[source.name].search(code):
            wrong.append(f"{source.name}: no tensor-core instruction "
                         f"({MMA_KERNELS[source.name].pattern})")
        if not WIDE_LOAD.search(code):
            wrong.append(f"{source.name}: no 128-bit load")
    if re.search(r"\b(LDL|STL)\b", code):
        wrong.append(f"{source.name}: local memory is used")
    return wrong + check_overlap(source, code, overlapping)


def compare(found, budgets):
    wrong = []
    for key, registers in sorted(found.items()):
        if key not in budgets:
            wrong.append(f"{key}: not in {BUDGETS.name}; it uses {registers} registers")
        elif registers > budgets[key]:
            wrong.append(f"{key}: {registers} registers, {budgets[key]} are allowed")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--targets", default="sm_80,sm_90")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    nvcc, cuobjdump = find_tool("nvcc"), find_tool("cuobjdump")
    if not nvcc:
        print("no nvcc in the path or in /usr/local/cuda/bin: CUDA kernels not checked")
        return NOT_RUN

    sources = sorted((options.root / "kernels" / "cuda").glob("*.cu"))
    overlapping = overlapping_kernels(options.root)
    found, wrong = {}, []
    if not cuobjdump:
        wrong.append("no cuobjdump, which is among the packages of tests/requirements.txt")
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        compiles = {pool.submit(compile_source, nvcc, options.root, source,
                                options.targets.split(","), folder): source for source in sources}
        for future in concurrent.futures.as_completed(compiles):
            source = compiles[future]
            try:
                compiled, text = future.result()
            except subprocess.CalledProcessError as error:
                wrong.append(f"{source.name}: {error.stderr.strip()}")
                continue
            found.update(registers_by_kernel(source, text))
            if cuobjdump:
                wrong += check_machine_code(cuobjdump, source, compiled, overlapping)
    if options.write:
        rounded = {key: (registers + 15) // 16 * 16 for key, registers in found.items()}
        BUDGETS.write_text(json.dumps(rounded, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    wrong += compare(found, json.loads(BUDGETS.read_text(encoding="utf-8")))
    print(f"{len(sources)} sources, {len(found)} kernels for {options.targets}: {len(wrong)} wrong")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
