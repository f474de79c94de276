# docs.sh - the reference of the public headers, where something undocumented is an error, and that of the Python
# package. `./dev lint` makes both: a warning of doxygen and a link that leads nowhere fail.

cmd_docs()
{
    local venv
    need_packages "${docs_packages[@]}" "${python_packages[@]}"
    venv=$(python_env docs docs/requirements.txt) || return 1
    rm -rf docs/html # pages of what is gone
    mkdir -p docs/html
    doxygen docs/Doxyfile || return 1
    # The adapters of other frameworks are left out: pdoc imports what it documents, and warns of types that only a type checker imports.
    PYTHONPATH=$PWD/python "$venv/bin/python" -W ignore -m pdoc --docformat google --template-directory docs/pdoc -o docs/html/python \
        gpuserve gpuserve.sentence_transformers || return 1
    python3 tools/check_links.py docs/html || return 1
    say "docs/html/index.html, docs/html/python/index.html"
}
