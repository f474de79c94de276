"""Replies compressed by gzip and zstd: where the client accepts it, the client is remote and it helps."""
import base64
import ctypes
import gzip
import json
import unittest

from serving import MINILM, Served, Server, main

TEXTS = ["a dog %d" % i for i in range(20)]


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
        reply = self.ask("gzip", "/rerank", query="a", texts=["b"])
        self.assertEqual((reply.status, reply.headers["Content-Encoding"], reply.headers["Vary"]), (200, None, None))
        reply = self.ask("gzip", "/embed", inputs=[])
        self.assertEqual((reply.status, reply.headers["Content-Encoding"]), (400, None))
        self.assertIn("error", json.loads(reply.body))

    def test_metrics(self):
        reply = self.server.get("/metrics", **{"Accept-Encoding": "gzip"})
        self.assertIn(b"gpuserve_http_ready 1", gzip.decompress(reply.body))


class Modes(unittest.TestCase):
    def test_clients_of_this_machine_get_it_plain(self):
        for mode in ((), ("--compress", "never")):
            server = Server(MINILM, "--device", "cpu", *mode)
            reply = server.post("/embed", {"inputs": TEXTS}, {"Accept-Encoding": "gzip"})
            self.assertIsNone(reply.headers["Content-Encoding"])
            self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    main(__name__)
