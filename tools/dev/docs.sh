# docs.sh - the reference of the public headers, where something undocumented is an error, and that of the Python
# package.

cmd_docs()
{
    local venv
    need_packages "${docs_packages[@]}" "${python_packages[@]}"
    mkdir -p docs/html
    doxygen docs/Doxyfile
    venv=$(python_env docs docs/requirements.txt)
    # The adapters of other frameworks are left out: pdoc imports what it documents.
    PYTHONPATH=$PWD/python "$venv/bin/python" -W ignore -m pdoc --docformat google -o docs/html/python \
        gpuserve gpuserve.sentence_transformers gpuserve.sentence_transformers.util
    say "docs/html/index.html, docs/html/python/index.html"
}
