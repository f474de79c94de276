# limits.sh - every check of input is switched off in turn, or every member of a cache key left out: a test
# must fail. See tools/limits/run.py and tools/limits/cache_keys.py.

cmd_limits()
{
    configure_tests # its folders tell which environments there must be
    if [[ ${1:-} == keys ]]; then
        shift
        with_environment python -- python3 tools/limits/cache_keys.py "$@"
        return
    fi
    with_test_environment build python3 tools/limits/run.py --jobs "${GPUSERVE_TEST_JOBS:-$n_jobs}" "$@"
}
