# packages.sh - the system packages each command needs, and installing the ones that are missing.
#
# A line is one need. `a|b` is met by either, and `a` is what gets installed; a name that ends in
# `?` is optional: a release that does not have it goes without.

build_packages=(
    gcc g++ meson ninja-build 'pkg-config|pkgconf' libjansson-dev libxxhash-dev
    'libcurl4-openssl-dev|libcurl4-gnutls-dev' libssl-dev libmicrohttpd-dev zlib1g-dev
)
# oneDNN is a peer in benchmarks/kernels, wrk a client of the HTTP benchmarks.
bench_packages=('libdnnl-dev|libonednn-dev?' wrk)
python_packages=(python3 python3-venv python3-pip ca-certificates)
test_packages=(libcriterion-dev openssl valgrind cmake 'curl?' 'locales?' 'chromium?' 'chromium-driver?')
# For the tests of deploy/. They start services when installed, so only install-deps brings them;
# without them those tests are skipped.
proxy_packages=('haproxy?' 'nginx-light|nginx?')
# For the tests of examples in other languages (tests/bindings) and of their HTTP clients, some 700 MB: only install-deps brings them;
# without one its test is skipped.
binding_packages=(rustc golang-go 'default-jdk-headless|openjdk-17-jdk-headless' libjna-java)
lint_packages=(clang-format clang-tidy cppcheck shellcheck pyflakes3 git abigail-tools)
clang_packages=(clang 'libclang-rt-dev|libclang-rt-14-dev?')
docs_packages=(doxygen)

as_root()
{
    if [[ $(id -u) == 0 ]]; then
        "$@"
    elif can_be_root; then
        sudo "$@"
    else
        die "this needs an administrator: $*"
    fi
}

# sudo may be installed for a user who has no right to it. With a terminal it asks for the password; without
# one only a right that needs no password counts.
can_be_root()
{
    [[ $(id -u) == 0 ]] && return
    have sudo || return
    sudo -n true 2>/dev/null || { [[ -t 0 ]] && sudo -v; }
}

# Prints the needs of "$@" that no installed package meets.
missing_packages()
{
    local need name found
    local -A installed=()
    # shellcheck disable=SC2016  # the format is for dpkg-query to expand
    while read -r name; do
        installed[$name]=1
    done < <(printf '%s\n' "$@" | tr '|' '\n' | tr -d '?' |
             xargs dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 2>/dev/null |
             sed -n 's/^ii *//p')
    for need in "$@"; do
        found=
        for name in $(tr '|' ' ' <<<"${need%\?}"); do
            [[ -n ${installed[$name]:-} ]] && found=1
        done
        [[ -n $found ]] || printf '%s\n' "$need"
    done
}

# The first of a need's alternatives that this release has; nothing if it has none.
available_package()
{
    local name
    for name in $(tr '|' ' ' <<<"${1%\?}"); do
        if [[ -n $(apt-cache --quiet=0 madison "$name" 2>/dev/null) ]]; then
            printf '%s\n' "$name"
            return
        fi
    done
}

# need_packages NEED...: install what is missing, saying what. Quick when nothing is.
need_packages()
{
    local need name missing=() install=()
    if ! is_debian; then
        require_tools
        return
    fi
    mapfile -t missing < <(missing_packages "$@")
    optional_only "${missing[@]}" && [[ -e $cache_dir/optional-packages-asked ]] && return
    [[ ${#missing[@]} == 0 ]] && return
    if ! can_be_root; then
        optional_only "${missing[@]}" && return
        ask_administrator "${missing[@]}"
    fi

    as_root apt-get update -qq
    for need in "${missing[@]}"; do
        name=$(available_package "$need")
        if [[ -n $name ]]; then
            install+=("$name")
        elif [[ $need != *\? ]]; then
            die "this release has no package ${need//|/ or }"
        fi
    done
    if [[ ${#install[@]} != 0 ]]; then
        say "installing ${install[*]}"
        install_packages "${install[@]}"
        look_again
    fi
    mkdir -p "$cache_dir" && touch "$cache_dir/optional-packages-asked"
}

# A build folder goes without the libraries that were missing when it was configured.
look_again()
{
    local ninja
    for ninja in build/build.ninja build-*/build.ninja; do
        [[ ! -f $ninja ]] || run_quietly "${ninja%/*}/configure.log" meson setup --reconfigure "${ninja%/*}"
    done
}

# Ends with the command that somebody has to call who may install packages. Of alternatives it names the first
# that this release has, as far as its package lists are here.
ask_administrator()
{
    local need name names=()
    for need in "$@"; do
        [[ $need == *\? ]] && continue
        name=$(available_package "$need")
        names+=("${name:-${need%%|*}}")
    done
    die "these packages are missing, and you are neither root nor may use sudo; ask an administrator for: apt-get install ${names[*]}"
}

# With a terminal somebody watches; a log gets apt's pages of output only when they say why it failed.
install_packages()
{
    local apt=(as_root env DEBIAN_FRONTEND=noninteractive
               apt-get install -y -qq --no-install-recommends "$@")
    mkdir -p "$cache_dir"
    if [[ -t 2 ]]; then
        "${apt[@]}" >&2
    else
        run_quietly "$cache_dir/apt.log" "${apt[@]}"
    fi
}

# True when nothing but optional needs is missing: they are asked for once, not at every start.
optional_only()
{
    local need
    for need in "$@"; do
        [[ $need == *\? ]] || return 1
    done
}

# The file is a variable so that a test can give another system's.
os_release=${GPUSERVE_OS_RELEASE:-/etc/os-release}

# The families of a system, the nearest first: "fedora", "rhel centos fedora", "arch", "alpine".
system_families()
{
    [[ -r $os_release ]] || return 0
    sed -nE 's/^ID(_LIKE)?="?([^"]*)"?$/\2/p' "$os_release" | tr '\n' ' '
}

is_debian()
{
    have dpkg-query && [[ -z ${GPUSERVE_OS_RELEASE:-} || " $(system_families) " == *\ debian\ * ]]
}

# The command that installs what `./dev run` needs on another system; nothing for an unknown one. The lists
# name packages by their documentation: no build on these systems is tested.
other_install_command()
{
    local family
    for family in $(system_families); do
        case $family in
        fedora | rhel | centos)
            printf '%s\n' "dnf install gcc gcc-c++ meson ninja-build pkgconf-pkg-config jansson-devel xxhash-devel" \
                "libcurl-devel openssl-devel libmicrohttpd-devel zlib-devel python3 python3-pip ca-certificates"
            return ;;
        arch)
            printf '%s\n' "pacman -S --needed gcc meson ninja pkgconf jansson xxhash curl openssl libmicrohttpd" \
                "zlib python python-pip ca-certificates"
            return ;;
        alpine)
            printf '%s\n' "apk add gcc g++ musl-dev meson samurai pkgconf jansson-dev xxhash-dev curl-dev" \
                "openssl-dev libmicrohttpd-dev zlib-dev python3 py3-pip ca-certificates"
            return ;;
        esac
    done
}

# On another system nothing is installed: what is there is used, and if the build tools or a library are missing,
# the command that installs them is printed.
require_tools()
{
    local command
    have meson && have ninja && have pkg-config &&
        pkg-config --exists jansson libcurl openssl libmicrohttpd zlib && return
    command=$(other_install_command | paste -sd ' ')
    [[ -n $command ]] || die "not a Debian or Ubuntu: install the likes of ${build_packages[*]} ${python_packages[*]}"
    die "tools or libraries are missing; as an administrator: $command (names for this system; not tested there)"
}

cmd_install_deps()
{
    need_packages "${build_packages[@]}" "${python_packages[@]}" "${test_packages[@]}" "${bench_packages[@]}" \
        "${proxy_packages[@]}" "${binding_packages[@]}" "${lint_packages[@]}" "${clang_packages[@]}" "${docs_packages[@]}" \
        "${arm_tools[@]}" "${deb_packages[@]}" "${bare_packages[@]}"
    say "everything is installed"
}
