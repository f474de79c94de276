#!/bin/sh
# run.sh - one command that builds, tests and measures the CUDA backend on the GPU of this machine.
#
#   benchmarks/gpu/run.sh            at most 500 s; results in OUT/DATE.jsonl (OUT: benchmarks/gpu/results)
#                                    and, line by line, on standard output
#   benchmarks/gpu/run.sh --dry      the same stages on the emulator, from an ordinary build in build/ (or
#                                    BUILD), with tiny sizes and a model of the tests: a test of this script
#   benchmarks/gpu/run.sh --link     only the build stages, with the compiled kernels of BUILD, and loads the
#                                    plugin; needs nvcc, no GPU
#   benchmarks/gpu/run.sh --pack DIR [--dry]
#                                    writes everything that a run needs into DIR/pack.tar.gz: programs, plugin, libraries
#                                    and MODEL in float16, at most 60 MiB with all-MiniLM-L6-v2; needs BUILD and nvcc, no GPU
#   benchmarks/gpu/run.sh --prebuilt DIR [--dry]
#                                    a run of such a pack; compiles nothing
#   --seconds N                      another limit than 490 s for all stages; SKIP: names of stages to leave out
#                                    PACK_MIB: another limit of a pack
#
# Needs gcc and nvcc; with Meson and the library's own needs the library is measured too, with
# Python's torch and sentence-transformers others in addition. MODEL names a model's directory.
# Every stage has its own limit; one that fails is recorded and the others go on.
set -u
cd "$(dirname "$0")/../.." || exit 1
dry=false link=false pack='' prebuilt='' total=490
while [ $# -gt 0 ]; do
    case $1 in
    --dry) dry=true ;;
    --link) link=true ;;
    --seconds | --pack | --prebuilt)
        [ $# -gt 1 ] || { echo "run.sh: $1 needs a value" >&2; exit 2; }
        case $2 in /*) folder=$2 ;; *) folder=$PWD/$2 ;; esac
        case $1 in
        --seconds) total=$2 ;;
        --pack) pack=$folder link=true ;;
        *) prebuilt=$folder ;;
        esac
        shift
        ;;
    *) echo "run.sh: unknown option $1" >&2; exit 2 ;;
    esac
    shift
done
if [ -n "$prebuilt" ] && [ ! -e "$prebuilt/pack.tar.gz" ]; then
    echo "run.sh: $prebuilt holds no pack: make one with --pack" >&2
    exit 2
fi
build=${BUILD:-$PWD/build} # of --dry, --link and --pack
model=${MODEL:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuserve/models/all-MiniLM-L6-v2}
$dry && model=tests/data/models/st-dense
pack_mib=${PACK_MIB:-60} # limit of a pack
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
    case " ${SKIP:-} " in *" $name "*) return 1 ;; esac
    left=$((total - $(date +%s) + started))
    if [ "$left" -lt 5 ]; then
        echo "{\"stage\": \"$name\", \"skipped\": \"the time is over\"}" | record
        return 1
    fi
    [ "$left" -lt "$limit" ] && limit=$left
    begin=$(date +%s)
    {
        timeout "$limit" "$@" 2>"$work/err"
        echo $? >"$work/code"
    } | record
    code=$(cat "$work/code")
    took=$(($(date +%s) - begin))
    if [ "$code" -ne 0 ]; then
        tail -20 "$work/err"
        echo "{\"stage\": \"$name\", \"failed\": $code, \"seconds\": $took}" | record
    else
        echo "{\"stage\": \"$name\", \"seconds\": $took}" | record
    fi
    return "$code"
}

environment() {
    echo "{\"stage\": \"environment\", \"seed\": $seed, \"commit\": \"$(cat "$prebuilt/commit" 2>/dev/null || git rev-parse --short HEAD 2>/dev/null || echo unknown)\"," \
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
        "${CC:-gcc} -O2 -fPIC -ffunction-sections -I. -Iinclude -Itests/plain -c \$0 -o \$1" || return 1
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
        # wgmma is in sm_90a alone.
        sed 's/-gencode=[^ ]*/-gencode=arch=compute_90a,code=sm_90a/' "$work/nvcc.options" >"$work/hopper.options"
        find kernels/cuda -name '*.cu' | sort | xargs -P "$(nproc)" -I{} sh -c "case {} in *wgmma*) options=hopper ;; *) options=nvcc ;; esac
            ${NVCC:-nvcc} --options-file $work/\$options.options \
            -Xcompiler=-fPIC,-fvisibility=hidden -c {} -o $work/\$(basename {}).o" || return 1
    fi
    ${NVCC:-nvcc} -shared -cudart static -Xlinker=-z,defs -o "$work/libgpuserve-cuda.so" "$work"/*.cu.o "$work/libbase.a" -ldl -lpthread -lrt
}

kernel_test_names="rows attention linear int8 gates quantize recurrent batch"

# The stand-in of Criterion runs them.
build_tests() {
    for name in $kernel_test_names; do
        echo "$name test_$name"
        # Those of fewer cases are for the stage `sanitizer`.
        $dry || echo "$name sanitized_$name -DGSV_COMPUTE_SANITIZER"
    done | xargs -P "$(nproc)" -L1 sh -c "${CC:-gcc} -O2 -I. -Iinclude -Itests/plain \$2 -o $work/\$1 \
        tests/kernels_cuda/test_\$0.c $work/libtests.a $work/libbase.a -ldl -lm -lpthread"
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

# The pack has the names that the build stages give, without symbols that only a debugger reads. A library's own needs come along, except those of every glibc
# system; the server, which needs more of them, starts through a script.
needs_of() {
    ldd "$@" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
        grep -v -E '/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|libgpuserve[^/]*|libgsv-cudaemu)\.so'
}

write_pack() {
    archive=$pack pack=$work/packed
    fill_pack || return 1
    find "$pack" -type f | while read -r file; do
        case $(head -c 4 "$file" | tail -c 3) in ELF) strip "$file" || exit 1 ;; esac
    done || return 1
    mkdir -p "$archive" && tar -C "$pack" -cf - . | gzip -9 >"$archive/pack.tar.gz" || return 1
    mib=$(du -sm "$archive" | cut -f1)
    echo "{\"stage\": \"pack\", \"mib\": $mib, \"unpacked_mib\": $(du -sm "$pack" | cut -f1)}"
    [ "$mib" -le $pack_mib ] || { echo "the pack has $mib MiB, the limit is $pack_mib" >&2; return 1; }
}

fill_pack() {
    mkdir -p "$pack/lib" "$pack/server" || return 1
    cp "$work"/test_* "$work/encoder" "$work/probe" "$work/cudnn_lstm" "$pack/" || return 1
    python3 benchmarks/gpu/outputs.py --list | while read -r part; do
        mkdir -p "$pack/fixtures/$(dirname "$part")" && cp -r "tests/data/$part" "$pack/fixtures/$part" || exit 1
    done || return 1
    $dry || cp "$work"/sanitized_* "$pack/" || return 1
    if $dry; then
        cp "$build"/tests/cudaemu/libgpuserve-cuda.so "$build"/tests/cudaemu/libgsv-cudaemu.so "$pack/" || return 1
        cp -r "$model" "$pack/model" || return 1
    else
        cp "$work/libgpuserve-cuda.so" "$pack/" || return 1
        "$build/cli/gpuserve" convert "$model" "$pack/model" --dtype float16 || return 1
    fi
    cp -L "$build/lib/libgpuserve.so.0" "$build/lib/http/libgpuserve-http.so.0" "$pack/lib/" || return 1
    needs_of "$build/lib/libgpuserve.so.0" | xargs -I{} cp -L {} "$pack/lib/" || return 1
    needs_of "$build/lib/http/libgpuserve-http.so.0" | xargs -I{} cp -L {} "$pack/server/" || return 1
    cp -L "$build/cli/gpuserve" "$pack/server/" || return 1
    for name in $lesson_names; do
        cp -L "$build/examples/$name" "$pack/" || return 1
    done
    cat >"$pack/gpuserve" <<'SCRIPT' || return 1
#!/bin/sh
here=$(dirname "$0")
export LD_LIBRARY_PATH="$here/lib:$here/server:${LD_LIBRARY_PATH:-}"
exec "$here/server/gpuserve" "$@"
SCRIPT
    chmod +x "$pack/gpuserve"
    git rev-parse --short HEAD >"$pack/commit" 2>/dev/null
    return 0
}

# Each stage finds its files where a build leaves them. cuBLASLt of PyPI is not in the loader's path,
# where the probe looks for it.
use_pack() {
    $dry || cp "$prebuilt"/sanitized_* "$work/" || return 1
    cp "$prebuilt"/test_* "$prebuilt"/*.so "$prebuilt/encoder" "$prebuilt/probe" "$prebuilt/cudnn_lstm" "$work/" &&
        ln -s "$prebuilt/lib/libgpuserve.so.0" "$work/library.so"
}

cublas_folders() {
    python3 -c 'import glob, os, sys
print(":".join(sorted({os.path.dirname(p) for top in sys.path for p in glob.glob(top + "/nvidia/*/lib/libcublasLt.so*")})))' 2>/dev/null
}

lesson_names="matmul_ladder two_models_one_device lstm"

# docs/lessons.md on this device, and what a user sees of it.
lessons() {
    examples=$work/build/examples
    [ -n "$prebuilt" ] && examples=$prebuilt
    "$server" bench --random bert-base --device cuda:0 --workload W1-8,W1-128,W2 --seconds 1
    "$server" bench --random bert-base --device cuda:0 --share 6 --seconds 1
    for words in "" "--stream-weights --device-budget 900M"; do
        # shellcheck disable=SC2086
        "$server" bench --random layers=12,hidden=2048 --device cuda:0 --dtype fp16 --workload W1-8,W1-128,W2 --seconds 1 $words
    done
    "$examples/matmul_ladder" cuda:0
    "$examples/lstm" cuda:0
    "$examples/two_models_one_device" 1:16 cuda
    "$server" doctor
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
    kernel_test_names=rows build_base && kernel_test_names=rows build_tests
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
    # shellcheck disable=SC2046,SC2086
    ninja -C "$work/build" cli/gpuserve $(printf 'examples/%s ' $lesson_names) >>"$work/ninja.log" 2>&1 || tail -5 "$work/ninja.log" >&2
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

# Each line is one tool on one program; what the time does not allow is missing. Two tools run side by side: on an H200
# memcheck takes 50 s for all programs and racecheck 47 s for two. Products, which are tuned, take longest and come last.
sanitizer() {
    command -v compute-sanitizer >/dev/null || { echo '{"stage": "sanitizer", "skipped": "no compute-sanitizer"}'; return 0; }
    names="$(echo "$kernel_test_names" | sed 's/ linear//') linear"
    { sanitize memcheck; sanitize initcheck; } &
    { sanitize synccheck; sanitize racecheck; } &
    wait
    ! ls "$work"/sanitizer.*.failed >/dev/null 2>&1
}

sanitize() {
    for name in $names; do
        began=$(date +%s) log=$work/sanitizer.$1.$name
        compute-sanitizer --tool "$1" --error-exitcode 9 --target-processes all "$work/sanitized_$name" >"$log" 2>&1 && ok=true || ok=false
        echo "{\"stage\": \"sanitizer\", \"tool\": \"$1\", \"test\": \"$name\", \"ok\": $ok, \"wall_s\": $(($(date +%s) - began))}"
        $ok || { mv "$log" "$log.failed"; tail -20 "$log.failed" >&2; }
    done
}

# What decides right and wrong comes first, then P1 to P11 in the order of their value: the time may end at any stage.
# On the emulator all sizes are tiny, and what needs a GPU or another package is left out.
measure() {
    plugin=$GPUSERVE_PLUGIN_DIR/libgpuserve-cuda.so library=$GPUSERVE_LIBRARY fixtures=tests/data
    [ -n "$prebuilt" ] && fixtures=$prebuilt/fixtures
    dry_word='' device=cuda checks=checks shapes='' seconds=0.05 texts=64
    $dry && dry_word=dry device=dry checks=small-checks shapes=small seconds=0 texts=2
    inner kernel_tests 100
    stage checks 60 "$work/encoder" "$plugin" $seconds $checks
    stage probe 20 "$work/probe"
    stage oracle 60 python3 benchmarks/gpu/compare.py oracle "$library" "$model" $device $texts
    # shellcheck disable=SC2086
    stage outputs 60 python3 benchmarks/gpu/outputs.py "$library" "$fixtures" $dry_word
    $dry || stage families 120 python3 tools/compare_families.py --device cuda:0 --jobs 12
    $dry || stage ceilings 30 python3 benchmarks/gpu/compare.py ceilings
    # shellcheck disable=SC2086
    stage encoder 90 "$work/encoder" "$plugin" $seconds $shapes
    $dry || stage int8 30 "$work/encoder" "$plugin" 0.05 int8
    $dry || stage int8_mma 30 env GPUSERVE_WGMMA=0 "$work/encoder" "$plugin" 0.05 int8
    $dry || stage products 30 python3 benchmarks/gpu/compare.py products
    $dry || stage library 120 python3 benchmarks/gpu/compare.py library "$library" "$model"
    stage chain 60 python3 benchmarks/gpu/product.py chain "$library" $dry_word
    stage lstm 60 python3 benchmarks/gpu/lstm.py "$library" $dry_word
    stage backends 60 python3 benchmarks/gpu/product.py backends "$library" "$model" $dry_word
    if [ -x "$server" ]; then
        stage transfer 20 python3 benchmarks/gpu/product.py transfer "$server" $dry_word
        stage http 60 python3 benchmarks/gpu/product.py http "$library" "$server" "$model" $dry_word
    else
        echo '{"stage": "http", "skipped": "no gpuserve was built"}' | record
        echo '{"stage": "transfer", "skipped": "no gpuserve was built"}' | record
    fi
    $dry || stage attention 30 python3 benchmarks/gpu/compare.py attention
    $dry || stage own_products 20 env GPUSERVE_CUBLASLT=0 "$work/encoder" "$plugin" 0.05 square
    stage random 30 python3 benchmarks/gpu/random_numbers.py "$library" $dry_word
    stage cudnn 20 "$work/cudnn_lstm"
    $dry || inner lessons 60
    $dry || stage torch_chain 100 python3 benchmarks/gpu/product.py torch_chain
    $dry || inner sanitizer 200
}

# The functions above run under `timeout` as this script again.
if [ -n "${GPU_RUN_STAGE:-}" ]; then
    rm -rf "$work"
    work=$GPU_RUN_WORK seed=$GPU_RUN_SEED dry=$GPU_RUN_DRY link=$GPU_RUN_LINK build=$GPU_RUN_BUILD
    pack=$GPU_RUN_PACK prebuilt=$GPU_RUN_PREBUILT server=$GPU_RUN_SERVER model=$GPU_RUN_MODEL
    trap - EXIT
    "$GPU_RUN_STAGE"
    exit $?
fi
inner() {
    stage "$1" "$2" env GPU_RUN_STAGE="$1" GPU_RUN_WORK="$work" GPU_RUN_SEED="$seed" GPU_RUN_DRY="$dry" GPU_RUN_LINK="$link" GPU_RUN_BUILD="$build" GPU_RUN_PACK="$pack" GPU_RUN_PREBUILT="$prebuilt" GPU_RUN_SERVER="$server" GPU_RUN_MODEL="$model" sh "benchmarks/gpu/$(basename "$0")"
}

server=''
if [ -n "$prebuilt" ]; then
    mkdir "$work/pack" && tar -C "$work/pack" -xzf "$prebuilt/pack.tar.gz" || exit 2
    prebuilt=$work/pack model=$work/pack/model
fi
inner environment 20
export GPUSERVE_PLUGIN_DIR="$work" GPUSERVE_LIBRARY="$work/library.so"
server=$work/build/cli/gpuserve
if [ -n "$prebuilt" ]; then
    inner use_pack 30
    server=$prebuilt/gpuserve
    LD_LIBRARY_PATH=$prebuilt:$prebuilt/lib:$(cublas_folders):${LD_LIBRARY_PATH:-}
    export LD_LIBRARY_PATH
elif $dry; then
    inner build_dry 120
    export GPUSERVE_PLUGIN_DIR="$build/tests/cudaemu"
    ln -s "$build/lib/libgpuserve.so" "$work/library.so"
    server=$build/cli/gpuserve
else
    inner build_base 120
    inner build_plugin 200
    inner build_tests 120
    inner build_encoder 60
    inner build_probes 120
fi
if [ -n "$pack" ]; then
    inner write_pack 200
elif $link; then
    inner load 20
elif $dry; then
    measure
elif [ -n "$prebuilt" ] || inner build_library 60; then
    measure
fi
echo "results: $results"
[ -n "$pack" ] && exit "$(grep -c '"failed"\|"ok": false' "$results")"
python3 benchmarks/gpu/report.py "$results"
