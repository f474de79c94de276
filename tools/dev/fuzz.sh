# fuzz.sh
