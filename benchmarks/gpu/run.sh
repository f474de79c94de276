#!/bin/sh
# run.sh - one command that builds, tests and measures the CUDA backend on the GPU of this machine.
#
#   benchmarks/gpu/run.sh            at most 500 s; results in OUT/DATE.jsonl (OUT: benchmarks/gpu/results)
#                                    and, line by line, on standard output
#   benchmarks/gpu/run.sh --dry      the same stages on the emulator, from an ordinary build in build/ (or
#                                    BUILD), with tiny sizes and a model of the tests: a test of this script
#   benchmarks/gpu/run.sh --link     only the build stages, with the compiled kernels of BUILD, and loads the
#                                    plugin; needs nvcc, no GPU
#
# Needs gcc and nvcc; with Meson and the library's own needs the library is measured too, with
# Python's torch and sentence-transformers others beside it. MODEL names a model's directory.
# Every stage has its own limit; one that fails is recorded and the others go on.
set -u
cd "$(dirname "$0")/../.." || exit 1
dry=false link=false
[ "${1:-}" = --dry ] && dry=true
[ "${1:-}" = --link ] && link=true
build=${BUILD:-$PWD/build} # of the dry run
model=${MODEL:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuserve/models/all-MiniLM-L6-v2}
$dry && model=tests/data/models/st-dense
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seed=$(date +%s)
if [ -n "${GPU_RUN_STAGE:-}" ]; then
    results=/dev/null # a stage of a run
elif [ -z "${OUT:-}" ] && { $dry || $link; }; then
    results=$work/results.jsonl
else
    mkdir -p "${OUT:-benchmarks/gpu/results}"
    results=${OUT:-benchmarks/gpu/results}/$(date -u +%Y-%m-%d-%H%M%S).jsonl
    : >"$results"
fi
started=$(date +%s)

# Each line goes to the terminal at once; a JSON line goes to the results too.
record() {
    while IFS= read -r line; do
        printf '%s\n' "$line"
        case $line in '{'*) printf '%s\n' "$line" >>"$results" ;; esac
    done
}

# stage NAME SECONDS COMMAND...: runs a command under its limit and records what it prints.
stage() {
    name=$1 limit=$2
    shift 2
    left=$((490 - $(date +%s) + started))
    [ "$left" -lt "$limit" ] && limit=$left
    [ "$limit" -lt 5 ] && limit=5
    begin=$(date +%s)
    {
        timeout "$limit" "$@" 2>"$work/err"
        echo $? >"$work/code"
    } | record
    code=$(cat "$work/code")
    took=$(($(date +%s) - begin))
    if [ "$code" -ne 0 ]; then
        tail -5 "$work/err"
        echo "{\"stage\": \"$name\", \"failed\": $code, \"seconds\": $took}" | record
    else
        echo "{\"stage\": \"$name\", \"seconds\": $took}" | record
    fi
    return "$code"
}

environment() {
    echo "{\"stage\": \"environment\", \"seed\": $seed, \"commit\": \"$(git rev-parse --short HEAD 2>/dev/null || echo unknown)\"," \
        "\"gpu\": \"$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)\"," \
        "\"nvcc\": \"$(${NVCC:-nvcc} --version 2>/dev/null | sed -n 's/.*release \([^,]*\).*/\1/p')\"," \
        "\"gcc\": \"$(gcc -dumpfullversion)\", \"emulator\": $dry}"
}

# lib/base without its JSON reader, which needs jansson: the plugin and the kernel tests use parts of it.
build_base() {
    for source in $(find lib/base -name '*.c' ! -name 'json*.c') kernels/hostmem.c kernels/ref/*.c \
        tests/kernels_cuda/harness.c tests/kernels_cuda/net.c tests/plain/plain.c; do
        case $source in lib/base/*) archive=base ;; *) archive=tests ;; esac
        echo "$source $work/$archive.$(basename "$source" .c).o"
    done | xargs -P "$(nproc)" -L1 sh -c \
        '${CC:-gcc} -O2 -fPIC -ffunction-sections -I. -Iinclude -Itests/plain -c "$0" -o "$1"' || return 1
    ar rcs "$work/libbase.a" "$work"/base.*.o
    ar rcs "$work/libtests.a" "$work"/tests.*.o
}

# Options of nvcc. A toolkit of compilers alone has no cublasLt.h or nvrtc.h: the emulator's headers declare the
# same functions, which the plugin loads at run time.
nvcc_options() {
    architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)
    : "${architecture:=90}"
    echo "-std=c++17 -O3 -DGPUSERVE_BUILDING -I. -Iinclude -gencode=arch=compute_$architecture,code=sm_$architecture"
    mkdir -p "$work/declarations"
    for header in cublasLt nvrtc; do
        echo "#include <$header.h>" >"$work/header.cu"
        ${NVCC:-nvcc} -E "$work/header.cu" >/dev/null 2>&1 && continue
        cp "tests/cudaemu/include/$header.h" "$work/declarations/"
        [ $header = cublasLt ] && echo "-DCUBLAS_VER_MAJOR=$(${NVCC:-nvcc} --version | sed -n 's/.*release \([0-9]*\).*/\1/p')"
    done
    [ -z "$(ls "$work/declarations")" ] || echo "-I$work/declarations -DGSV_EMU_CUDA=extern\"C\""
}

build_plugin() {
    nvcc_options >"$work/nvcc.options"
    if $link; then
        ln -s "$build"/kernels/cuda/*.cu.o "$work/" || return 1
    else
        find kernels/cuda -name '*.cu' | sort | xargs -P "$(nproc)" -I{} sh -c "${NVCC:-nvcc} --options-file $work/nvcc.options \
            -Xcompiler=-fPIC,-fvisibility=hidden -c {} -o $work/\$(basename {}).o" || return 1
    fi
    ${NVCC:-nvcc} -shared -cudart static -Xlinker=-z,defs -o "$work/libgpuserve-cuda.so" "$work"/*.cu.o "$work/libbase.a" -ldl -lpthread -lrt
}

kernel_test_names="rows attention linear int8 gates quantize recurrent batch"

# The stand-in of Criterion runs them.
build_tests() {
    echo "$kernel_test_names" | tr ' ' '\n' | xargs -P "$(nproc)" -I{} sh -c "${CC:-gcc} -O2 -I. -Iinclude -Itests/plain -o $work/test_{} \
        tests/kernels_cuda/test_{}.c $work/libtests.a $work/libbase.a -ldl -lm -lpthread"
}

build_probes() {
    failed=0
    ${NVCC:-nvcc} --options-file "$work/nvcc.options" -o "$work/cudnn_lstm" benchmarks/gpu/cudnn_lstm.cu -ldl || failed=1
    # It links the library, so the toolkit must have it.
    if ls "$work/declarations/cublasLt.h" >/dev/null 2>&1; then
        printf '#!/bin/sh\necho "{\\"stage\\": \\"probe\\", \\"skipped\\": \\"no cublasLt.h\\"}"\n' >"$work/probe"
        chmod +x "$work/probe"
    else
        ${NVCC:-nvcc} --options-file "$work/nvcc.options" -o "$work/probe" benchmarks/gpu/probe.cu -lcublasLt || failed=1
    fi
    return $failed
}

build_encoder() {
    ${CC:-gcc} -O2 -Iinclude -o "$work/encoder" benchmarks/gpu/encoder.c benchmarks/gpu/bench.c benchmarks/gpu/checks.c -ldl -lm
}

# Of --link: every symbol of the plugin and of the tests is found, without a GPU.
load() {
    python3 -c 'import ctypes, os, sys; ctypes.CDLL(sys.argv[1], os.RTLD_NOW).gpuserve_backend_entry' "$work/libgpuserve-cuda.so" || return 1
    for name in $kernel_test_names; do
        "$work/test_$name" --list >/dev/null || return 1
    done
}

build_dry() {
    emulator=$build/tests/cudaemu
    [ -e "$emulator/libgpuserve-cuda.so" ] && build_encoder || return 1
    g++ -std=c++17 -O1 -w -DGSV_CUDA_EMU -Itests/cudaemu/include -o "$work/probe" -x c++ benchmarks/gpu/probe.cu \
        -x none "$emulator/libgsv-cudaemu.so" -Wl,-rpath,"$emulator" || return 1
    # The emulator has only the calls of cuDNN that the backend makes: what is left says so.
    g++ -std=c++17 -w -DGSV_CUDA_EMU -o "$work/cudnn_lstm" -x c++ benchmarks/gpu/cudnn_lstm.cu || return 1
    ln -s "$build/tests/kernels_cuda/test_kernels_cuda_rows" "$work/test_rows"
}

# What lacks the headers of jansson or xxhash, or Meson, measures the library of an installed Python package.
build_library() {
    compile_library && ln -s "$library" "$work/library.so" && return
    installed=$(python3 -c 'import gpuserve, glob, os
print(glob.glob(os.path.join(os.path.dirname(gpuserve.__file__), "_native", "libgpuserve.so*"))[0])') || return 1
    echo "the library is that of the installed Python package: $installed"
    ln -s "$installed" "$work/library.so"
}

compile_library() {
    meson setup "$work/build" -Dcuda=disabled -Dtests=disabled >"$work/meson.log" 2>&1 || { tail -5 "$work/meson.log" >&2; return 1; }
    # Its name ends in the version.
    target=$(ninja -C "$work/build" -t targets all | sed -n 's/^\(lib\/libgpuserve\.so[.0-9]*\):.*/\1/p' | head -1)
    ninja -C "$work/build" "$target" >"$work/ninja.log" 2>&1 || { tail -5 "$work/ninja.log" >&2; return 1; }
    library=$work/build/$target
    # The server needs more than the library; without it P11 is not measured.
    ninja -C "$work/build" cli/gpuserve >>"$work/ninja.log" 2>&1 || tail -5 "$work/ninja.log" >&2
    target=$(ninja -C "$work/build" -t targets all | sed -n 's/^\(lib\/http\/libgpuserve-http\.so[.0-9]*\):.*/\1/p' | head -1)
    [ -z "$target" ] || ninja -C "$work/build" "$target" >>"$work/ninja.log" 2>&1 || tail -5 "$work/ninja.log" >&2
}

# On the emulator `./dev test` runs them all: the dry run shows that the stage works.
kernel_tests() {
    names=$kernel_test_names
    $dry && names="rows"
    failed=0
    for name in $names; do
        "$work/test_$name" 2>&1 || failed=1
    done
    return $failed
}

sanitizer() {
    command -v compute-sanitizer >/dev/null || { echo '{"stage": "sanitizer", "skipped": "no compute-sanitizer"}'; return 0; }
    for tool in memcheck racecheck initcheck; do
        for name in rows attention; do
            compute-sanitizer --tool $tool --error-exitcode 9 --target-processes all \
                "$work/test_$name" >"$work/sanitizer.log" 2>&1 || { tail -20 "$work/sanitizer.log" >&2; return 1; }
        done
    done
}

# P8 to P11, through the library and the program that serves. "dry" is the last word of a dry run.
product() {
    stage chain 60 python3 benchmarks/gpu/product.py chain "$1" $3
    stage lstm 60 python3 benchmarks/gpu/lstm.py "$1" $3
    stage random 30 python3 benchmarks/gpu/random_numbers.py "$1" $3
    stage cudnn 20 "$work/cudnn_lstm"
    stage backends 60 python3 benchmarks/gpu/product.py backends "$1" "$model" $3
    if [ -x "$2" ]; then
        stage http 60 python3 benchmarks/gpu/product.py http "$1" "$2" "$model" $3
    else
        echo '{"stage": "http", "skipped": "no gpuserve was built"}' | record
    fi
}

# The functions above run under `timeout` as this script again.
if [ -n "${GPU_RUN_STAGE:-}" ]; then
    rm -rf "$work"
    work=$GPU_RUN_WORK seed=$GPU_RUN_SEED dry=$GPU_RUN_DRY link=$GPU_RUN_LINK build=$GPU_RUN_BUILD
    trap - EXIT
    "$GPU_RUN_STAGE"
    exit $?
fi
inner() {
    stage "$1" "$2" env GPU_RUN_STAGE="$1" GPU_RUN_WORK="$work" GPU_RUN_SEED="$seed" GPU_RUN_DRY="$dry" GPU_RUN_LINK="$link" GPU_RUN_BUILD="$build" sh "benchmarks/gpu/$(basename "$0")"
}

inner environment 20
if $dry; then
    inner build_dry 60
    library=$build/lib/libgpuserve.so
    export GPUSERVE_PLUGIN_DIR="$build/tests/cudaemu"
    inner kernel_tests 100
    stage encoder 60 "$work/encoder" "$GPUSERVE_PLUGIN_DIR/libgpuserve-cuda.so" 0 small
    stage checks 60 "$work/encoder" "$GPUSERVE_PLUGIN_DIR/libgpuserve-cuda.so" 0 small-checks
    stage probe 20 "$work/probe"
    stage oracle 60 python3 benchmarks/gpu/compare.py oracle "$library" "$model" dry 2
    product "$library" "$build/cli/gpuserve" dry
else
    inner build_base 120
    inner build_plugin 200
    inner build_tests 120
    inner build_encoder 60
    inner build_probes 120
fi
if $link; then
    inner load 20
elif ! $dry; then
    export GPUSERVE_PLUGIN_DIR=$work
    inner kernel_tests 60
    stage encoder 90 "$work/encoder" "$work/libgpuserve-cuda.so" 0.05
    stage checks 30 "$work/encoder" "$work/libgpuserve-cuda.so" 0.05 checks
    stage probe 10 "$work/probe"
    stage own_products 20 env GPUSERVE_CUBLASLT=0 "$work/encoder" "$work/libgpuserve-cuda.so" 0.05 square
    stage ceilings 30 python3 benchmarks/gpu/compare.py ceilings
    stage products 30 python3 benchmarks/gpu/compare.py products
    stage attention 30 python3 benchmarks/gpu/compare.py attention
    if inner build_library 60; then
        library=$work/library.so
        stage oracle 60 python3 benchmarks/gpu/compare.py oracle "$library" "$model" cuda 64
        product "$library" "$work/build/cli/gpuserve" ""
        stage library 90 python3 benchmarks/gpu/compare.py library "$library" "$model"
    fi
    inner sanitizer 90
fi
echo "results: $results"
python3 benchmarks/gpu/report.py "$results"
