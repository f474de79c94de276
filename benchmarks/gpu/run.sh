#!/bin/sh
# run.sh - one command that builds, tests and measures the CUDA backend on the GPU of this machine.
#
#   benchmarks/gpu/run.sh            at most 500 s; results in benchmarks/gpu/results/DATE.jsonl
#   benchmarks/gpu/run.sh --dry      the same stages on the emulator, from an ordinary build in build/ (or
#                                    BUILD), with tiny sizes and a model of the tests: a test of this script
#
# Needs gcc and nvcc; with Meson and the library's own needs the library is measured too, with
# Python's torch and sentence-transformers others beside it. MODEL names a model's directory.
# Every stage has its own limit; one that fails is recorded and the others go on.
set -u
cd "$(dirname "$0")/../.." || exit 1
dry=false
[ "${1:-}" = --dry ] && dry=true
[ -n "${GPU_RUN_STAGE:-}" ] && dry=true # a stage of a run: it has no results of its own
build=${BUILD:-$PWD/build} # of the dry run
model=${MODEL:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuserve/models/all-MiniLM-L6-v2}
$dry && model=tests/data/models/st-dense
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seed=$(date +%s)
if $dry; then
    results=$work/dry.jsonl
else
    mkdir -p benchmarks/gpu/results
    results=benchmarks/gpu/results/$(date -u +%Y-%m-%d-%H%M%S).jsonl
fi
: >"$results"
started=$(date +%s)

# stage NAME SECONDS COMMAND...: its JSON lines go to the results, the rest to the terminal.
stage() {
    name=$1 limit=$2
    shift 2
    left=$((490 - $(date +%s) + started))
    [ "$left" -lt "$limit" ] && limit=$left
    [ "$limit" -lt 5 ] && limit=5
    begin=$(date +%s)
    timeout "$limit" "$@" >"$work/out" 2>"$work/err"
    code=$?
    grep '^{' "$work/out" >>"$results"
    grep -v '^{' "$work/out"
    took=$(($(date +%s) - begin))
    if [ $code -ne 0 ]; then
        tail -5 "$work/err"
        echo "{\"stage\": \"$name\", \"failed\": $code, \"seconds\": $took}" >>"$results"
    else
        echo "{\"stage\": \"$name\", \"seconds\": $took}" >>"$results"
    fi
    echo "$name: exit $code after $took s"
    return $code
}

environment() {
    echo "{\"stage\": \"environment\", \"seed\": $seed, \"commit\": \"$(git rev-parse --short HEAD 2>/dev/null || echo unknown)\"," \
        "\"gpu\": \"$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)\"," \
        "\"nvcc\": \"$(${NVCC:-nvcc} --version 2>/dev/null | sed -n 's/.*release \([^,]*\).*/\1/p')\"," \
        "\"gcc\": \"$(gcc -dumpfullversion)\", \"emulator\": $dry}"
}

# The plugin and the kernel tests by gcc and nvcc alone; the tests run by the stand-in of Criterion.
build_plain() {
    includes="-I. -Iinclude"
    for source in lib/base/error.c lib/base/alloc.c; do
        gcc -O2 -fPIC $includes -c "$source" -o "$work/$(basename "$source" .c).o" || return 1
    done
    find kernels/cuda -name '*.cu' | sort | xargs -P "$(nproc)" -I{} sh -c "${NVCC:-nvcc} -std=c++17 -O3 -DGPUSERVE_BUILDING $includes \
        -gencode=arch=compute_90,code=sm_90 -Xcompiler=-fPIC,-fvisibility=hidden -c {} -o $work/\$(basename {}).o" || return 1
    ${NVCC:-nvcc} -shared -cudart static -o "$work/libgpuserve-cuda.so" "$work"/*.cu.o "$work"/error.o "$work"/alloc.o -ldl -lpthread || return 1
    for name in attention batch int8 linear quantize recurrent rows; do
        gcc -O2 $includes -Itests/plain -o "$work/test_$name" tests/kernels_cuda/test_$name.c tests/kernels_cuda/harness.c \
            tests/kernels_cuda/net.c tests/plain/plain.c kernels/hostmem.c kernels/ref/*.c lib/base/error.c lib/base/alloc.c lib/base/host/host.c \
            -ldl -lm -lpthread || return 1
    done
    build_encoder || return 1
    ${NVCC:-nvcc} -std=c++17 -gencode=arch=compute_90,code=sm_90 -o "$work/probe" benchmarks/gpu/probe.cu -lcublasLt || return 1
    ${NVCC:-nvcc} -std=c++17 -gencode=arch=compute_90,code=sm_90 -o "$work/cudnn_lstm" benchmarks/gpu/cudnn_lstm.cu -ldl || return 1
}

build_encoder() {
    gcc -O2 -Iinclude -o "$work/encoder" benchmarks/gpu/encoder.c benchmarks/gpu/bench.c benchmarks/gpu/checks.c -ldl -lm
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

build_library() {
    meson setup "$work/build" -Dcuda=disabled -Dtests=disabled >"$work/meson.log" 2>&1 || { tail -5 "$work/meson.log" >&2; return 1; }
    # Its name ends in the version.
    target=$(ninja -C "$work/build" -t targets all | sed -n 's/^\(lib\/libgpuserve\.so[.0-9]*\):.*/\1/p' | head -1)
    ninja -C "$work/build" "$target" >"$work/ninja.log" 2>&1 || { tail -5 "$work/ninja.log" >&2; return 1; }
    # The server needs more than the library; without it P11 is not measured.
    ninja -C "$work/build" cli/gpuserve >>"$work/ninja.log" 2>&1 || tail -5 "$work/ninja.log" >&2
    target=$(ninja -C "$work/build" -t targets all | sed -n 's/^\(lib\/http\/libgpuserve-http\.so[.0-9]*\):.*/\1/p' | head -1)
    [ -z "$target" ] || ninja -C "$work/build" "$target" >>"$work/ninja.log" 2>&1 || tail -5 "$work/ninja.log" >&2
}

# On the emulator `./dev test` runs them all: the dry run shows that the stage works.
kernel_tests() {
    names="rows attention linear int8 quantize recurrent batch"
    $dry && names="rows"
    for name in $names; do
        "$work/test_$name" 2>&1 || return 1
    done
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
        echo '{"stage": "http", "skipped": "no gpuserve was built"}' >>"$results"
    fi
}

# The functions above run under `timeout` as this script again.
if [ -n "${GPU_RUN_STAGE:-}" ]; then
    work=$GPU_RUN_WORK seed=$GPU_RUN_SEED dry=$GPU_RUN_DRY build=$GPU_RUN_BUILD
    trap - EXIT
    "$GPU_RUN_STAGE"
    exit $?
fi
inner() {
    stage "$1" "$2" env GPU_RUN_STAGE="$1" GPU_RUN_WORK="$work" GPU_RUN_SEED="$seed" GPU_RUN_DRY="$dry" GPU_RUN_BUILD="$build" sh "benchmarks/gpu/$(basename "$0")"
}

inner environment 20
if $dry; then
    inner build_dry 60 || exit 1
    library=$build/lib/libgpuserve.so
    export GPUSERVE_PLUGIN_DIR="$build/tests/cudaemu"
    inner kernel_tests 100
    stage encoder 60 "$work/encoder" "$GPUSERVE_PLUGIN_DIR/libgpuserve-cuda.so" 0 small
    stage checks 60 "$work/encoder" "$GPUSERVE_PLUGIN_DIR/libgpuserve-cuda.so" 0 small-checks
    stage probe 20 "$work/probe"
    stage oracle 60 python3 benchmarks/gpu/compare.py oracle "$library" "$model" dry 2
    product "$library" "$build/cli/gpuserve" dry
else
    inner build_plain 150 || exit 1
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
        library=$work/build/lib/libgpuserve.so
        stage oracle 60 python3 benchmarks/gpu/compare.py oracle "$library" "$model" cuda 64
        product "$library" "$work/build/cli/gpuserve" ""
        stage library 90 python3 benchmarks/gpu/compare.py library "$library" "$model"
    fi
    inner sanitizer 90
fi
echo "results: $results"
python3 benchmarks/gpu/report.py "$results"
