# deb.sh - Debian packages and the source tarball, and a check of the packages in a bare root.
#
#   ./dev deb [cuda]        packages of this tree into dist/; with `cuda` libgpuserve-cuda too, which needs nvcc
#   ./dev deb root [12|13]  makes the bare root of a check, where it is missing; needs root
#   ./dev deb check [12|13] installs those of dist/ in a bare Debian and uses them; needs root
#   ./dev tarball           dist/gpuserve-VERSION.tar.gz of the last commit, and its sha256

deb_packages=(debhelper dpkg-dev)

cmd_deb()
{
    case ${1:-} in
    '' | cuda)
        need_packages "${build_packages[@]}" "${deb_packages[@]}"
        if [[ ${1:-} == cuda ]]; then
            mkdir -p "$dist_folder"
            cuda_licence "$(cuda_toolkit)" >"$dist_folder/cuda-runtime.txt"
            export GPUSERVE_CUDA_LICENCE=$PWD/$dist_folder/cuda-runtime.txt
        fi
        # The tracked files of this tree, as they are now.
        git ls-files -z | tar --null --files-from - --create | deb_build "$@"
        rm -rf "$deb_folder"
        ;;
    root) deb_root "${@:2}" ;;
    check) deb_check "${@:2}" ;;
    *) die "usage: ./dev deb [cuda | root [12|13] | check [12|13]]" ;;
    esac
}

# A path that stays the same lets ccache find what it compiled before, and gives the same bytes.
deb_folder=$cache_dir/deb

# The folder of the sources, in which dpkg-buildpackage makes obj-*/.
deb_source()
{
    printf '%s/gpuserve-%s\n' "$deb_folder" "$(project_version)"
}

# Where packages go.
dist_folder=dist

# deb_build [cuda]: the source tree that it reads as a tar file, with packaging/debian in Debian's place. It leaves deb_source. With cuda also
# that of the plugin: GPUSERVE_CUDA_PLUGIN if it is set, which is built already, else one that the package's rules build.
deb_build()
{
    local source profiles=() log=$dist_folder/deb.log
    if [[ ${1:-} == cuda ]]; then
        profiles=(--build-profiles=pkg.gpuserve.cuda)
    fi
    source=$(deb_source)
    rm -rf "$deb_folder"
    mkdir -p "$dist_folder" "$source"
    tar -C "$source" --extract
    cp -a "$source/packaging/debian" "$source/debian"
    say "building the packages, see $log"
    (cd "$source" && DEB_BUILD_OPTIONS="parallel=$n_jobs noautodbgsym ${DEB_BUILD_OPTIONS:-}" \
        dpkg-buildpackage --build=binary --no-sign "${profiles[@]}") >"$log" 2>&1 ||
        { tail -n 60 "$log" >&2; die "dpkg-buildpackage failed"; }
    rm -f "$dist_folder"/*.deb
    cp "$deb_folder"/*.deb "$dist_folder/"
    say "$(ls "$dist_folder"/*.deb)"
}

bare_packages=(debootstrap debian-archive-keyring)

deb_root()
{
    local release=${1:-12}
    [[ -n ${fresh_releases[$release]:-} ]] || die "usage: ./dev deb root [12|13], ./dev deb check [12|13]"
    [[ $(id -u) == 0 ]] || die "./dev deb check needs root, for chroot and mounts"
    need_packages "${bare_packages[@]}"
    fresh_base "${fresh_releases[$release]}"
}

# The packages in a bare root; the script that uses them counts its checks.
deb_check()
{
    local release=${1:-12} root status=0
    deb_root "$release"
    compgen -G 'dist/libgpuserve0_*.deb' >/dev/null || cmd_deb ''
    root=$(mktemp -d "$cache_dir/fresh-deb.XXXXXX")
    # shellcheck disable=SC2064  # this folder, now
    trap "fresh_unmount '$root'; rm -rf --one-file-system '$root'" EXIT
    fresh_root "$root" "${fresh_releases[$release]}"
    mkdir -p "$root/packages" "$root/check"
    cp dist/*.deb "$root/packages/"
    cp -r tests/packages/. examples/embed.c "$root/check/"
    fresh_call "$root" root 'bash /check/use_packages.sh /packages' || status=1
    return $status
}

cmd_tarball()
{
    local name
    name=gpuserve-$(project_version)
    git diff --quiet HEAD || say "the tarball has the last commit, without the changes since"
    mkdir -p dist
    source_tarball HEAD dist
    (cd dist && sha256sum "$name.tar.gz" | tee "$name.tar.gz.sha256")
}

# source_tarball COMMIT FOLDER: the tarball of a commit. No time of packing inside, and no mode of this user's settings: the same commit gives the same bytes.
source_tarball()
{
    local name
    name=gpuserve-$(project_version)
    git -c tar.umask=0022 archive --format=tar --prefix="$name/" "$1" | gzip -9n >"$2/$name.tar.gz"
}
