# run.sh - the first command of a newcomer: from a clean machine to vectors and labels.

# run_step TEXT: without a terminal there is no progress line, so each long step is announced with its usual duration.
run_step()
{
    [[ -t 1 ]] || say "$*"
}

cmd_run()
{
    local model
    need_packages "${build_packages[@]}" "${python_packages[@]}"
    configure_build
    run_step "compiling the library and the program: some minutes the first time"
    compile build cli/gpuserve examples/tour
    [[ -d $cache_dir/models/$default_model ]] ||
        run_step "fetching the model $default_model: 84 MB; the time depends on the network"
    model=$(fetch_models "$default_model")
    build/examples/tour "$model" share/heads "$@"
    run_next "$model"
}

# run_next MODEL
run_next()
{
    cat >&2 <<TEXT

What to try next:
  build/cli/gpuserve embed $1 "a sentence"                        one vector
  build/cli/gpuserve similarity $1 "a cat" "a kitten" "a car"     cosine similarities
  build/cli/gpuserve serve $1                                     an HTTP server; docs/http.md
TEXT
}
