#!/bin/bash
# use_cuda_wheel.sh WHEEL CUDA_WHEEL: installs the wheel of the CUDA plugin beside that of the library in an empty environment of Python, without a
# network, and looks for the plugin. Run by `./dev wheel` and `./dev release check`, which give an empty environment with
# GPUSERVE_CHECK_PYTHON, and GPUSERVE_CHECK_NUMPY, a folder with numpy's wheel. Without a GPU the plugin must be found and must say that
# there is no driver; with one it computes. Ends with "N passed, N failed".
set -uo pipefail
wheel=$(realpath "$1")
cuda_wheel=$(realpath "$2")
tests=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/packages/checks.sh
. "$tests/packages/checks.sh"
use_empty_folder

# NVIDIA's packages, which the wheel needs to be fast, are not fetched.
installs()
{
    "$GPUSERVE_CHECK_PYTHON" -m venv venv &&
        venv/bin/python -m pip install --disable-pip-version-check --no-index --find-links "$GPUSERVE_CHECK_NUMPY" "$wheel" &&
        venv/bin/python -m pip install --disable-pip-version-check --no-index --no-deps "$cuda_wheel"
}
check "the wheel installs beside that of the library" installs
files=$(echo "$PWD"/venv/lib/python3*/site-packages)
info=$(echo "$files"/gpuserve_cuda-*.dist-info)
plugin=gpuserve/_native/libgpuserve-cuda.so
plugin12=gpuserve/_native/libgpuserve-cuda12.so # for older drivers; a wheel may lack it
contents()
{
    cut -d, -f1 "$info/RECORD" | grep -v '^gpuserve_cuda-[^/]*\.dist-info/' | grep -vx "$plugin12" | tee /dev/stderr | diff - <(echo "$plugin")
}
check "it holds the plugins and nothing else" contents
needs()
{
    local version=${wheel##*/gpuserve-}
    grep -x "Requires-Dist: gpuserve==${version%%-*}" "$info/METADATA"
}
check "it needs the library of its version" needs
extras()
{
    local library=("$files"/gpuserve-*.dist-info/METADATA)
    grep -E "^Requires-Dist: nvidia-cublas==13.*extra == 'cuda'" "${library[@]}" && grep -E "^Requires-Dist: nvidia-cuda-nvrtc==13.*extra == 'cuda'" "${library[@]}" &&
        grep -E "^Requires-Dist: nvidia-cublas-cu12==12.*extra == 'cuda12'" "${library[@]}" &&
        grep -E "^Requires-Dist: nvidia-cuda-nvrtc-cu12==12.*extra == 'cuda12'" "${library[@]}"
}
check "the extras of the library bring NVIDIA's" extras
licences()
{
    local file folder=$info/licenses
    [[ -s $folder/LICENSE ]] && grep -qF NVIDIA "$folder/LICENSES/cuda-runtime.txt" || return 1
    for file in "$folder"/LICENSES/*.txt; do
        [[ -s $file ]] && grep -F "LICENSES/${file##*/}" "$folder/THIRD-PARTY.md" || return 1
    done
}
check "it has the licences of what it contains" licences

# The lines of doctor: the layer's name, its verdict, and the path of what was found.
venv/bin/gpuserve doctor --device cuda:0 >layers 2>&1
status=$?
found()
{
    cat layers
    grep -E '^plugin +ok ' layers | grep -F "$files/" | grep -F "$plugin"
}
check "doctor finds the plugin" found
embeds()
{
    venv/bin/gpuserve embed random:bert-tiny,seed=1 --device "$1" "a text"
}
if [[ $status == 0 ]]; then
    check "it computes on the GPU" embeds cuda:0
else
    no_driver()
    {
        cat layers
        grep -qE '^(libcuda|kernel module|device files) +broken' layers && ! grep -E '^(program|library|plugin) +broken' layers
    }
    check "doctor says that the driver is missing" no_driver
    listed()
    {
        venv/bin/gpuserve devices | tee /dev/stderr | grep -i 'no NVIDIA GPU'
    }
    check "devices says that there is no GPU" listed
    # The plugin is loaded, and its CUDA runtime finds no driver.
    refused()
    {
        ! embeds cuda:0 >said 2>&1 && tee /dev/stderr <said | grep -F 'the NVIDIA driver is not installed'
    }
    check "a model on the GPU is refused since there is no driver" refused
fi
check "the CPU computes beside it" embeds cpu
if [[ -f $files/$plugin12 ]]; then
    alone()
    {
        mkdir older && cp "$files/$plugin12" older/ &&
            { GPUSERVE_PLUGIN_DIR=$PWD/older venv/bin/gpuserve doctor --device cuda:0 || true; } | tee /dev/stderr |
            grep -E "^plugin +ok +CUDA 12\..*older/${plugin12##*/}"
    }
    check "doctor finds the plugin for older drivers" alone
    said12()
    {
        ! GPUSERVE_PLUGIN_DIR=$PWD/older venv/bin/gpuserve embed random:bert-tiny,seed=1 --device cuda:9 "a text" >said 2>&1 &&
            tee /dev/stderr <said | grep -E 'the NVIDIA driver is not installed|no such device'
    }
    check "the plugin for older drivers is loaded" said12
    licence12()
    {
        grep -qF NVIDIA "$info/licenses/LICENSES/cuda-runtime-12.txt"
    }
    check "it has the licence of the run-time library of CUDA 12" licence12
fi
printf '%d passed, %d failed\n' "$passed" "$failed"
[[ $failed == 0 ]]
