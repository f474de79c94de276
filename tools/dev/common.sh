# common.sh - what all commands share: messages, folders, the number of jobs.

cache_dir=${GPUSERVE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuserve}
n_jobs=${GPUSERVE_JOBS:-$(nproc)}

say()
{
    printf '==> %s\n' "$*" >&2
}

die()
{
    printf 'dev: %s\n' "$*" >&2
    exit 1
}

have()
{
    command -v "$1" >/dev/null 2>&1
}

# Sources that the formatter and the size check look at.
c_sources()
{
    git ls-files -- '*.c' '*.h' '*.cc' '*.cpp' '*.hpp' '*.cu' '*.cuh'
}

python_sources()
{
    git ls-files -- '*.py'
}

shell_sources()
{
    git ls-files -- dev .ci '*.sh'
}
