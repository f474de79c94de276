# limits.sh - every check of input is switched off in turn, every member of a cache key left out, or a fault planted into
# a CUDA kernel: a test must fail. See tools/limits/run.py, cache_keys.py and kernel_faults.py.

cmd_limits()
{
    configure_tests # its folders tell which environments there must be
    if [[ ${1:-} == keys ]]; then
        shift
        with_environment python -- python3 tools/limits/cache_keys.py "$@"
        return
    elif [[ ${1:-} == kernels ]]; then
        shift
        with_environment python -- python3 tools/limits/kernel_faults.py "$@"
        return
    fi
    with_test_environment build python3 tools/limits/run.py --jobs "${GPUSERVE_TEST_JOBS:-$n_jobs}" "$@"
}
