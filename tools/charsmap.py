"""A charsmap of SentencePiece ("precompiled_charsmap") of one's own making, for probes and tests."""
import base64
import struct


def charsmap(texts):
    """{bytes: str}: what each text becomes, as the bytes of a charsmap.

    A node's children are in a block of 256 units of its own, so nothing needs to be fitted.
    """
    strings, places = b"", {}
    for value in texts.values():
        if value not in places:
            places[value] = len(strings)
            strings += value.encode() + b"\0"
    tree = {}
    for key, value in texts.items():
        node = tree
        for byte in key:
            node = node.setdefault(byte, {})
        node[None] = places[value]
    units = [0] * 256
    waiting = [(0, 0, tree)]
    for at, label, node in waiting:
        base = len(units)
        units.extend([0] * 256)
        units[at] = (at ^ base) << 10 | (None in node) << 8 | label
        for byte, child in node.items():
            if byte is None:
                units[base] = 1 << 31 | child
            else:
                waiting.append((base ^ byte, byte, child))
    return struct.pack("<I", 4 * len(units)) + struct.pack("<%dI" % len(units), *units) + strings


def precompiled(texts):
    """The normalizer of tokenizer.json."""
    return {"type": "Precompiled",
            "precompiled_charsmap": base64.b64encode(charsmap(texts)).decode()}
