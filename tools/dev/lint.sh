# lint.sh - everything that reads the code without running it. Each check is a function; all of
# them run even when one fails, as many at a time as there are cores, and the last line counts them.

# Those that take longest begin first.
lint_checks=(types warnings cppcheck reference format shell python includes names sources versions docs symbols headers abi)

cmd_format()
{
    need_packages "${lint_packages[@]}"
    c_sources | xargs -r clang-format -i
}

lint_format()
{
    c_sources | xargs -r -P "$n_jobs" -n 20 clang-format --dry-run -Werror
}

# Both compilers over every source of the build, by its own compile command; nothing is written. A build in which
# warnings are errors needs no second look of gcc, which sees more when it optimizes.
lint_warnings()
{
    local compilers=(gcc clang)
    ! has_options build -Dwerror=true || compilers=(clang)
    python3 tools/check_warnings.py --jobs "$n_jobs" build/compile_commands.json "${compilers[@]}"
}

# Generated tables are numbers without a line of code, and took a third of its time.
lint_cppcheck()
{
    c_sources | grep -E '^(lib|kernels/(ref|cpu)|cli|examples|include)/.*\.[ch]$' |
        grep -v '/generated/' | xargs -r cppcheck --quiet -j "$n_jobs" --std=c11 --language=c --error-exitcode=1 \
            --enable=warning,portability,performance --inline-suppr --max-configs=2 \
            --suppressions-list=tools/dev/cppcheck.supp -I . -I include
}

# The parts of ./dev share variables, which shellcheck sees one file at a time (SC2034, SC2154).
lint_shell()
{
    shell_sources | xargs -r shellcheck --shell=bash --severity=warning --exclude=SC2034,SC2154
}

lint_python()
{
    python_sources | xargs -r pyflakes3
}

# The Python package with mypy and pyright; what it is held to stands in python/pyproject.toml alone. The environment
# is that of the frameworks: the adapters are read with what they adapt to.
lint_types()
{
    local venv checker
    venv=$(python_env frameworks tests/requirements-frameworks.txt)
    checker=$(python_env types tests/requirements-types.txt)
    "$venv/bin/python" -m mypy --cache-dir build/mypy --config-file python/pyproject.toml python/gpuserve &&
        "$checker/bin/python" -m basedpyright --project python --pythonpath "$venv/bin/python"
}

lint_includes()
{
    python3 tools/check_includes.py
}

lint_names()
{
    python3 tools/check_names.py
}

lint_sources()
{
    python3 tools/check_sources.py
}

lint_versions()
{
    python3 tools/check_versions.py
}

# The headers against the committed dump of the binary interface.
lint_abi()
{
    python3 tools/abi.py check
}

lint_docs()
{
    python3 tools/check_docs.py
}

# The pages of the C and Python references, without a warning or a broken link.
lint_reference()
{
    cmd_docs
}

# The shared libraries show the public API and nothing else.
lint_symbols()
{
    local library strange
    for library in build/lib/libgpuserve*.so; do
        [[ -f $library ]] || { printf 'no %s\n' "$library"; return 1; }
        strange=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sed 's/@.*//' |
                  grep -vE '^(gpuserve_[a-z0-9_]+|GPUSERVE_[0-9.]+)$' || true)
        [[ -z $strange ]] || { printf '%s exports %s\n' "$library" "$strange"; return 1; }
    done
}

# Each public header alone, as C11 and as C++11, with no warning.
lint_headers()
{
    local header
    for header in include/gpuserve/*.h include/gpuserve/sys/*.h; do
        gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Iinclude -x c "$header" &&
            g++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Iinclude -x c++ "$header" ||
            return 1
    done 2>&1 | { ! grep -v 'pragma once in main file'; }
}

# cmd_lint [CHECK...]: without one, all.
cmd_lint()
{
    local check failed=0
    for check in "$@"; do
        [[ " ${lint_checks[*]} " == *" $check "* ]] || die "no check \"$check\"; there are: ${lint_checks[*]}"
    done
    [[ $# == 0 ]] || lint_checks=("$@")
    need_packages "${lint_packages[@]}" "${clang_packages[@]}" "${docs_packages[@]}"
    configure_tests # the compile commands of the tests are checked too
    compile build
    rm -f build/lint-*.failed
    for check in "${lint_checks[@]}"; do
        while [[ $(jobs -pr | wc -l) -ge $n_jobs ]]; do
            wait -n || true
        done
        lint_one "$check" &
    done
    wait
    for check in "${lint_checks[@]}"; do
        [[ -f build/lint-$check.failed ]] || continue
        failed=$((failed + 1))
        say "$check: FAILED"
        head -n 60 "build/lint-$check.log" >&2
    done
    printf '%d passed, %d failed\n' $((${#lint_checks[@]} - failed)) "$failed"
    [[ $failed == 0 ]]
}

# lint_one CHECK: its output is in build/lint-CHECK.log; one that fails, or ends the shell, leaves build/lint-CHECK.failed.
lint_one()
{
    local started=$SECONDS
    touch "build/lint-$1.failed"
    if "lint_$1" >"build/lint-$1.log" 2>&1; then
        rm "build/lint-$1.failed"
        say "$1: good, $((SECONDS - started)) s"
    fi
}
