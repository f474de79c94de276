#!/usr/bin/env python3
"""What the binaries of a release contain, read from the build that made them, and the notices that go with it.

    contents.py [--system] SOURCE TREE BUILD:TARGET[,TARGET]...

Each target of a build folder is linked once more with `--trace`, so that the linker names every archive, object and start-up file
that it took; ninja names every header that these objects were compiled with; readelf names the libraries that the installed files of
TREE need. Each of them belongs to one component of packaging/components.json, or the release fails: what
is linked in without a licence in that file cannot be shipped.

With --system, as for a Debian package, shared libraries are those of the system: what only they contain is needed, and has no version.

Writes TREE/THIRD-PARTY.md, TREE/LICENSES/ and TREE/LICENSES/components.json, which tools/release/sbom.py reads.
"""
import collections
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

LIBRARY = re.compile(rb"(?<![\w./-])lib[A-Za-z][\w+-]*\.so(?:\.\d+)*(?![\w.])")
OWN = re.compile(r"libgpuserve(-http|-cuda|-cuda12)?\.so[.\d]*")


class Failure(Exception):
    pass


def run(*command, cwd=None):
    done = subprocess.run([str(word) for word in command], cwd=cwd, text=True, capture_output=True, check=False)
    if done.returncode:
        raise Failure(f"{' '.join(map(str, command))}: {done.stderr or done.stdout}")
    return done.stdout


def is_elf(path):
    with open(path, "rb") as file:
        return path.is_file() and not path.is_symlink() and file.read(4) == b"\x7fELF"


def elf_files(tree):
    return sorted(path for path in tree.rglob("*") if path.is_file() and is_elf(path))


def linked_inputs(build, target):
    """(files outside of the build that were linked, objects of the project) of a target, which is linked again."""
    command = run("ninja", "-C", build, "-t", "commands", "-s", target).splitlines()[-1]
    with tempfile.TemporaryDirectory() as folder:
        words = shlex.split(command)
        if "-o" not in words:
            raise Failure(f"{target}: not a link command: {command}")
        words[words.index("-o") + 1] = folder + "/again"
        traced = run(*words, "-Wl,--trace", "-Wl,--trace", cwd=build)
    outside, own = set(), set()
    for line in traced.splitlines():
        found = re.fullmatch(r"(?:\((.*)\))?(.+?)(?:\(([^()]+)\))?", line.strip())
        archive, member = (found[1], found[2]) if found[1] else (found[2], found[3])
        path = (build / archive).resolve()
        if build.resolve() in path.parents:
            own.add(member or path.name)
        elif "liblto_plugin" not in archive:
            outside.add(path)
    return outside, own, words[1] if words[0].endswith("ccache") else words[0]


def compiled_headers(build):
    """{object: headers outside of the project that it was compiled with}; objects of one name count as one."""
    source = json.loads((build / "meson-info/intro-buildsystem_files.json").read_text(encoding="utf-8"))[0]
    root = pathlib.Path(source).parent.resolve()
    objects, found = {}, set()
    outside = {} # line: path, or None for a file of the project
    for line in run("ninja", "-C", build, "-t", "deps").splitlines():
        if line and not line.startswith(" "):
            found = objects.setdefault(line.split(":")[0].rsplit("/", 1)[-1], set())
        elif line.startswith("    "):
            if line not in outside:
                path = (build / line.strip()).resolve()
                outside[line] = None if root in path.parents or build.resolve() in path.parents else path
            if outside[line]:
                found.add(outside[line])
    return objects


def below_include(path):
    """A header's path as a source names it; "gcc/..." and "c++/..." of a compiler, "toolkit/..." of what is installed apart (CUDA)."""
    text = str(path)
    compiler = re.search(r"/((?:gcc|gcc-cross)/[\w-]+/\d+/.*|c\+\+/\d+/.*)$", text)
    if compiler:
        return compiler[1]
    prefix, name = re.fullmatch(r"(.*?)/include/(?:[\w.]+-linux-gnu/)?(.*)", text).groups()
    return name if re.search(r"/usr(/local|/[\w.]+-linux-gnu)?$", prefix) else "toolkit/" + name


class Components:
    def __init__(self, source):
        self.source = source
        self.data = json.loads((source / "packaging/components.json").read_text(encoding="utf-8"))
        self.all = [dict(component, how=how) for how in ("contained", "needed", "loaded") for component in self.data[how]]
        self.by_id = {component["id"]: component for component in self.all}

    def of(self, key, name, target=None):
        """The component that a file belongs to; None when no one lists it. One that lists it as TARGET:NAME, for the program or library TARGET
        alone, comes first."""
        for text in [f"{pathlib.Path(target).name}:{name}", name] if target else [name]:
            for component in self.all:
                if key in component and re.fullmatch(component[key], text):
                    return component
        return None

    def must_be(self, key, name, where, target=None):
        component = self.of(key, name, target)
        if not component:
            raise Failure(f"{where}: {name} belongs to no component of packaging/components.json")
        return component


def version_in(pattern, texts):
    """The groups of every match, joined: "0", "8", "2" of three defines."""
    for text in texts:
        numbers = [str(int(group)) if group.isdigit() else group
                   for match in re.finditer(pattern, text) for group in match.groups()]
        if numbers:
            return ".".join(numbers)
    raise Failure(f"no version: nothing matches {pattern}")


class Scan:
    """Components of one release tree: {id: version or None}."""

    def __init__(self, components, system=False):
        self.components = components
        self.system = system # shared libraries are the system's
        self.found = {}
        self.of_system = set() # ids
        self.headers = collections.defaultdict(set) # id: files
        self.compiler = None # of the last target

    def add(self, component):
        self.found.setdefault(component["id"], None)

    def scan_build(self, build, targets):
        objects = compiled_headers(build)
        for target in targets:
            headers = set()
            outside, own, self.compiler = linked_inputs(build, target)
            for path in outside:
                # Shared libraries: scan_tree() reads which are needed.
                if not re.search(r"\.so(\.\d+)*$", path.name):
                    self.add(self.components.must_be("archives", path.name, target, target))
            linked = {name for name in own if name.endswith(".o")}
            unknown = linked - objects.keys()
            if unknown:
                raise Failure(f"{build}: ninja knows no headers of {', '.join(sorted(unknown))}")
            headers.update(*(objects[name] for name in linked))
            for name in own:
                component = self.components.of("objects", name)
                if component:
                    self.add(component)
            self.scan_headers(headers, build, target)

    def scan_headers(self, headers, build, target):
        for path in headers:
            name = below_include(path)
            if any(re.fullmatch(pattern, name) for pattern in self.components.data["interfaces"].values()):
                continue
            component = self.components.must_be("headers", name, build, target)
            self.headers[component["id"]].add(path)
            if component.get("inlined"):
                self.add(component)

    def scan_tree(self, tree):
        for path in elf_files(tree):
            for name in re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "--dynamic", "--wide", path)):
                if OWN.fullmatch(name):
                    continue
                component = self.components.must_be("sonames", name, path)
                expected = "contained" if (tree / "lib" / name).exists() else "needed"
                if component["how"] == "contained" and expected == "needed" and self.system:
                    self.of_system.add(component["id"])
                elif component["how"] != expected:
                    raise Failure(f"{path}: needs {name}, which packaging/components.json lists as {component['how']}, not {expected}")
                self.add(component)
            for name in sorted({name.decode() for name in LIBRARY.findall(path.read_bytes())}):
                if not OWN.fullmatch(name):
                    component = self.components.must_be("sonames", name, path)
                    if component["how"] == "loaded":
                        self.add(component)
        for path in tree.glob("lib/*.a"):
            if path.name != "libgpuserve.a":
                self.add(self.components.must_be("archives", path.name, tree))

    def version(self, component, texts):
        """That of a file next to the text of its licence, where the build wrote one: what was linked may be newer than its headers."""
        source = self.components.source
        for path in [text / component["text"] for text in texts]:
            if path.with_suffix(".version").is_file():
                return path.with_suffix(".version").read_text(encoding="utf-8").strip()
        if component.get("version_of") == "compiler":
            return run(self.compiler, "-dumpfullversion").strip()
        if "version" not in component:
            return None
        files = [source / component["version_file"]] if "version_file" in component else sorted(self.headers[component["id"]])
        return version_in(component["version"], [path.read_text(encoding="utf-8", errors="replace") for path in files])

    def result(self, texts=()):
        return {component["id"]: self.version(component, texts) if component["how"] == "contained" and component["id"] not in self.of_system else None
                for component in self.components.all if component["id"] in self.found}


def table(rows):
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def notices(components, result):
    """The text of THIRD-PARTY.md."""
    def chosen(how):
        return [component for component in components.all if component["how"] == how and component["id"] in result]

    def what(component):
        return component["what"].format(version=result[component["id"]])

    def version(component):
        return "" if "version_is" in component else " " + (result[component["id"]] or "")

    own = components.data["gpuserve"]
    text = (f"# Licences\n\ngpuserve itself: {own['licence']}, `LICENSE`. Copyright {own['copyright']}.\n\n"
            "Made from the link commands of the build; `LICENSES/components.json` has the same for programs.\n\n"
            "## Contained\n\n| component | licence | text | for |\n|---|---|---|---|\n")
    text += table((f"[{c['name']}]({c['home']}){version(c)}", c["licence"], f"`LICENSES/{c['text']}`", what(c)) for c in chosen("contained"))
    text += "\n## Needed from the system\n\n| component | licence | for |\n|---|---|---|\n"
    text += table((f"[{c['name']}]({c['home']})", c["licence"], what(c)) for c in chosen("needed"))
    text += "\n## Loaded at run time if installed\n\n| component | licence | for |\n|---|---|---|\n"
    text += table((f"[{c['name']}]({c['home']})", c["licence"], what(c)) for c in chosen("loaded"))
    return text


def write_notices(components, result, tree, texts):
    folder = tree / "LICENSES"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copyfile(components.source / "LICENSE", tree / "LICENSE")
    for name in result:
        component = components.by_id[name]
        if component["how"] == "contained":
            place = next((path for path in (text / component["text"] for text in texts) if path.is_file()), None)
            if not place:
                raise Failure(f"{component['id']}: no licence text {component['text']}")
            shutil.copyfile(place, folder / component["text"])
    (tree / "THIRD-PARTY.md").write_text(notices(components, result), encoding="utf-8")
    data = tree / "LICENSES/components.json"
    data.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def main():
    words = [word for word in sys.argv[1:] if word != "--system"]
    source, tree = (pathlib.Path(word).resolve() for word in words[:2])
    components = Components(source)
    scan = Scan(components, "--system" in sys.argv)
    texts = [source / "packaging/licenses"]
    for word in words[2:]:
        build, targets = word.split(":")
        scan.scan_build(pathlib.Path(build).resolve(), targets.split(","))
        texts.append(pathlib.Path(build).resolve() / "licenses")
    scan.scan_tree(tree)
    result = scan.result(texts)
    write_notices(components, result, tree, texts)
    print("\n".join(f"{name} {version or ''}".rstrip() for name, version in result.items()))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"contents.py: {failure}")
