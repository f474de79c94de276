# cluster.sh - the Ray job on a real cluster of a head and two nodes on this machine, one of which is
# killed. Apart from `./dev test`: Ray takes minutes to start and stop on two cores.

cmd_cluster()
{
    local venv
    need_packages "${build_packages[@]}" "${python_packages[@]}" util-linux iproute2
    configure build -Dbuildtype=release
    compile build lib/libgpuserve.so.0.1.0
    venv=$(python_env cluster tests/cluster/requirements.txt)
    fetch_models splade-tiny >/dev/null
    GPUSERVE_TEST_MODELS=$cache_dir/models GPUSERVE_LIBRARY=$PWD/build/lib/libgpuserve.so.0 \
        PYTHONPATH=$PWD/python "$venv/bin/python" tests/cluster/test_cluster.py "${1:-1}"
}
