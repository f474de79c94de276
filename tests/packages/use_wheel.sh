#!/bin/bash
# use_wheel.sh WHEEL MODEL: installs a wheel in an empty environment of Python, without a network, and uses it. Run by `./dev wheel` and
# `./dev release check`, which give an empty environment with GPUSERVE_CHECK_MACHINE, the wheel's machine; for this machine
# GPUSERVE_CHECK_PYTHON, and GPUSERVE_CHECK_NUMPY, a folder with numpy's wheel; for another one GPUSERVE_CHECK_SYSROOT, the libraries that QEMU
# runs the program of the wheel with. Ends with "N passed, N failed".
set -uo pipefail
wheel=$(realpath "$1")
model=$(realpath -s "$2") # its neighbours are the models of test_hub.py
tests=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/packages/checks.sh
. "$tests/packages/checks.sh"
use_empty_folder

installs()
{
    "$GPUSERVE_CHECK_PYTHON" -m venv venv &&
        venv/bin/python -m pip install --disable-pip-version-check --no-index --find-links "$GPUSERVE_CHECK_NUMPY" "$wheel"
}
unpacks()
{
    python3 -m zipfile -e "$wheel" unpacked && chmod +x unpacked/gpuserve/_native/gpuserve
}
if [[ $GPUSERVE_CHECK_MACHINE == "$(uname -m)" ]]; then
    program=(venv/bin/gpuserve)
    check "the wheel installs without a network" installs
    files=$(echo venv/lib/python3*/site-packages)
else
    program=("qemu-$GPUSERVE_CHECK_MACHINE" -cpu max -L "$GPUSERVE_CHECK_SYSROOT" unpacked/gpuserve/_native/gpuserve)
    check "the wheel unpacks" unpacks
    files=unpacked
fi

# What lies in gpuserve.libs belongs to others.
licences()
{
    local folder file
    folder=$(echo "$files"/gpuserve-*.dist-info/licenses)
    [[ -s $folder/LICENSE && -n $(ls "$files/gpuserve.libs") && -s $folder/LICENSES/jansson.txt ]] || return 1
    for file in "$folder"/LICENSES/*.txt; do
        [[ -s $file ]] && grep -F "LICENSES/${file##*/}" "$folder/THIRD-PARTY.md" || return 1
    done
}
check "it has the licences of what it contains" licences
version()
{
    local version=${wheel##*/gpuserve-}
    "${program[@]}" --version | tee /dev/stderr | grep -wF "${version%%-*}" >/dev/null
}
check "gpuserve --version" version
by_command()
{
    "${program[@]}" similarity "$model" "${reference_texts[@]}" | tee /dev/stderr | grep "$reference_similarity" >/dev/null
}
check "the similarity of two texts is that of the reference, by the command" by_command

if [[ $GPUSERVE_CHECK_MACHINE == "$(uname -m)" ]]; then
    by_package()
    {
        venv/bin/python - "$model" "${reference_texts[@]}" <<'PYTHON' | tee /dev/stderr | grep "$reference_similarity" >/dev/null
import sys
import gpuserve
with gpuserve.Model(sys.argv[1], device="cpu") as model:
    vectors = model.encode(sys.argv[2:])
print(f"{float(vectors[0] @ vectors[1]):.4f}")
PYTHON
    }
    check "the similarity of two texts is that of the reference, by the package" by_package
    # No gpuserve of the system, no libcurl: Python's own TLS fetches.
    hub()
    {
        PATH=/nowhere GPUSERVE_TEST_MODELS=${model%/*} venv/bin/python "$tests/python/test_hub.py"
    }
    check "a model comes at first use" hub
fi
printf '%d passed, %d failed\n' "$passed" "$failed"
[[ $failed == 0 ]]
