# docs.sh
