# test.sh - the tests, in one build folder, counted.
#
# A test is a Criterion program, a script, or any program that exits 0. Scripts begin with
# `#!/usr/bin/env python3`, are executable, and find the packages of tests/requirements.txt because
# the environment made of it comes first in PATH. tests/programs.txt lists every program: a run of all
# of them in which one is missing fails.

# with_environment NEED... -- COMMAND...: runs it with the Python environments and models that tests find
# by these variables. A NEED is a line of `select_tests.py needs`: python, clients, deploy, frameworks,
# http-frameworks.
with_environment()
{
    local need venv path=$PATH clients='' deploy='' frameworks='' http_frameworks=''
    while [[ $1 != -- ]]; do
        need=$1
        shift
        case $need in
        python) venv=$(python_env tests tests/requirements.txt) && path=$venv/bin:$PATH ;;
        # The real clients of the server, and frameworks, are many packages: environments of their own.
        clients) clients=$(python_env clients tests/http/requirements.txt)/bin/python ;;
        deploy) deploy=$(python_env deploy tests/deploy/requirements.txt)/bin/python ;;
        frameworks) frameworks=$(python_env frameworks tests/requirements-frameworks.txt)/bin/python ;;
        http-frameworks)
            venv=$(python_env frameworks tests/requirements-frameworks.txt)
            http_frameworks=$(python_env http-frameworks tests/http/requirements-frameworks.txt "$venv")/bin/python
            ;;
        esac
    done
    shift
    fetch_models "${test_models[@]}" >/dev/null
    PATH=$path GPUSERVE_CLIENTS_PYTHON=$clients GPUSERVE_DEPLOY_PYTHON=$deploy \
        GPUSERVE_FRAMEWORKS_PYTHON=$frameworks GPUSERVE_HTTP_FRAMEWORKS_PYTHON=$http_frameworks \
        GPUSERVE_TEST_MODELS=$cache_dir/models PYTHONDONTWRITEBYTECODE=1 \
        "$@"
}

# with_test_environment FOLDER COMMAND...: the same with all that the tests built there need.
with_test_environment()
{
    local folder=$1 list
    shift
    list=$(python3 tools/select_tests.py "$folder" needs)
    # shellcheck disable=SC2086  # one word each
    with_environment $list -- "$@"
}

# run_tests FOLDER MESON_TEST_ARGUMENT...: runs what is built there, ends with "N passed, N failed".
# Without arguments in build/, every program of tests/programs.txt must be among them.
run_tests()
{
    local folder=$1 complete=()
    shift
    [[ $folder != build || $# != 0 ]] || complete=(--complete)
    # The exit status of `meson test` is not needed: its log says what became of each test.
    with_test_environment "$folder" meson test -C "$folder" --no-rebuild \
        --num-processes "${GPUSERVE_TEST_JOBS:-$n_jobs}" --print-errorlogs "$@" || true
    python3 tools/count_tests.py "$folder/meson-logs/testlog.json" "${complete[@]}"
}

# test_all: every test of build/.
test_all()
{
    with_test_environment build true & # packages and models come while it compiles
    compile build
    wait $! || die "the Python environments or models of the tests cannot be had: see above"
    rm -f build/meson-logs/testlog.json
    run_tests build
}

# test_some CHOICE...: builds and runs the tests of some folders below tests/, or of some names.
test_some()
{
    local chosen list names
    chosen=$(python3 tools/select_tests.py build names "$@") || return 1
    list=$(python3 tools/select_tests.py build needs "$@")
    mapfile -t names <<<"$chosen"
    rm -f build/meson-logs/testlog.json
    # `meson test` builds what these tests depend on and nothing else.
    # shellcheck disable=SC2086
    with_environment $list -- meson test -C build --num-processes "${GPUSERVE_TEST_JOBS:-$n_jobs}" \
        --print-errorlogs "${names[@]}" >&2 || true
    [[ -f build/meson-logs/testlog.json ]] || die "the tests were not built: see above"
    python3 tools/count_tests.py build/meson-logs/testlog.json
}

cmd_test()
{
    configure_tests
    if [[ $# == 0 ]]; then
        test_all
    elif [[ $1 == -k || $1 != -* ]]; then
        test_some "$@"
    else
        compile build
        rm -f build/meson-logs/testlog.json
        run_tests build "$@"
    fi
}
