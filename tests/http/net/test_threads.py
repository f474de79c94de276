#!/usr/bin/env python3
"""The two threads of the event loop: which one works, and that clients are served while one computes."""
import glob
import json
import threading
import time
import unittest

from serving import PATIENCE, Server, main

N_REQUESTS = 20
WORDS = "the quick fox named time year people jumps over a dog"
SLOW = "random:layers=6,hidden=768,vocab=8192"  # a text of 1 kB takes a tenth of a second and more


def sleeps(server):
    """How often each thread of the event loop has slept, by its identifier."""
    found = {}
    for folder in glob.glob(f"/proc/{server.process.pid}/task/*"):
        with open(folder + "/status", encoding="utf-8") as file:
            lines = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
        if lines["Name"] == "gpuserve-http":
            found[lines["Pid"]] = int(lines["voluntary_ctxt_switches"])
    return found


def embed(connection, text):
    connection.request("POST", "/v1/embeddings", json.dumps({"input": text}), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    return reply.status, len(json.loads(reply.read())["data"])


class Alone(unittest.TestCase):
    def test_requests_one_by_one_wake_one_thread(self):
        server = Server("random:bert-tiny,seed=1")
        self.addCleanup(server.stop)
        connection = server.connect()
        self.addCleanup(connection.close)
        self.assertEqual(embed(connection, WORDS), (200, 1))
        time.sleep(0.1)  # requests count as coming alone 20 ms after others
        before = sleeps(server)
        for i in range(N_REQUESTS):
            time.sleep(0.005)  # without it a busy leader finds the next request before it sleeps
            self.assertEqual(embed(connection, f"{WORDS} {i}"), (200, 1))
        after = sleeps(server)
        follower, leader = sorted(after[thread] - before[thread] for thread in before)
        self.assertGreaterEqual(leader, N_REQUESTS // 4)
        self.assertLessEqual(follower, N_REQUESTS // 10)


class Computing(unittest.TestCase):
    """While the leader computes a text, the follower does all that the leader does otherwise."""

    def setUp(self):
        self.server = Server(SLOW, "--threads", "1", "--header-timeout", "1")
        self.addCleanup(self.server.stop)
        self.text = (WORDS + " ") * (1000 // len(WORDS))
        self.embed()
        begin = time.monotonic()
        self.embed()
        self.seconds = time.monotonic() - begin
        if self.seconds < 0.1:
            self.skipTest(f"this machine computes the text in {self.seconds:.3f} s")

    def embed(self):
        connection = self.server.connect()
        try:
            self.assertEqual(embed(connection, self.text), (200, 1))
        finally:
            connection.close()

    def begin(self, work):
        """Work in the background that begins to compute when the call returns."""
        time.sleep(0.1)  # requests count as coming alone 20 ms after others
        thread = threading.Thread(target=work)
        thread.start()
        self.addCleanup(thread.join)
        time.sleep(0.03)
        return thread

    def test_another_client_is_served(self):
        waits = []
        for _ in range(5):
            thread = self.begin(self.embed)
            begin = time.monotonic()
            self.assertEqual(self.server.get("/health").status, 200)
            waits.append(time.monotonic() - begin)
            thread.join()
        self.assertLess(sorted(waits)[2], self.seconds / 2)

    def test_timeouts_hold(self):
        def work():
            until = time.monotonic() + 4
            while time.monotonic() < until:
                self.embed()

        self.begin(work)
        connection = self.server.connect()
        self.addCleanup(connection.close)
        connection.connect()
        connection.sock.settimeout(PATIENCE)
        connection.sock.sendall(b"GET /health HTTP/1.1\r\nHost: ")
        begin = time.monotonic()
        self.assertTrue(connection.sock.recv(100).startswith(b"HTTP/1.1 408"))
        self.assertGreater(time.monotonic() - begin, 0.9)

    def test_a_stop_waits_for_the_text(self):
        ended = []
        thread = self.begin(lambda: ended.append(self.embed()))
        code, err = self.server.stop()
        thread.join()
        self.assertEqual((code, len(ended)), (0, 1), err)


if __name__ == "__main__":
    main(__name__)
