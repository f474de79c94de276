"""Clients that do all at random what clients do wrong, while models and keys are exchanged; the server is ended
beneath them. Its purpose is a build with a sanitizer; in any other one it still has to serve, to forget every
connection, and to end."""
import http.client
import json
import os
import random
import shutil
import signal
import socket
import ssl
import struct
import tempfile
import threading
import time
import unittest

import withstand
from serving import PATIENCE, Server, figure, main, wait_until
from common import INSTRUMENTED, ROOT
from test_tls import Authority

TINY = os.path.join(ROOT, "tests/data/models/st-dense")
SECONDS = float(os.environ.get("GPUSERVE_TEST_WILD_SECONDS", 5 if INSTRUMENTED else 3))
N_CLIENTS = 8
LATE = 0.3  # for what may never be answered
KEY = b"Authorization: Bearer one\r\n"


def get(path):
    return b"GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (path, KEY)


def post(path, value, more=b""):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\n%s%sContent-Length: %d\r\n\r\n%s" % (path, KEY, more, len(body), body)


def chunked(path, body, size):
    parts = [body[i:i + size] for i in range(0, len(body), size)]
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\n%sTransfer-Encoding: chunked\r\n\r\n" % (path, KEY) + b"".join(
        b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


LARGE = json.dumps({"inputs": ["hello world"] * 3000}).encode()  # the crew's
REQUESTS = [
    get(b"/health"), get(b"/metrics"), get(b"/health/deep"), get(b"/info"), get(b"/nowhere"),
    post(b"/embed", {"inputs": "hello"}), post(b"/embed", {"inputs": ["hello", "world"]}),
    post(b"/embed", {"inputs": 1}), post(b"/embed", b"{"), post(b"/embed", LARGE),
    post(b"/v1/embeddings", {"input": "hello", "model": "st-dense"}),
    post(b"/tokenize", {"inputs": ["hello world"] * 400}), post(b"/tokenize", {"inputs": "hello " * 8000}),
    post(b"/embed_all", {"inputs": ["hello world"] * 30}),
    post(b"/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b", "c"]}}),
    post(b"/v2/repository/index", {}), post(b"/embed", b"no gzip at all", b"Content-Encoding: gzip\r\n"),
    post(b"/embed", {"inputs": "hello"}, b"Expect: 100-continue\r\n"),
    post(b"/embed", {"inputs": "hello"}, b"Connection: close\r\n"),
    post(b"/embed", {"inputs": "hello"}, b"timeout: 0.001\r\n"),
    chunked(b"/embed", b'{"inputs":"hello"}', 3), chunked(b"/embed", LARGE, 5000),
    b"GET / HTTP/1.1\r\n\r\n", b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
]


class Wild:
    """One client after the other until stop(), each with a way of its own."""

    def __init__(self, connect, seed):
        self.connect, self.random, self.ending, self.n = connect, random.Random(seed), threading.Event(), 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        ways = (self.whole, self.cut, self.leave, self.ahead, self.trickle, self.never_read, self.half_close, self.noise)
        while not self.ending.is_set():
            try:
                client = self.connect()
            except OSError:
                continue  # all are taken, or this is the end
            try:
                self.random.choice(ways)(client)
                if self.random.random() < 0.4:  # by a reset
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                pass  # the server has ended it, as it may
            finally:
                client.close()
            self.n += 1

    def stop(self):
        self.ending.set()
        self.thread.join()

    def some(self, n=1):
        return b"".join(self.random.choice(REQUESTS) for _ in range(n))

    def read(self, client, n):
        client.settimeout(LATE)
        for _ in range(n):
            if not client.recv(self.random.choice((1, 100, 65536))):
                return

    def whole(self, client):
        client.sendall(self.some())
        self.read(client, 3)
        client.sendall(self.some())
        self.read(client, 3)

    def cut(self, client):
        text = self.some(self.random.randint(1, 3))
        client.sendall(text[:self.random.randrange(len(text))])
        if self.random.random() < 0.5:
            self.read(client, 1)

    def leave(self, client):
        client.sendall(self.some())
        self.ending.wait(self.random.random() * 0.02)

    def ahead(self, client):
        client.sendall(self.some(self.random.randint(2, 12)))
        self.read(client, self.random.randrange(12))

    def trickle(self, client):
        text = self.some(2)
        for i in range(0, len(text), max(1, len(text) // 40)):
            client.sendall(text[i:i + max(1, len(text) // 40)])
            self.ending.wait(0.001)
        self.read(client, 2)

    def never_read(self, client):
        client.sendall(self.some(6))
        self.ending.wait(self.random.random() * LATE)

    def half_close(self, client):
        client.sendall(self.some(2))
        if not isinstance(client, ssl.SSLSocket):
            client.shutdown(socket.SHUT_WR)
        self.read(client, 20)

    def noise(self, client):
        client.sendall(self.random.randbytes(self.random.randint(1, 3000)))
        self.read(client, 1)


class Withstands(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.keys = os.path.join(self.folder, "keys")
        self.write_keys("one\n")

    def write_keys(self, text):
        with open(self.keys + ".new", "w", encoding="ascii") as file:
            file.write(text)
        os.rename(self.keys + ".new", self.keys)

    def start(self, *arguments, **options):
        return Server(TINY, "--quiet", "--model-control", "--open-metrics", "--api-key-file", self.keys,
                      "--api-key", "two", "--key-rate", 1000000, "--max-connections", N_CLIENTS,
                      "--max-address-connections", N_CLIENTS,
                      "--header-timeout", 1, "--max-unread-bytes", 100000,
                      "--access-log", os.path.join(self.folder, "log"), *arguments, **options)

    @staticmethod
    def status(server, path, value):
        """Of a request as it should be, however often all connections are taken."""
        status = []

        def is_answered():
            try:
                status[:] = [server.post(path, value, {"Authorization": "Bearer two"}).status]
            except (OSError, http.client.HTTPException):
                assert server.process.poll() is None, server.stop()
                return False  # ended in favour of another one
            return status[0] not in (429, 503)

        wait_until(is_answered)
        return status[0]

    def exchange(self, server):
        """All that can be taken up anew, again and again."""
        until = time.monotonic() + SECONDS
        path = "/v2/repository/models/st-dense/"
        n = 0
        while n < 1 or time.monotonic() < until:
            n += 1
            self.write_keys("one\n%d\n" % n)
            server.process.send_signal(signal.SIGHUP)
            for what, value in ((path + "unload", {}), (path + "load", {}), ("/embed", {"inputs": "hello"})):
                self.assertEqual(self.status(server, what, value), 200)

    @staticmethod
    def has_reloaded(server):
        try:
            return figure(server, "gpuserve_http_reloads_total") > 0
        except (AssertionError, OSError, http.client.HTTPException):
            return False  # answered 429 or 503 instead: the clients that have stopped are not all noticed yet

    def withstands(self, server, connect):
        clients = [Wild(connect, seed) for seed in range(N_CLIENTS)]
        try:
            self.exchange(server)
            for client in clients[1:]:
                client.stop()
            wait_until(lambda: self.has_reloaded(server))
            code, err = server.stop()  # beneath the one that is left
            self.assertEqual((code, err), (0, ""))
        finally:
            for client in clients:
                client.stop()
            server.stop(signal.SIGKILL)

    def test_at_a_port(self):
        server = self.start()
        self.withstands(server, lambda: socket.create_connection((server.host, server.port), timeout=PATIENCE))

    def test_at_a_unix_socket(self):
        path = os.path.join(self.folder, "socket")

        def connect():
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(PATIENCE)
            client.connect(path)
            return client

        self.withstands(self.start(unix=path), connect)

    def test_over_tls(self):
        authority = Authority(self.folder)
        files = authority.sign("server")
        context = ssl.create_default_context(cafile=authority.at("ca.pem"))
        server = self.start("--tls-cert", files[0], "--tls-key", files[1], tls=context)

        def connect():
            plain = socket.create_connection((server.host, server.port), timeout=PATIENCE)
            try:
                return context.wrap_socket(plain, server_hostname=server.host)
            except OSError:
                plain.close()
                raise

        self.withstands(server, connect)


class Fuzzed(unittest.TestCase):
    def test_fuzzed_requests(self):
        """A small run of `./dev withstand fuzz`."""
        figures = withstand.fuzz(800 if INSTRUMENTED else 2400, seed=1)
        self.assertEqual((figures["lost"], figures["wrong"]), (0, 0))
        self.assertGreater(figures["statuses"]["200"], 50)
        self.assertLess(figures["unread"], figures["requests"] / 4)


if __name__ == "__main__":
    main(__name__)
