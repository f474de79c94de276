# build.sh - configuring and building; every kind of build has its own folder.

# configure FOLDER MESON_OPTION...: sets the folder up, or changes the options of one that was set up
# otherwise, by this command or by hand. Does nothing when the folder has these options.
configure()
{
    local folder=$1
    shift
    if [[ ! -f $folder/build.ninja ]]; then
        say "configuring $folder"
        # A folder left by an interrupted setup has no build.ninja and would be refused.
        rm -rf "$folder/meson-private" "$folder/meson-info"
        meson setup "$folder" "$@" >"$folder.log" 2>&1 || { cat "$folder.log" >&2; die "meson failed"; }
        mv "$folder.log" "$folder/setup.log"
    elif ! has_options "$folder" "$@"; then
        say "configuring $folder with $*"
        # Not `meson configure`: until the next build, that leaves the list of tests as it was.
        run_quietly "$folder/configure.log" meson setup --reconfigure "$folder" "$@"
    fi
}

# has_options FOLDER MESON_OPTION...: the folder was set up with each -Dname=value.
has_options()
{
    python3 - "$@" <<'PYTHON'
import json, sys
with open(sys.argv[1] + "/meson-info/intro-buildoptions.json", encoding="utf-8") as file:
    options = {option["name"]: option["value"] for option in json.load(file)}
for name, value in (word[2:].split("=", 1) for word in sys.argv[2:]):
    has = options.get(name)
    if str(has).lower() != value and has != [value]:
        sys.exit(1)
PYTHON
}

# GPUSERVE_WERROR=true: a warning of gcc fails the build in build/, as in CI. Another release of gcc has others.
werror=${GPUSERVE_WERROR:-false}

# The release build in build/, with the program and the server.
configure_build()
{
    need_packages "${build_packages[@]}"
    configure build -Dbuildtype=release -Dwerror="$werror" -Dcli=enabled -Dhttp=enabled
}

# The same with every test.
configure_tests()
{
    need_packages "${build_packages[@]}" "${python_packages[@]}" "${test_packages[@]}"
    configure build -Dbuildtype=release -Dwerror="$werror" -Dcli=enabled -Dhttp=enabled -Dtests=enabled
}

project_version()
{
    sed -n "s/^ *version: '\([0-9.]*\)',$/\1/p" meson.build
}

# The build target of the shared library, whose name has the version.
library_target()
{
    printf 'lib/libgpuserve.so.%s\n' "$(project_version)"
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
    configure_tests
    compile build
    say "built into build/"
}

cmd_clean()
{
    rm -rf build build-*/ dist docs/html
}
