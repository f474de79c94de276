# sanitize.sh - the tests in instrumented builds, each in its own folder.
#
# Both use gcc with no more optimisation and debug information than pay: under AddressSanitizer most of the
# time went into compiling. Assertions stay on. A finding makes its test fail. Tests that run
# nothing instrumented are left out (suite source). The
# scripts that drive the program are left out of the slower one: its threads are the library's, whose
# own tests drive them harder; so are comparisons with other packages, which are of one thread (suite
# oracle). The server is left out of both: its sandbox refuses ptrace, without
# which no leak is looked for at its end; its parsers have fuzz targets.

# configure_sanitized FOLDER SANITIZERS OPTIMIZATION
configure_sanitized()
{
    configure "$1" -Doptimization="$3" -Ddebug=false -Dc_args=-g1 -Dcpp_args=-g1 -Db_ndebug=false \
        -Db_sanitize="$2" -Db_lundef=false -Dtests=enabled -Dcuda=disabled
    compile "$1"
    rm -f "$1/meson-logs/testlog.json"
}

cmd_asan()
{
    need_packages "${build_packages[@]}" "${python_packages[@]}" "${test_packages[@]}"
    configure_sanitized build-asan address,undefined 1
    ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1 \
        UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        LSAN_OPTIONS=suppressions=$PWD/tools/dev/lsan.supp:print_suppressions=0 \
        run_tests build-asan --timeout-multiplier 6 --no-suite source --no-suite http --no-suite deploy "$@"
}

cmd_tsan()
{
    need_packages "${build_packages[@]}" "${python_packages[@]}" "${test_packages[@]}"
    configure_sanitized build-tsan thread 2
    TSAN_OPTIONS=halt_on_error=1:die_after_fork=0:second_deadlock_stack=1:suppressions=$PWD/tools/dev/tsan.supp \
        run_tests build-tsan --timeout-multiplier 10 --no-suite source --no-suite cli \
        --no-suite http --no-suite deploy --no-suite oracle "$@"
}
