"""Slow clients, too many clients, clients that go away, overload, and the end of the server."""
import json
import multiprocessing
import os
import resource
import select
import signal
import socket
import threading
import time
import unittest

import withstand
from serving import MINILM, PATIENCE, Served, Server, figure, main, wait_until

HEAD = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def metric(server, name):
    """A figure of the process: "VmRSS" in kB."""
    with open("/proc/%d/status" % server.process.pid, encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name + ":"))


def kernel_holds(server):
    """The most bytes on their way to one client of the server that the kernel keeps."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in list(file)[1:]]
    return max(int(row[4].split(":")[0], 16) for row in rows
               if row[1].endswith(":%04X" % server.port) and row[3] == "01")


def long_texts(n):
    """Different ones: equal texts are computed once."""
    return ["text %d " % i + "of many words " * 80 for i in range(n)]


def connect(server):
    return socket.create_connection((server.host, server.port), timeout=PATIENCE)


def connect_as_from_afar(server):
    """Packets and a window as a network has them; the loopback's are so large that hardly any of a
    slow reader's progress shows."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)
    client.settimeout(PATIENCE)
    client.connect((server.host, server.port))
    return client


def answer(client):
    got = b""
    while True:
        try:
            more = client.recv(65536)
        except ConnectionResetError:
            return got
        if not more:
            return got
        got += more


def ready(clients):
    """Those that the server has said something to, or has ended."""
    poll = select.poll()
    for client in clients:
        poll.register(client, select.POLLIN)
    named = {client.fileno(): client for client in clients}
    return [named[number] for number, _ in poll.poll(0)]


def read_slowly(clients, hurry, told):
    """A process: 160 kB a second from each, late if need be, until they are to hurry. Tells how many got all,
    and the longest time in which it did not come to read."""
    got, begun = [b""] * len(clients), time.monotonic()
    last, gap, open_ones = begun, 0, set(clients)
    while open_ones:
        time.sleep(0 if hurry.is_set() else 0.02)
        now = time.monotonic()
        last, gap = now, max(gap, now - last)
        due = 1 << 30 if hurry.is_set() else min(int((now - begun) * 160000), 1900000)
        for client in ready(open_ones):
            at = clients.index(client)
            try:
                more = client.recv(max(1, min(65536, due - len(got[at])))) if len(got[at]) < due else None
            except ConnectionResetError:
                more = b""
            got[at] += more or b""
            if more == b"" or is_whole(got[at]):
                open_ones.remove(client)
    told.put((sum(map(is_whole, got)), gap))


def is_whole(reply):
    head, end, body = reply.partition(b"\r\n\r\n")
    return bool(end) and len(body) == int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])


class Slow(unittest.TestCase):
    """T7, scaled down: slow headers, slow bodies and slow readers with concurrent good clients."""

    @classmethod
    def setUpClass(cls):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
        cls.n = 250

    def crowd(self, server, words, first, drip, n=None):
        """n clients that send `first`, then `drip` until each is ended by the server, with `words`; others are
        answered meanwhile."""
        clients = [connect(server) for _ in range(n or self.n)]
        for client in clients:
            client.sendall(first)
        before = metric(server, "VmRSS")
        reply = server.post("/embed", {"inputs": "a dog"})
        while waiting := set(clients) - set(ready(clients)):
            self.assertEqual(reply.status, 200, reply.body)
            for client in waiting:
                try:
                    client.sendall(drip)
                except OSError:
                    pass
            reply = server.post("/embed", {"inputs": "a dog"})
        self.assertEqual(reply.status, 200, reply.body)
        self.assertLess(metric(server, "VmRSS") - before, 64 * 1024)
        for client in clients:
            text = answer(client)
            self.assertTrue(text == b"" or text.startswith(b"HTTP/1.1 408 ") and words in text, text)
            client.close()

    def test_slow_headers(self):
        server = Server(MINILM, "--header-timeout", 2)
        self.crowd(server, b"the header did not arrive in time", b"GET /health HTTP/1.1\r\nHost: localhost\r\n", b"X-a: b\r\n")
        self.assertEqual(server.stop()[0], 0)

    def test_slow_bodies(self):
        server = Server(MINILM, "--body-timeout", 2)
        late = b"the body did not arrive in time"
        self.crowd(server, late, HEAD + b"Content-Length: 100000\r\n\r\n{", b" ")
        self.crowd(server, late, HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", b"1\r\n \r\n", 50)
        self.assertEqual(server.stop()[0], 0)

    def test_a_body_that_trickles(self):
        """Less than --min-body-rate for five seconds, long before --body-timeout."""
        server = Server(MINILM)
        client = connect(server)
        client.sendall(HEAD + b"Content-Length: 100000\r\n\r\n{")
        client.settimeout(0.2)
        began, text = time.monotonic(), b""
        while not text and time.monotonic() < began + PATIENCE:
            try:
                client.sendall(b" ")
                text = client.recv(1000)
            except TimeoutError:
                pass
        self.assertTrue(text.startswith(b"HTTP/1.1 408 "), text)
        self.assertIn(b"the body arrives too slowly", text)
        self.assertGreater(time.monotonic() - began, 4)
        client.close()
        self.assertEqual(server.stop()[0], 0)

    def test_a_crowd(self):
        """As ./dev withstand has it at full size: the answers of others, and that all were there."""
        for kind, row in withstand.slow(100, 0.4).items():
            self.assertGreaterEqual(row["connections"], 2, kind)

    def connect_for_much(self, server, n):
        """n clients, each of which is about to ask for 2.6 MB: what to send for it, and they."""
        body = b'{"inputs":"%s"}' % (b"a b " * 20000)
        server.post("/tokenize", body)
        self.before_kb = metric(server, "VmHWM")
        request = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        return body, request, [connect_as_from_afar(server) for _ in range(n)]

    def test_replies_that_are_read_slowly(self):
        """Not so slowly that anybody is ended: who asks for a long one still gets it. The readers are a process:
        threads of this one would wait for its lock while it reads long replies itself."""
        server = Server(MINILM)
        body, request, clients = self.connect_for_much(server, 12)
        context = multiprocessing.get_context("fork")
        hurry, told = context.Event(), context.Queue()
        reader = context.Process(target=read_slowly, args=(clients, hurry, told), daemon=True)
        reader.start()
        for client in clients:
            client.sendall(request)
        until = time.monotonic() + 3
        while time.monotonic() < until:
            self.assertEqual(len(server.post("/tokenize", body).json()[0]), 40002)
        hurry.set()
        n_whole, gap = told.get(timeout=PATIENCE)
        reader.join()
        if gap < 0.5:  # after one second without a byte a reader is slow indeed
            self.assertEqual(n_whole, len(clients))
        for client in clients:
            client.close()
        self.assertEqual(server.stop()[0], 0)

    def test_replies_that_are_not_read(self):
        """They fill so much memory and no more, though no least rate is asked for."""
        server = Server(MINILM, "--min-body-rate", 1)
        body, request, clients = self.connect_for_much(server, 40)
        for client in clients:
            client.sendall(request)
        wait_until(lambda: figure(server, "gpuserve_http_connections") <= 30, "no client is disconnected")
        self.assertLess(kernel_holds(server), 512 * 1024)
        self.assertLess(metric(server, "VmHWM") - self.before_kb, 64 * 1024)  # of 104 MB of replies
        self.assertEqual(len(server.post("/tokenize", body).json()[0]), 40002)
        for client in clients:
            client.close()
        self.assertEqual(server.stop()[0], 0)

    def test_idle_connections(self):
        server = Server(MINILM, "--idle-timeout", 3)  # enough to ask in
        silent = connect(server)
        used = connect(server)
        used.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertTrue(used.recv(1000).startswith(b"HTTP/1.1 200"))
        self.assertEqual((answer(silent), answer(used)), (b"", b""))
        self.assertEqual(server.stop()[0], 0)

    def test_full_house(self):
        """All connections taken by those who wait: newcomers get in; health is always answered."""
        server = Server(MINILM, "--max-connections", 20, "--max-address-connections", 100)
        waiting = [connect(server) for _ in range(20)]
        for client in waiting:
            client.sendall(b"GET /health HTTP/1.1\r\n")
        for _ in range(5):
            self.assertEqual(server.post("/embed", {"inputs": "a"}).status, 200)
            self.assertEqual(server.get("/health").status, 200)
        for client in waiting:
            client.close()
        self.assertEqual(server.stop()[0], 0)

    def test_a_house_full_of_requests(self):
        """All connections have one that is not answered yet: newcomers may ask for health, nothing else,
        and not slowly."""
        server = Server(MINILM, "--max-connections", 2, "--max-address-connections", 100)
        busy = [connect(server) for _ in range(2)]
        for client in busy:
            client.sendall(HEAD + b"Content-Length: 14\r\nExpect: 100-continue\r\n\r\n")
            self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 100 "))
        # for health only, and so no room for others when they are ended; nor do they fill that place
        waiting = []
        for _ in range(40):  # one after the other: of those that ask at once 32 are answered
            waiting.append(connect(server))
            waiting[-1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertTrue(waiting[-1].recv(1000).startswith(b"HTTP/1.1 200 "))
        reply = server.post("/embed", {"inputs": "a"})
        self.assertEqual(reply.status, 503)
        self.assertIn("all connections are in use", reply.json()["error"])
        self.assertIn("Retry-After", reply.headers)
        slow = connect(server)
        slow.sendall(b"GET /health HTTP/1.1\r\n")
        text = answer(slow)
        self.assertTrue(text.startswith(b"HTTP/1.1 408 "), text)
        self.assertIn(b"while all connections are in use", text)  # not --header-timeout
        for client in busy:
            client.sendall(b'{"inputs":"a"}')
            self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 200 "))
            client.close()
        self.assertEqual(server.stop()[0], 0)

    def test_no_descriptor_left(self):
        """Enough for a client, not for its request; later there are more again."""
        server = Server(MINILM)
        taken = {int(name) for name in os.listdir("/proc/%d/fd" % server.process.pid)}
        free = sorted(set(range(len(taken) + 3)) - taken)
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (free[2], limits[1]))
        reply = server.post("/embed", {"inputs": "a"})
        self.assertEqual(reply.status, 503, reply.body)
        self.assertIn("no free file descriptor for another connection", reply.json()["error"])
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)
        self.assertEqual(server.post("/embed", {"inputs": "a"}).status, 200)
        self.assertEqual(server.stop()[0], 0)

    def test_one_address(self):
        server = Server(MINILM, "--max-address-connections", 5)
        clients = [connect(server) for _ in range(5)]
        sixth = connect(server)
        text = answer(sixth)
        self.assertTrue(text.startswith(b"HTTP/1.1 429 "), text)
        self.assertIn(b"Retry-After", text)
        for client in clients:
            client.close()
        self.assertEqual(server.stop()[0], 0)


class Away(Served):
    def count(self, name):
        """Of all requests so far, by Triton's statistics."""
        stats = self.server.get("/v2/models/all-MiniLM-L6-v2/stats").json()["model_stats"][0]
        return stats["inference_stats"][name]["count"]

    def test_work_of_those_who_left_is_cancelled(self):
        body = json.dumps({"inputs": long_texts(1500)}).encode()
        before, failed = self.count("success"), self.count("fail")
        for ending in ("close", "reset", "half"):
            client = connect(self.server)
            client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            wait_until(lambda: figure(self.server, "te_queue_size") > 0)
            if ending == "half":
                client.shutdown(socket.SHUT_WR)
            elif ending == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                  b"\x01\0\0\0\0\0\0\0")
            if ending == "half":
                self.assertTrue(answer(client).startswith(b"HTTP/1.1 503 "))
            client.close()
            failed += 1
            wait_until(lambda: self.count("fail") == failed, ending)
        self.assertEqual(self.count("success"), before)
        self.assertEqual(self.server.post("/embed", {"inputs": "a"}).status, 200)

    def test_deadlines_of_clients(self):
        texts = long_texts(400)
        for name in ("x-stainless-read-timeout", "Request-Timeout", "timeout"):
            reply = self.server.post("/v1/embeddings", {"input": texts[:1]}, {name: "600"})
            self.assertEqual(reply.status, 200)
            reply = self.server.post("/v1/embeddings", {"input": texts}, {name: "0.05"})
            self.assertEqual(reply.status, 504, reply.body[:200])
            self.assertEqual(reply.json()["error"]["code"], "deadline_exceeded")

    def test_of_several_deadlines_the_shortest_counts(self):
        for headers, status in (({"x-stainless-read-timeout": "600", "Request-Timeout": "0.00001"}, 504),
                                ({"x-stainless-read-timeout": "0.00001", "timeout": "600"}, 504),
                                ({"timeout": "600", "Request-Timeout": "500"}, 200),
                                ({"Request-Timeout": "soon", "timeout": "600"}, 200),
                                ({"timeout": "Second-1"}, 200), ({"timeout": "1e-9"}, 200), ({"timeout": "-1"}, 200),
                                ({"timeout": "9" * 60}, 200)):
            self.assertEqual(self.server.post("/embed", {"inputs": "a"}, headers).status, status, headers)
        path, text = "/v2/models/all-MiniLM-L6-v2/infer", {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]}
        for header, us, status in (("600", 1, 504), ("0.00001", 600000000, 504), ("600", 600000000, 200), ("600", 0, 200)):
            reply = self.server.post(path, {"inputs": [text], "parameters": {"timeout": us}}, {"timeout": header})
            self.assertEqual(reply.status, status, (header, us, reply.body))

    def test_request_ids(self):
        reply = self.server.get("/health", **{"x-request-id": "abc-1.2_3"})
        self.assertEqual(reply.headers["x-request-id"], "abc-1.2_3")
        first, second = (self.server.get("/health", **{"x-request-id": "a b\"<"}) for _ in range(2))
        self.assertNotEqual(first.headers["x-request-id"], second.headers["x-request-id"])


class Overload(unittest.TestCase):
    def test_all_at_once(self):
        """T8, small: ./dev withstand has it at full size."""
        figures = withstand.overload(1, 0.6, n_checked=3, factor=40)
        self.assertGreater(figures["refused"], figures["accepted"])

    def test_refusals_tell_when_to_come_back(self):
        server = Server(MINILM)
        body = json.dumps({"input": long_texts(1000)}).encode()
        replies = []

        def ask():
            replies.append(server.post("/v1/embeddings", body, {"Request-Timeout": "4"}))

        threads = [threading.Thread(target=ask) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        statuses = {reply.status for reply in replies}
        self.assertLessEqual(statuses, {200, 429, 504})
        self.assertIn(429, statuses)
        for reply in replies:
            if reply.status == 429:
                self.assertGreater(int(reply.headers["Retry-After"]), 0)
                self.assertGreater(int(reply.headers["retry-after-ms"]), 0)
                self.assertEqual(reply.json()["error"]["type"], "rate_limit_error")
        self.assertEqual(server.stop()[0], 0)


class End(unittest.TestCase):
    def test_accepted_requests_are_answered(self):
        for _ in range(2):
            server = Server(MINILM)
            body = json.dumps({"inputs": ["some text " * 60] * 60}).encode()
            idle, busy = connect(server), connect(server)
            busy.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body[:-1])
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(answer(idle), b"")  # and then nothing is accepted any more
            with self.assertRaises(OSError):
                connect(server)
            busy.sendall(body[-1:])
            text = answer(busy)
            self.assertTrue(text.startswith(b"HTTP/1.1 200 "), text[:200])
            self.assertIn(b"Connection: close", text)
            self.assertEqual(len(json.loads(text.split(b"\r\n\r\n", 1)[1])), 60)
            server.process.communicate(timeout=PATIENCE)
            self.assertEqual(server.process.returncode, 0)

    def test_deadline_of_the_end(self):
        server = Server(MINILM, "--drain-timeout", 1)
        body = json.dumps({"inputs": long_texts(2000)}).encode()
        busy = connect(server)
        busy.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: figure(server, "te_queue_size") > 0)
        code, err = server.stop()
        self.assertEqual(code, 0)
        self.assertIn("cancels", err)
        self.assertTrue(answer(busy).startswith(b"HTTP/1.1 503 "))
        busy.close()

    def test_nothing_is_left_open(self):
        server = Server(MINILM)

        def count():
            return len(os.listdir("/proc/%d/fd" % server.process.pid))

        server.post("/embed", {"inputs": "a"})
        wait_until(lambda: figure(server, "gpuserve_http_connections") == 1)
        before = count()
        for _ in range(200):
            server.post("/embed", {"inputs": "a", "dimensions": 2})
            client = connect(server)
            client.sendall(b"GET /health HTTP/1.1\r\n")
            client.close()
        wait_until(lambda: count() <= before, "descriptors are left open")
        self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    main(__name__)
