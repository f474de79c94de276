"""Loads that clients request: coalesced, on one thread, cancelled when the clients disconnect."""
import os
import socket
import threading
import unittest

from serving import MINILM, PATIENCE, Server, figure, main, wait_until

LOADS = 400
# The thread for loads, and those of a model that is opened while the old one serves.
EXTRA_THREADS = 1 + 2 * os.cpu_count()
LOAD = "/v2/repository/models/m/load"


def threads_of(server):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as file:
        return int(next(line for line in file if line.startswith("Threads:")).split()[1])


def send(server, path, method="POST"):
    client = socket.create_connection((server.host, server.port), PATIENCE)
    client.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
    return client


class Loads(unittest.TestCase):
    def setUp(self):
        self.server = Server("m=" + MINILM, "--model-control", "--max-address-connections", 2 * LOADS)
        self.addCleanup(self.server.stop)

    def open_requests(self):
        return figure(self.server, "gpuserve_http_requests_open")

    def crowd(self, path, leave):
        """The most threads beyond those there were."""
        before = most = threads_of(self.server)
        clients = []
        for _ in range(LOADS):
            client = send(self.server, path, "GET" if path == "/health/deep" else "POST")
            if leave:
                client.close()
            else:
                clients.append(client)
            most = max(most, threads_of(self.server))
        self.addCleanup(lambda: [client.close() for client in clients])
        return most - before, clients

    def test_clients_that_leave(self):
        extra, _ = self.crowd(LOAD, leave=True)
        self.assertLessEqual(extra, EXTRA_THREADS)
        wait_until(lambda: self.open_requests() == 1)
        loads = figure(self.server, "gpuserve_http_model_loads_total")
        joined = figure(self.server, "gpuserve_http_model_loads_joined_total")
        cancelled = figure(self.server, "gpuserve_http_model_loads_cancelled_total")
        self.assertLessEqual(loads + joined + cancelled, LOADS)
        self.assertEqual(self.server.post("/embed", {"inputs": "a dog"}).status, 200)

    def test_clients_that_stay_share(self):
        extra, clients = self.crowd(LOAD, leave=False)
        self.assertLessEqual(extra, EXTRA_THREADS)
        for client in clients:
            self.assertIn(b"200 OK", client.recv(100))
        loads = figure(self.server, "gpuserve_http_model_loads_total")
        self.assertEqual(loads + figure(self.server, "gpuserve_http_model_loads_joined_total"), LOADS)
        self.assertLess(loads, LOADS)

    def test_unloads_and_deep_checks(self):
        for path in ("/v2/repository/models/m/unload", "/health/deep"):
            extra, clients = self.crowd(path, leave=path != "/health/deep")
            self.assertLessEqual(extra, EXTRA_THREADS, path)
            for client in clients:
                self.assertIn(b"HTTP/1.1", client.recv(100))
            wait_until(lambda: self.open_requests() == 1)

    def test_sigterm_cancels_queued_loads(self):
        extra, clients = self.crowd(LOAD, leave=False)
        self.assertLessEqual(extra, EXTRA_THREADS)
        ended = threading.Thread(target=self.server.stop)
        ended.start()
        answered = [client.recv(100) for client in clients]
        ended.join(PATIENCE)
        self.assertFalse(ended.is_alive())
        for reply in answered:
            self.assertTrue(reply.startswith((b"HTTP/1.1 200", b"HTTP/1.1 503")), reply)


if __name__ == "__main__":
    main(__name__)
