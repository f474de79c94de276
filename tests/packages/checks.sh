#!/bin/bash
# checks.sh: counted checks for the scripts of this folder, which source it. $work is a folder of theirs.
passed=0
failed=0

# Makes $work, an empty folder with an empty home that the script goes on in; it is removed at the end.
use_empty_folder()
{
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    export HOME=$work/home LC_ALL=C.UTF-8
    mkdir "$HOME"
    cd "$work" || exit 1
}

# Two texts and their similarity with all-MiniLM-L6-v2 by sentence-transformers, as a pattern.
reference_texts=("A man is eating food." "A man is eating a piece of bread.")
reference_similarity='0\.755'

# check WHAT COMMAND...
check()
{
    local what=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        passed=$((passed + 1))
        printf 'ok      %s\n' "$what"
    else
        failed=$((failed + 1))
        printf 'FAILED  %s\n' "$what"
        tail -n 30 "$work/log"
    fi
}
