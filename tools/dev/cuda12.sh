# cuda12.sh - the CUDA plugin for older drivers, libgpuserve-cuda12.so: built with CUDA 12, it runs on drivers from 525 on.
#
#   ./dev cuda 12 [MESON_OPTION...]  into build-cuda12/
#   ./dev cuda 12 check [api]        compiles every source to PTX, or those that call the run-time API: no assembler, no link
#
# A toolkit of CUDA 12 in CUDA_HOME, /usr/local or PATH is used. Without one, the compiler comes from Debian's package nvidia-cuda-toolkit, which is
# unpacked, not installed, and headers and the static run-time library from PyPI: they make a toolkit's folder in the cache. PyPI's compiler package
# of CUDA 12 lacks nvcc and cicc. The objects of CUDA 12.4 are linked with the run-time library of 12.9: NVIDIA's earlier wheels have no static
# one, and one of a later minor version takes the objects of an earlier one.

# A target of build-cuda12/.
cuda12_plugin=kernels/cuda/libgpuserve-cuda12.so

cuda12_deb=nvidia-cuda-toolkit_12.4.131~12.4.1-2_amd64.deb
cuda12_deb_sha256=cd5fe85aee38d108b315f408a688641478f2402622a10c677478eb7a6c4e5319
# After the mirror of apt's sources; the last has what the archive had on that day.
cuda12_archives=(http://deb.debian.org/debian http://snapshot.debian.org/archive/debian/20251101T000000Z)
cuda12_runtime=nvidia-cuda-runtime-cu12==12.9.79 # libcudart_static.a
cuda12_cublas=nvidia-cublas-cu12==12.4.5.8       # cublasLt.h; 363 MB, of which the headers are kept

# cuda_major TOOLKIT: 12, 13.
cuda_major()
{
    "$1/bin/nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p'
}

# cuda12_own: a toolkit of CUDA 12 that this machine has. GPUSERVE_NVCC=wheels takes none.
cuda12_own()
{
    local folder
    [[ ${GPUSERVE_NVCC:-} != wheels ]] || return 0
    for folder in "${CUDA_HOME:-}" /usr/local/cuda /usr/local/cuda-12 /usr/local/cuda-12.* "$(nvcc_top)"; do
        [[ -n $folder && -x $folder/bin/nvcc && $(cuda_major "$folder") == 12 ]] || continue
        printf '%s\n' "$folder"
        return
    done
}

# cuda12_download FOLDER: the compiler's package, from the first archive that has these very bytes.
cuda12_download()
{
    local archive file=$1/compiler.deb
    for archive in $(apt_mirror) "${cuda12_archives[@]}"; do
        python3 - "$archive/pool/non-free/n/nvidia-cuda-toolkit/$cuda12_deb" "$file" <<'PYTHON' || continue
import shutil, sys, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=60) as source, open(sys.argv[2], "wb") as target:
        shutil.copyfileobj(source, target)
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error}")
PYTHON
        sha256sum --check --status <<<"$cuda12_deb_sha256  $file" && return
        printf 'dev: %s has other bytes than those of %s\n' "$archive" "$cuda12_deb" >&2
    done
    die "no archive has $cuda12_deb (87 MB, non-free): set CUDA_HOME to a toolkit of CUDA 12 instead"
}

# cuda12_unpack FILE FOLDER: a Debian package.
cuda12_unpack()
{
    mkdir -p "$2"
    if have dpkg-deb; then
        dpkg-deb -x "$1" "$2"
    else
        have ar || die "ar (binutils) is needed to unpack $cuda12_deb"
        ar p "$1" data.tar.xz | tar -xJ -C "$2"
    fi
}

# cuda12_wheels FOLDER ARGUMENT...: what pip has for these, unpacked into FOLDER.
cuda12_wheels()
{
    local folder=$1
    shift
    mkdir -p "$folder"
    [[ -d $folder/../pip ]] || python3 -m venv "$folder/../pip"
    "$folder/../pip/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$folder" "$@" >&2 ||
        die "pip could not fetch $*"
    (cd "$folder" && for file in *.whl; do python3 -m zipfile -e "$file" . && rm "$file"; done)
}

# cuda12_assemble FOLDER: a toolkit of what was unpacked into FOLDER/{compiler,headers,runtime}, in FOLDER/toolkit. Debian's places become NVIDIA's.
cuda12_assemble()
{
    local file top=$1/toolkit from=$1/compiler/usr
    mkdir -p "$top"/{bin,include,lib,nvvm/bin}
    mv "$from/lib/nvidia-cuda-toolkit/bin/nvcc" "$from/lib/nvidia-cuda-toolkit/bin/crt" "$from"/bin/{bin2c,cuobjdump,cudafe++,fatbinary,ptxas} "$top/bin/"
    mv "$from/lib/nvidia-cuda-toolkit/bin/cicc" "$top/nvvm/bin/"
    mv "$from/lib/nvidia-cuda-toolkit/libdevice" "$top/nvvm/"
    cp -r "$1"/headers/nvidia/*/include/. "$top/include/"
    cp "$1/runtime/nvidia/cuda_runtime/lib/libcudart_static.a" "$top/lib/"
    cp "$1"/runtime/nvidia_cuda_runtime_*/licenses/License.txt "$top/EULA.txt"
    printf '%s\n' "${cuda12_runtime#*==}" >"$top/cudart.version"
    chmod +x "$top"/bin/* "$top"/nvvm/bin/* 2>/dev/null || true
    # shellcheck disable=SC2016  # for nvcc to expand
    printf '%s\n' 'TOP = $(_HERE_)/..' 'NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice' 'PATH += $(TOP)/nvvm/bin:$(_HERE_):' \
        'INCLUDES += "-isystem" "$(TOP)/include" $(_SPACE_)' 'LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib"' >"$top/bin/nvcc.profile"
    for file in bin/{nvcc,cudafe++,ptxas,fatbinary,crt/link.stub} nvvm/bin/cicc nvvm/libdevice/libdevice.10.bc lib/libcudart_static.a EULA.txt \
        include/{cuda_runtime.h,cuda.h,nvrtc.h,crt/host_config.h,nv/target}; do
        [[ -s $top/$file ]] || die "$cuda12_deb and the packages of tools/dev/cuda12-requirements.txt lack $file"
    done
}

# cuda12_made: the folder of the toolkit in the cache, made if it is missing. Its name has the hash of what is in it.
cuda12_made()
{
    local folder temp
    folder=$cache_dir/cuda-12.4-$({ cat tools/dev/cuda12-requirements.txt; printf '%s' "$cuda12_deb_sha256 $cuda12_runtime"; declare -f cuda12_assemble; } |
                                  sha256sum | cut -c1-12)
    if [[ ! -d $folder ]]; then
        [[ $(uname -m) == x86_64 ]] || die "CUDA 12 is fetched for x86_64 only: set CUDA_HOME to a toolkit of CUDA 12"
        need_packages "${python_packages[@]}"
        say "downloading CUDA 12.4 (140 MB)"
        mkdir -p "$cache_dir"
        temp=$(mktemp -d "$cache_dir/cuda12-new.XXXXXX")
        cuda12_download "$temp"
        cuda12_unpack "$temp/compiler.deb" "$temp/compiler"
        cuda12_wheels "$temp/headers" -r tools/dev/cuda12-requirements.txt
        cuda12_wheels "$temp/runtime" "$cuda12_runtime"
        cuda12_assemble "$temp"
        mv -T "$temp/toolkit" "$folder" 2>/dev/null || true # another process was first
        rm -rf "$temp"
    fi
    printf '%s\n' "$folder"
}

# cuda12_add_cublas TOOLKIT: the headers of cuBLAS, which only the host's side of the plugin needs.
cuda12_add_cublas()
{
    local temp
    [[ ! -f $1/include/cublasLt.h ]] || return 0
    say "downloading the headers of cuBLAS 12.4 (in a package of 363 MB)"
    temp=$(mktemp -d "$cache_dir/cuda12-new.XXXXXX")
    cuda12_wheels "$temp/cublas" "$cuda12_cublas"
    cp "$temp"/cublas/nvidia/cublas/include/cublas*.h "$1/include/" || die "$cuda12_cublas lacks its headers"
    rm -rf "$temp"
}

# cuda12_toolkit: prints the folder of a whole toolkit.
cuda12_toolkit()
{
    local folder
    folder=$(cuda12_own)
    if [[ -z $folder ]]; then
        folder=$(cuda12_made) || exit 1
        cuda12_add_cublas "$folder"
    fi
    printf '%s\n' "$folder"
}

# cuda12_host_compiler TOOLKIT [NVCC_ARGUMENT...]: prints the argument that gives nvcc a compiler of the host it works with, an empty line for the
# usual one. CUDA 12.4 refuses gcc 14 and clang 18, and the C library of glibc 2.41 has functions that its headers declare otherwise.
cuda12_host_compiler()
{
    local toolkit=$1 temp argument tried=0
    shift
    temp=$(mktemp -d)
    printf '#include <cuda_runtime.h>\n#include <string>\n#include <math.h>\n__global__ void f(float *x)\n{\n    *x = erff(*x);\n}\n' >"$temp/try.cu"
    for argument in '' -ccbin=g++-13 -ccbin=g++-12 -ccbin=g++-11 -ccbin=clang++-17 -ccbin=clang++-16 -ccbin=clang++-15 -ccbin=clang++-14 \
        -allow-unsupported-compiler; do
        [[ $argument != -ccbin=* ]] || have "${argument#-ccbin=}" || continue
        tried=$((tried + 1))
        if "$toolkit/bin/nvcc" -std=c++17 -arch=sm_80 ${argument:+"$argument"} "$@" -c "$temp/try.cu" -o "$temp/try.o" >"$temp/log" 2>&1; then
            rm -rf "$temp"
            printf '%s\n' "$argument"
            return
        fi
    done
    grep -m 5 -i error "$temp/log" >&2 || cat "$temp/log" >&2
    rm -rf "$temp"
    die "the nvcc of $toolkit works with none of $tried compilers of this machine: install g++-13 or g++-12. With glibc 2.41 or newer" \
        "./dev release --cuda compiles against an older C library"
}

# cuda12_check [api]: every source, or with `api` those whose calls differ between versions of CUDA, through the compiler's front end and to the PTX
# of sm_80, or of its own target, without optimization. What the assembler says of registers it says in a build. cublasLt.h may be the emulator's:
# the real one is in a package of 363 MB.
cuda12_check()
{
    local toolkit argument temp source sources failed=0 passed=0
    mapfile -t sources < <(git ls-files 'kernels/cuda/*.cu')
    [[ ${1:-} != api ]] || mapfile -t sources < <(grep -lE '\<cuda[A-Z][A-Za-z]*\(' "${sources[@]}")
    need_packages "${build_packages[@]}"
    toolkit=$(cuda12_own)
    [[ -n $toolkit ]] || toolkit=$(cuda12_made) || exit 1
    argument=$(cuda12_host_compiler "$toolkit") || exit 1
    temp=$(mktemp -d)
    mkdir "$temp/include"
    [[ -f $toolkit/include/cublasLt.h ]] || cp tests/cudaemu/include/cublasLt.h "$temp/include/"
    export toolkit argument temp
    # shellcheck disable=SC2016  # for the inner shell to expand
    printf '%s\n' "${sources[@]}" | xargs -P "$n_jobs" -I '{}' bash -c '
        source=$1 name=${1//\//_} target=80
        [[ $source != *_wgmma.cu ]] || target=90a
        "$toolkit/bin/nvcc" -std=c++17 -DGPUSERVE_BUILDING "-DGSV_EMU_CUDA=extern \"C\"" -I . -I include -I "$temp/include" ${argument:+"$argument"} -Xcicc -O0 \
            -gencode=arch=compute_$target,code=compute_$target -cuda "$source" -o "$temp/$name.ii" >"$temp/$name.log" 2>&1 && mv "$temp/$name.log" "$temp/$name.good"' \
        cuda12 '{}' || true
    for source in "${sources[@]}"; do
        if [[ -f $temp/${source//\//_}.good ]]; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            printf 'FAILED  %s\n' "$source"
            head -n 20 "$temp/${source//\//_}.log"
        fi
    done
    rm -rf "$temp"
    printf '%d passed, %d failed\n' "$passed" "$failed"
    [[ $passed != 0 && $failed == 0 ]]
}

# cuda12_options TOOLKIT ARGUMENT: meson's options for the plugin, one a line; ARGUMENT is that of cuda12_host_compiler.
cuda12_options()
{
    local toolkit=$1 argument=$2
    printf '%s\n' -Dcuda=enabled -Dgpu_plugin=cuda12 "-Dnvcc_dir=$toolkit"
    [[ -z $argument ]] || printf '%s\n' "-Dnvcc_args=$argument"
}

# compile_cuda12 FOLDER MACHINE: the plugin for a wheel, tarball or Debian package, against the older C library, with code for all targets of
# a release; FOLDER/licenses gets the licence and the version of what is linked into it.
compile_cuda12()
{
    local folder=$1 machine=$2 toolkit argument options sysroot=()
    toolkit=$(cuda12_toolkit) || exit 1
    [[ ${GPUSERVE_WHEEL_LIBC:-} == host ]] || sysroot=("-Xcompiler=--sysroot=$(wheel_sysroot "$machine")")
    argument=$(cuda12_host_compiler "$toolkit" "${sysroot[@]}") || exit 1
    mapfile -t options < <(cuda12_options "$toolkit" "$argument")
    (
        configure_wheel "$folder" "$machine" -Dcli=disabled -Dhttp=disabled -Dstatic_library=false "-Dgpu_targets=${GPUSERVE_RELEASE_TARGETS:-release}" "${options[@]}"
        compile "$folder" "$cuda12_plugin"
    )
    mkdir -p "$folder/licenses"
    cuda_licence "$toolkit" >"$folder/licenses/cuda-runtime-12.txt"
    rm -f "$folder/licenses/cuda-runtime-12.version"
    [[ ! -f $toolkit/cudart.version ]] || cp "$toolkit/cudart.version" "$folder/licenses/cuda-runtime-12.version"
}

cmd_cuda12()
{
    local toolkit argument options
    case ${1:-} in
    check) cuda12_check "${@:2}"; return ;;
    esac
    need_packages "${build_packages[@]}" "${python_packages[@]}"
    toolkit=$(cuda12_toolkit) || exit 1
    argument=$(cuda12_host_compiler "$toolkit") || exit 1
    say "the CUDA toolkit is $toolkit${argument:+, with $argument}"
    if [[ -f build-cuda12/toolkit && $(<build-cuda12/toolkit) != "$toolkit" ]]; then
        rm -rf build-cuda12
    fi
    mapfile -t options < <(cuda12_options "$toolkit" "$argument")
    configure build-cuda12 -Dbuildtype=release -Dtests=disabled "${options[@]}" "$@"
    printf '%s\n' "$toolkit" >build-cuda12/toolkit
    compile build-cuda12 "$cuda12_plugin" cli/gpuserve
    say "built build-cuda12/$cuda12_plugin: for drivers from 525 on; put it next to libgpuserve-cuda.so, which newer drivers use"
}
