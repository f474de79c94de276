# wheel.sh - the Python package as one file: the library, its plugin and the ctypes code, for any
# Python 3 on a Linux with a C library at least as new as this machine's.

# Builds the library for installation (no tests, no program) and puts it beside the Python code.
stage_native()
{
    local stage=$1 native=$2
    configure build-wheel -Dbuildtype=release -Dtests=disabled -Dcli=disabled -Dlibdir=lib \
        "${wheel_options[@]}"
    compile build-wheel
    run_quietly build-wheel/install.log \
        env DESTDIR="$stage" meson install -C build-wheel --no-rebuild
    find "$native" -name '*.so*' -delete
    # The one name that is loaded; links do not survive in a wheel.
    cp -L "$(find "$stage" -name libgpuserve.so.0)" "$native/"
    find "$stage" -name libgpuserve-cuda.so -exec cp {} "$native/" \;
}

cmd_wheel()
{
    local venv stage
    wheel_options=("$@")
    need_packages "${build_packages[@]}" "${python_packages[@]}"
    venv=$(python_env wheel python/requirements-build.txt)
    stage=$(mktemp -d)
    stage_native "$stage" python/gpuserve/_native
    mkdir -p dist
    rm -f dist/gpuserve-*.whl
    run_quietly build-wheel/wheel.log "$venv/bin/python" -m build --wheel --no-isolation \
        --outdir "$stage/wheel" python
    # Brings the libraries that a bare system lacks (jansson) into the wheel, and names the oldest
    # C library that will do. ctypes needs no particular Python.
    PATH=$venv/bin:$PATH run_quietly build-wheel/auditwheel.log "$venv/bin/python" \
        tools/repair_wheel.py "$stage"/wheel/gpuserve-*.whl dist
    rm -rf "$stage"
    check_wheel dist/gpuserve-*.whl
    say "$(ls dist/gpuserve-*.whl)"
}

# check_wheel FILE: installed by itself into a clean environment, with no compiler and nothing of this
# folder in sight, it works in three lines, a model found by its name.
check_wheel()
{
    local clean model
    clean=$(mktemp -d)
    fetch_models all-MiniLM-L6-v2 >/dev/null
    model=$clean/hub/models--sentence-transformers--all-MiniLM-L6-v2
    mkdir -p "$model/refs" "$model/snapshots"
    ln -s "$cache_dir/models/all-MiniLM-L6-v2" "$model/snapshots/here"
    printf here >"$model/refs/main"
    python3 -m venv "$clean/venv"
    "$clean/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$1" >&2
    (cd "$clean" && env -i PATH=/nowhere HF_HUB_CACHE="$clean/hub" "$clean/venv/bin/python" -c '
from gpuserve import Model
m = Model("sentence-transformers/all-MiniLM-L6-v2", device="cpu")
print(m, m.encode(["the wheel works"]).shape)') >&2 || die "the wheel does not work in a clean environment"
    rm -rf "$clean"
}
