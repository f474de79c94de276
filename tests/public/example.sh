#!/bin/sh
# example.sh PROGRAM PATTERN ARGUMENT...: the program succeeds and prints a line that matches the
# pattern. An argument that is MODEL becomes the folder of all-MiniLM-L6-v2.
set -eu
program=$1 pattern=$2
shift 2
name=all-MiniLM-L6-v2
models=${GPUSERVE_TEST_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuserve/models}
if [ ! -r "$models/$name/config.json" ]; then
    echo "$models/$name is missing: run ./dev models $name"
    exit 1
fi
n=$#
while [ "$n" -gt 0 ]; do # once around: each argument is taken from the front, put at the back
    argument=$1
    shift
    [ "$argument" = MODEL ] && argument=$models/$name
    set -- "$@" "$argument"
    n=$((n - 1))
done
output=$("$program" "$@" </dev/null)
echo "$output"
echo "$output" | grep -qE "$pattern"
