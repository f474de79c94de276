"""Single texts are answered with concurrent bulk clients, which differ by address, by key, or in nothing."""
import http.client
import json
import os
import threading
import unittest

from serving import MINILM, PATIENCE, Served, Server, main

BULK_TEXTS = 200
SINGLES = 40  # at least; 99.5 % of them are all


def embed(connection, texts, key):
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = "Bearer " + key
    connection.request("POST", "/v1/embeddings", json.dumps({"input": texts}), headers)
    reply = connection.getresponse()
    reply.read()
    return reply


def connect(server, address):
    return http.client.HTTPConnection(server.host, server.port, timeout=5 * PATIENCE,
                                      source_address=(address, 0))


class Bulk(threading.Thread):
    """Sends again as soon as it is answered, or when it shall."""

    def __init__(self, server, number, address, key, stop):
        super().__init__()
        self.server, self.number, self.address, self.key, self.stop = server, number, address, key, stop
        self.n_answered = self.n_refused = 0
        self.wrong = []

    def run(self):
        try:
            self.send_all()
        except (OSError, http.client.HTTPException):
            if not self.stop.is_set():  # the server ends with requests of bulk clients
                self.wrong.append("connection")

    def send_all(self):
        connection, sent = connect(self.server, self.address), 0
        while not self.stop.is_set():
            sent += 1
            reply = embed(connection, [f"text {i} of request {sent} of client {self.number}"
                                       for i in range(BULK_TEXTS)], self.key)
            if reply.status == 200:
                self.n_answered += 1
            elif reply.status == 429:
                self.n_refused += 1
                self.stop.wait(int(reply.headers["retry-after-ms"]) / 1000)
            elif not self.stop.is_set():
                self.wrong.append(reply.status)
        connection.close()


class Fairness(unittest.TestCase):
    def check(self, n_bulk, of_bulk, of_single, *arguments):
        """of_bulk(number) and of_single are (address, key)."""
        server = Server(MINILM, "--max-batch-tokens", 512, "--drain-timeout", 1, *arguments)
        self.addCleanup(server.stop)
        stop = threading.Event()
        address, key = of_single
        single, statuses = connect(server, address), []
        embed(single, ["a first text"], key)  # from here on the server knows its speed
        clients = [Bulk(server, i, *of_bulk(i), stop) for i in range(n_bulk)]
        for client in clients:
            client.start()
        self.addCleanup(lambda: [client.join() for client in clients])
        self.addCleanup(stop.set)
        # Until a bulk client is answered or refused, so that bulk requests take part.
        while len(statuses) < SINGLES or not any(client.n_answered + client.n_refused + len(client.wrong)
                                                 for client in clients):
            statuses.append(embed(single, [f"single text {len(statuses)}"], key).status)
        single.close()
        stop.set()
        server.process.terminate()
        for client in clients:
            client.join()
            self.assertEqual(client.wrong, [])
        self.assertEqual(set(statuses), {200})

    def test_by_address(self):
        for n_bulk in (1, 8, 100):
            with self.subTest(n_bulk=n_bulk):
                self.check(n_bulk, lambda i: (f"127.0.1.{i + 1}", None), ("127.0.2.1", None))

    def test_by_key(self):
        self.check(32, lambda i: ("127.0.0.1", f"bulk{i}"), ("127.0.0.1", "single"), "--api-key", "single",
                   *(part for i in range(32) for part in ("--api-key", f"bulk{i}")))

    def test_of_one_client(self):
        self.check(32, lambda i: ("127.0.0.1", None), ("127.0.0.1", None))


class Replies(Served):
    def worker_ns(self):
        """CPU time of the worker threads for long steps."""
        total, folder = 0, f"/proc/{self.server.process.pid}/task"
        for task in os.listdir(folder):
            with open(f"{folder}/{task}/comm", encoding="ascii") as file:
                name = file.read().strip()
            with open(f"{folder}/{task}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0]) if name == "gpuserve-worker" else 0
        return total

    def test_the_event_loop_writes_no_long_reply(self):
        """Of 20 texts of 384 numbers: writing takes half a millisecond, in which other clients would wait."""
        for n, is_long in ((2, False), (20, True)):
            body = {"input": ["a text of %d" % i for i in range(n)]}
            self.assertEqual(self.server.post("/v1/embeddings", body).status, 200)
            before = self.worker_ns()
            for _ in range(20):
                self.server.post("/v1/embeddings", body)
            self.assertEqual(self.worker_ns() - before > 20 * 50000, is_long, n)


if __name__ == "__main__":
    main(__name__)
