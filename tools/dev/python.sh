# python.sh - private Python environments in the cache, one for each list of requirements.

# python_env NAME REQUIREMENTS_FILE [BASE]: prints the folder of an environment that holds exactly
# these packages, and sees those of the environment BASE; made when it is missing. The name carries the
# list's hash, so a changed list gets a new environment and an interrupted installation is never taken
# for a whole one.
python_env()
{
    local folder temp base=${3:-}
    folder=$cache_dir/venv-$1-$({ cat "$2"; printf '%s' "${base##*/}"; } | sha256sum | cut -c1-12)
    if [[ ! -d $folder ]]; then
        need_packages "${python_packages[@]}"
        say "installing the Python packages of $2"
        mkdir -p "$cache_dir"
        temp=$(mktemp -d "$cache_dir/venv-new.XXXXXX")
        python3 -m venv "$temp"
        if [[ -n $base ]]; then
            ls -d "$base"/lib/python3*/site-packages >"$(ls -d "$temp"/lib/python3*/site-packages)/base.pth"
        fi
        "$temp/bin/python" -m pip install --quiet --disable-pip-version-check -r "$2" >&2 ||
            { rm -rf "$temp"; die "pip could not install $2"; }
        # Scripts in bin/ name their interpreter by path: only python itself is called from here.
        mv -T "$temp" "$folder" 2>/dev/null || rm -rf "$temp"
    fi
    printf '%s\n' "$folder"
}
