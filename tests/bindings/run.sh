#!/bin/sh
# run.sh LANGUAGE LIBRARY SOURCE_ROOT: compiles the example of a language with Debian's toolchain and runs
# it with all-MiniLM-L6-v2. Exit status 77 without the toolchain.
set -eu
language=$1 library=$(dirname "$2") root=$3
models=${GPUSERVE_TEST_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuserve/models}
model=$models/all-MiniLM-L6-v2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

without()
{
    echo "this machine has no $1: apt-get install $2" >&2
    exit 77
}

run()
{
    case $language in
    rust)
        # rustup's own rustc exists without a toolchain, too, and fails.
        rustc --version >/dev/null 2>&1 || without rustc rustc
        rustc -O -D warnings -o "$work/embed" "$root/examples/rust/embed.rs" -L "$library" -l gpuserve
        LD_LIBRARY_PATH=$library "$work/embed" "$model"
        ;;
    go)
        command -v go >/dev/null || without go golang-go
        CGO_CFLAGS="-I$root/include" CGO_LDFLAGS="-L$library" GOCACHE=${GOCACHE:-$work/cache} GO111MODULE=off \
            go build -o "$work/embed" "$root/examples/go/embed.go"
        LD_LIBRARY_PATH=$library "$work/embed" "$model"
        ;;
    java)
        command -v javac >/dev/null || without javac default-jdk-headless
        test -f /usr/share/java/jna.jar || without jna.jar libjna-java
        javac -Xlint:all,-serial -Werror -cp /usr/share/java/jna.jar -d "$work" "$root/examples/java/Embed.java"
        java -cp "/usr/share/java/jna.jar:$work" -Djna.library.path="$library" Embed "$model"
        ;;
    esac
}

run >"$work/out"
cat "$work/out"
grep -qx '4 threads, 3 texts each, 384 dimensions' "$work/out"
grep -qE '^similarity 0\.755 -?0\.[0-9]{3}$' "$work/out"
grep -q '^error GPUSERVE_E_NOT_FOUND: /nowhere' "$work/out"
