# sanitize.sh - the tests in instrumented builds, each in its own folder.
#
# Both use gcc with no more optimisation and debug information than pay: under AddressSanitizer most of the
# time went into compiling. Assertions stay on. A finding makes its test fail: the program ends with a status
# of its own (FINDING of tests/cli/common.py). Tests that run
# nothing instrumented are left out (suite source). The
# scripts that drive the program are left out of the slower one: its threads are the library's, whose
# own tests drive them harder; so are comparisons with other packages, which are of one thread (suite
# oracle). Of the server's scripts those run that drive the most of it (tests/http/meson.build; suite plain is the
# rest), without its sandbox, which refuses the ptrace() that looking for leaks needs.

# configure_sanitized FOLDER SANITIZERS OPTIMIZATION
configure_sanitized()
{
    need_packages "${build_packages[@]}" "${python_packages[@]}" "${test_packages[@]}"
    configure "$1" -Doptimization="$3" -Ddebug=false -Dc_args=-g1 -Dcpp_args=-g1 -Db_ndebug=false \
        -Db_sanitize="$2" -Db_lundef=false -Dtests=enabled -Dcuda=disabled
}

# The folder build-asan, and the options of its programs.
configure_asan()
{
    configure_sanitized build-asan address,undefined 1
    export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1:exitcode=66
    export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:exitcode=66
    export LSAN_OPTIONS=suppressions=$PWD/tools/dev/lsan.supp:print_suppressions=0:exitcode=66
}

# compile_sanitized FOLDER: all of it, for run_tests.
compile_sanitized()
{
    compile "$1"
    rm -f "$1/meson-logs/testlog.json"
}

# run_sanitized FOLDER MESON_OPTION... -- [CHOICE...]: a choice is one of `./dev test`; none: all.
run_sanitized()
{
    local folder=$1 options=() chosen=() list
    shift
    while [[ $1 != -- ]]; do
        options+=("$1")
        shift
    done
    shift
    if (($# > 0)); then
        list=$(python3 tools/select_tests.py "$folder" names "$@") || return 1
        mapfile -t chosen <<<"$list"
    fi
    run_tests "$folder" "${options[@]}" "${chosen[@]}"
}

cmd_asan()
{
    configure_asan
    compile_sanitized build-asan
    run_sanitized build-asan --timeout-multiplier 6 --no-suite source --no-suite plain --no-suite deploy -- "$@"
}

cmd_tsan()
{
    configure_sanitized build-tsan thread 2
    compile_sanitized build-tsan
    TSAN_OPTIONS=halt_on_error=1:exitcode=66:die_after_fork=0:second_deadlock_stack=1:suppressions=$PWD/tools/dev/tsan.supp \
        run_sanitized build-tsan --timeout-multiplier 10 --no-suite source --no-suite cli \
        --no-suite plain --no-suite deploy --no-suite oracle -- "$@"
}
