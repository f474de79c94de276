# withstand.sh - what the server must withstand, at full size: minutes for each part, hours for memory.
# `./dev test` runs the same parts small.

# cmd_withstand [--asan] PART...: --asan takes the program of an instrumented build, for `fuzz`.
cmd_withstand()
{
    local venv build=build
    need_packages "${python_packages[@]}"
    if [[ ${1:-} == --asan ]]; then
        shift
        build='build-asan'
        configure_asan
        export GPUSERVE_TEST_INSTRUMENTED=1 GPUSERVE_NO_SANDBOX=1
    else
        configure_build
    fi
    compile $build cli/gpuserve
    venv=$(python_env tests tests/requirements.txt)
    fetch_models "$default_model" >/dev/null
    PATH=$venv/bin:$PATH PYTHONPATH=$PWD/tests/cli GPUSERVE=$PWD/$build/cli/gpuserve GPUSERVE_TEST_MODELS=$cache_dir/models \
        PYTHONDONTWRITEBYTECODE=1 python3 tests/http/withstand.py --results benchmarks/results "$@"
}
