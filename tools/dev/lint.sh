# lint.sh
