"""Replies compressed by gzip and zstd: where the client accepts it, the client is remote and it helps."""
import base64
import ctypes
import gzip
import json
import socket
import unittest
import zlib

from serving import MINILM, PATIENCE, Served, Server, main, model

TEXTS = ["a dog %d" % i for i in range(20)]
BLOCK = 256  # texts of a block of a streamed reply
MANY = ["a dog %d" % i for i in range(2 * BLOCK + 8)]
LINES = {"Accept": "application/x-ndjson"}


def zstd_decompress(data):
    """By libzstd itself, the frame's size in its head."""
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_getFrameContentSize.restype = ctypes.c_ulonglong
    library.ZSTD_decompress.restype = ctypes.c_size_t
    size = library.ZSTD_getFrameContentSize(data, ctypes.c_size_t(len(data)))
    to = ctypes.create_string_buffer(size)
    made = library.ZSTD_decompress(to, ctypes.c_size_t(size), data, ctypes.c_size_t(len(data)))
    if library.ZSTD_isError(ctypes.c_size_t(made)):
        raise ValueError("no zstd frame")
    return to.raw[:made]


try:
    ctypes.CDLL("libzstd.so.1")
    HAS_ZSTD = True
except OSError:
    HAS_ZSTD = False


class InBuffer(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char_p), ("size", ctypes.c_size_t), ("at", ctypes.c_size_t))


class OutBuffer(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_void_p), ("size", ctypes.c_size_t), ("at", ctypes.c_size_t))


class Zstd:
    """libzstd's decoder of a stream, with the interface of zlib's."""

    def __init__(self):
        self.library = ctypes.CDLL("libzstd.so.1")
        self.library.ZSTD_createDStream.restype = ctypes.c_void_p
        self.library.ZSTD_decompressStream.restype = ctypes.c_size_t
        self.stream = ctypes.c_void_p(self.library.ZSTD_createDStream())
        self.to, self.eof = ctypes.create_string_buffer(1 << 17), False

    def __del__(self):
        self.library.ZSTD_freeDStream(self.stream)

    def decompress(self, data):
        source, made = InBuffer(data, len(data), 0), b""
        while True:
            to = OutBuffer(ctypes.addressof(self.to), len(self.to), 0)
            left = self.library.ZSTD_decompressStream(self.stream, ctypes.byref(to), ctypes.byref(source))
            if self.library.ZSTD_isError(ctypes.c_size_t(left)):
                raise ValueError("no zstd stream")
            made += self.to.raw[:to.at]
            self.eof = left == 0
            if source.at == source.size and to.at < to.size:
                return made


CODINGS = {"gzip": lambda: zlib.decompressobj(31), **({"zstd": Zstd} if HAS_ZSTD else {})}


def whole(coding, data):
    """The bytes of a complete compressed stream with nothing after it."""
    decoder = CODINGS[coding]()
    made = decoder.decompress(data)
    assert decoder.eof and not getattr(decoder, "unused_data", b""), coding
    return made


class Always(Served):
    arguments = (MINILM, "--device", "cpu", "--compress", "always")

    def ask(self, accepted, path="/embed", **body):
        headers = {"Accept-Encoding": accepted} if accepted is not None else {"Accept-Encoding": "identity"}
        return self.server.post(path, body or {"inputs": TEXTS}, headers)

    def test_it_is_the_same_reply(self):
        plain = self.ask(None)
        self.assertEqual((plain.headers["Content-Encoding"], plain.headers["Vary"]), (None, "Accept-Encoding"))
        for accepted in ("gzip", "br, gzip;q=0.5", "GZIP", "*", "deflate, gzip;q=1.0, *;q=0", "gzip , x"):
            reply = self.ask(accepted)
            self.assertEqual((reply.headers["Content-Encoding"], reply.headers["Vary"]), ("gzip", "Accept-Encoding"), accepted)
            self.assertLess(len(reply.body), 0.75 * len(plain.body))
            self.assertEqual(gzip.decompress(reply.body), plain.body)

    @unittest.skipUnless(HAS_ZSTD, "needs libzstd.so.1")
    def test_zstd(self):
        """For clients that name it, unless they prefer gzip."""
        for texts in (TEXTS, TEXTS * 25):  # the larger one is compressed by a worker thread
            plain = self.ask(None, inputs=texts)
            for accepted in ("zstd", "gzip, deflate, br, zstd", "gzip;q=0.5, zstd;q=0.5", "ZSTD;q=0.1", "gzip;q=0, zstd", "zstd, *;q=0"):
                reply = self.ask(accepted, inputs=texts)
                self.assertEqual((reply.headers["Content-Encoding"], reply.headers["Vary"]), ("zstd", "Accept-Encoding"), accepted)
                self.assertLess(len(reply.body), 0.75 * len(plain.body))
                self.assertEqual(zstd_decompress(reply.body), plain.body)
        for accepted, coding in (("gzip, zstd;q=0.9", "gzip"), ("gzip, zstd;q=0", "gzip"), ("*", "gzip"), ("zstd;q=0, *", "gzip"), ("zstd;q=0", None)):
            self.assertEqual(self.ask(accepted).headers["Content-Encoding"], coding, accepted)
        reply = self.ask("zstd", "/v1/embeddings", input=TEXTS, encoding_format="base64")
        self.assertIsNone(reply.headers["Content-Encoding"])

    def test_who_does_not_accept_it(self):
        for accepted in ("", "identity", "br", "gzip;q=0", "gzip; q=0.000", "*;q=0", "gzipped", "gzip;q=0, *"):
            self.assertIsNone(self.ask(accepted).headers["Content-Encoding"], accepted)

    def test_large_replies(self):
        """Of the worker threads."""
        texts = ["a dog %d" % i for i in range(500)]
        plain, small = self.ask(None, inputs=texts), self.ask("gzip", inputs=texts)
        self.assertEqual(small.headers["Content-Encoding"], "gzip")
        self.assertEqual(gzip.decompress(small.body), plain.body)

    def test_what_would_not_shrink(self):
        reply = self.ask("gzip", "/v1/embeddings", input=TEXTS, encoding_format="base64")
        self.assertIsNone(reply.headers["Content-Encoding"])
        self.assertEqual(len(base64.b64decode(reply.json()["data"][0]["embedding"])), 4 * 384)
        reply = self.server.post("/v1/embeddings", {"input": TEXTS, "encoding_format": "base64"}, {**LINES, "Accept-Encoding": "gzip, zstd"})
        self.assertEqual((reply.headers["Content-Encoding"], reply.headers["Vary"], len(reply.body.splitlines())), (None, "Accept-Encoding", len(TEXTS) + 1))
        reply = self.ask("gzip", "/rerank", query="a", texts=["b"])
        self.assertEqual((reply.status, reply.headers["Content-Encoding"], reply.headers["Vary"]), (200, None, None))
        reply = self.ask("gzip", "/embed", inputs=[])
        self.assertEqual((reply.status, reply.headers["Content-Encoding"]), (400, None))
        self.assertIn("error", json.loads(reply.body))

    def test_metrics(self):
        reply = self.server.get("/metrics", **{"Accept-Encoding": "gzip"})
        self.assertIn(b"gpuserve_http_ready 1", gzip.decompress(reply.body))


class Streams(Served):
    """JSON lines: one compressed stream, flushed after each block."""
    arguments = (model("splade-tiny"), "--device", "cpu", "--compress", "always")

    def ask(self, coding, body, path="/embed"):
        reply = self.server.post(path, body, {**LINES, "Accept-Encoding": coding})
        self.assertEqual((reply.status, reply.headers["Content-Type"]), (200, "application/x-ndjson"), reply.body[:300])
        return reply

    def test_they_are_the_same_lines(self):
        for path, body in (("/embed", {"inputs": MANY}), ("/embed", {"inputs": MANY[:BLOCK]}), ("/v1/embeddings", {"input": MANY[:BLOCK + 1], "dimensions": 9})):
            plain = self.ask("identity", body, path)
            self.assertEqual((plain.headers["Content-Encoding"], plain.headers["Vary"]), (None, "Accept-Encoding"))
            for coding in CODINGS:
                reply = self.ask(coding, body, path)
                self.assertEqual((reply.headers["Content-Encoding"], reply.headers["Vary"]), (coding, "Accept-Encoding"))
                self.assertLess(len(reply.body), 0.75 * len(plain.body))
                self.assertEqual(whole(coding, reply.body), plain.body)

    def test_a_block_is_readable_before_the_next(self):
        """A chunk ends with each block, and what was received until then has its lines."""
        for coding in CODINGS:
            connection = self.server.connect()
            connection.request("POST", "/embed", json.dumps({"inputs": MANY}), {**LINES, "Accept-Encoding": coding})
            reply = connection.getresponse()
            self.assertEqual((reply.headers["Transfer-Encoding"], reply.headers["Content-Encoding"]), ("chunked", coding))
            decoder, lines, ends = CODINGS[coding](), b"", set()
            while size := int(reply.fp.readline(), 16):
                lines += decoder.decompress(reply.fp.read(size))
                reply.fp.readline()
                if lines.endswith(b"\n"):
                    ends.add(lines.count(b"\n"))
            self.assertTrue(decoder.eof)
            self.assertLessEqual({BLOCK, 2 * BLOCK, len(MANY)}, ends)
            connection.close()

    def test_the_policy_is_that_of_other_replies(self):
        body = {"inputs": TEXTS}
        for accepted, coding in (("gzip;q=0", None), ("br", None), ("*", "gzip"), ("br, gzip;q=0.2", "gzip"),
                                 *((("gzip, zstd", "zstd"), ("gzip, zstd;q=0.9", "gzip")) if HAS_ZSTD else ())):
            self.assertEqual(self.ask(accepted, body).headers["Content-Encoding"], coding, accepted)
        reply = self.ask("gzip", {"inputs": "a", "dimensions": 9})  # too short
        self.assertEqual((reply.headers["Content-Encoding"], reply.headers["Vary"]), (None, None))
        reply = self.server.post("/embed", {"inputs": []}, {**LINES, "Accept-Encoding": "gzip"})
        self.assertEqual((reply.status, reply.headers["Content-Encoding"]), (400, None))

    def test_an_error_in_the_middle_is_the_last_line(self):
        texts = MANY[:BLOCK + 10] + ["w " * 700]
        for coding in CODINGS:
            *vectors, end = map(json.loads, whole(coding, self.ask(coding, {"inputs": texts}).body).splitlines())
            self.assertEqual((len(vectors), end["error_type"]), (BLOCK, "Validation"))
            self.assertIn("after 256 inputs: item 10: the text has 702 tokens", end["error"])

    def raw(self, version, coding):
        body = json.dumps({"inputs": MANY}).encode()
        one = socket.create_connection((self.server.host, self.server.port), PATIENCE)
        one.sendall(b"POST /embed HTTP/%s\r\nHost: localhost\r\nAccept: application/x-ndjson\r\nAccept-Encoding: %s\r\nContent-Length: %d\r\n\r\n"
                    % (version, coding.encode(), len(body)) + body)
        return one

    def test_http_1_0(self):
        for coding in CODINGS:
            with self.raw(b"1.0", coding) as one:
                head, body = b"".join(iter(lambda one=one: one.recv(1 << 16), b"")).split(b"\r\n\r\n", 1)
            self.assertNotIn(b"chunked", head)
            self.assertEqual(whole(coding, body).count(b"\n"), len(MANY))

    def test_clients_that_leave(self):
        for coding in (*CODINGS, *CODINGS):
            with self.raw(b"1.1", coding) as one:
                self.assertTrue(one.recv(1000).startswith(b"HTTP/1.1 200"))
        self.assertEqual(whole("gzip", self.ask("gzip", {"inputs": TEXTS}).body).count(b"\n"), len(TEXTS))


class Bounded(unittest.TestCase):
    def test_memory(self):
        """10,000 vectors of 128 numbers are 14 MB of JSON; the encoder's state is less than a megabyte."""
        server = Server(model("splade-tiny"), "--device", "cpu", "--compress", "always")

        def peak():
            with open("/proc/%d/status" % server.process.pid, encoding="ascii") as file:
                return int(next(line for line in file if line.startswith("VmHWM")).split()[1])

        body = json.dumps({"inputs": ["a b %d" % i for i in range(10000)], "normalize": False}).encode()
        server.post("/embed", {"inputs": MANY}, LINES)
        server.post("/embed", body, {**LINES, "Accept-Encoding": "identity"})  # the request itself
        before = peak()
        for coding in CODINGS:
            reply = server.post("/embed", body, {**LINES, "Accept-Encoding": coding})
            self.assertEqual(reply.headers["Content-Encoding"], coding)
            self.assertGreater(len(reply.body), 4 << 20)
            self.assertEqual(whole(coding, reply.body).count(b"\n"), 10000)
        self.assertLess(peak() - before, 3 << 10)
        self.assertEqual(server.stop()[0], 0)


class Modes(unittest.TestCase):
    def test_clients_of_this_machine_get_it_plain(self):
        for mode in ((), ("--compress", "never")):
            server = Server(MINILM, "--device", "cpu", *mode)
            reply = server.post("/embed", {"inputs": TEXTS}, {"Accept-Encoding": "gzip"})
            self.assertIsNone(reply.headers["Content-Encoding"])
            reply = server.post("/embed", {"inputs": TEXTS}, {**LINES, "Accept-Encoding": "gzip"})
            self.assertEqual((reply.headers["Content-Encoding"], len(reply.body.splitlines())), (None, len(TEXTS)))
            self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    main(__name__)
