# docs.sh - the reference of the public headers; something undocumented there is an error.

cmd_docs()
{
    need_packages "${docs_packages[@]}"
    mkdir -p docs/html
    doxygen docs/Doxyfile
    say "docs/html/index.html"
}
