# test.sh - every test, in one build folder, counted.
#
# A test is a Criterion program, a script, or any program that exits 0. Scripts begin with
# `#!/usr/bin/env python3`, are executable, and find the packages of tests/requirements.txt because
# the environment made of it comes first in PATH.

# with_test_environment FOLDER COMMAND...: runs it with all that the tests built there find packages and
# models by.
with_test_environment()
{
    local folder=$1 venv clients='' deploy='' frameworks
    shift
    venv=$(python_env tests tests/requirements.txt)
    # The real clients of the server, and frameworks, are many packages: environments of their own.
    if [[ -d $folder/lib/http ]]; then
        clients=$(python_env clients tests/http/requirements.txt)/bin/python
        deploy=$(python_env deploy tests/deploy/requirements.txt)/bin/python
    fi
    frameworks=$(python_env frameworks tests/requirements-frameworks.txt)/bin/python
    fetch_models "${test_models[@]}" >/dev/null
    PATH=$venv/bin:$PATH GPUSERVE_CLIENTS_PYTHON=$clients GPUSERVE_DEPLOY_PYTHON=$deploy \
        GPUSERVE_FRAMEWORKS_PYTHON=$frameworks GPUSERVE_TEST_MODELS=$cache_dir/models PYTHONDONTWRITEBYTECODE=1 \
        "$@"
}

# run_tests FOLDER MESON_TEST_ARGUMENT...: runs what is built there, ends with "N passed, N failed".
run_tests()
{
    local folder=$1
    shift
    # The exit status of `meson test` is not needed: its log says what became of each test.
    with_test_environment "$folder" meson test -C "$folder" --no-rebuild \
        --num-processes "${GPUSERVE_TEST_JOBS:-$n_jobs}" --print-errorlogs "$@" || true
    python3 tools/count_tests.py "$folder/meson-logs/testlog.json"
}

cmd_test()
{
    need_packages "${build_packages[@]}" "${python_packages[@]}" "${test_packages[@]}"
    configure build -Dbuildtype=release
    # A folder that `./dev run` configured before Criterion was there has no tests yet.
    if [[ ! -d build/tests ]] || ! grep -q tests/ build/build.ninja; then
        meson configure build -Dtests=enabled
    fi
    with_test_environment build true & # packages and models come while it compiles
    compile build
    wait $!
    rm -f build/meson-logs/testlog.json
    run_tests build "$@"
}
