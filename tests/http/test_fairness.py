"""Single texts are answered beside bulk clients, told apart by address, by key, and not at all."""
import http.client
import json
import threading
import unittest

from serving import MINILM, PATIENCE, Server, main

BULK_TEXTS = 200
SINGLES = 120


def embed(connection, texts, key):
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = "Bearer " + key
    connection.request("POST", "/v1/embeddings", json.dumps({"input": texts}), headers)
    reply = connection.getresponse()
    reply.read()
    return reply


def connect(server, address):
    return http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE,
                                      source_address=(address, 0))


class Bulk(threading.Thread):
    """Sends again as soon as it is answered, or when it shall."""

    def __init__(self, server, number, address, key, stop):
        super().__init__()
        self.server, self.number, self.address, self.key, self.stop = server, number, address, key, stop
        self.n_answered = self.n_refused = 0
        self.wrong = []

    def run(self):
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
            else:
                self.wrong.append(reply.status)
        connection.close()


class Fairness(unittest.TestCase):
    def check(self, n_bulk, of_bulk, of_single, *arguments):
        """of_bulk(number) and of_single are (address, key)."""
        server = Server(MINILM, *arguments)
        self.addCleanup(server.stop)
        stop = threading.Event()
        clients = [Bulk(server, i, *of_bulk(i), stop) for i in range(n_bulk)]
        for client in clients:
            client.start()
        self.addCleanup(lambda: [client.join() for client in clients])
        self.addCleanup(stop.set)
        address, key = of_single
        connection, statuses = connect(server, address), []
        for i in range(SINGLES):
            statuses.append(embed(connection, [f"single text {i}"], key).status)
        connection.close()
        stop.set()
        for client in clients:
            client.join()
            self.assertEqual(client.wrong, [])
        self.assertGreater(sum(client.n_answered for client in clients), 0)
        self.assertGreaterEqual(statuses.count(200), 0.995 * SINGLES, statuses)

    def test_by_address(self):
        for n_bulk in (1, 8, 100):
            with self.subTest(n_bulk=n_bulk):
                self.check(n_bulk, lambda i: (f"127.0.1.{i + 1}", None), ("127.0.2.1", None))

    def test_by_key(self):
        self.check(8, lambda i: ("127.0.0.1", f"bulk{i}"), ("127.0.0.1", "single"), "--api-key", "single",
                   *(part for i in range(8) for part in ("--api-key", f"bulk{i}")))

    def test_of_one_client(self):
        self.check(8, lambda i: ("127.0.0.1", None), ("127.0.0.1", None))


if __name__ == "__main__":
    main(__name__)
