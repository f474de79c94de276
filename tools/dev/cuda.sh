# cuda.sh - the CUDA plugin, built with the system's nvcc or with one from PyPI.

# The target that is the plugin.
cuda_plugin=kernels/cuda/libgpuserve-cuda.so

# nvcc_top: where the nvcc in PATH says its toolkit is; what is in PATH may be a script in front of it.
nvcc_top()
{
    have nvcc || return 0
    nvcc --dryrun -c -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p' | xargs -r realpath
}

# cuda_toolkit: prints the folder of a toolkit that has bin/nvcc. GPUSERVE_NVCC=wheels takes that of PyPI.
cuda_toolkit()
{
    local folder venv
    if [[ ${GPUSERVE_NVCC:-} != wheels ]]; then
        for folder in "${CUDA_HOME:-}" /usr/local/cuda "$(nvcc_top)"; do
            [[ -n $folder && -x $folder/bin/nvcc ]] || continue
            printf '%s\n' "$folder"
            return
        done
    fi
    venv=$(python_env cuda tools/dev/cuda-requirements.txt)
    for folder in "$venv"/lib/python3*/site-packages/nvidia/cu*; do
        [[ -e $folder/bin/nvcc ]] || continue
        chmod -f +x "$folder"/bin/* "$folder"/nvvm/bin/* 2>/dev/null || true
        printf '%s\n' "$folder"
        return
    done
    die "the packages of tools/dev/cuda-requirements.txt hold no nvcc"
}

# cuda_licence TOOLKIT: the licence of the toolkit whose run-time library is linked in: a toolkit of NVIDIA's installer has EULA.txt, one of PyPI's
# packages its text next to their metadata. GPUSERVE_CUDA_LICENCE names another file.
cuda_licence()
{
    local file
    for file in "${GPUSERVE_CUDA_LICENCE:-}" "$1"/EULA.txt "$1"/dist-info/nvidia_cuda_runtime-*/licenses/License.txt \
        "$1"/../../nvidia_cuda_runtime-*/{licenses/,}License.txt; do
        [[ ! -f $file ]] || { cat "$file"; return; }
    done
    die "the licence of the CUDA toolkit is not found next to $1: name it with GPUSERVE_CUDA_LICENCE"
}

# check_release_targets TOOLKIT [--write]: every target of a release: spills and local memory fail, and so does a
# kernel over its budget, unless --write renews the budgets. Some six minutes of one core, so no part of every run.
check_release_targets()
{
    local venv
    venv=$(python_env tests tests/requirements.txt)
    PATH=$venv/bin:$PATH CUDA_HOME=$1 python3 tests/cuda_static/check_kernels.py . --targets release --sizes-only "${@:2}"
}

cmd_cuda()
{
    local toolkit
    if [[ ${1:-} == 12 ]]; then
        cmd_cuda12 "${@:2}"
        return
    elif [[ ${1:-} == check ]]; then
        check_release_targets "$(cuda_toolkit)" "${@:2}"
        return
    fi
    need_packages "${build_packages[@]}" "${python_packages[@]}"
    toolkit=$(cuda_toolkit)
    say "the CUDA toolkit is $toolkit"
    # A folder that was configured for another toolkit is begun anew.
    if [[ -f build-cuda/toolkit && $(<build-cuda/toolkit) != "$toolkit" ]]; then
        rm -rf build-cuda
    fi
    configure build-cuda -Dbuildtype=release -Dtests=disabled -Dcuda=enabled "-Dnvcc_dir=$toolkit" "$@"
    printf '%s\n' "$toolkit" >build-cuda/toolkit
    compile build-cuda kernels/cuda/libgpuserve-cuda.so cli/gpuserve
    say "built build-cuda/kernels/cuda/libgpuserve-cuda.so; try it:"
    say "  GPUSERVE_PLUGIN_DIR=$PWD/build-cuda/kernels/cuda CUDA_HOME=$toolkit build-cuda/cli/gpuserve devices"
}
