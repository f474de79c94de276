# limits.sh - every check of input is switched off in turn: a test must fail. See tools/limits/run.py.

cmd_limits()
{
    configure_tests # its folders tell which environments there must be
    with_test_environment build python3 tools/limits/run.py --jobs "${GPUSERVE_TEST_JOBS:-$n_jobs}" "$@"
}
