# test.sh
