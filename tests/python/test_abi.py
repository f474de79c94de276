#!/usr/bin/env python3
"""The ctypes structs against the C compiler's, and the file of them against the headers."""
import os
import subprocess
import sys
from ctypes import sizeof

from common import ROOT, Case, main
from gpuserve import version, __version__
from gpuserve._ffi import abi as _abi, library as _library


class Abi(Case):
    def test_the_file_is_what_the_headers_say(self):
        subprocess.run([sys.executable, os.path.join(ROOT, "tools/bind_python.py"), "--check"],
                       check=True)

    def test_every_size_and_offset_is_the_compiler_s(self):
        lines, expected = [], []
        for struct in _abi.STRUCTS:
            lines.append(f'printf("%zu\\n", sizeof({struct.c_name}));')
            expected.append((struct.c_name, sizeof(struct)))
            for name, *_ in struct._fields_:
                lines.append(f'printf("%zu\\n", offsetof({struct.c_name}, {name}));')
                expected.append((f"{struct.c_name}.{name}", getattr(struct, name).offset))
        source = self.write("layout.c", "#include <gpuserve/gpuserve.h>\n#include <stdio.h>\n"
                            "int main(void) {" + "".join(lines) + "return 0;}")
        program = self.path("layout")
        subprocess.run(["cc", "-I", os.path.join(ROOT, "include"), source, "-o", program],
                       check=True)
        measured = subprocess.run([program], check=True, capture_output=True, text=True).stdout
        self.assertGreater(len(expected), 100)
        self.assertEqual([(name, int(value)) for (name, _), value
                          in zip(expected, measured.split())], expected)

    def test_every_function_of_the_headers_is_bound(self):
        library = _library.library()
        for name in _abi.FUNCTIONS:
            self.assertIsNotNone(getattr(library, name).argtypes, name)

    def test_package_and_library_have_one_version(self):
        self.assertEqual(version(), __version__)
        self.assertTrue(_library.SONAME.endswith(f".{_library.library().gpuserve_abi_version()}"))


if __name__ == "__main__":
    main(__name__)
