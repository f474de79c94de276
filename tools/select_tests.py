#!/usr/bin/env python3
"""The tests of a build folder, chosen by folder or by name, and the list of all of them.

    select_tests.py BUILD names [FOLDER...] [-k NAME]...    one name a line
    select_tests.py BUILD needs [FOLDER...] [-k NAME]...    what these tests need, one word a line:
                                                            python, clients, deploy, frameworks, http-frameworks
    select_tests.py BUILD programs [FOLDER...] [-k NAME]... the programs among them that an emulator can run: not
                                                            those of tests/cross/left_out.txt without a choice
    select_tests.py BUILD write                             writes tests/programs.txt anew

FOLDER is a folder below tests/ ("text", "runtime/scheduler"), or "examples" or "fuzz". NAME is a part
of a test's name. Several choices add up. The folder of a test is the folder of its program or script.

tests/programs.txt lists every test program, so that count_tests.py notices one that did not run. A line is a
name and, where a program needs what not every machine has, a condition:

    nvcc      the CUDA toolkit
    chromium  a browser with its driver; not every release has the packages
    tsan      the thread sanitizer: ./dev tsan runs it
    abigail   abidiff, which ./dev lint installs
    rust, go, java  the compiler of an example: rustc, go, javac with /usr/share/java/jna.jar
    proxies   haproxy or nginx, which start services when installed and come with ./dev install-deps only
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "programs.txt"
LEFT_OUT = ROOT / "tests" / "cross" / "left_out.txt"
FOLDER = re.compile(r"(?:^|/)(tests|examples|fuzz|benchmarks)((?:/(?!\.\./)[\w.-]+)*?)/(?:\.\./.*|[^/]+)$")
# The environments that ./dev makes in addition to the one of tests/requirements.txt, by the folder that uses them.
ENVIRONMENTS = {"http": ["clients", "frameworks", "http-frameworks"], "deploy": ["deploy"], "python": ["frameworks"]}


def read_tests(build):
    text = subprocess.run(["meson", "introspect", "--tests", build], check=True, text=True, stdout=subprocess.PIPE).stdout
    return json.loads(text)


def folder_of(test):
    """The folder below tests/ of the first word of the command that lies in the source or build tree."""
    for word in test["cmd"]:
        if found := FOLDER.search(word):
            return found[2].lstrip("/") if found[1] == "tests" else found[1]
    return ""


def is_script(test):
    return any(word.endswith(".py") for word in test["cmd"])


def select(tests, arguments):
    """The tests of the folders and names asked for; a choice that no test meets is an error."""
    chosen, words = {}, iter(arguments)
    for word in words:
        if word == "-k":
            word = next(words, "")
            found = [test for test in tests if word and word in test["name"]]
        else:
            folder = re.sub(r"^(\./)?tests/|/$", "", word)
            found = [test for test in tests if (folder_of(test) + "/").startswith(folder + "/")]
        if not found:
            folders = sorted({folder_of(test) for test in tests} - {""})
            sys.exit(f'select_tests: no folder and no test name matches "{word}"; the folders are: {", ".join(folders)}')
        chosen.update((test["name"], test) for test in found)
    return list(chosen.values()) if arguments else tests


def is_program(test, build):
    """Whether the test is a compiled program itself; scripts would start programs of another processor directly."""
    return pathlib.Path(test["cmd"][0]).is_relative_to(pathlib.Path(build).resolve())


def left_out():
    lines = (line.split("#")[0] for line in LEFT_OUT.read_text(encoding="utf-8").splitlines())
    return {line.split(":")[0] for line in lines if line.strip()}


def emulated(tests, build, arguments):
    """The programs of a choice; of all tests those that are quick enough, and the scripts made for an emulator."""
    slow = set() if arguments else left_out()
    return [test for test in select(tests, arguments)
            if test["name"] not in slow and (is_program(test, build) or folder_of(test) == "cross")]


def needs(tests):
    found = set()
    for test in filter(is_script, tests):
        found.add("python")
        found.update(ENVIRONMENTS.get(folder_of(test).split("/")[0], []))
    return sorted(found)


# What a test may need that a machine can lack: any of these programs.
CONDITIONS = {"tsan": [], "nvcc": ["nvcc", "/usr/local/cuda/bin/nvcc"], "chromium": ["chromedriver"],
              "abigail": ["abidiff"], "rust": ["rustc"], "go": ["go"], "java": ["javac"],
              "proxies": ["haproxy", "/usr/sbin/haproxy", "nginx", "/usr/sbin/nginx"]}


def holds(condition):
    """Whether this machine has what a condition of tests/programs.txt names."""
    if condition == "java" and not pathlib.Path("/usr/share/java/jna.jar").exists():
        return False
    if condition == "rust":  # rustup's rustc may have no toolchain
        return subprocess.run("rustc --version", shell=True, check=False, capture_output=True).returncode == 0
    return not condition or any(shutil.which(program) for program in CONDITIONS[condition])


def read_list():
    """{name: condition} of tests/programs.txt; the condition of most is empty."""
    lines = [line.split("#")[0].split() for line in LIST.read_text(encoding="utf-8").splitlines()]
    return {line[0]: line[1] if len(line) > 1 else "" for line in lines if line}


def check(results):
    """What a run of all tests lacks: {name: why}. `results` has the result of each program that ran."""
    listed, wrong = read_list(), {}
    for name, condition in listed.items():
        if name not in results and holds(condition):
            wrong[name] = "in tests/programs.txt, but the build has no such test: a part of the build is off, or it was renamed"
        elif results.get(name) == "SKIP" and holds(condition):
            wrong[name] = "skipped, though this machine must be able to run it"
    for name in results.keys() - listed.keys():
        wrong[name] = "not in tests/programs.txt: run `python3 tools/select_tests.py build write` and commit the list"
    return wrong


def write(tests):
    listed = read_list() if LIST.exists() else {}
    lines = ["# Every test program of `./dev test`; see tools/select_tests.py, which writes this list."]
    kept = {name for name, condition in listed.items() if condition}  # a build without that part does not list them
    names = sorted({test["name"] for test in tests} | kept)
    lines += [f"{name} {listed[name]}" if listed.get(name) else name for name in names]
    LIST.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    build, what, *arguments = sys.argv[1:]
    tests = read_tests(build)
    if what == "names":
        print("\n".join(test["name"] for test in select(tests, arguments)))
    elif what == "needs":
        print("\n".join(needs(select(tests, arguments))))
    elif what == "programs":
        print("\n".join(test["name"] for test in emulated(tests, build, arguments)))
    elif what == "write":
        write(tests)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
