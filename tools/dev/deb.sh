# deb.sh - Debian packages and the source tarball, and a check of the packages in a bare root.
#
#   ./dev deb [cuda]        packages of this tree into dist/; with `cuda` libgpuserve-cuda too, which needs nvcc
#   ./dev deb check [12|13] installs those of dist/ in a bare Debian and uses them; needs root
#   ./dev tarball           dist/gpuserve-VERSION.tar.gz of the last commit, and its sha256

deb_packages=(debhelper dpkg-dev)

cmd_deb()
{
    case ${1:-} in
    '' | cuda) deb_build "$@" ;;
    check) deb_check "${@:2}" ;;
    *) die "usage: ./dev deb [cuda | check [12|13]]" ;;
    esac
}

# The tracked files of this tree, as they are now, with packaging/debian in Debian's place.
deb_build()
{
    local folder source profiles=() log=dist/deb.log
    [[ ${1:-} == cuda ]] && profiles=(--build-profiles=pkg.gpuserve.cuda)
    need_packages "${build_packages[@]}" "${deb_packages[@]}"
    mkdir -p dist
    # A path that stays the same lets ccache find what it compiled before.
    folder=$cache_dir/deb
    source=$folder/gpuserve-$(project_version)
    rm -rf "$folder"
    mkdir -p "$source"
    git ls-files -z | tar --null --files-from - --create | tar -C "$source" --extract
    cp -r packaging/debian "$source/debian"
    say "building the packages, see $log"
    (cd "$source" && DEB_BUILD_OPTIONS="parallel=$n_jobs noautodbgsym ${DEB_BUILD_OPTIONS:-}" \
        dpkg-buildpackage --build=binary --no-sign "${profiles[@]}") >"$log" 2>&1 ||
        { tail -n 60 "$log" >&2; die "dpkg-buildpackage failed"; }
    rm -f dist/*.deb
    cp "$folder"/*.deb dist/
    rm -rf "$folder"
    say "$(ls dist/*.deb)"
}

# The packages in a bare root; the script that uses them counts its checks.
deb_check()
{
    local release=${1:-12} root status=0
    [[ -n ${fresh_releases[$release]:-} ]] || die "usage: ./dev deb check [12|13]"
    [[ $(id -u) == 0 ]] || die "./dev deb check needs root, for chroot and mounts"
    compgen -G 'dist/libgpuserve0_*.deb' >/dev/null || deb_build
    need_packages debootstrap debian-archive-keyring
    fresh_base "${fresh_releases[$release]}"
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
    mkdir -p dist
    git diff --quiet HEAD || say "the tarball has the last commit, without the changes since"
    # No time of packing inside: the same commit gives the same bytes.
    git archive --format=tar --prefix="$name/" HEAD | gzip -9n >"dist/$name.tar.gz"
    (cd dist && sha256sum "$name.tar.gz" | tee "$name.tar.gz.sha256")
}
