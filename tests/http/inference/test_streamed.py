"""Replies as JSON lines (`Accept: application/x-ndjson`): equal to one reply, in bounded memory, errors as the last line."""
import json
import socket
import time

from serving import PATIENCE, Served, Server, main, model, wait_until

LINES = {"Accept": "application/x-ndjson"}
TEXTS = ["a dog %d" % i for i in range(600)]  # more than two blocks
LONG = "w " * 700


class Streamed(Served):
    arguments = (model("splade-tiny"), "--device", "cpu")

    def lines(self, path, body, headers=None):
        reply = self.server.post(path, body, headers or LINES)
        self.assertEqual((reply.status, reply.headers["Content-Type"]), (200, "application/x-ndjson"), reply.body[:300])
        self.assertTrue(reply.body.endswith(b"\n"))
        return [json.loads(line) for line in reply.body.decode().splitlines()]

    def test_it_is_the_same_reply(self):
        ids = [[101, 1037, 3899 + i, 102] for i in range(300)]
        for body in ({"input": TEXTS}, {"input": "a dog"}, {"input": TEXTS, "encoding_format": "base64"}, {"input": TEXTS[:300], "dimensions": 5},
                     {"input": TEXTS[:300], "embedding_type": "int8"}, {"input": TEXTS, "output_dtype": "binary", "encoding_format": "base64"},
                     {"input": ids}, {"input": [LONG] * 3, "truncate_prompt_tokens": 9}):
            *data, end = self.lines("/v1/embeddings", body)
            plain = self.server.post("/v1/embeddings", body).json()
            self.assertEqual(data, plain["data"])
            self.assertEqual(end, {name: plain[name] for name in ("object", "model", "usage")})
        for body in ({"inputs": TEXTS}, {"inputs": TEXTS[:257], "normalize": False, "dimensions": 7}, {"inputs": ids}):
            self.assertEqual(self.lines("/embed", body), self.server.post("/embed", body).json())

    def test_who_gets_lines(self):
        for accepted, kind in (("application/x-ndjson", "x-ndjson"), ("text/html, application/x-ndjson;q=0.5", "x-ndjson"),
                               ("application/json;q=0.5, application/x-ndjson", "x-ndjson"), ("*/*", "json"), ("application/*", "json"),
                               ("application/json, application/x-ndjson;q=0.5", "json"), ("application/x-ndjson;q=0", "json"), ("", "json")):
            reply = self.server.post("/embed", {"inputs": "a"}, {"Accept": accepted})
            self.assertEqual((reply.status, reply.headers["Content-Type"]), (200, "application/" + kind), accepted)

    def test_errors_before_the_first_line(self):
        """They have their status and the dialect's form."""
        for status, words, path, body in (
                (400, "empty", "/v1/embeddings", {"input": []}), (404, "unknown model", "/v1/embeddings", {"input": "a", "model": "none"}),
                (400, "`outputs` is not supported with `Accept", "/v1/embeddings", {"input": "a", "outputs": ["dense"]}),
                (400, "`chunking` is not supported with `Accept", "/v1/embeddings", {"input": "a", "chunking": {"method": "window"}}),
                (422, "`outputs` is not supported with `Accept", "/embed", {"inputs": "a", "outputs": ["dense"]}),
                (422, "the limit is 10000", "/embed", {"inputs": ["a"] * 10001}), (422, "item 1: the text has 702 tokens", "/embed", {"inputs": ["a", LONG]})):
            self.assertIn("error", self.refused(status, words, path, body, LINES))
        self.refused(422, "the limit is 2048", "/embed", {"inputs": ["a"] * 2049})

    def test_an_error_in_the_middle(self):
        texts = list(TEXTS)
        texts[300] = LONG
        *data, end = self.lines("/v1/embeddings", {"input": texts})
        self.assertEqual([one["index"] for one in data], list(range(256)))
        self.assertIn("after 256 inputs: item 44: the text has 702 tokens", end["error"]["message"])
        self.assertEqual(end["error"]["code"], "context_length_exceeded")
        *vectors, end = self.lines("/embed", {"inputs": texts})
        self.assertEqual((len(vectors), end["error_type"]), (256, "Validation"))
        self.assertEqual(len(self.lines("/embed", {"inputs": texts, "truncate": True})), 600)

    def test_one_connection(self):
        connection = self.server.connect()
        for n in (300, 1, 257):
            connection.request("POST", "/embed", json.dumps({"inputs": TEXTS[:n]}), LINES)
            reply = connection.getresponse()
            self.assertEqual((reply.headers["Transfer-Encoding"], len(reply.read().splitlines())), ("chunked", n))
        connection.close()

    def raw(self, version, texts):
        body = json.dumps({"inputs": texts}).encode()
        one = socket.create_connection((self.server.host, self.server.port), PATIENCE)
        one.sendall(b"POST /embed HTTP/%s\r\nHost: localhost\r\nAccept: application/x-ndjson\r\nContent-Length: %d\r\n\r\n" % (version, len(body)) + body)
        return one

    def test_http_1_0(self):
        """Without chunks; the end of the connection ends the reply."""
        with self.raw(b"1.0", TEXTS[:300]) as one:
            got = b"".join(iter(lambda: one.recv(1 << 16), b""))
        head, body = got.split(b"\r\n\r\n", 1)
        self.assertNotIn(b"chunked", head)
        self.assertEqual(len(body.splitlines()), 300)

    def test_clients_that_leave(self):
        for _ in range(5):
            with self.raw(b"1.1", TEXTS * 4) as one:
                self.assertTrue(one.recv(1000).startswith(b"HTTP/1.1 200"))
        self.assertEqual(len(self.lines("/embed", {"inputs": TEXTS})), 600)


class Idle(Served):
    arguments = (model("splade-tiny"), "--device", "cpu", "--model-control")

    def loaded(self):
        return len(self.server.get("/api/ps").json()["models"])

    def test_a_model_is_not_idle_between_two_blocks(self):
        body = json.dumps({"inputs": ["a b"] * 10000}).encode()
        with socket.create_connection((self.server.host, self.server.port), PATIENCE) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall(b"POST /embed HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            self.assertTrue(one.recv(100).startswith(b"HTTP/1.1 200"))
            self.assertEqual(self.server.post("/api/embed", {"input": "a", "keep_alive": 0}).status, 200)
            time.sleep(0.5)
            self.assertEqual(self.loaded(), 1)
        wait_until(lambda: self.loaded() == 0, "the model is not suspended after the stream")


class Bounded(Served):
    """10,000 vectors of 128 numbers are 14 MB of JSON and 5 MB of numbers."""
    arguments = (model("splade-tiny"), "--device", "cpu", "--max-client-batch-size", "10000")

    def peak(self):
        with open("/proc/%d/status" % self.server.process.pid, encoding="ascii") as file:
            return int(next(line for line in file if line.startswith("VmHWM")).split()[1])

    def test_memory(self):
        body = json.dumps({"inputs": ["a b"] * 10000, "normalize": False}).encode()
        self.server.post("/embed", {"inputs": ["a b"] * 600}, LINES)
        before = self.peak()
        reply = self.server.post("/embed", body, LINES)
        streamed = self.peak() - before
        self.assertEqual((reply.status, len(reply.body.splitlines())), (200, 10000))
        self.assertGreater(len(reply.body), 10 << 20)
        plain = self.server.post("/embed", body)
        self.assertEqual(plain.status, 200)
        self.assertEqual(b"[" + b",".join(reply.body.splitlines()) + b"]", plain.body)
        self.assertGreater(self.peak() - before, 14 << 10)
        self.assertLess(streamed, 7 << 10)

    def test_a_client_that_reads_nothing(self):
        """Backpressure: inference pauses while the client does not read; shutdown aborts the unfinished stream."""
        server = Server(*self.arguments, "--drain-timeout", "1")
        body = json.dumps({"inputs": ["a b"] * 10000}).encode()
        one = socket.create_connection((server.host, server.port), PATIENCE)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(b"POST /embed HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.assertTrue(one.recv(100).startswith(b"HTTP/1.1 200"))

        def texts():
            return next(int(line.split()[1]) for line in server.get("/metrics").body.decode().splitlines() if line.startswith("te_embed_count "))

        done, since = -1, time.monotonic()
        while time.monotonic() < since + PATIENCE:
            now = texts()
            if now == done:
                break
            done = now
            time.sleep(0.5)
        self.assertGreater(done, 0)
        self.assertLess(done, 8000)
        self.assertEqual(server.stop()[0], 0)
        one.close()


if __name__ == "__main__":
    main(__name__)
