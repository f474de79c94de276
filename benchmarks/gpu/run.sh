#!/bin/sh
# run.sh - one command that builds, tests and measures the CUDA backend on the GPU of this machine.
#
#   benchmarks/gpu/run.sh            at most 500 s; results in benchmarks/gpu/results/DATE.jsonl
#   benchmarks/gpu/run.sh --dry      the same stages on the emulator, from an ordinary build in build/
#
# Needs gcc and nvcc; with Meson and the library's own needs the library is measured too, with
# Python's torch and sentence-transformers others beside it. MODEL names a model's directory.
# Every stage has its own limit; one that fails is recorded and the others go on.
set -u
cd "$(dirname "$0")/../.." || exit 1
dry=false
[ "${1:-}" = --dry ] && dry=true
[ -n "${GPU_RUN_STAGE:-}" ] && dry=true # a stage of a run: it has no results of its own
model=${MODEL:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuserve/models/all-MiniLM-L6-v2}
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
    for source in kernels/cuda/*.cu; do
        echo "$source"
    done | xargs -P "$(nproc)" -I{} sh -c "${NVCC:-nvcc} -std=c++17 -O3 -DGPUSERVE_BUILDING $includes \
        -gencode=arch=compute_90,code=sm_90 -Xcompiler=-fPIC,-fvisibility=hidden -c {} -o $work/\$(basename {}).o" || return 1
    ${NVCC:-nvcc} -shared -cudart static -o "$work/libgpuserve-cuda.so" "$work"/*.cu.o "$work"/error.o "$work"/alloc.o -ldl -lpthread || return 1
    for name in attention batch linear rows; do
        gcc -O2 $includes -Itests/plain -o "$work/test_$name" tests/kernels_cuda/test_$name.c tests/kernels_cuda/harness.c \
            tests/kernels_cuda/net.c tests/plain/plain.c kernels/hostmem.c kernels/ref/*.c lib/base/error.c lib/base/alloc.c lib/base/host.c \
            -ldl -lm -lpthread || return 1
    done
    gcc -O2 -Iinclude -o "$work/encoder" benchmarks/gpu/encoder.c -ldl -lm
}

build_dry() {
    [ -e build/tests/cudaemu/libgpuserve-cuda.so ] &&
        gcc -O2 -Iinclude -o "$work/encoder" benchmarks/gpu/encoder.c -ldl -lm &&
        for name in attention batch linear rows; do
            ln -s "$PWD/build/tests/kernels_cuda/test_kernels_cuda_$name" "$work/test_$name" || return 1
        done
}

build_library() {
    meson setup "$work/build" -Dcuda=disabled -Dtests=disabled >"$work/meson.log" 2>&1 || { tail -5 "$work/meson.log" >&2; return 1; }
    # Its name ends in the version.
    target=$(ninja -C "$work/build" -t targets all | sed -n 's/^\(lib\/libgpuserve\.so[.0-9]*\):.*/\1/p' | head -1)
    ninja -C "$work/build" "$target" >"$work/ninja.log" 2>&1 || { tail -5 "$work/ninja.log" >&2; return 1; }
}

# On the emulator `./dev test` runs them all: the dry run shows that the stage works.
kernel_tests() {
    names="rows attention linear batch"
    $dry && names="batch"
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

# The functions above run under `timeout` as this script again.
if [ -n "${GPU_RUN_STAGE:-}" ]; then
    work=$GPU_RUN_WORK seed=$GPU_RUN_SEED dry=$GPU_RUN_DRY
    trap - EXIT
    "$GPU_RUN_STAGE"
    exit $?
fi
inner() {
    stage "$1" "$2" env GPU_RUN_STAGE="$1" GPU_RUN_WORK="$work" GPU_RUN_SEED="$seed" GPU_RUN_DRY="$dry" sh "benchmarks/gpu/$(basename "$0")"
}

inner environment 20
if $dry; then
    inner build_dry 60
    library=$PWD/build/lib/libgpuserve.so
    export GPUSERVE_PLUGIN_DIR=$PWD/build/tests/cudaemu
    inner kernel_tests 300
    stage encoder 60 "$work/encoder" "$GPUSERVE_PLUGIN_DIR/libgpuserve-cuda.so" 0 small
    stage oracle 120 python3 benchmarks/gpu/compare.py oracle "$library" "$model" dry 2
else
    inner build_plain 150 || exit 1
    export GPUSERVE_PLUGIN_DIR=$work
    inner kernel_tests 60
    stage encoder 90 "$work/encoder" "$work/libgpuserve-cuda.so" 0.05
    stage own_products 20 env GPUSERVE_CUBLASLT=0 "$work/encoder" "$work/libgpuserve-cuda.so" 0.05 square
    stage ceilings 30 python3 benchmarks/gpu/compare.py ceilings
    stage products 30 python3 benchmarks/gpu/compare.py products
    stage attention 30 python3 benchmarks/gpu/compare.py attention
    if inner build_library 60; then
        library=$work/build/lib/libgpuserve.so
        stage oracle 60 python3 benchmarks/gpu/compare.py oracle "$library" "$model" cuda 64
        stage library 90 python3 benchmarks/gpu/compare.py library "$library" "$model"
    fi
    inner sanitizer 90
fi
echo "results: $results"
python3 benchmarks/gpu/report.py "$results"
