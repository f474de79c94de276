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
    say "$(ls dist/gpuserve-*.whl)"
}
