#!/bin/sh
# header_alone.sh COMPILER... -- HEADER INCLUDE_DIR FLAG...: the header compiles alone, and twice, and each
# of its structs with a struct_size begins with its _INIT macro, of as many values as it has fields.
set -eu
compiler=
while [ "$1" != -- ]; do
    compiler="$compiler $1"
    shift
done
shift
header=$1 include=$2
shift 2
versioned=$(sed -n '/^typedef struct [a-z_]* {$/ { N; s/^typedef struct \([a-z_]*\) {\n *uint32_t  *struct_size;.*/\1/p; }' \
    "$include/$header")
# shellcheck disable=SC2086 # a compiler may be two words
{
    printf '#include <%s>\n#include <%s>\nint used;\n' "$header" "$header"
    for struct in $versioned; do
        echo "$struct the_$struct = $(echo "$struct" | tr '[:lower:]' '[:upper:]')_INIT;"
    done
} |
    $compiler "$@" -I "$include" -fsyntax-only -
