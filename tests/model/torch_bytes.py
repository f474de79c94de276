"""Zip archives and pickles as torch.save() writes them, byte by byte, so that tests can damage each field."""
import struct


class Entry:
    """An entry of an archive; every field of its headers can be replaced."""

    def __init__(self, name, data, **fields):
        self.name, self.data = name if isinstance(name, bytes) else name.encode(), data
        self.fields = fields

    def get(self, field, default):
        return self.fields.get(field, default)

    def local(self):
        name = self.get("local_name", self.name)
        return struct.pack("<IHHHHHIIIHH", self.get("local_signature", 0x04034b50), 0, self.get("local_flags", 0x0808),
                           self.get("local_method", 0), 0, 0, 0, 0, 0, len(name), self.get("local_extra", 0)) + name

    def central(self, offset):
        size = self.get("size", len(self.data))
        extra = self.get("extra", b"")
        return struct.pack("<IHHHHHHIIIHHHHHII", self.get("signature", 0x02014b50), 0, 0, self.get("flags", 0x0808),
                           self.get("method", 0), 0, 0, 0, self.get("packed", size), size, self.get("n_name", len(self.name)),
                           self.get("n_extra", len(extra)), self.get("n_comment", 0), self.get("disk", 0), 0, 0,
                           self.get("offset", offset)) + self.name + extra


def archive(entries, prefix=b"", between=b"", **end):
    """An archive; `end` replaces fields of its end records, and zip64=False leaves out the 64-bit ones."""
    out, directory = bytearray(prefix), bytearray()
    for entry in entries:
        directory += entry.central(len(out))
        out += entry.local() + entry.data
    n, size = end.get("n", len(entries)), end.get("size", len(directory))
    offset = end.get("offset", len(out))
    out += directory + between
    if end.get("zip64", True):
        at = len(out)
        out += struct.pack("<IQHHIIQQQQ", end.get("signature64", 0x06064b50), end.get("bytes64", 44), 0, 0, end.get("disk64", 0),
                           end.get("start64", 0), end.get("n64_disk", end.get("n64", n)), end.get("n64", n), end.get("size64", size),
                           end.get("offset64", offset))
        out += struct.pack("<IIQI", 0x07064b50, end.get("locator_disk", 0), end.get("locator", at), end.get("disks", 1))
    out += struct.pack("<IHHHHIIH", end.get("end_signature", 0x06054b50), end.get("disk", 0), end.get("start", 0),
                       end.get("n_disk", n) & 0xFFFF, n & 0xFFFF, size & 0xFFFFFFFF, offset & 0xFFFFFFFF, end.get("comment", 0))
    return bytes(out)


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return b"X" + struct.pack("<I", len(value)) + value


def number(value):
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if -2**31 <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def numbers(values):
    return b"(" + b"".join(map(number, values)) + b"t"


def name(module, what):
    return b"c" + module.encode() + b"\n" + what.encode() + b"\n"


def storage(key="0", count=16, kind="FloatStorage", location="cpu", rest=b"", tag="storage", module="torch"):
    return b"(" + text(tag) + name(module, kind) + text(key) + text(location) + number(count) + rest + b"tQ"


HOOKS = name("collections", "OrderedDict") + b")R"


def tensor(shape=(4, 4), strides=(4, 1), offset=0, source=None, rest=b"\x89" + HOOKS):
    return name("torch._utils", "_rebuild_tensor_v2") + b"(" + (source or storage()) + number(offset) + \
        numbers(shape) + numbers(strides) + rest + b"tR"


def pickled(body, protocol=2):
    return b"\x80" + bytes([protocol]) + body + b"."


def state_dict(*pairs):
    """A pickle of a dict of names and what pushes their values."""
    return pickled(b"}(" + b"".join(text(key) + value for key, value in pairs) + b"u")


GOOD = state_dict(("a", tensor()))
STORAGE = bytes(range(64))


def saved(pickle=GOOD, entries=(), storages=None, **end):
    """A whole file with the storages (by default '0' of 64 bytes) and more entries."""
    storages = {"0": STORAGE} if storages is None else storages
    return archive([Entry("a/data.pkl", pickle), Entry("a/byteorder", b"little")] +
                   [Entry(f"a/data/{key}", data) for key, data in storages.items()] + list(entries), **end)


MAGIC = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e80024de9032e")
SYSTEM = pickled(b"}" + text("little_endian") + b"\x88s")


def old(pickle=GOOD, keys=("0",), storages=((16, STORAGE),), system=SYSTEM, rest=b""):
    """A file of the layout before PyTorch 1.6."""
    return MAGIC + system + pickle + pickled(b"](" + b"".join(map(text, keys)) + b"e") + \
        b"".join(struct.pack("<q", count) + data for count, data in storages) + rest
