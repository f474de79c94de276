# build.sh - configuring and building; every kind of build has its own folder.

# configure FOLDER MESON_OPTION...: does nothing when the folder is already configured.
configure()
{
    local folder=$1
    shift
    [[ -f $folder/build.ninja ]] && return
    say "configuring $folder"
    # A folder left by an interrupted setup has no build.ninja and would be refused.
    rm -rf "$folder/meson-private" "$folder/meson-info"
    meson setup "$folder" "$@" >"$folder.log" 2>&1 || { cat "$folder.log" >&2; die "meson failed"; }
    mv "$folder.log" "$folder/setup.log"
}

# compile FOLDER TARGET...: quiet when there is nothing to do.
compile()
{
    local folder=$1
    shift
    if [[ -t 1 ]]; then
        ninja -C "$folder" -j "$n_jobs" --quiet "$@" >&2
    else
        run_quietly "$folder/ninja.log" ninja -C "$folder" -j "$n_jobs" "$@"
    fi
}

# Runs a command with its output in a file, shown only if the command fails.
run_quietly()
{
    local log=$1
    shift
    "$@" >"$log" 2>&1 || { tail -n 60 "$log" >&2; die "failed: $*"; }
}

cmd_build()
{
    need_packages "${build_packages[@]}" "${test_packages[@]}"
    configure build -Dbuildtype=release
    compile build
    say "built into build/"
}

cmd_clean()
{
    rm -rf build build-*/ dist docs/html
}
