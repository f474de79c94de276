#!/usr/bin/env python3
"""tools/release on a small build and small tarballs: what is linked in, included or needed without a licence is found; the least C
library is that of the symbols; a bill of materials has each tarball's sha256 and components."""
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/release"))
import contents # noqa: E402
import sbom # noqa: E402

NINJA = """rule cc
  command = cc -c -MD -MF $out.d -isystem ../usr/include $in -o $out
  deps = gcc
  depfile = $out.d
rule link
  command = cc -o $out $in $more
build own.c.o: cc ../source/own.c
build unicode_generated_unicode_tables.c.o: cc ../source/own_table.c
build program: link own.c.o unicode_generated_unicode_tables.c.o
  more = %s
build lone.c.o: cc ../source/lone.c
build other_program: link lone.c.o
"""
XXHASH = "#define XXH_VERSION_MAJOR 0\n#define XXH_VERSION_MINOR 8\n#define XXH_VERSION_RELEASE 9\n"
MAIN = "#include <xxhash.h>\n#include <stdio.h>\n%s\nint table(void);\nint main(void) { return printf(\"%%d\", table()) < 0; }\n"


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def cc(self, *words):
        subprocess.run(["cc", *map(str, words)], cwd=self.root, check=True)


class Contents(Folder):
    def setUp(self):
        super().setUp()
        self.build, self.tree = self.root / "build", self.root / "tree"
        self.tree.mkdir()
        for name in ("packaging/components.json", "packaging/licenses", "tools/unicode_tables.py", "LICENSE"):
            to = self.root / "source" / name
            to.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, to)
        self.write("usr/include/xxhash.h", XXHASH)
        self.write("source/own_table.c", "int table(void) { return 1; }\n")
        self.write("build/meson-info/intro-buildsystem_files.json", json.dumps([str(self.root / "source/meson.build")]))

    def scan(self, includes="", more="", system=False, target="program"):
        self.write("source/own.c", MAIN % includes)
        self.write("source/lone.c", "int main(void) { return 0; }\n")
        self.write("build/build.ninja", NINJA % more)
        subprocess.run(["ninja", "-C", str(self.build), "program", "other_program"], check=True, stdout=subprocess.DEVNULL)
        shutil.copy(self.build / target, self.tree / "program")
        scan = contents.Scan(contents.Components(self.root / "source"), system)
        scan.scan_build(self.build, [target])
        scan.scan_tree(self.tree)
        return scan

    def assert_refused(self, words, *arguments):
        with self.assertRaisesRegex(contents.Failure, words):
            self.scan(*arguments)

    def test_what_a_program_contains(self):
        scan = self.scan()
        result = scan.result()
        self.assertEqual(list(result), ["xxhash", "unicode-data", "gcc-runtime", "glibc"])
        self.assertEqual(result["xxhash"], "0.8.9")
        self.assertRegex(result["gcc-runtime"], r"^\d+\.\d+\.\d+$")
        contents.write_notices(scan.components, result, self.tree, [self.root / "source/packaging/licenses"])
        self.assertEqual(sorted(os.listdir(self.tree / "LICENSES")), ["components.json", "gcc-runtime.txt", "unicode.txt", "xxhash.txt"])
        text = (self.tree / "THIRD-PARTY.md").read_text(encoding="utf-8")
        for words in ("xxHash](https://github.com/Cyan4973/xxHash) 0.8.9 | BSD-2-Clause | `LICENSES/xxhash.txt`", "GNU C Library"):
            self.assertIn(words, text)
        self.assertEqual(json.loads((self.tree / "LICENSES/components.json").read_text(encoding="utf-8")), result)

    def test_a_target_of_a_build_with_others(self):
        self.assertEqual(list(self.scan(target="other_program").result()), ["gcc-runtime", "glibc"]) # xxhash is the other one's

    def test_an_archive_without_a_licence(self):
        self.write("strange.c", "int strange(void) { return 1; }\n")
        self.cc("-c", "strange.c")
        subprocess.run(["ar", "rc", "libstrange.a", "strange.o"], cwd=self.root, check=True)
        self.assert_refused("libstrange.a belongs to no component", "", "-Wl,--whole-archive ../libstrange.a -Wl,--no-whole-archive")

    def test_a_header_without_a_licence(self):
        self.write("usr/include/strange/strange.h", "")
        self.assert_refused("strange/strange.h belongs to no component", "#include <strange/strange.h>")

    def test_a_header_of_a_toolkit(self):
        self.write("opt/toolkit/include/cuda_fp16.h", "")
        scan = self.scan("#include <../../opt/toolkit/include/cuda_fp16.h>")
        self.assertIn("cuda_fp16.h", {path.name for path in scan.headers["cuda-runtime"]})
        self.assertNotIn("cuda-runtime", scan.result()) # it is not linked

    def test_a_component_of_one_target_alone(self):
        components = contents.Components(ROOT)
        for key, name in (("archives", "libcudart_static.a"), ("headers", "toolkit/cuda_fp16.h")):
            for target, found in (("kernels/cuda/libgpuserve-cuda.so", "cuda-runtime"), ("kernels/cuda/libgpuserve-cuda12.so", "cuda-runtime-12"),
                                  (None, "cuda-runtime")):
                self.assertEqual(components.of(key, name, target)["id"], found)
        self.assertEqual(components.of("archives", "libgcc.a", "kernels/cuda/libgpuserve-cuda12.so"), components.of("archives", "libgcc.a"))

    def test_a_version_that_the_build_wrote(self):
        self.write("texts/xxhash.version", "0.8.10\n")
        self.assertEqual(self.scan().result([self.root / "texts"])["xxhash"], "0.8.10")

    def test_a_library_without_a_licence(self):
        self.write("strange.c", "int strange(void) { return 1; }\n")
        self.cc("-shared", "-fPIC", "-Wl,-soname,libstrange.so.1", "-o", "libstrange.so.1", "strange.c")
        self.assert_refused("libstrange.so.1 belongs to no component", "", "-Wl,--no-as-needed ../libstrange.so.1")

    def test_a_library_that_is_loaded_without_a_licence(self):
        self.assert_refused("libunheard.so.2 belongs to no component", 'const char *library = "libunheard.so.2";')

    def test_a_library_of_the_system(self):
        self.write("strange.c", "int strange(void) { return 1; }\n")
        self.cc("-shared", "-fPIC", "-Wl,-soname,libjansson.so.4", "-o", "libjansson.so.4", "strange.c")
        linked = "-Wl,--no-as-needed ../libjansson.so.4"
        self.assert_refused("libjansson.so.4, which .* lists as contained, not needed", "", linked)
        self.assertIsNone(self.scan("", linked, system=True).result()["jansson"])

    def test_a_library_that_only_may_be_loaded(self):
        self.write("strange.c", "int strange(void) { return 1; }\n")
        self.cc("-shared", "-fPIC", "-Wl,-soname,libcurl.so.4", "-o", "libcurl.so.4", "strange.c")
        self.assert_refused("libcurl.so.4, which .* lists as loaded, not needed", "", "-Wl,--no-as-needed ../libcurl.so.4")

    def test_an_object_of_unknown_headers(self):
        self.cc("-c", "-o", self.build / "other.c.o", "source/own_table.c", "-Dtable=other")
        self.assert_refused("ninja knows no headers of other.c.o", "", "other.c.o")

    def test_a_missing_text(self):
        scan = self.scan()
        with self.assertRaisesRegex(contents.Failure, "xxhash: no licence text"):
            contents.write_notices(scan.components, scan.result(), self.tree, [self.root])

    def test_the_list_is_complete(self):
        data = json.loads((ROOT / "packaging/components.json").read_text(encoding="utf-8"))
        texts = {component["text"] for component in data["contained"]}
        self.assertEqual(texts - {path.name for path in (ROOT / "packaging/licenses").iterdir()}, {"cuda-runtime.txt", "cuda-runtime-12.txt"}) # of the toolkits
        for component in data["contained"] + data["needed"] + data["loaded"]:
            for key in ("id", "name", "supplier", "licence", "copyright", "home", "download", "what"):
                self.assertTrue(component.get(key), f"{component['id']}: {key}")


class Glibc(Folder):
    def glibc(self, maximum):
        return subprocess.run([sys.executable, str(ROOT / "tools/release/glibc.py"), str(self.root), maximum], capture_output=True, text=True, check=False)

    def test_a_newer_symbol(self):
        self.write("program.c", "#define _GNU_SOURCE\n#include <unistd.h>\n#include <sys/random.h>\nint main(void) { char c; return (int)getrandom(&c, 1, 0); }\n")
        self.cc("-o", "program", "program.c") # getrandom() came with 2.25
        done = self.glibc("9.0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreaterEqual(tuple(map(int, done.stdout.strip().split("."))), (2, 25))
        done = self.glibc("2.24")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{self.root}/program needs GLIBC_", done.stderr)

    def test_nothing_to_check(self):
        done = self.glibc("9.0")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no program or library", done.stderr)


class Sbom(Folder):
    def setUp(self):
        super().setUp()
        os.environ["SOURCE_DATE_EPOCH"] = "1700000000"
        self.binary = self.tarball("gpuserve-9.8.7-linux-x86_64", {
            "LICENSES/components.json": json.dumps({"jansson": "2.99", "glibc": None, "libcurl": None, "cuda-runtime": "13.0"}),
            "LICENSES/cuda-runtime.txt": "terms of the toolkit"})
        self.source = self.tarball("gpuserve-9.8.7", {"lib/text/unicode/generated/x.c": "", "tools/unicode_tables.py": 'PINNED = "7.7.7"\n'})

    def tarball(self, name, files):
        path = self.root / f"{name}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for file, text in files.items():
                entry = tarfile.TarInfo(f"{name}/{file}")
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
        return path

    def document(self):
        tarballs = [self.source, self.binary]
        return sbom.document("9.8.7", tarballs, sbom.licence_texts(tarballs))

    def test_packages(self):
        document = self.document()
        self.assertEqual(document, self.document())
        self.assertEqual(document["creationInfo"]["created"], "2023-11-14T22:13:20Z")
        packages = {package["SPDXID"]: package for package in document["packages"]}
        for path in (self.source, self.binary):
            package = packages["SPDXRef-" + path.name.replace("_", "-")]
            self.assertEqual(package["checksums"], [{"algorithm": "SHA256", "checksumValue": hashlib.sha256(path.read_bytes()).hexdigest()}])
        self.assertEqual(packages["SPDXRef-gpuserve-9.8.7-linux-x86-64.tar.gz"]["licenseConcluded"], "Apache-2.0 AND LicenseRef-NVIDIA-CUDA-Toolkit AND MIT")
        jansson = packages["SPDXRef-jansson-2.99"]
        self.assertEqual((jansson["versionInfo"], jansson["licenseDeclared"], jansson["externalRefs"][0]["referenceLocator"]),
                         ("2.99", "MIT", "pkg:github/akheron/jansson@v2.99"))
        self.assertTrue(jansson["downloadLocation"].endswith("v2.99.tar.gz"))
        self.assertEqual([info["extractedText"] for info in document["hasExtractedLicensingInfos"]], ["terms of the toolkit"])

    @staticmethod
    def relations(document):
        return {(each["spdxElementId"], each["relationshipType"], each["relatedSpdxElement"]) for each in document["relationships"]}

    def record(self, name, components):
        """A file that lists nothing itself, and its record."""
        path = self.root / name
        path.write_text(name, encoding="utf-8")
        self.keep(path, components)
        return path

    def keep(self, path, components):
        (self.root / (hashlib.sha256(path.read_bytes()).hexdigest() + ".json")).write_text(json.dumps(components), encoding="utf-8")

    def test_wheels_and_debian_packages(self):
        wheel = self.root / "gpuserve-9.8.7-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("gpuserve-9.8.7.dist-info/METADATA", "")
        self.keep(wheel, {"jansson": "2.99", "glibc": None})
        deb = self.record("libgpuserve0_9.8.7_amd64.deb", {"jansson": None, "xxhash": "0.8.9"})
        document = sbom.document("9.8.7", [wheel, deb], sbom.licence_texts([wheel, deb]), self.root)
        packages = {package["SPDXID"]: package for package in document["packages"]}
        own = packages["SPDXRef-libgpuserve0-9.8.7-amd64.deb"]
        self.assertEqual((own["name"], own["licenseConcluded"], own["primaryPackagePurpose"]), ("libgpuserve0", "Apache-2.0 AND BSD-2-Clause", "INSTALL"))
        self.assertEqual(own["checksums"][0]["checksumValue"], hashlib.sha256(deb.read_bytes()).hexdigest())
        self.assertEqual(packages["SPDXRef-jansson"]["downloadLocation"], "NOASSERTION") # of whatever version the system has
        self.assertLessEqual({("SPDXRef-gpuserve-9.8.7-py3-none-any.whl", "CONTAINS", "SPDXRef-jansson-2.99"),
                              (own["SPDXID"], "DEPENDS_ON", "SPDXRef-jansson"), (own["SPDXID"], "CONTAINS", "SPDXRef-xxhash-0.8.9")},
                             self.relations(document))

    def test_a_wheel_brings_the_text_of_its_licence(self):
        wheel = self.root / "gpuserve_cuda-9.8.7-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("gpuserve_cuda-9.8.7.dist-info/licenses/LICENSES/cuda-runtime.txt", "terms in the wheel")
        self.keep(wheel, {"cuda-runtime": "13.0"})
        document = sbom.document("9.8.7", [wheel], sbom.licence_texts([wheel]), self.root)
        self.assertEqual(document["packages"][0]["name"], "gpuserve-cuda")
        self.assertEqual([info["extractedText"] for info in document["hasExtractedLicensingInfos"]], ["terms in the wheel"])

    def test_a_wheel_without_a_record(self):
        path = self.root / "gpuserve-9.8.7-py3-none-any.whl"
        path.write_text("unknown", encoding="utf-8")
        with self.assertRaises(FileNotFoundError):
            sbom.document("9.8.7", [path], {}, self.root)

    def test_relations(self):
        relations = self.relations(self.document())
        binary = "SPDXRef-gpuserve-9.8.7-linux-x86-64.tar.gz"
        self.assertLessEqual({(binary, "CONTAINS", "SPDXRef-jansson-2.99"), (binary, "DEPENDS_ON", "SPDXRef-glibc"),
                              ("SPDXRef-libcurl", "OPTIONAL_DEPENDENCY_OF", binary), ("SPDXRef-DOCUMENT", "DESCRIBES", binary),
                              ("SPDXRef-gpuserve-9.8.7.tar.gz", "CONTAINS", "SPDXRef-unicode-data-7.7.7")}, relations)
        self.assertTrue(all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", end) for each in relations for end in (each[0], each[2])))


class Parts(Folder):
    """tools/dev/release.sh without its builds."""
    def bash(self, script, status=0):
        setup = 'set -euo pipefail; for part in common packages build cuda wheel deb release; do . "$DEV/$part.sh"; done\n'
        done = subprocess.run(["bash", "-c", setup + script], cwd=self.root, capture_output=True, text=True, check=False,
                              env={**os.environ, "DEV": str(ROOT / "tools/dev"), "GPUSERVE_CACHE": str(self.root / "cache")})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout

    def test_parts_have_an_order_and_bring_what_they_need(self):
        for arguments, nvcc, parts in (("", "yes", "source x86_64 aarch64 cuda wheels debs"), ("", "", "source x86_64 aarch64 wheels debs"),
                                       ("--cuda", "", "source x86_64 aarch64 cuda wheels debs"), ("wheels x86_64", "yes", "x86_64 wheels"),
                                       ("cuda", "", "cuda debs"), ("wheels --cuda", "", "cuda wheels debs"), ("debs", "yes", "debs")):
            self.assertEqual(self.bash(f'release_nvcc() {{ printf "{nvcc}"; }}; release_chosen {arguments}').split(), parts.split(), arguments)
        self.bash("release_chosen wheel", 1)

    def test_a_second_build_is_compared(self):
        self.write("meson.build", "project('gpuserve', 'c',\n  version: '9.8.7',\n")
        self.write("dist/SHA256SUMS", "0  gpuserve-9.8.7.tar.gz\n0  gpuserve-9.8.7-py3-none-manylinux_2_31_x86_64.whl\n0  libgpuserve0_9.8.7_amd64.deb\n")
        for name in ("gpuserve-9.8.7.tar.gz", "gpuserve-9.8.7-py3-none-manylinux_2_31_x86_64.whl", "libgpuserve0_9.8.7_amd64.deb"):
            self.write(f"dist/{name}", "bytes")
        build = """mkdir -p cache; release_parts()
            {
                echo "parts: $* ${CCACHE_DISABLE:-0} $GPUSERVE_RELEASE_WHEELS"
                [[ $release_folder != "$cache_dir/release" && $deb_folder != "$cache_dir/deb" && $dist_folder != dist ]] || exit 1
                mkdir -p "$dist_folder"
                printf bytes | tee "$dist_folder/gpuserve-9.8.7.tar.gz" >"$dist_folder/libgpuserve0_9.8.7_amd64.deb"
                printf "%s" "$OTHER" >"$dist_folder/gpuserve-9.8.7-py3-none-manylinux_2_31_x86_64.whl"
            }
            """
        same = self.bash("OTHER=bytes\n" + build + "release_again")
        self.assertIn("parts: source wheels debs 1 x86_64\n", same)
        self.assertTrue(same.endswith("3 passed, 0 failed\n"), same)
        self.assertEqual(os.listdir(self.root / "cache"), [])
        other = self.bash("OTHER=changed\n" + build + "release_again wheels", 1)
        self.assertIn("parts: wheels 1 x86_64\n", other)
        self.assertTrue(other.endswith("2 passed, 1 failed\n"), other)
        self.assertRegex(other, r"FAILED  dist/gpuserve-9\.8\.7-py3\S+ differs")
        self.write("dist/SHA256SUMS", "0  gpuserve-9.8.7.tar.gz\n") # what is not of this release is not compared with it
        self.assertTrue(self.bash("OTHER=bytes\n" + build + "release_again source", 1).endswith("1 passed, 2 failed\n"))


if __name__ == "__main__":
    program = unittest.main(exit=False, verbosity=0)
    failed = len(program.result.failures) + len(program.result.errors)
    print(f"{program.result.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed or not program.result.testsRun else 0)
