#!/usr/bin/env python3
"""Make a wheel of the Python package portable: repair_wheel.py WHEEL FOLDER MACHINE

auditwheel copies the libraries that a bare system lacks into the wheel and finds the oldest glibc
that will do. It accepts only wheels tagged for a platform, and the build tags ours as pure Python. So the
platform's tag is set first, and the Python tag is put back to py3-none afterwards.
"""
import pathlib
import subprocess
import sys
import tempfile


def run(*command):
    subprocess.run([sys.executable, "-m", *map(str, command)], check=True)


def retag(wheel, platform):
    """The wheel under other tags; gives its new path."""
    before = set(wheel.parent.glob("*.whl"))
    run("wheel", "tags", "--remove", "--python-tag", "py3", "--abi-tag", "none",
        "--platform-tag", platform, wheel)
    made = set(wheel.parent.glob("*.whl")) - before
    return made.pop() if made else wheel


def main():
    wheel, folder = (pathlib.Path(argument) for argument in sys.argv[1:3])
    machine = sys.argv[3]  # x86_64, aarch64
    tagged = retag(wheel, f"linux_{machine}")
    with tempfile.TemporaryDirectory() as repaired:
        run("auditwheel", "repair", "--wheel-dir", repaired, tagged)
        done, = pathlib.Path(repaired).glob("*.whl")
        platform = done.stem.split("-")[-1]
        done = retag(done, platform)
        folder.mkdir(exist_ok=True)
        (folder / done.name).write_bytes(done.read_bytes())


main()
