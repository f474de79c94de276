# run.sh - the first thing anyone does here: from a clean machine to vectors and labels.

cmd_run()
{
    local model
    need_packages "${python_packages[@]}"
    configure_build
    compile build cli/gpuserve examples/tour
    model=$(fetch_models "$default_model")
    build/examples/tour "$model" share/heads "$@"
}
