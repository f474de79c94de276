#!/bin/sh
# install.sh BUILD_DIR EXAMPLE FOLDER COMPILER...: what `meson install` puts in place works after the whole
# prefix was moved, without root: pkg-config, static linking and CMake find it where it lies. FOLDER has
# first.c and CMakeLists.txt.
set -eu
build=$1 example=$2 folder=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$(meson introspect --buildoptions "$build" | python3 -c '
import json, sys
print(next(option["value"] for option in json.load(sys.stdin) if option["name"] == "prefix"))')
meson install -C "$build" --no-rebuild --destdir "$work/staged" >/dev/null
root=$work/moved
mv "$work/staged$prefix" "$root"
pc=$(find "$root" -name gpuserve.pc)
lib=$(dirname "$(find "$root" -name 'libgpuserve.so.0')")
test -n "$pc" -a -n "$lib"
for header in gpuserve.h compute.h context.h convert.h devices.h long_texts.h entities.h model.h retrieval.h run.h tokenizer.h types.h sys/arithmetic.h sys/backend.h sys/outputs.h; do
    test -f "$root/include/gpuserve/$header"
done
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
grep -q '^Requires.private: jansson[^,]*$' "$pc" # nothing that -dev of Debian would have to depend on
flags=$(pkg-config --cflags --libs gpuserve)
case $flags in *"$root"*) ;; *) echo "the prefix does not move: $flags"; exit 1 ;; esac
# shellcheck disable=SC2086 # flags are words
"$@" -std=c11 -o "$work/program" "$example" $flags
LD_LIBRARY_PATH=$lib ldd "$work/program" | grep "$lib/libgpuserve.so.0" >/dev/null
# Each library finds the other where it is installed, without a path from outside.
for library in "$lib"/libgpuserve*.so.0; do
    if env -u LD_LIBRARY_PATH ldd "$library" | grep 'libgpuserve.*not found'; then
        echo "$library does not find it"
        exit 1
    fi
done
flags=$(pkg-config --static --cflags --libs gpuserve)
# shellcheck disable=SC2086
"$@" -static -o "$work/static" "$folder/first.c" $flags 2>"$work/log" ||
    { cat "$work/log"; exit 1; }
"$work/static" | grep similarity
if command -v cmake >/dev/null; then
    for kind in shared static; do
        cmake -G Ninja -S "$folder" -B "$work/cmake-$kind" -DKIND=$kind -DCMAKE_PREFIX_PATH="$root" >"$work/log" 2>&1 &&
            cmake --build "$work/cmake-$kind" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
        "$work/cmake-$kind/first" | grep similarity
    done
    if cmake -G Ninja -S "$folder" -B "$work/cmake-other" -DVERSION=9.0 -DCMAKE_PREFIX_PATH="$root" >"$work/log" 2>&1; then
        echo "CMake takes this version for 9.0"
        exit 1
    fi
else
    echo "note: without cmake its package was not tried"
fi
# The program finds its libraries, and brings few.
if [ -x "$root/bin/gpuserve" ]; then
    test "$(env -u LD_LIBRARY_PATH "$root/bin/gpuserve" embed random:bert-tiny,seed=1 "a text" | wc -l)" = 1
    ldd "$root/bin/gpuserve" >"$work/needed"
    if [ "$(wc -l <"$work/needed")" -gt 6 ] || grep -E 'libstdc|libcurl|libssl|libcrypto|microhttpd' "$work/needed"; then
        cat "$work/needed"
        exit 1
    fi
fi
