"""What bytes cost: each copy of a request's body, and the compression of a reply. Parts of bench.py.

The copies are measured by the program http_reading, by the server's own functions. The compression is measured at the
server: it has the vectors in its result cache, so that a reply costs its text, its compression and the
loopback; what a coding costs is the difference to the same reply uncompressed.
"""
import http.client
import json
import statistics
import subprocess
import time

from measure import rounds
from verdict import spread

N_TEXTS = 256           # of a reply: a megabyte of JSON with 384 dimensions
REQUESTS = 5            # a measurement is the median of so many
JSON_TYPE, LINES_TYPE = "application/json", "application/x-ndjson"
FORMS = {"json": (JSON_TYPE, {}), "lines": (LINES_TYPE, {}), "base64": (JSON_TYPE, {"encoding_format": "base64"})}
CODINGS = ("identity", "gzip", "zstd")
SERVER_OPTIONS = ("--compress", "always", "--result-cache", "64MiB")


def read_once(program):
    """{bytes of the body: {step: nanoseconds}} of one run of http_reading."""
    done = subprocess.run([program], check=True, text=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def copies(found):
    """The spread over the rounds of each step, and nanoseconds a byte of all of them."""
    table = {}
    for size in found[0]:
        steps = [name for name in found[0][size] if name.endswith("_ns")]
        table[size] = {name: spread([one[size][name] for one in found]) for name in steps}
        table[size]["ns_per_byte"] = spread([sum(one[size][name] for name in steps) / one[size]["bytes"] for one in found])
    return table


def reply_of(connection, texts, form, coding):
    """(bytes of the body, its coding or None, seconds) of one request."""
    accepted, fields = FORMS[form]
    body = json.dumps({"input": texts, **fields}).encode()
    started = time.perf_counter()
    connection.request("POST", "/v1/embeddings", body, {"Accept": accepted, "Accept-Encoding": coding})
    reply = connection.getresponse()
    size = len(reply.read())
    seconds = time.perf_counter() - started
    if reply.status != 200:
        raise RuntimeError(f"{form}, {coding}: status {reply.status}")
    return size, reply.headers["Content-Encoding"], seconds


def compress_rounds(url, texts, n, say=None):
    """Rounds of every form in every coding: seconds of a request; and the bytes of each."""
    connection = http.client.HTTPConnection(url.split("//")[1], timeout=60)
    texts, sizes = texts[:N_TEXTS], {}

    def measured(form, coding):
        got = [reply_of(connection, texts, form, coding) for _ in range(REQUESTS)]
        sizes[form, coding] = got[0][:2]
        return statistics.median(one[2] for one in got)

    reply_of(connection, texts, "json", "identity")  # fills the result cache
    parts = {(form, coding): lambda form=form, coding=coding: measured(form, coding) for form in FORMS for coding in CODINGS}
    found = rounds(n, parts, say=say)
    connection.close()
    return found, sizes


def compression(found, sizes):
    """{form: {coding: ratio and milliseconds a megabyte of the plain reply}}; zstd only where the server has it.

    A form that a coding does not shrink has ratio 1: the time is that of the probe."""
    table = {}
    for form in FORMS:
        plain, _ = sizes[form, "identity"]
        table[form] = {"plain_bytes": plain, "plain_ms": spread([1e3 * one for one in found.values((form, "identity"))])}
        for coding in CODINGS[1:]:
            size, used = sizes[form, coding]
            if used not in (None, coding) or (coding == "zstd" and sizes["json", "zstd"][1] is None):
                continue
            more = [1e9 * (row[form, coding] - row[form, "identity"]) / plain for row in found.kept]
            table[form][coding] = {"is_compressed": used is not None, "ratio": round(size / plain, 4), "ms_per_mb": spread(more)}
    return table


def lines_of(result):
    """The tables as text."""
    for size, steps in result["copies"].items():
        medians = ", ".join(f"{name[:-3]} {one['median'] / 1e3:.2f}" for name, one in steps.items() if name.endswith("_ns"))
        yield f"body of {size} bytes, us: {medians}; {steps['ns_per_byte']['median']:.2f} ns/byte"
    for form, row in result["compression"].items():
        for coding in CODINGS[1:]:
            if coding in row and row[coding]["ms_per_mb"]["n"]:
                one = row[coding]
                yield (f"{form}, {coding}: {one['ratio']:.3f} of the size, {one['ms_per_mb']['median']:.1f} ms/MB "
                       f"(quartiles {one['ms_per_mb']['q1']:.1f} to {one['ms_per_mb']['q3']:.1f})")
