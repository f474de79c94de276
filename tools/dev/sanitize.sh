# sanitize.sh - the tests in instrumented builds, each in its own folder.
#
# Both use gcc and plain debug optimisation: assertions stay on. A finding makes its test fail. The
# scripts that drive the program are left out of the slower one: its threads are the library's, whose
# own tests drive them harder; so are comparisons with other packages, which are of one thread (suite
# oracle). The server is left out of both: its sandbox refuses ptrace, without
# which no leak is looked for at its end; its parsers have fuzz targets.

cmd_asan()
{
    need_packages "${build_packages[@]}" "${python_packages[@]}" "${test_packages[@]}"
    configure build-asan -Dbuildtype=debugoptimized -Db_ndebug=false \
        -Db_sanitize=address,undefined -Db_lundef=false -Dtests=enabled -Dcuda=disabled
    compile build-asan
    rm -f build-asan/meson-logs/testlog.json
    ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1 \
        UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        LSAN_OPTIONS=suppressions=$PWD/tools/dev/lsan.supp:print_suppressions=0 \
        run_tests build-asan --timeout-multiplier 6 --no-suite http --no-suite deploy "$@"
}

cmd_tsan()
{
    need_packages "${build_packages[@]}" "${python_packages[@]}" "${test_packages[@]}"
    configure build-tsan -Dbuildtype=debugoptimized -Db_ndebug=false \
        -Db_sanitize=thread -Db_lundef=false -Dtests=enabled -Dcuda=disabled
    compile build-tsan
    rm -f build-tsan/meson-logs/testlog.json
    TSAN_OPTIONS=halt_on_error=1:die_after_fork=0:second_deadlock_stack=1:suppressions=$PWD/tools/dev/tsan.supp \
        run_tests build-tsan --timeout-multiplier 10 --no-suite cli --no-suite http \
        --no-suite deploy --no-suite oracle "$@"
}
