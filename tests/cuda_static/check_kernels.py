#!/usr/bin/env python3
"""Holds the kernels of every CUDA source to what they may use.

    check_kernels.py SOURCE_ROOT [--targets sm_80,sm_90|release] [--objects FOLDER] [--budgets FILE] [--sizes-only] [--write]

Each .cu file of kernels/cuda is compiled by nvcc for each target, where spilled registers and local
memory are errors; or, with --objects, was compiled by the build for these targets into NAME.cu.o of that
folder, by the same rules. What each kernel takes is compared with its line of budgets.txt next to this
file; a kernel without a line fails, and so does a line without a kernel:

    registers   the most of any instance of the kernel's template on any target
    shared      the most bytes a block asks for; the emulator of tests/cudaemu refuses a launch with more.
                *: what the device at hand has; the warps are by registers alone
    must        what the machine code of each instance holds: HMMA, IMMA or HGMMA (of bytes IGMMA), tensor cores' instructions;
                128, loads of 128 bits; 128?, such loads in one instance at least
    sm_XX       the least warps that an SM of this target holds at once, by all of these; "-": no kernel for it

loops.txt next to it has lines for kernels with tensor-core instructions, one for each instance of the kernel, about its
innermost loop with such instructions, on every target whose instructions are seen. Each instruction of the loop counts
once:

    density     the least percent of them that multiply (HMMA, IMMA, HGMMA, IGMMA)
    bytes       the most bytes of shared memory that a warp moves for one of these
    slow        what belongs ahead of the loop and is in it all the same, "-": nothing. I2F, F2I and MUFU.RCP are an
                integer division, IMAD.WIDE and IMAD.HI addresses that are calculated anew

In the machine code, which the cuobjdump of tests/requirements.txt shows, no kernel may touch local memory,
and those that are launched to overlap the one ahead of them must wait for it and let the next one go, from
sm_90 on and only there. --sizes-only leaves the instructions out, which takes a fraction of the time. --write
writes budgets.txt anew with --targets release, whose columns it has, and loops.txt without --sizes-only; `shared` and
`must` of a new kernel are then 0 and -, to be set by hand. Exits 77, which means "not run", where there is no nvcc.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import machine_code
import occupancy

NOT_RUN = 77
BUDGETS = pathlib.Path(__file__).with_name("budgets.txt")
LOOPS = pathlib.Path(__file__).with_name("loops.txt")
LOOP_COLUMNS = ["file", "kernel", "instance", "density", "bytes", "slow"]
COLUMNS = ["file", "kernel", "threads", "registers", "shared", "must", *occupancy.LIMITS]
# No \b ahead of a word: a pattern that begins with letters is found many times as fast in 25 MB of instructions.
MUST = {
    "HMMA": (re.compile(r"HMMA\b"), "no tensor-core instruction (HMMA)"),
    "IMMA": (re.compile(r"IMMA\b"), "no tensor-core instruction (IMMA)"),
    "HGMMA": (re.compile(r"[HI]GMMA\b"), "no tensor-core instruction (HGMMA, of bytes IGMMA)"),
    "128": (re.compile(r"LDG(STS)?\.E\.[A-Z.]*128"), "no 128-bit load"),
}
LOCAL_MEMORY = re.compile(r"LDL\b|STL\b")
OVERLAPPING = re.compile(r"GSV_LAUNCH_OVERLAP\(\(?\s*(\w+)")
# griddepcontrol.wait and .launch_dependents, as the machine has them.
WAIT, LET_GO = re.compile(r"ACQBULK\b"), re.compile(r"PREEXIT\b")


def find_tool(name):
    """nvcc and its kin: in the path, in the toolkit's usual folder, or in an environment of the path."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    folders = [f"{home}/bin"]
    for folder in os.get_exec_path():
        environment = pathlib.Path(folder).parent
        folders += map(str, environment.glob("lib/python3*/site-packages/nvidia/cu*/bin"))
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def read_budgets(path):
    """{(file, kernel, threads): its line as a dictionary of strings}"""
    lines = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            row = dict(zip(COLUMNS, line.split(), strict=True))
            lines[row["file"], row["kernel"], int(row["threads"])] = row
    return lines


def write_table(path, columns, rows):
    head = dict(zip(columns, ["# file", *columns[1:]]))
    table = [head, *(rows[key] for key in sorted(rows))]
    widths = [max(len(row[column]) for row in table) for column in columns]
    path.write_text("\n".join(" ".join(row[column].ljust(width) for column, width in zip(columns, widths)).rstrip()
                              for row in table) + "\n", encoding="utf-8")


def read_loops(path):
    """{(file, kernel, instance): its line as a dictionary of strings}"""
    lines = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            row = dict(zip(LOOP_COLUMNS, line.split(), strict=True))
            lines[row["file"], row["kernel"], row["instance"]] = row
    return lines


def compare_loops(found, table):
    """Complaints about the loops in {(file, kernel, instance): [(target, Loop)]}."""
    wrong, held = [], {key[:2] for key in table}
    for key, loops in sorted(found.items()):
        row = table.get(key)
        for target, loop in loops:
            what = f"{' '.join(key)} for {target}: the loop that multiplies"
            if not row and key[:2] in held:
                wrong.append(f"{what} is not in loops.txt; {loop.density}% of its instructions multiply")
            if not row:
                continue
            if loop.density < int(row["density"]):
                wrong.append(f"{what} has {loop.mma} products in {loop.instructions} instructions, {loop.density}%; {row['density']}% are wanted")
            if loop.bytes_per_mma > int(row["bytes"]):
                wrong.append(f"{what} moves {loop.bytes_per_mma} bytes of shared memory for a product, {row['bytes']} are allowed")
            if unwanted := set(loop.slow) - set(row["slow"].split("+")):
                wrong.append(f"{what} has {' and '.join(sorted(unwanted))}, which belongs ahead of it")
    return wrong + [f"{' '.join(key)}: in loops.txt, but there is no such loop" for key in sorted(set(table) - set(found))]


def loops_for(found):
    return {key: {"file": key[0], "kernel": key[1], "instance": key[2], "density": str(min(loop.density for _, loop in loops)),
                  "bytes": str(max(loop.bytes_per_mma for _, loop in loops)),
                  "slow": "+".join(sorted({name for _, loop in loops for name in loop.slow})) or "-"}
            for key, loops in found.items()}


def warps(variant, row):
    shared = 0 if row["shared"] == "*" else int(row["shared"])
    return occupancy.resident_warps(variant.target, variant.threads, variant.registers, variant.shared + shared)


def compare(found, budgets, targets):
    """Complaints about the registers, shared memory and occupancy of the variants in {file: [Variant]}."""
    wrong, seen = [], set()
    for file, variants in sorted(found.items()):
        for v in variants:
            what = f"{file}: {v.name} for {v.target}"
            if not v.threads:
                wrong.append(f"{what}: no __launch_bounds__, so its occupancy is not known")
                continue
            row = budgets.get((file, v.name, v.threads))
            if not row:
                wrong.append(f"{what}: blocks of {v.threads} threads are not in the budgets; it uses {v.registers} registers")
                continue
            seen.add((file, v.name, v.threads))
            if v.registers > int(row["registers"]):
                wrong.append(f"{what}: {v.registers} registers, {row['registers']} are allowed")
            if v.shared:
                wrong.append(f"{what}: {v.shared} bytes of shared memory that its launch does not choose")
            if (resident := warps(v, row)) < int(row[v.target]):
                wrong.append(f"{what}: an SM holds {resident} warps, {row[v.target]} are wanted")
    wrong += [f"{' '.join(map(str, key))}: in the budgets, but there is no such kernel" for key in sorted(set(budgets) - seen)]
    wrong += [f"no kernel was compiled for {target}" for target in targets
              if target.startswith("sm_") and not any(v.target == target for variants in found.values() for v in variants)]
    return wrong


def budgets_for(found, old):
    """What is used now, as rows; shared memory and what must be there are kept from the old table."""
    rows = {}
    for file, variants in found.items():
        for v in variants:
            key = file, v.name, v.threads
            before = old.get(key, {"shared": "0", "must": "-"})
            row = rows.setdefault(key, {"file": file, "kernel": v.name, "threads": str(v.threads), "registers": "0",
                                        "shared": before["shared"], "must": before["must"],
                                        **dict.fromkeys(occupancy.LIMITS, "-")})
            row["registers"] = str(max(int(row["registers"]), occupancy.up(v.registers, 8)))
            row[v.target] = str(min(64 if row[v.target] == "-" else int(row[v.target]), warps(v, row)))
    return rows


def overlapping_kernels(root):
    """The names of all kernels that GSV_LAUNCH_OVERLAP launches."""
    names = set()
    for path in (root / "kernels" / "cuda").rglob("*.cu*"):
        names.update(OVERLAPPING.findall(path.read_text(encoding="utf-8")))
    return names - {"kernel"}  # the macro's own


def check_instructions(file, functions, budgets, overlapping):
    """What is wrong in the machine code, given as (target, kernel, instance, instructions); {instance: its loops}."""
    wrong, hopes, loops = [], {}, {}
    must = {(row["file"], row["kernel"]): row["must"] for row in budgets.values()}
    for target, kernel, instance, text in functions:
        if loop := machine_code.main_loop(text):
            loops.setdefault((file, kernel, instance), []).append((target, loop))
        what = f"{file}: {kernel} for {target}"
        for word in must.get((file, kernel), "-").split("+"):
            pattern, complaint = MUST.get(word.rstrip("?"), (None, ""))
            if word.endswith("?"):
                hopes[f"{what}: {complaint} in any instance"] = \
                    hopes.get(f"{what}: {complaint} in any instance", False) or bool(pattern.search(text))
            elif pattern and not pattern.search(text):
                wrong.append(f"{what}: {complaint}")
        if LOCAL_MEMORY.search(text):
            wrong.append(f"{what}: local memory is used")
        wanted = kernel in overlapping and int(re.sub(r"\D", "", target)) >= 90
        has = bool(WAIT.search(text)), bool(LET_GO.search(text))
        if has != (wanted, wanted):
            wrong.append(f"{what} waits: {has[0]}, lets go: {has[1]}; both should be {wanted}")
    return sorted(set(wrong + [complaint for complaint, fulfilled in hopes.items() if not fulfilled])), loops


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--targets", default="sm_80,sm_90")
    parser.add_argument("--objects", type=pathlib.Path)
    parser.add_argument("--budgets", type=pathlib.Path, default=BUDGETS)
    parser.add_argument("--loops", type=pathlib.Path, default=LOOPS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sizes-only", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    nvcc, cuobjdump, ccache = find_tool("nvcc"), find_tool("cuobjdump"), shutil.which("ccache")
    if not nvcc and not options.objects:
        print("no nvcc in the path or in /usr/local/cuda/bin: CUDA kernels not checked")
        return NOT_RUN
    if not cuobjdump:
        print("no cuobjdump, which is among the packages of tests/requirements.txt")
        return 1

    folder_of_sources = options.root / "kernels" / "cuda"
    targets = options.targets.split(",")
    if targets == ["release"]:
        targets = (folder_of_sources / "release_targets.txt").read_text(encoding="utf-8").split()
    sources = sorted(folder_of_sources.rglob("*.cu"))
    overlapping = overlapping_kernels(options.root)
    budgets = read_budgets(options.budgets)

    def check(source, folder):
        compiled = options.objects / (source.name + ".o") if options.objects else machine_code.compile_source(
            [ccache, nvcc] if ccache else [nvcc], options.root, source, targets, folder)
        complaints, loops = ([], {}) if options.sizes_only else check_instructions(
            source.name, machine_code.functions(cuobjdump, compiled), budgets, overlapping)
        return machine_code.variants(cuobjdump, compiled), complaints, loops

    found, wrong, found_loops = {}, [], {}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        checks = {pool.submit(check, source, folder): source for source in sources}
        for future in concurrent.futures.as_completed(checks):
            source = checks[future]
            try:
                found[source.name], complaints, loops = future.result()
                found_loops.update(loops)
                wrong += complaints
            except subprocess.CalledProcessError as error:
                wrong.append(f"{source.name}: {error.stderr.strip()}")
    if options.write:
        if set(occupancy.LIMITS) <= set(targets):  # else the columns of the other targets would be lost
            write_table(options.budgets, COLUMNS, budgets_for(found, budgets))
        if not options.sizes_only:
            write_table(options.loops, LOOP_COLUMNS, loops_for(found_loops))
        budgets = read_budgets(options.budgets)
    wrong += compare(found, budgets, targets)
    if not options.sizes_only:
        wrong += compare_loops(found_loops, read_loops(options.loops) if options.loops.exists() else {})
    print(f"{len(sources)} sources, {sum(map(len, found.values()))} kernels for {','.join(targets)}: {len(wrong)} wrong")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
