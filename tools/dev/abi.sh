# abi.sh - the binary interface against the dump of this version; docs/releasing.md has the rules.

cmd_abi()
{
    [[ ${1:-} == check || ${1:-} == write ]] || die "usage: ./dev abi check|write"
    need_packages gcc python3 abigail-tools
    python3 tools/abi.py "$1" || return 1
    [[ $1 == check ]] || say "$(ls packaging/abi/*.abi) lib/base/generated/min_sizes.h"
}
