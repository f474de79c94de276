#!/usr/bin/env python3
"""Write python/gpuserve/_abi.py from the public headers: bind_python.py [--check]

The headers are the one place where structs, numbers and functions stand. They are written in one
plain manner, which this reads: typedef struct, typedef enum with every number given, #define of a
number, GPUSERVE_API functions. What it does not understand is an error, never left out.
With --check nothing is written, and a file that is not up to date is a failure.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "include/gpuserve"
# The words first; the HTTP front end is a library of its own.
HEADERS = [FOLDER / "types.h", FOLDER / "gpuserve.h"]
HEADERS += sorted(set(FOLDER.glob("*.h")) - {*HEADERS, FOLDER / "http.h"})
OUTPUT = ROOT / "python/gpuserve/_abi.py"

PREAMBLE = '''"""The structs, numbers and functions of the public headers, for ctypes.

Made by tools/bind_python.py from include/gpuserve/*.h, where their meaning stands: do not edit.
"""

from __future__ import annotations

from ctypes import (
    CDLL,
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int8,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)
from typing import Any, Dict, List, Tuple, Type, TypeVar

LogFunction = CFUNCTYPE(None, c_void_p, c_int32, c_char_p)
'''

CLOSING = '''
AnyStruct = TypeVar("AnyStruct", bound=Structure)


def new(kind: Type[AnyStruct], **fields: Any) -> AnyStruct:
    """A struct with its size told and every other field at its default."""
    return kind(struct_size=sizeof(kind), **fields)


def bind(library: CDLL) -> None:
    """Give every function its types; AttributeError for one that the library lacks."""
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
'''

SIMPLE = {
    "char": "c_char", "float": "c_float", "double": "c_double", "int": "c_int",
    "int8_t": "c_int8", "uint8_t": "c_uint8", "int32_t": "c_int32", "uint32_t": "c_uint32",
    "int64_t": "c_int64", "uint64_t": "c_uint64", "size_t": "c_size_t",
}


def fail(what):
    sys.exit(f"bind_python.py: {what}")


def python_name(name):
    """gpuserve_model_options -> ModelOptions"""
    return "".join(part.capitalize() for part in name.removeprefix("gpuserve_").split("_"))


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)


class Header:
    """What the headers hold, in their order."""

    def __init__(self, text):
        self.enums = set(re.findall(r"typedef enum (\w+) \{", text))
        self.numbers = self._numbers(text)
        self.structs = self._structs(text)
        self.functions = self._functions(text)

    def _numbers(self, text):
        found = {}
        for name, value in re.findall(r"^#define (GPUSERVE_\w+) +(?:UINT32_C\()?(0x[0-9a-fA-F]+|\d+)\)?\s*$",
                                      text, re.MULTILINE):
            found[name] = value
        for _, body in re.findall(r"typedef enum (\w+) \{(.*?)\}", text, re.DOTALL):
            for entry in filter(None, (part.strip() for part in body.split(","))):
                match = re.fullmatch(r"(GPUSERVE_\w+) = (-?\w+)", entry)
                if not match:
                    fail(f"no number in the enumeration: {entry}")
                found[match[1]] = match[2]
        return {name.removeprefix("GPUSERVE_"): value for name, value in found.items()}

    def _structs(self, text):
        found = {}
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \w+;", text, re.DOTALL):
            fields = [self._field(part.strip()) for part in body.split(";") if part.strip()]
            found[name] = fields
        return found

    def _field(self, declaration):
        match = re.fullmatch(r"(.*?[ *])(\w+)(?:\[(\w+)\])?", " ".join(declaration.split()))
        if not match:
            fail(f"no field: {declaration}")
        kind, name, count = match[1].replace(" ", ""), match[2], match[3]
        if count:
            value = self.numbers.get(count.removeprefix("GPUSERVE_"), count)
            return name, f"{SIMPLE[kind]} * {value}"
        if kind == "constchar*":
            return name, "c_char_p"
        if kind.endswith("*") or kind.endswith("_fn"):
            return name, "c_void_p"
        if kind not in SIMPLE:
            fail(f"unknown type of a field: {declaration}")
        return name, SIMPLE[kind]

    def _functions(self, text):
        found = {}
        for result, name, body in re.findall(
                r"GPUSERVE_API\s+(?:GPUSERVE_MUST_USE\s+)?([\w\s*]+?)\s*\b(gpuserve_\w+)\(([^;]*)\);", text):
            arguments = [] if body.strip() == "void" else [
                self._argument(part) for part in body.split(",")]
            found[name] = (self._result(result), arguments)
        return found

    def _result(self, declaration):
        kind = declaration.replace(" ", "").replace("\n", "")
        if kind == "void":
            return "None"
        if kind in self.enums:
            return "c_int"
        if kind == "constchar*":
            return "c_char_p"
        return "c_void_p" if kind.endswith("*") else SIMPLE[kind]

    def _argument(self, declaration):
        kind = re.sub(r"\w+$", "", " ".join(declaration.split())).replace(" ", "").removeprefix("const")
        if kind == "char*":
            return "c_char_p" if "const" in declaration else "c_void_p"
        if kind == "size_t*":
            return "POINTER(c_size_t)"
        if kind == "uint32_t*":
            return "POINTER(c_uint32)"
        if kind.endswith("**") and kind.rstrip("*") not in self.structs and "const" not in declaration:
            return "POINTER(c_void_p)"
        if kind.endswith("*"):
            fields = self.structs.get(kind.rstrip("*"))
            versioned = fields and fields[0][0] == "struct_size"
            return f"POINTER({python_name(kind.rstrip('*'))})" if versioned else "c_void_p"
        if kind.endswith("_fn"):
            return "c_void_p"
        return "c_int" if kind in self.enums else SIMPLE[kind]


def written(header):
    lines = [PREAMBLE]
    lines += [f"{name} = {value}" for name, value in header.numbers.items()]
    for name, fields in header.structs.items():
        lines += ["", "", f"class {python_name(name)}(Structure):", f'    c_name = "{name}"',
                  "    _fields_ = ["]
        lines += [f'        ("{field}", {kind}),' for field, kind in fields] + ["    ]"]
    lines += ["", "", "STRUCTS: List[Type[Structure]] = ["]
    lines += [f"    {python_name(name)}," for name in header.structs] + ["]", ""]
    lines += ["# name: (result, arguments)", "FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {"]
    for name, (result, arguments) in header.functions.items():
        lines += [f'    "{name}": ({result}, [']
        lines += [f"        {argument}," for argument in arguments] + ["    ]),"]
    return "\n".join(lines + ["}"]) + "\n" + CLOSING


def main():
    text = "\n".join(without_comments(path.read_text()) for path in HEADERS)
    made = written(Header(text))
    if "--check" in sys.argv:
        if not OUTPUT.exists() or OUTPUT.read_text() != made:
            fail(f"{OUTPUT.relative_to(ROOT)} is not what the headers say: run tools/bind_python.py")
    else:
        OUTPUT.write_text(made)


main()
