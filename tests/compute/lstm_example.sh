#!/bin/sh
# lstm_example.sh PROGRAM DEVICE: examples/lstm.c counts what is given to it, and refuses the rest.
set -eu
program=$1 device=$2
want='0110100: 3 ones, 4 zeros
1: 1 ones, 0 zeros
: 0 ones, 0 zeros
000000000000000000001: 1 ones, 20 zeros'
got=$("$program" "$device" 0110100 1 '' 000000000000000000001)
[ "$got" = "$want" ] || { echo "$got"; exit 1; }
if "$program" "$device" 012; then
    exit 1
fi
