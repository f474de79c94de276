#!/bin/sh
# symbols.sh LIBRARY HEADER...: the library shows exactly the functions the headers declare, all with
# the symbol version of the release they came in, and needs no CUDA.
set -eu
library=$1
shift
shown=$(nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort)
declared=$(cat "$@" | sed 's|/\*.*\*/||' | tr '\n' ' ' |
    grep -oE 'GPUSERVE_API[^;{}]*\(' | grep -oE 'gpuserve_[a-z0-9_]+ ?\(' | tr -d ' (' |
    sed 's/$/@@GPUSERVE_0.1/' | sort -u)
if [ "$shown" != "$declared" ]; then
    echo "shown by the library:"; echo "$shown"
    echo "declared by the headers:"; echo "$declared"
    exit 1
fi
if readelf -d "$library" | grep -E 'NEEDED.*(cuda|cublas|nvrtc|cudnn)'; then
    echo "the library is linked with CUDA"
    exit 1
fi
