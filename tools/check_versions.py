#!/usr/bin/env python3
"""Check that every file that states the version states that of meson.build."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def main():
    version = re.search(r"version: '([\d.]+)'", read("meson.build"))[1]
    minor = version.rsplit(".", 1)[0]
    header = dict(re.findall(r"#define GPUSERVE_VERSION_(\w+) (\d+)", read("include/gpuserve/gpuserve.h")))
    stated = {
        "include/gpuserve/gpuserve.h": ".".join(header[part] for part in ("MAJOR", "MINOR", "PATCH")),
        "include/gpuserve/context.h": re.search(r'library version, "([\d.]+)"', read("include/gpuserve/context.h"))[1],
        "python/gpuserve/_version.py": re.search(r'"([\d.]+)"', read("python/gpuserve/_version.py"))[1],
        "python/cuda/pyproject.toml": re.search(r'^version = "([\d.]+)"', read("python/cuda/pyproject.toml"), re.MULTILINE)[1],
        "packaging/debian/changelog": re.search(r"\(([\d.]+)\)", read("packaging/debian/changelog"))[1],
        "packaging/conan/conanfile.py": re.search(r'version = "([\d.]+)"', read("packaging/conan/conanfile.py"))[1],
        "packaging/vcpkg/gpuserve/vcpkg.json": re.search(r'"version": "([\d.]+)"', read("packaging/vcpkg/gpuserve/vcpkg.json"))[1],
        "CHANGELOG.md": re.search(r"^## ([\d.]+)", read("CHANGELOG.md"), re.MULTILINE)[1],
    }
    wrong = [f"{name}: {found}, meson.build has {version}" for name, found in stated.items() if found != version]
    page = re.search(r'"gpuserve ([\d.]+)"', read("docs/gpuserve.1"))[1]
    if page != minor:
        wrong.append(f"docs/gpuserve.1: {page}, meson.build has {minor}")
    for path in [ROOT / "README.md", ROOT / "deploy/README.md", *(ROOT / "deploy").glob("docker/*"), *(ROOT / "deploy").glob("kubernetes/**/*.yaml")]:
        wrong += [f"{path.relative_to(ROOT)}: the image gpuserve:{found}, meson.build has {version}"
                  for found in re.findall(r"\bgpuserve:(\d+\.\d+\.\d+)", path.read_text(encoding="utf-8")) if found != version]
    print("\n".join(wrong))
    print(f"{len(stated) + 1 - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
