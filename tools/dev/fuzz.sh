# fuzz.sh - libFuzzer targets, each on its kept corpus; fuzz/README.md says how to add one.

cmd_fuzz()
{
    local seconds=${1:-20} target targets=() name ran=0 failed
    need_packages "${build_packages[@]}" "${clang_packages[@]}"
    CC=clang CXX=clang++ configure build-fuzz -Dbuildtype=debugoptimized -Db_ndebug=false \
        -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false -Dtests=disabled \
        -Dcuda=disabled
    # Only the targets: clang links no sanitizer into a shared library whose symbols must all resolve.
    for target in fuzz/fuzz_*.c; do
        targets+=("${target%.c}")
    done
    compile build-fuzz "${targets[@]}"
    : >build-fuzz/failed
    for target in build-fuzz/fuzz/fuzz_*; do
        [[ -f $target && -x $target ]] || continue
        while [[ $(jobs -pr | wc -l) -ge $n_jobs ]]; do # as many at once as there are cores
            wait -n || true
        done
        name=${target##*/fuzz_}
        ran=$((ran + 1))
        { fuzz_one "$target" "$name" "$seconds" || printf '%s\n' "$name" >>build-fuzz/failed; } &
    done
    wait
    [[ $ran != 0 ]] || die "no fuzz target was built"
    failed=$(wc -l <build-fuzz/failed)
    printf '%d passed, %d failed\n' $((ran - failed)) "$failed"
    [[ $failed == 0 ]]
}

# New inputs go to the build folder; what is worth keeping is copied to fuzz/corpus by hand, small.
fuzz_one()
{
    local target=$1 name=$2 seconds=$3 log
    log=build-fuzz/$name.log
    mkdir -p "build-fuzz/found/$name"
    if UBSAN_OPTIONS=halt_on_error=1 timeout $((seconds + 120)) \
        "$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="build-fuzz/$name-" "build-fuzz/found/$name" "fuzz/corpus/$name" \
        >"$log" 2>&1; then
        say "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") executions, no finding"
    else
        tail -n 40 "$log" >&2
        say "$name: FAILED, input in build-fuzz/$name-*"
        return 1
    fi
}
