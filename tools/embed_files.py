#!/usr/bin/env python3
"""Files as a C source of bytes: embed_files.py OUTPUT.c PREFIX FILE...

For PREFIX gsv_page and page.css: `const unsigned char gsv_page_page_css[]` and its size
`const size_t gsv_page_page_css_size`.
"""
import pathlib
import re
import sys


def main():
    output, prefix, *names = sys.argv[1:]
    parts = ["#include <stddef.h>\n"]
    for name in names:
        content = pathlib.Path(name).read_bytes()
        symbol = prefix + "_" + re.sub(r"\W", "_", pathlib.Path(name).name)
        numbers = ",".join(map(str, content))
        parts.append(f"extern const unsigned char {symbol}[];\nextern const size_t {symbol}_size;\n"
                     f"const unsigned char {symbol}[] = {{ {numbers} }};\n"
                     f"const size_t {symbol}_size = sizeof({symbol});\n")
    pathlib.Path(output).write_text("".join(parts))


main()
