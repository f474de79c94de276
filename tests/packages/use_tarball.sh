#!/bin/bash
# use_tarball.sh TARBALL MODEL: unpacks a binary tarball of a release in an empty folder and uses it. Run by `./dev release check`, which
# gives an empty environment with GPUSERVE_CHECK_MACHINE, the tarball's machine, and for another machine than this
# one GPUSERVE_CHECK_SYSROOT, the libraries that QEMU runs the program with, and GPUSERVE_CHECK_NEWER, those for the HTTP server and for
# what is compiled here. Ends with "N passed, N failed".
set -uo pipefail
tarball=$(realpath "$1")
model=$2
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/packages/checks.sh
. "$here/checks.sh"
use_empty_folder
machine=$GPUSERVE_CHECK_MACHINE
compiler=gcc
emulator=()
newer=() # what runs the server, and programs that are compiled here
if [[ $machine != "$(uname -m)" ]]; then
    compiler=$machine-linux-gnu-gcc
    emulator=("qemu-$machine" -cpu max -L "$GPUSERVE_CHECK_SYSROOT")
    newer=("qemu-$machine" -cpu max -L "$GPUSERVE_CHECK_NEWER")
fi

# The only folder of the tarball, below one whose name has a space.
mkdir "$work/a folder"
check "the tarball unpacks" tar -C "$work/a folder" -xzf "$tarball"
tree=$(echo "$work/a folder"/*)
check "it holds one folder with the tarball's name" test "${tree##*/}.tar.gz" = "${tarball##*/}"
owners()
{
    [[ $(tar -tvzf "$tarball" --numeric-owner | awk '{ print $2 }' | sort -u) == 0/0 ]] &&
        [[ $(tar -tvzf "$tarball" --full-time | awk '{ print $4, $5 }' | sort -u | wc -l) == 1 ]]
}
check "every file has owner 0 and the time of the commit" owners
licences()
{
    local file
    [[ -s $tree/LICENSE ]] || return 1
    for file in "$tree"/LICENSES/*; do
        [[ -s $file ]] && grep -F "LICENSES/${file##*/}" "$tree/THIRD-PARTY.md" || return 1
    done
}
check "it names the licences that it holds" licences

gpuserve()
{
    "${emulator[@]}" "$tree/bin/gpuserve" "$@"
}
version()
{
    local version=${tarball##*/gpuserve-}
    gpuserve --version | tee /dev/stderr | grep -wF "${version%%-linux*}" >/dev/null
}
check "gpuserve --version" version
vectors()
{
    [[ $(gpuserve embed random:bert-tiny,seed=1 "a text" "another" | wc -l) == 2 ]]
}
check "embed writes two vectors of a model without files" vectors
real_model()
{
    gpuserve similarity "$model" "${reference_texts[@]}" | tee /dev/stderr | grep "$reference_similarity" >/dev/null
}
check "the similarity of two texts is that of the reference" real_model
head()
{
    gpuserve classify "$model" --head sentiment "a fine film" | tee /dev/stderr | grep positive >/dev/null
}
check "an installed head is found by its name" head
lstm()
{
    gpuserve classify "$tree/share/gpuserve/models/lstm-sentiment" "a fine film" | tee /dev/stderr | grep positive >/dev/null
}
check "the model of the tarball labels a text" lstm

# only_libraries NAMES FILE...: besides those of the tarball, a file needs these libraries of the system and no other.
only_libraries()
{
    local names=$1 file
    shift
    for file in "$@"; do
        readelf --dynamic --wide "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | while read -r name; do
            [[ -e $tree/lib/$name || $name =~ ^(lib($names)\.so\.[0-9]|ld-linux-.*)$ ]] || { echo "$file needs $name"; exit 1; }
        done || return 1
    done
}
libc='c|m|dl|pthread|rt'
if [[ -n $(command -v readelf) ]]; then
    check "program and library need the C library only" only_libraries "$libc" "$tree/bin/gpuserve" "$tree"/lib/libgpuserve.so.0 "$tree"/lib/libjansson-gpuserve.so.*
fi
if [[ -d $tree/lib/gpuserve ]]; then
    check "each CUDA plugin needs the C and C++ libraries only" only_libraries "$libc|stdc\+\+|gcc_s" "$tree"/lib/gpuserve/libgpuserve-cuda*.so
    # Without a GPU doctor fails, and says which plugin it loaded.
    plugin()
    {
        { gpuserve doctor --device cuda:0 || true; } | tee /dev/stderr | grep -E '^plugin +ok ' | grep -F "$tree/bin/../lib/gpuserve/libgpuserve-cuda.so" >/dev/null
    }
    check "the CUDA plugin is found" plugin
fi

serves()
{
    local server status=1 answer port
    "${newer[@]}" "$tree/bin/gpuserve" serve random:bert-tiny,seed=1 --port 0 >"$work/serve" 2>&1 & # no function: its process is the shell's
    server=$!
    for _ in $(seq 300); do
        grep -qE '^http|cannot be loaded' "$work/serve" && break
        sleep 0.1
    done
    cat "$work/serve"
    if grep -q 'cannot be loaded: libmicrohttpd' "$work/serve"; then # a bare system: it says what is missing
        wait "$server" && return 1
        return 0
    fi
    port=$(sed -nE 's,^http://127\.0\.0\.1:([0-9]+).*,\1,p' "$work/serve")
    exec 3<>"/dev/tcp/127.0.0.1/$port" && printf 'GET /livez HTTP/1.0\r\n\r\n' >&3 && read -r answer <&3 &&
        [[ $answer == *200* ]] && status=0
    exec 3>&-
    kill "$server"
    wait "$server" || status=1
    return $status
}
check "serve answers, or names the library of the system that is missing" serves

mv "$work/a folder" "$work/moved"
tree=$work/moved/${tree##*/}
check "it works from another folder" vectors

if [[ -n ${GPUSERVE_CHECK_INSTALL:-} ]]; then
    check "a compiler installs" bash -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev pkg-config cmake make'
fi
# Only the tarball's pkg-config files: a system has none of jansson.
export PKG_CONFIG_LIBDIR=$tree/lib/pkgconfig
cp "$here"/*.c "$here"/CMakeLists.txt "$work/"
# shellcheck disable=SC2046  # words
shared()
{
    "$compiler" -Wall -Werror first.c $(pkg-config --cflags --libs gpuserve) "-Wl,-rpath,$tree/lib" -o first &&
        "${newer[@]}" ./first && readelf --dynamic first | grep libgpuserve.so.0 >/dev/null
}
check "a program links the shared library with pkg-config" shared
# shellcheck disable=SC2046
static()
{
    "$compiler" -static first.c $(pkg-config --static --cflags --libs gpuserve) -o first-static && "${newer[@]}" ./first-static &&
        ! readelf --dynamic first-static | grep NEEDED
}
check "a program links with -static" static
with_cmake()
{
    cmake -S . -B "cmake-$1" "-DKIND=$1" "-DCMAKE_C_COMPILER=$compiler" "-DCMAKE_PREFIX_PATH=$tree" && cmake --build "cmake-$1" && "${newer[@]}" "./cmake-$1/first"
}
if [[ -n $(command -v cmake) ]]; then
    check "CMake finds the shared library" with_cmake shared
    check "CMake finds the archive" with_cmake static
fi
printf '%d passed, %d failed\n' "$passed" "$failed"
[[ $failed == 0 ]]
