# bench.sh
