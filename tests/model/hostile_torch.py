#!/usr/bin/env python3
"""Hostile PyTorch files: each is refused with its place and reason, in bounded time and memory; good ones are read.

Usage: hostile_torch.py VERDICT_PROGRAM FIXTURES
"""
import os
import pickle
import pickletools
import struct
import subprocess
import sys
import tempfile
import time
import zipfile

from torch_bytes import (GOOD, HOOKS, MAGIC, STORAGE, Entry, archive, name, number, numbers, old, pickled, saved, state_dict,
                         storage, tensor, text)

NOT_FOUND, FORMAT, UNSUPPORTED, TOO_LARGE = 2, 3, 4, 6
MAX_SECONDS = 60 # for all files together
# What state dicts need, and no more.
OPCODES = set("""PROTO FRAME MARK STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE
BINUNICODE8 SHORT_BINSTRING EMPTY_TUPLE EMPTY_LIST EMPTY_DICT TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS
BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BINPERSID BUILD""".split())
CALLS = [("os", "system"), ("posix", "system"), ("builtins", "eval"), ("builtins", "exec"), ("builtins", "getattr"),
         ("__builtin__", "eval"), ("subprocess", "Popen"), ("torch", "load"), ("torch", "FloatStorage.__init__"),
         ("torch._utils", "_rebuild_tensor_v22"), ("torch._utils", "_rebuild_tensor_v"), ("torch._utils", "_import_dotted_name"),
         ("torch.storage", "_load_from_bytes"), ("collections", "OrderedDict.__reduce__"), ("collections", "Counter"),
         ("collections", "defaultdict"), ("_codecs", "encode"), ("numpy.core.multiarray", "_reconstruct"), ("", ""),
         ("torch", "float32"), ("torch", "Floatstorage"), ("torch.nn.modules.linear", "Linear"), ("torch\0", "FloatStorage"),
         ("x" * 5000, "y" * 5000), ("\x1b[31m", "\xff")]


def good_files():
    """(what, file, number of tensors)"""
    yield "zip", saved(), 1
    yield "zip of 32 bits", saved(zip64=False), 1
    yield "old layout", old(), 1
    yield "old tensor function", saved(state_dict(("a", name("torch._utils", "_rebuild_tensor") + b"(" + storage() + number(0) +
                                                   numbers([16]) + numbers([1]) + b"tR"))), 1
    yield "tensor metadata", saved(state_dict(("a", tensor(rest=b"\x89" + HOOKS + b"}")))), 1
    yield "unused strides", saved(state_dict(("a", tensor((1, 16, 1), (999, 1, 7))))), 1
    yield "no elements", saved(state_dict(("a", tensor((0, 5), (5, 1))))), 1
    yield "scalar", saved(state_dict(("a", tensor((), (), 15)))), 1
    yield "expanded", saved(state_dict(("a", tensor((1000, 1000), (0, 0))))), 1 # not readable, but inside
    yield "dict in itself", saved(pickled(b"}q\0" + text("a") + tensor() + b"s" + text("b") + b"h\0s")), 1
    yield "list in itself", saved(pickled(b"}" + text("l") + b"]q\0h\0h\0h\0(h\0h\0eaaas" + text("a") + tensor() + b"s")), 1
    yield "state dict in itself", saved(pickled(b"}q\0" + text("state_dict") + b"h\0s" + text("a") + tensor() + b"s")), 1
    yield "other keys", saved(pickled(b"}(" + number(1) + tensor() + b"N" + tensor() + text("a") + tensor() + b"u")), 1
    yield "key of one tensor twice", saved(pickled(b"}(" + text("a") + tensor() + b"q\0" + text("b") + b"h\0u")), 2
    yield "two state dicts", saved(pickled(b"}" + text("model_state_dict") + b"}s" + text("state_dict") + b"}" + text("a") +
                                           tensor() + b"ss")), 1
    yield "long integers", saved(pickled(b"}(" + text("x") + number(2**2000) + text("y") + number(-2**60) + text("z") +
                                         b"\x8a\0" + text("a") + tensor() + b"u")), 1
    yield "size in a zip64 field", archive([Entry("a/data.pkl", GOOD),
                                            Entry("a/data/0", STORAGE, size=2**32 - 1,
                                                  extra=struct.pack("<HHHHQQ", 9, 0, 1, 16, 64, 64))]), 1


def bad_pickles():
    """(what, pickle, status, message)"""
    for module, what in CALLS:
        yield f"GLOBAL {module[:20]}.{what[:20]}", pickled(name(module, what)), UNSUPPORTED, "data.pkl byte 2: '"
        body = text(module.encode("utf-8", "surrogateescape")) + text(what.encode("utf-8", "surrogateescape")) + b"\x93"
        yield f"STACK_GLOBAL {module[:20]}.{what[:20]}", pickled(body, 4), UNSUPPORTED, "' is refused: only tensors are read"
    yield "call of eval", pickled(name("builtins", "eval") + text("1") + b"\x85R"), UNSUPPORTED, "'builtins.eval' is refused"
    yield "call of a storage", pickled(name("torch", "FloatStorage") + number(5) + b"\x85R"), UNSUPPORTED, "a call of"
    yield "call of an integer", pickled(number(1) + b")R"), FORMAT, "needs a name and a tuple"
    yield "arguments are no tuple", pickled(name("collections", "OrderedDict") + b"]R"), FORMAT, "a name and a tuple"
    yield "OrderedDict of a list", pickled(name("collections", "OrderedDict") + b"]\x85R"), UNSUPPORTED, "1 arguments is refused"
    yield "parameter of no tensor", pickled(name("torch._utils", "_rebuild_parameter") + b"NNN\x87R"), UNSUPPORTED, "a call of"
    yield "state of a dict", pickled(b"}}b"), UNSUPPORTED, "the state of an object"
    yield "state of a tensor", pickled(tensor() + b"}b"), UNSUPPORTED, "the state of an object"
    yield "state of no dict", pickled(HOOKS + b"Nb"), UNSUPPORTED, "the state of an object"
    yield "no PROTO", b"}.", FORMAT, "does not begin with PROTO"
    yield "PROTO twice", b"\x80\2\x80\2}.", FORMAT, "PROTO is not the first"
    yield "protocol 1", pickled(b"}", 1), UNSUPPORTED, "pickle protocol 1"
    yield "protocol 6", pickled(b"}", 6), UNSUPPORTED, "pickle protocol 6"
    yield "empty", b"", FORMAT, "truncated"
    yield "two values", pickled(b"}}"), FORMAT, "STOP with 2 values"
    yield "no value", pickled(b""), FORMAT, "STOP with 0 values"
    yield "open mark", pickled(b"}("), FORMAT, "1 marks"
    yield "value below a mark", pickled(b"}(s"), FORMAT, "the opcode needs 2 values, the stack has 0"
    yield "SETITEMS without mark", pickled(b"}u"), FORMAT, "needs a mark"
    yield "SETITEMS of a list", pickled(b"](NNu"), FORMAT, "needs a dict"
    yield "APPEND below a mark", pickled(b"](Na"), FORMAT, "needs a list"
    yield "SETITEM below a mark", pickled(b"}(NNs"), FORMAT, "needs a dict"
    yield "SETITEMS of a key", pickled(b"}(Nu"), FORMAT, "has no value"
    yield "APPEND to a dict", pickled(b"}Na"), FORMAT, "needs a list"
    for key in (b"]", b"}", b")", tensor(), name("torch", "FloatStorage")):
        yield f"key {key[:1]}", pickled(b"}" + key + b"Ns"), FORMAT, "a key of a dict is neither"
    yield "memo of nothing", pickled(b"q\0"), FORMAT, "the stack is empty"
    yield "memo never written", pickled(b"h\0"), FORMAT, "memo entry 0 was never written"
    yield "memo hole", pickled(b"}q\5h\4"), FORMAT, "memo entry 4 was never written"
    yield "memo bomb", pickled(b"}r\xff\xff\xff\xff"), FORMAT, "memo entry 4294967295 in a pickle of"
    yield "memo bomb of a large pickle", pickled(text("x" * (2 << 20)) + b"r" + struct.pack("<I", 10**6)), TOO_LARGE, "more than 1000000 entries"
    yield "string bomb", pickled(b"X\xff\xff\xff\xff"), FORMAT, "truncated"
    yield "string bomb of 64 bits", pickled(b"\x8d" + b"\xff" * 8, 4), FORMAT, "truncated"
    yield "frame bomb", pickled(b"\x95" + b"\xff" * 7 + b"\x7f", 4), FORMAT, "truncated"
    yield "frame in a frame", pickled(b"\x95" + b"\x0a" + b"\0" * 7 + b"\x95" + b"\0" * 8 + b"}", 4), FORMAT, "inside another"
    yield "string past its frame", pickled(b"\x95" + b"\x06" + b"\0" * 7 + text("abcdef"), 4), FORMAT, "6 bytes are needed, 1 are left"
    yield "number bomb", pickled(b"\x8a\xff"), FORMAT, "truncated"
    yield "line without end", b"\x80\2ctorch", FORMAT, "a line does not end"
    yield "STACK_GLOBAL of a number", pickled(number(1) + text("x") + b"\x93", 4), FORMAT, "two strings"
    yield "STACK_GLOBAL with a number", pickled(text("x") + number(1) + b"\x93", 4), FORMAT, "two strings"
    yield "state of a number", pickled(HOOKS + number(0) + b"}b"), UNSUPPORTED, "the state of an object"
    yield "stack bomb", pickled(b"N" * 65537), TOO_LARGE, "more than 65536 values on the stack"
    yield "mark bomb", pickled(b"(" * 101), TOO_LARGE, "more than 100 nested marks"
    yield "container bomb", pickled(b"](" + b")" * 60000 + b"e" + (b"(" + b")" * 60000 + b"e") * 9), TOO_LARGE, "more than 500000"
    yield "item bomb", pickled((b"(" + b"N" * 60000 + b"t") * 34), TOO_LARGE, "more than 2000000 items of"
    yield "doubling tuples", pickled(b")" + b"q\0h\0\x86" * 1000 + b"0"), UNSUPPORTED, "POP"
    yield "storage bomb", pickled(b"}(" + storage()[:-1] + b"q\0Qq\1" + b"](" + b"h\0Q" * 50000 + b"e" + b"(" + b"h\0Q" * 50001 + b"e"), \
        TOO_LARGE, "more than 100000 storages"
    yield "no dict", pickled(b"]"), FORMAT, "no state dict"
    yield "a tuple before any value", pickled(b"(t"), FORMAT, "no state dict"
    yield "a tensor alone", pickled(tensor()), FORMAT, "no state dict"
    yield "no tensors", pickled(b"}" + text("a") + number(1) + b"s"), FORMAT, "no state dict"
    yield "bytes after STOP", GOOD + b"x", FORMAT, "bytes after STOP"
    yield "name twice", state_dict(("a", tensor()), ("a", tensor())), FORMAT, "'a' appears twice"
    yield "empty name", state_dict(("", tensor())), FORMAT, "name of 0 bytes"
    yield "name with NUL", state_dict(("a\0b", tensor())), FORMAT, "name of 3 bytes"
    yield "name that is no text", state_dict((b"\xff", tensor())), FORMAT, "not UTF-8"
    yield "name of 2000 bytes", state_dict(("a" * 2000, tensor())), FORMAT, "name of 2000 bytes"
    yield "100001 tensors", pickled(b"}" + text("a") + b"q\0" + tensor() + b"q\1s" + (b"(" + b"h\0h\1" * 20000 + b"u") * 5), TOO_LARGE, \
        "100001 tensors with names"
    yield "names of 20 MB", pickled(b"}" + text("a" * 1000) + b"q\0" + tensor() + b"q\1s" + (b"(" + b"h\0h\1" * 10000 + b"u") * 2), \
        TOO_LARGE, "20001 tensors with names of 20021001 bytes"


def bad_tensors():
    """(what, what pushes a tensor, status, message)"""
    for key in ["", "a/b", "../x", "a\0", "é", "x" * 33, "."]:
        yield f"key {key[:5]!r}", tensor(source=storage(key)), FORMAT, "a storage is not"
    yield "storage of no bytes", tensor(source=storage("1")), FORMAT, "no entry 'data/1'"
    for tag in ("module", "storagf", "stor"):
        yield f"storage of the name {tag}", tensor(source=storage(tag=tag)), FORMAT, "a storage is not"
    for part, kind in ((name("torch", "FloatStorage"), "type"), (text("cpu"), "location")):
        yield f"storage with a number as {kind}", tensor(source=storage().replace(part, number(4))), FORMAT, "a storage is not"
    yield "storage with a view", tensor(source=storage(rest=number(3))), FORMAT, "a storage is not"
    yield "storage of a function", tensor(source=storage(kind="OrderedDict", module="collections")), FORMAT, "a storage is not"
    yield "storage of another type", tensor(source=storage(kind="DoubleStorage")), FORMAT, "128 bytes, but its entry has 64"
    for count in (-1, 2**61, 2**62, 2**63 - 1, -2**62):
        yield f"storage of {count}", tensor(source=storage(count=count)), FORMAT, "out of range"
    yield "storage of 2**70", tensor(source=storage(count=2**70)), FORMAT, "a storage is not"
    yield "storage of a list", tensor(source=b"]Q"), FORMAT, "a storage is not"
    yield "tensor of no storage", tensor(source=b"N"), FORMAT, "a tensor is not"
    for shape, strides, offset in [((17,), (1,), 0), ((16,), (1,), 1), ((4, 5), (4, 1), 0), ((2, 2), (15, 1), 0),
                                   ((2, 2), (1, 15), 0), ((1,), (1,), 16), ((), (), 16), ((0,), (1,), 17)]:
        yield f"tensor {shape} {strides} {offset}", tensor(shape, strides, offset), FORMAT, "a tensor ends at element"
    yield "end past 2**64", tensor((2, 2), (2**63 - 1, 2**63 - 1), 2), FORMAT, "negative or too large"
    yield "end at 2**64", tensor((2, 2, 2), (2**63 - 1, 2**63 - 1, 1)), FORMAT, "negative or too large"
    for what, offset, shape, strides in (("offset None", b"N", b")", b")"), ("shape of a list", number(0), b"]", b")"),
                                         ("strides of a list", number(0), b")", b"]")):
        yield what, name("torch._utils", "_rebuild_tensor_v2") + b"(" + storage() + offset + shape + strides + b"\x89NtR", FORMAT, \
            "a tensor is not"
    yield "offset -1", tensor(offset=-1), FORMAT, "a tensor is not"
    for shape, strides in [((-1,), (1,)), ((4,), (-1,)), ((2**40, 2**40), (0, 0)), ((2**62, 2), (2, 2**62)), ((2**63,), (1,)),
                           ((3,), (2**62,)), ((1,), (-1,)), ((5,), (2**62,)),
                           ((3, 2), (2**62 + 1, 2**63 - 1)), ((2**32, 2**32), (0, 0)), ((0, 2**33, 2**33), (1, 1, 1))]:
        yield f"tensor {shape} {strides}", tensor(shape, strides), FORMAT, "data.pkl byte"
    yield "offset 2**63-1", tensor(offset=2**63 - 1), FORMAT, "a tensor ends at"
    yield "strides of another rank", tensor((4, 4), (1,)), FORMAT, "a tensor is not"
    yield "65 dimensions", tensor((1,) * 65, (1,) * 65), FORMAT, "at most 64 dimensions"
    yield "shape of a list", name("torch._utils", "_rebuild_tensor_v2") + b"(" + storage() + number(0) + b"]" + numbers([1]) + \
        b"\x89NtR", FORMAT, "a tensor is not"
    yield "strides of strings", name("torch._utils", "_rebuild_tensor_v2") + b"(" + storage() + number(0) + numbers([1]) + \
        text("x") + b"\x85\x89NtR", FORMAT, "negative or too large"
    yield "shape of strings", name("torch._utils", "_rebuild_tensor_v2") + b"(" + storage() + number(0) + text("x") + b"\x85" + \
        numbers([1]) + b"\x89NtR", FORMAT, "negative or too large"
    yield "too few arguments", tensor(rest=b""), UNSUPPORTED, "with these 4 arguments is refused"


def bad_archives():
    """(what, file, status, message)"""
    def one(**fields):
        return archive([Entry("a/data.pkl", GOOD), Entry("a/data/0", STORAGE, **fields)])

    yield "deflated", one(method=8), UNSUPPORTED, "'a/data/0': compressed with method 8"
    yield "encrypted", one(flags=1), FORMAT, "encrypted"
    yield "strongly encrypted", one(flags=0x41), FORMAT, "encrypted"
    yield "unknown flags", one(flags=0x20), UNSUPPORTED, "unknown flags 0x20"
    yield "bomb", one(size=2**32 - 2, packed=64), FORMAT, "stored in 64 bytes, but its size is 4294967294"
    yield "larger than the file", one(size=2**30), FORMAT, "1073741824 bytes at byte"
    yield "larger than the entries", one(size=65), FORMAT, "but the entries end at"
    yield "header outside", one(offset=2**31), FORMAT, "outside the archive"
    yield "header elsewhere", one(offset=3), FORMAT, "no local header"
    yield "header of another entry", archive([Entry("a/data.pkl", GOOD), Entry("a/data/0", STORAGE),
                                            Entry("a/data/0", STORAGE, offset=0, local_name=b"x")]), FORMAT, "contradicts the directory"
    inner = Entry("a/data/1", b"y" * 16)
    outer = Entry("a/data/0", inner.local() + inner.data)
    hidden = len(Entry("a/data.pkl", GOOD).local() + GOOD) + len(outer.local())
    tail = Entry("a/data/1", b"y" * 16, offset=hidden)
    tail.local = lambda: b""
    tail.data = b""
    tail.fields["size"] = 16
    yield "entry inside another", archive([Entry("a/data.pkl", GOOD), outer, tail]), FORMAT, "overlaps 'a/data/0'"
    yield "name twice", saved(entries=[Entry("a/data/0", STORAGE)]), FORMAT, "the name appears twice"
    for bad in ["../x", "a/../b", "a/..", "/a", "a//b", "a/", "", ".", "./a", "a\\b", "a\nb", "a\x7fb", b"\xff", "x" * 513]:
        yield f"name {bad[:9]!r}", saved(entries=[Entry(bad, b"")]), FORMAT, "leads outside the archive"
    yield "other local name", one(local_name=b"a/data/1"), FORMAT, "contradicts the directory"
    yield "other local method", one(local_method=8), FORMAT, "contradicts the directory"
    yield "other local flags", one(local_flags=1), FORMAT, "contradicts the directory"
    yield "local extra past the end", one(local_extra=0xFFFF), FORMAT, "but the entries end at"
    yield "entry of another disk", one(disk=1), FORMAT, "another disk"
    yield "no zip64 field", one(size=2**32 - 1), FORMAT, "zip64 field is missing"
    yield "short zip64 field", one(size=2**32 - 1, extra=struct.pack("<HHQ", 1, 8, 64)), FORMAT, "zip64 field is missing"
    yield "other field past the end", one(size=2**32 - 1, extra=struct.pack("<HHQ", 9, 0xFFFF, 64)), FORMAT, "zip64 field is missing"
    yield "zip64 field past the end", one(size=2**32 - 1, extra=struct.pack("<HHQ", 1, 99, 64)), FORMAT, "zip64 field is missing"
    yield "central signature", one(signature=0), FORMAT, "entry of the central directory is invalid"
    yield "central name past the end", one(n_name=0xFFFF), FORMAT, "truncated"
    yield "central extra past the end", one(n_extra=9), FORMAT, "truncated"
    yield "begins late", archive([Entry("a/data.pkl", GOOD)], prefix=b"PK\3\4"), FORMAT, "does not begin at byte 0"
    yield "bytes after the directory", saved(between=b"x"), FORMAT, "does not end at the end record"
    yield "too few entries", saved(n=2), FORMAT, "bytes after its last entry"
    yield "too many entries", saved(n=4), FORMAT, "4 entries in a central directory of 167"
    yield "no entries", archive([], prefix=b"PK\3\4", n=0), FORMAT, "0 entries"
    yield "a million entries", saved(n64=10**6, n=0xFFFF), TOO_LARGE, "1000000 entries, the limit is 100000"
    yield "2**63 entries", saved(n64=2**63, n=0xFFFF), TOO_LARGE, "entries, the limit"
    yield "65535 entries in few bytes", saved(n=0xFFFF), FORMAT, "65535 entries in a central directory"
    yield "huge directory", saved(size64=2**62, size=2**32 - 1), TOO_LARGE, "the central directory has"
    yield "directory past the end", saved(offset64=2**62, offset=2**32 - 1), FORMAT, "does not end at the end record"
    for field in ("n64", "size64", "offset64"):
        yield f"contradicting {field}", saved(**{field: 7}), FORMAT, "contradict"
    for field in ("start", "locator_disk", "start64", "n64_disk"):
        yield f"two disks, {field}", saved(**{field: 1}), FORMAT, "more than one disk"
    yield "two disks", saved(disk=1), FORMAT, "more than one disk"
    yield "two disks of 64 bits", saved(disk64=1), FORMAT, "more than one disk"
    yield "two disks in the locator", saved(disks=2), FORMAT, "more than one disk"
    yield "another number on the disk", saved(n_disk=1), FORMAT, "more than one disk"
    yield "locator of elsewhere", saved(locator=0), FORMAT, "not before its locator"
    yield "zip64 signature", saved(signature64=1), FORMAT, "zip64 end record is invalid"
    yield "zip64 length", saved(bytes64=2**40), FORMAT, "zip64 end record is invalid"
    at = len(saved()) - 98 # the end records
    yield "directory that wraps", saved(size64=at + 5, offset64=2**64 - 5, size=2**32 - 1, offset=2**32 - 1), FORMAT, \
        "does not end at the end record"
    yield "comment that is not there", saved(comment=3), FORMAT, "has a comment"
    yield "comment", saved(comment=3) + b"abc", FORMAT, "has a comment"
    yield "TorchScript", saved(entries=[Entry("a/constants.pkl", b"")]), UNSUPPORTED, "TorchScript"
    yield "no pickle", archive([Entry("a/x", b"")]), FORMAT, "no data.pkl"
    yield "pickle elsewhere", archive([Entry("b/x", b""), Entry("a/data.pkl", GOOD)]), FORMAT, "no data.pkl"
    yield "big-endian", archive([Entry("a/data.pkl", GOOD), Entry("a/byteorder", b"big")]), UNSUPPORTED, "little-endian"
    yield "pickle of 17 MB", saved(pickled(b"N" * (17 << 20))), TOO_LARGE, "data.pkl has 17825795 bytes, the limit is 16777216"
    yield "not of PyTorch", b"x" * 100, FORMAT, "not one of torch.save()"
    yield "only a pickle", pickle.dumps({}, 2), FORMAT, "not one of torch.save()"
    yield "empty", b"", FORMAT, "not one of torch.save()"
    yield "Git LFS pointer", b"version https://git-lfs.github.com/spec/v1\n", FORMAT, "Git LFS pointer"


def bad_old_files():
    yield "big-endian", old(system=pickled(b"}" + text("little_endian") + b"\x89s")), UNSUPPORTED, "little-endian"
    yield "system is no dict", old(system=pickled(b"]")), FORMAT, "system pickle is not a dict"
    yield "state is no dict", old(pickled(b"]")), FORMAT, "state pickle is not a dict"
    yield "unknown key", old(keys=("1",)), FORMAT, "unknown or repeated key"
    yield "key twice", old(keys=("0", "0"), storages=((16, STORAGE),) * 2), FORMAT, "unknown or repeated key"
    yield "no key", old(keys=(), storages=()), FORMAT, "lacks a key"
    yield "key of a number", MAGIC + pickled(b"}" + text("little_endian") + b"\x88s") + GOOD + pickled(b"](" + number(0) + b"e"), \
        FORMAT, "unknown or repeated key"
    yield "other count", old(storages=((15, STORAGE),)), FORMAT, "has 15 elements, the pickle says 16"
    yield "no storages", old(storages=()), FORMAT, "the file is truncated"
    yield "short storage", old(storages=((16, STORAGE[:60]),)), FORMAT, "storage '0' has 64 bytes at byte"
    yield "too long", old(rest=b"x"), FORMAT, "the file is too long"
    yield "two sizes", old(state_dict(("a", tensor()), ("b", tensor((8,), (1,), source=storage(count=8))))), FORMAT, ""
    yield "call", old(pickled(name("os", "system"))), UNSUPPORTED, "state pickle byte 2: 'os.system' is refused"
    yield "call in the system", old(system=pickled(name("os", "system"))), UNSUPPORTED, "system pickle byte 2: 'os.system'"


def opcode_files():
    """Every byte as the first opcode after PROTO: (what, file, status, message), status None if it is allowed there."""
    names = {ord(op.code): op.name for op in pickletools.opcodes}
    for code in range(256):
        file = saved(b"\x80\2" + bytes([code]) + b"\1\0\0\0\0\0\0\0\0" + b"." * 8)
        if code not in names:
            yield f"byte {code:#x}", file, FORMAT, f"byte 2: 0x{code:02x} is not an opcode"
        elif names[code] in OPCODES:
            yield names[code], file, None, ""
        else:
            yield names[code], file, UNSUPPORTED, f"byte 2: opcode {names[code]} (0x{code:02x}) is refused"


def truncated_files(fixtures):
    """Every shorter part of whole files: (what, file)"""
    small = saved()
    with zipfile.ZipFile(os.path.join(fixtures, "protocol-4/pytorch_model.bin")) as source:
        modern = source.read("pytorch_model/data.pkl")
    for size in range(len(small)):
        yield f"zip cut at {size}", small[:size]
    for size in range(len(old())):
        yield f"old layout cut at {size}", old()[:size]
    for size in range(0, len(modern) - 1, 7):
        yield f"pickle cut at {size}", saved(modern[:size])


def cases(fixtures):
    """(what, file, expected number of tensors or None, status or None, message)"""
    for what, file, n in good_files():
        yield what, file, n, None, ""
    for what, data, status, message in bad_pickles():
        yield what, saved(data), None, status, message
    for what, push, status, message in bad_tensors():
        yield what, saved(state_dict(("a", push))), None, status, message
    for source in (bad_archives(), bad_old_files(), opcode_files()):
        for what, file, status, message in source:
            yield what, file, None, status, message
    for what, file in truncated_files(fixtures):
        yield what, file, None, FORMAT, ""


def check(case, line, place):
    what, _, n, status, message = case
    verdict, _, rest = line.partition(" ")
    got, _, said = rest.partition(" ")
    if n is not None:
        return line.startswith(f"1 {n} ")
    if status is None: # an allowed opcode, with arguments that are none of its own
        return verdict == "0" and "no tensor needs it" not in said and "byte 2: 0x" not in said and said.startswith(place)
    return verdict == "0" and got == str(status) and message in said and said.startswith(place) and said.isprintable()


def main():
    program, fixtures = sys.argv[1:3]
    every = list(cases(fixtures))
    with tempfile.TemporaryDirectory() as folder:
        for i, case in enumerate(every):
            with open(os.path.join(folder, str(i)), "wb") as file:
                file.write(case[1])
        start = time.monotonic()
        done = subprocess.run([program, "torch", folder], input="".join(f"{i}\n" for i in range(len(every))).encode(),
                              stdout=subprocess.PIPE)
        seconds = time.monotonic() - start
        lines = done.stdout.decode(errors="replace").split("\n")
        wrong = [(case[0], line) for i, (case, line) in enumerate(zip(every, lines)) if not check(case, line, f"{folder}/{i}")]
    for what, line in wrong:
        print(f"{what}: {line}")
    print(f"{len(every) - len(wrong)} passed, {len(wrong)} failed; {seconds:.1f} s; ended with {done.returncode}")
    return 1 if wrong or done.returncode or len(lines) != len(every) + 1 or seconds > MAX_SECONDS else 0


if __name__ == "__main__":
    sys.exit(main())
