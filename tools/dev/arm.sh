# arm.sh - the aarch64 build on another machine: Debian's cross compiler, and its C tests under QEMU's user
# mode emulation. The arm64 libraries are unpacked into the cache: no architecture is added to the system.

arm_tools=(gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user)
arm_libraries=(
    libc6-dev libstdc++6 libjansson-dev libxxhash-dev
    libmicrohttpd-dev zlib1g-dev libssl-dev libcurl4-openssl-dev
)

# arm_download FOLDER: the packages of arm_libraries and all that they need, into FOLDER/cache/archives. An
# empty list of installed packages and lists of its own: apt changes nothing outside of FOLDER.
arm_download()
{
    local options=(
        -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Install-Recommends=false
        -o APT::Sandbox::User= -o Debug::NoLocking=1
        -o Dir::State="$1/state" -o Dir::State::status="$1/state/status" -o Dir::Cache="$1/cache"
    )
    mkdir -p "$1/state/lists/partial" "$1/cache/archives/partial"
    : >"$1/state/status"
    run_quietly "$1/apt.log" apt-get "${options[@]}" update
    run_quietly "$1/apt.log" apt-get "${options[@]}" install -y --download-only "${arm_libraries[@]}"
}

# Prints the folder with the arm64 libraries, made if it is missing. Its name has the hash of what is in it,
# and it is renamed when it is complete.
arm_sysroot()
{
    local folder temp package
    folder=$cache_dir/sysroot-aarch64-$({ printf '%s\n' "${arm_libraries[@]}"; cat /etc/debian_version; } |
                                        sha256sum | cut -c1-12)
    if [[ ! -d $folder ]]; then
        have apt-get && [[ -n $(apt_mirror) ]] || # Ubuntu has arm64 in another archive than amd64
            die "./dev arm needs Debian: the arm64 libraries come from the Debian archive of apt's sources, which has none here"
        say "downloading the arm64 libraries"
        mkdir -p "$cache_dir"
        temp=$(mktemp -d "$cache_dir/sysroot-new.XXXXXX")
        arm_download "$temp/apt"
        mkdir "$temp/root"
        for package in "$temp"/apt/cache/archives/*.deb; do
            dpkg-deb -x "$package" "$temp/root"
        done
        mv -T "$temp/root" "$folder" 2>/dev/null || true # another process was first
        rm -rf "$temp"
    fi
    printf '%s\n' "$folder"
}

# configure_arm FOLDER MESON_OPTION...
configure_arm()
{
    local folder=$1 sysroot machine=()
    shift
    need_packages "${build_packages[@]}" "${arm_tools[@]}"
    sysroot=$(arm_sysroot)
    if [[ ! -f $folder/build.ninja ]]; then
        printf "[constants]\nsysroot = '%s'\n" "$sysroot" >"$sysroot/machine.ini"
        machine=(--cross-file tools/cross/aarch64.ini --cross-file "$sysroot/machine.ini")
    fi
    configure "$folder" "${machine[@]}" -Dbuildtype=release -Dcuda=disabled -Donednn=disabled "$@"
}

cmd_arm()
{
    local chosen name choices=() names arm_deadline arm_log status=0
    for name in "$@"; do
        choices+=(-k "$name")
    done
    configure_build # its vectors are the reference
    compile build cli/gpuserve
    configure_arm build-aarch64 -Dcli=enabled -Dhttp=enabled -Dtests=enabled
    compile build-aarch64
    chosen=$(python3 tools/select_tests.py build-aarch64 programs "${choices[@]}") || return 1
    mapfile -t names <<<"$chosen"
    # All tests together have a limit, so that one that hangs does not hold up CI; each may be slow here.
    arm_deadline=$((SECONDS + ${GPUSERVE_ARM_SECONDS:-1200}))
    arm_log=$(mktemp)
    arm_tests "${names[@]}"
    # A program that reaches its own time limit runs once more, and the run says so; one that fails does not. A program
    # has stopped under QEMU for an unknown reason: Criterion forks for each test, and QEMU emulates threads.
    mapfile -t names < <(python3 tools/count_tests.py --take-timeouts "$arm_log")
    if [[ ${#names[@]} != 0 ]]; then
        say "time limit reached under QEMU, run again: ${names[*]}"
        arm_tests "${names[@]}"
    fi
    python3 tools/count_tests.py "$arm_log" || status=$?
    rm -f "$arm_log"
    return $status
}

# arm_tests NAME...: runs these until $arm_deadline, and adds their lines of Meson's log to $arm_log.
arm_tests()
{
    local left=$((arm_deadline - SECONDS))
    rm -f build-aarch64/meson-logs/testlog.json
    GPUSERVE_NATIVE=$PWD/build/cli/gpuserve with_environment -- \
        timeout "$((left > 10 ? left : 10))" meson test -C build-aarch64 --no-rebuild \
        --num-processes "${GPUSERVE_TEST_JOBS:-$n_jobs}" --timeout-multiplier 3 --print-errorlogs "$@" >&2 || true
    [[ ! -f build-aarch64/meson-logs/testlog.json ]] || cat build-aarch64/meson-logs/testlog.json >>"$arm_log"
}
