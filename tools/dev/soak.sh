# soak.sh - whether anything grows under a load of many hours; the figure goes to benchmarks/results/.

cmd_soak()
{
    local minutes=${1:-60} model result
    need_packages "${python_packages[@]}"
    configure_build
    compile build benchmarks/soak
    model=$(fetch_models "$default_model")
    result=benchmarks/results/$(date +%F)-soak.json
    say "soaking for $minutes minutes"
    build/benchmarks/soak "$model" "$minutes" >"$result.new" || {
        cat "$result.new"
        rm -f "$result.new"
        die "something grows, or a call went wrong"
    }
    mv "$result.new" "$result"
    cat "$result"
}
