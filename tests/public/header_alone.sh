#!/bin/sh
# header_alone.sh COMPILER... -- HEADER INCLUDE_DIR FLAG...: the header compiles alone, and twice.
set -eu
compiler=
while [ "$1" != -- ]; do
    compiler="$compiler $1"
    shift
done
shift
header=$1 include=$2
shift 2
# shellcheck disable=SC2086 # a compiler may be two words
printf '#include <%s>\n#include <%s>\nint used;\n' "$header" "$header" |
    $compiler "$@" -I "$include" -fsyntax-only -
