"""Replies as an Arrow IPC stream (`Accept: application/vnd.apache.arrow.stream`), read by pyarrow: the bits of the JSON reply."""
import base64
import http.client
import json
import socket
import struct

from serving import PATIENCE, Served, main, model, use_clients

use_clients("GPUSERVE_FRAMEWORKS_PYTHON")

import pyarrow  # noqa: E402

TYPE = "application/vnd.apache.arrow.stream"
ARROW = {"Accept": TYPE}
END = b"\xff\xff\xff\xff\0\0\0\0"
TEXTS = ["a dog %d" % i for i in range(600)]  # more than two blocks of 256
LONG = "w " * 700
PRECISIONS = {"float": (pyarrow.float32(), 128), "float16": (pyarrow.float16(), 128), "int8": (pyarrow.int8(), 128), "uint8": (pyarrow.uint8(), 128),
              "binary": (pyarrow.int8(), 16), "ubinary": (pyarrow.uint8(), 16)}


def vectors(batch):
    """The bytes of the column `embedding`, row after row."""
    return batch.column("embedding").flatten().to_numpy(zero_copy_only=True).tobytes()


class Arrow(Served):
    arguments = (model("splade-tiny"), "--device", "cpu")

    def read(self, path, body, headers=None):
        """(reply, schema, batches, metadata of each)."""
        reply = self.server.post(path, body, headers or ARROW)
        self.assertEqual((reply.status, reply.headers["Content-Type"]), (200, TYPE), reply.body[:300])
        self.assertEqual((len(reply.body) % 8, reply.body[-8:]), (0, END))
        reader, found = pyarrow.ipc.open_stream(reply.body), []
        while True:
            try:
                found.append(reader.read_next_batch_with_custom_metadata())
            except StopIteration:
                break
        for batch, _ in found:
            batch.validate(full=True)
        return reply, reader.schema, [batch for batch, _ in found], [metadata for _, metadata in found]

    def check(self, n, precision):
        body = {"input": TEXTS[:n], "embedding_type": precision}
        plain = self.server.post("/v1/embeddings", {**body, "encoding_format": "base64"}).json()
        reply, schema, batches, metadata = self.read("/v1/embeddings", body)
        element, size = PRECISIONS[precision]
        self.assertEqual((schema.names, schema.field("index").type), (["index", "embedding"], pyarrow.uint32()))
        self.assertEqual((schema.field("embedding").type.value_type, schema.field("embedding").type.list_size), (element, size))
        self.assertFalse(any(field.nullable for field in schema))
        self.assertEqual(schema.metadata, {b"model": b"splade-tiny", b"space": reply.headers["x-gpuserve-space"].encode(),
                                           b"precision": precision.encode(), b"dimensions": b"128"})
        self.assertEqual([batch.num_rows for batch in batches], [256] * (n // 256) + [n % 256] * (n % 256 > 0))
        self.assertEqual([i for batch in batches for i in batch.column("index").to_pylist()], list(range(n)))
        self.assertEqual(b"".join(map(vectors, batches)), b"".join(base64.b64decode(one["embedding"]) for one in plain["data"]))
        *others, last = metadata
        self.assertFalse(any(others))
        self.assertEqual({name.decode(): int(value) for name, value in last.items()}, plain["usage"])

    def test_every_precision(self):
        for precision in PRECISIONS:
            self.check(257, precision)

    def test_every_length(self):
        for n in (1, 2, 255, 256, 600):
            self.check(n, "float")
        self.check(3, "binary")

    def test_forms(self):
        """Of both paths, with fewer dimensions, ids, and values that are not normalized: the float32 values of the JSON reply."""
        ids = [[101, 1037, 3899 + i, 102] for i in range(300)]
        for path, body in (("/embed", {"inputs": TEXTS[:257], "normalize": False, "dimensions": 7}), ("/embed", {"inputs": ids}),
                           ("/invocations", {"inputs": "a dog"}), ("/v1/embeddings", {"input": ids[0]}), ("/embeddings", {"input": [LONG, "a"], "truncate": True}),
                           ("/v1/embeddings", {"input": "a", "encoding_format": "base64"})):  # what the package openai asks for has no effect
            plain = self.server.post(path, {**body, "encoding_format": "float"} if "input" in body else body).json()
            rows = [one["embedding"] for one in plain["data"]] if "input" in body else plain
            _, schema, batches, _ = self.read(path, body)
            want = b"".join(struct.pack("<%df" % len(row), *row) for row in rows)
            self.assertEqual(b"".join(map(vectors, batches)), want)
            self.assertEqual(schema.metadata[b"dimensions"], b"%d" % len(rows[0]))

    def test_who_gets_arrow(self):
        arrow, lines, plain = TYPE, "application/x-ndjson", "application/json"
        for accepted, kind in ((arrow, arrow), (arrow + ", */*;q=0.1", arrow), ("%s;q=0.5, %s" % (lines, arrow), arrow), ("%s, %s" % (lines, arrow), arrow),
                               ("%s;q=0.5, %s" % (arrow, lines), lines), ("%s;q=0.5, %s" % (arrow, plain), plain), ("%s, %s" % (plain, arrow), arrow),
                               (arrow + ";q=0", plain), ("*/*", plain), ("application/vnd.apache.arrow.file", plain)):
            reply = self.server.post("/embed", {"inputs": "a"}, {"Accept": accepted})
            self.assertEqual((reply.status, reply.headers["Content-Type"]), (200, kind), accepted)

    def test_errors_before_the_first_batch(self):
        """They have their status and are JSON."""
        for status, words, path, body in (
                (400, "empty", "/v1/embeddings", {"input": []}), (404, "unknown model", "/v1/embeddings", {"input": "a", "model": "none"}),
                (400, "`outputs` is not supported with `Accept: " + TYPE, "/v1/embeddings", {"input": "a", "outputs": ["dense"]}),
                (422, "`outputs` is not supported with `Accept: " + TYPE, "/embed", {"inputs": "a", "outputs": ["dense"]}),
                (422, "the limit is 10000", "/embed", {"inputs": ["a"] * 10001}), (422, "item 1: the text has 702 tokens", "/embed", {"inputs": ["a", LONG]})):
            self.assertIn("error", self.refused(status, words, path, body, ARROW))

    def test_an_error_after_the_first_batch(self):
        """Neither the transport nor Arrow takes what there is for all of it."""
        body = json.dumps({"inputs": TEXTS[:300] + [LONG]}).encode()
        connection = self.server.connect()
        connection.request("POST", "/embed", body, ARROW)
        reply = connection.getresponse()
        self.assertEqual(reply.status, 200)
        with self.assertRaises(http.client.IncompleteRead) as caught:
            reply.read()
        connection.close()
        reader = pyarrow.ipc.open_stream(caught.exception.partial)
        self.assertEqual(reader.read_next_batch().num_rows, 256)
        with self.assertRaises((pyarrow.ArrowInvalid, OSError)):
            reader.read_next_batch()
        with self.raw(b"1.0", body) as one:
            got = b"".join(iter(lambda: one.recv(1 << 16), b"")).split(b"\r\n\r\n", 1)[1]
        self.assertEqual(got, caught.exception.partial)

    def raw(self, version, body):
        one = socket.create_connection((self.server.host, self.server.port), PATIENCE)
        one.sendall(b"POST /embed HTTP/%s\r\nHost: localhost\r\nAccept: %s\r\nContent-Length: %d\r\n\r\n" % (version, TYPE.encode(), len(body)) + body)
        return one

    def test_as_it_arrives(self):
        """pyarrow reads the connection; the next request has the same one."""
        connection = self.server.connect()
        for n in (300, 1, 600):
            connection.request("POST", "/embed", json.dumps({"inputs": TEXTS[:n]}), ARROW)
            reply = connection.getresponse()
            with pyarrow.ipc.open_stream(reply) as reader:
                self.assertEqual(sum(batch.num_rows for batch in reader), n)
            self.assertEqual(reply.read(), b"")
        connection.close()

    def test_clients_that_leave(self):
        body = json.dumps({"inputs": TEXTS * 4}).encode()
        for _ in range(5):
            with self.raw(b"1.1", body) as one:
                self.assertTrue(one.recv(1000).startswith(b"HTTP/1.1 200"))
        self.check(1, "float")

    def test_memory(self):
        """10,000 vectors of 128 float32 numbers are 5 MB, in blocks of 128 KiB."""
        def peak():
            with open("/proc/%d/status" % self.server.process.pid, encoding="ascii") as file:
                return int(next(line for line in file if line.startswith("VmHWM")).split()[1])

        body = json.dumps({"inputs": ["a b %d" % i for i in range(10000)]}).encode()
        self.server.post("/embed", body, {"Accept": "application/x-ndjson"})  # the request itself
        before = peak()
        _, _, batches, _ = self.read("/embed", body)
        self.assertEqual(sum(batch.num_rows for batch in batches), 10000)
        self.assertLess(peak() - before, 2 << 10)


if __name__ == "__main__":
    main(__name__)
