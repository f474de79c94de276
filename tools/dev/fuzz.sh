# fuzz.sh - libFuzzer targets, each on its kept corpus; fuzz/README.md says how to add one.

# cmd_fuzz [SECONDS | --runs N] [TARGET...]: all targets, or those named.
cmd_fuzz()
{
    local limit=(-max_total_time=20) patience=140 target targets=() name ran=0 failed
    if [[ ${1:-} == --runs ]]; then
        [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "usage: ./dev fuzz [SECONDS | --runs N] [TARGET...]"
        limit=(-runs="$2")
        patience=0 # no limit
        shift 2
    elif [[ ${1:-} =~ ^[0-9]+$ ]]; then
        limit=(-max_total_time="$1")
        patience=$(($1 + 120))
        shift
    fi
    need_packages "${build_packages[@]}" "${clang_packages[@]}"
    CC=clang CXX=clang++ configure build-fuzz -Doptimization=2 -Ddebug=false -Dc_args=-g1 -Dcpp_args=-g1 -Db_ndebug=false \
        -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false -Dtests=disabled \
        -Dcuda=disabled
    # Only the targets: clang links no sanitizer into a shared library whose symbols must all resolve.
    if [[ $# == 0 ]]; then
        for target in fuzz/fuzz_*.c; do
            targets+=("${target%.c}")
        done
    fi
    for name; do
        [[ -f fuzz/fuzz_$name.c ]] || die "no fuzz target '$name': there is no fuzz/fuzz_$name.c"
        targets+=("fuzz/fuzz_$name")
    done
    compile build-fuzz "${targets[@]}"
    : >build-fuzz/failed
    for target in "${targets[@]/#/build-fuzz/}"; do
        [[ -x $target ]] || continue
        while [[ $(jobs -pr | wc -l) -ge $n_jobs ]]; do # as many at once as there are cores
            wait -n || true
        done
        name=${target##*/fuzz_}
        ran=$((ran + 1))
        { fuzz_one "$target" "$name" "$patience" "${limit[@]}" || printf '%s\n' "$name" >>build-fuzz/failed; } &
    done
    wait
    [[ $ran != 0 ]] || die "no fuzz target was built"
    failed=$(wc -l <build-fuzz/failed)
    printf '%d passed, %d failed\n' $((ran - failed)) "$failed"
    [[ $failed == 0 ]]
}

# New inputs go to the build folder; what is worth keeping is copied to fuzz/corpus by hand, small.
# fuzz_one PROGRAM NAME PATIENCE LIMIT...: PATIENCE in seconds, 0: none; the limits are libFuzzer's.
fuzz_one()
{
    local target=$1 name=$2 patience=$3 log
    shift 3
    log=build-fuzz/$name.log
    mkdir -p "build-fuzz/found/$name"
    if UBSAN_OPTIONS=halt_on_error=1 timeout "$patience" \
        "$target" "$@" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="build-fuzz/$name-" "build-fuzz/found/$name" "fuzz/corpus/$name" \
        >"$log" 2>&1; then
        say "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") executions, no finding"
    else
        tail -n 40 "$log" >&2
        say "$name: FAILED, input in build-fuzz/$name-*"
        return 1
    fi
}
