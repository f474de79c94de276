# cluster.sh - Ray jobs on a real cluster on this machine: actors share the emulated GPU, a node is
# killed, or two are timed. Apart from `./dev test`: Ray takes minutes to start and stop on two cores.

# cluster_run MODEL SCRIPT ARGUMENT...: in an environment that has Ray, with the library built here.
cluster_run()
{
    local venv model=$1
    shift
    need_packages util-linux iproute2
    configure_tests
    compile build "$(library_target)" tests/cudaemu/libgpuserve-cuda.so
    venv=$(python_env cluster tests/cluster/requirements.txt)
    fetch_models "$model" >/dev/null
    GPUSERVE_TEST_MODELS=$cache_dir/models GPUSERVE_LIBRARY=$PWD/build/lib/libgpuserve.so.0 \
        PYTHONPATH=$PWD/python "$venv/bin/python" "$@"
}

cmd_cluster()
{
    GPUSERVE_PLUGIN_DIR=$PWD/build/tests/cudaemu cluster_run splade-tiny tests/cluster/test_gpus.py
    cluster_run splade-tiny tests/cluster/test_cluster.py "${1:-1}"
}
