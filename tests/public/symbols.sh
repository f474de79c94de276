#!/bin/sh
# symbols.sh PREFIX LIBRARY HEADER...: the library shows exactly the functions the headers declare, each with the
# symbol version of the release that its comment names ("Since: 0.2": PREFIX_0.2), and needs no CUDA.
set -eu
prefix=$1
library=$2
shift 2
shown=$(nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort)
declared=$(cat "$@" | awk -v prefix="$prefix" '
    match($0, /Since: [0-9]+\.[0-9]+/) { since = substr($0, RSTART + 7, RLENGTH - 7) }
    /^GPUSERVE_API/ { is_open = 1 }
    is_open && match($0, /gpuserve_[a-z0-9_]+\(/) {
        print substr($0, RSTART, RLENGTH - 1) "@@" prefix "_" since
        is_open = 0
    }' | sort)
if [ "$shown" != "$declared" ]; then
    echo "shown by the library:"; echo "$shown"
    echo "declared by the headers:"; echo "$declared"
    exit 1
fi
if readelf -d "$library" | grep -E 'NEEDED.*(cuda|cublas|nvrtc|cudnn)'; then
    echo "the library is linked with CUDA"
    exit 1
fi
