#!/bin/bash
# use_packages.sh FOLDER: installs the .deb files of FOLDER in a bare Debian and uses them. Run by
# `./dev deb check`, as root of a chroot. Ends with "N passed, N failed".
set -uo pipefail
packages=$1
here=$(cd "$(dirname "$0")" && pwd)
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
work=$(mktemp -d)
# shellcheck source=tests/packages/checks.sh
. "$here/checks.sh"

# says TEXT COMMAND...: the command fails, and its output has TEXT.
says()
{
    local text=$1
    shift
    ! "$@" >"$work/said" 2>&1 && grep -qF "$text" "$work/said" || { cat "$work/said"; return 1; }
}

install()
{
    apt-get install -y -qq --no-install-recommends "$@"
}

deb()
{
    ls "$packages/$1"_*.deb
}

apt-get update -qq

check "the program installs with one library of gpuserve" install "$(deb libgpuserve0)" "$(deb gpuserve)"
vectors()
{
    [[ $(gpuserve embed random:bert-tiny,seed=1 "a text" "another" | wc -l) == 2 ]]
}
check "embed writes two vectors" vectors
few_libraries()
{
    ldd /usr/bin/gpuserve | tee "$work/ldd"
    [[ $(wc -l <"$work/ldd") -le 6 ]] && ! grep -E 'libstdc|libcurl|libssl|libcrypto|microhttpd' "$work/ldd"
}
check "the program needs jansson and the C library only" few_libraries
core_libraries()
{
    ! readelf_needed "$(ls /usr/lib/*/libgpuserve.so.0)" | grep -vE 'libjansson|libm\.|libc\.|ld-linux'
}
readelf_needed()
{
    ldd "$1" | awk '{ print $1 }' | grep -v vdso
}
check "the library needs jansson and the C library only" core_libraries
check "serve names the missing package" says libgpuserve-http0 gpuserve serve random:bert-tiny
check "pull names the missing package" says libcurl4 gpuserve pull org/name
check "libcurl4 installs" install libcurl4
check "pull needs no other package" says 'http://127.0.0.1:1: org/name: ' env HF_ENDPOINT=http://127.0.0.1:1 gpuserve pull org/name
copyright_names()
{
    local name
    for name in Apache-2.0 xxHash BSD-2-Clause Unicode-3.0 GCC-exception-3.1; do
        grep -qF "$name" /usr/share/doc/libgpuserve0/copyright || { echo "no $name"; return 1; }
    done
}
check "the copyright file names what the library contains" copyright_names
check "the manual page is there" test -s /usr/share/man/man1/gpuserve.1.gz

check "the server installs" install "$(deb libgpuserve-http0)"
serves()
{
    local server status=1 answer
    gpuserve serve random:bert-tiny,seed=1 --port 18080 >"$work/serve" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        grep -q '^http' "$work/serve" && break
        sleep 0.2
    done
    exec 3<>/dev/tcp/127.0.0.1/18080 && printf 'GET /livez HTTP/1.0\r\n\r\n' >&3 && read -r answer <&3 &&
        [[ $answer == *200* ]] && status=0
    exec 3>&-
    kill "$server"
    wait "$server" || status=1
    cat "$work/serve"
    return $status
}
check "serve answers and ends cleanly" serves

check "the development files install" install "$(deb libgpuserve-dev)" gcc g++ libc6-dev cmake make pkg-config
cp "$here"/*.c "$here"/CMakeLists.txt "$work/"
cd "$work" || exit 1

# shellcheck disable=SC2046  # words
with_pkg_config()
{
    gcc -Wall -Werror first.c $(pkg-config --cflags --libs gpuserve) -o first && ./first && ldd first | grep libgpuserve.so.0 >/dev/null &&
        pkg-config --exact-version="$(dpkg-query -W -f '${Version}' libgpuserve-dev)" gpuserve
}
check "a program compiles with pkg-config" with_pkg_config
# shellcheck disable=SC2046
static()
{
    gcc -static first.c $(pkg-config --static --cflags --libs gpuserve) -o first-static && ./first-static &&
        ! ldd first-static
}
check "a program links with -static" static
# shellcheck disable=SC2046
headers()
{
    local header
    for header in /usr/include/gpuserve/*.h /usr/include/gpuserve/sys/*.h; do
        gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c "$header" 2>&1 | grep -v 'pragma once' | grep error >/dev/null && return 1
        printf '#include "%s"\n' "$header" | g++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c++ - || return 1
    done
}
check "each header compiles alone as C and as C++" headers
with_cmake()
{
    cmake -S . -B "cmake-$1" "-DKIND=$1" && cmake --build "cmake-$1" && "./cmake-$1/first"
}
check "CMake finds the shared library" with_cmake shared
check "CMake finds the archive" with_cmake static
linked_in()
{
    ! ldd cmake-static/first | grep libgpuserve && ldd cmake-shared/first | grep libgpuserve.so.0
}
check "each has the kind it asked for" linked_in
check "CMake refuses another version" says 'version "9.0"' cmake -S . -B cmake-version -DVERSION=9.0
check "CMake refuses a component that is not there" says 'magic is not installed' cmake -S . -B cmake-component -DCOMPONENT=magic

if compgen -G "$packages/libgpuserve-cuda_*.deb" >/dev/null; then
    check "the plugin installs" install "$(deb libgpuserve-cuda)"
    cuda_licence()
    {
        zcat -f /usr/share/doc/libgpuserve-cuda/cuda-runtime.txt* | grep -F NVIDIA >/dev/null && grep -qF 'CUDA Runtime' /usr/share/doc/libgpuserve-cuda/copyright
    }
    check "it has the licence of the CUDA run-time library" cuda_licence
    if [[ -n $(dpkg -L libgpuserve-cuda | grep -F cuda12.so) ]]; then
        check "it has the licence of the run-time library of CUDA 12" bash -c 'zcat -f /usr/share/doc/libgpuserve-cuda/cuda-runtime-12.txt* | grep -F NVIDIA >/dev/null'
    fi
    check "the plugin is found" bash -c 'gpuserve doctor --device cuda:0 | grep /gpuserve/libgpuserve-cuda.so >/dev/null'
fi

# The cache of packed weights in a home folder belongs to its user: a purge leaves it, as Debian's policy asks.
gone()
{
    apt-get purge -y -qq 'libgpuserve*' gpuserve && ! find / -xdev -path /proc -prune -o -path /packages -prune -o -name '*gpuserve*' -print |
        grep -vE '^/(packages|check|tmp|var)|^/root/\.cache/gpuserve$'
}
check "nothing stays behind" gone
rm -rf "$work"
printf '%d passed, %d failed\n' "$passed" "$failed"
[[ $failed == 0 ]]
