#!/bin/sh
# install.sh BUILD_DIR EXAMPLE COMPILER...: what `meson install` puts in place is enough to build a
# program with pkg-config alone.
set -eu
build=$1 example=$2
shift 2
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
meson install -C "$build" --no-rebuild --destdir "$root" >/dev/null
pc=$(find "$root" -name gpuserve.pc)
lib=$(dirname "$(find "$root" -name 'libgpuserve.so.0')")
test -n "$pc" -a -n "$lib"
for header in gpuserve.h compute.h context.h convert.h devices.h model.h retrieval.h run.h tokenizer.h types.h sys/backend.h; do
    test -n "$(find "$root" -path "*/include/gpuserve/$header")"
done
flags=$(PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --cflags --libs gpuserve)
# shellcheck disable=SC2086 # flags are words
"$@" -std=c11 -o "$root/program" "$example" $flags
LD_LIBRARY_PATH=$lib ldd "$root/program" | grep -q "$lib/libgpuserve.so.0"
# Each library finds the other where it is installed, without a path from outside.
for library in "$lib"/libgpuserve*.so.0; do
    if env -u LD_LIBRARY_PATH ldd "$library" | grep 'libgpuserve.*not found'; then
        echo "$library does not find it"
        exit 1
    fi
done
