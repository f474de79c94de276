"""A unix socket instead of a port."""
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import unittest

from serving import MINILM, PATIENCE, PROGRAM, Reply, UnixConnection, embed, environment, main

BODY = json.dumps({"inputs": ["a dog"]})


class Unix(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.path = os.path.join(self.folder, "socket")
        self.servers = []

    def tearDown(self):
        for server in self.servers:
            server.kill()
            server.communicate()
        shutil.rmtree(self.folder)

    def start(self, *arguments, path=None, env=None):
        server = subprocess.Popen(
            [PROGRAM, "serve", MINILM, "--unix", path or self.path, *arguments], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**environment(), **(env or {})})
        self.servers.append(server)
        return server

    def serve(self, *arguments, **named):
        server = self.start(*arguments, **named)
        self.assertEqual(server.stdout.readline(), "unix:%s\n" % (named.get("path") or self.path))
        return server

    def end(self, server):
        self.servers.remove(server)
        server.send_signal(signal.SIGTERM)
        _, err = server.communicate(timeout=PATIENCE)
        self.assertEqual(server.returncode, 0, err)
        self.assertFalse(os.path.lexists(self.path))
        return err

    def refused(self, words, **named):
        server = self.start(**named)
        _, err = server.communicate(timeout=PATIENCE)
        self.servers.remove(server)
        self.assertEqual(server.returncode, 1, err)
        self.assertIn(words, err)

    def ask(self, method="POST", path="/embed", body=BODY, headers=None):
        connection = UnixConnection(self.path)
        try:
            connection.request(method, path, body, headers or {})
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def assertServes(self):
        reply = self.ask()
        self.assertEqual(reply.status, 200, reply.body)
        want = embed(["a dog"])[0]
        self.assertLessEqual(max(abs(a - b) for a, b in zip(reply.json()[0], want)), 1e-6)

    def test_it_answers(self):
        mask = os.umask(0)
        try:
            log = os.path.join(self.folder, "log")
            server = self.serve("--access-log", log)
        finally:
            os.umask(mask)
        status = os.lstat(self.path)
        self.assertTrue(stat.S_ISSOCK(status.st_mode))
        self.assertEqual(stat.S_IMODE(status.st_mode), 0o600)
        self.assertServes()
        self.end(server)
        with open(log, encoding="utf-8") as file:
            self.assertEqual(json.loads(file.readline())["client"], "unix")

    def test_a_key_that_is_given(self):
        server = self.serve("--api-key", "one")
        self.assertEqual(self.ask().status, 401)
        self.assertEqual(self.ask(headers={"Authorization": "Bearer one"}).status, 200)
        self.end(server)

    def test_no_limit_of_one_address(self):
        server = self.serve("--max-address-connections", "1")
        connections = [UnixConnection(self.path) for _ in range(8)]
        for connection in connections:
            connection.request("POST", "/embed", BODY)
        for connection in connections:
            reply = connection.getresponse()
            self.assertEqual(reply.status, 200, reply.read())
            reply.read()
        for connection in connections:
            connection.close()
        self.end(server)

    def test_what_is_left_over(self):
        server = self.serve()
        self.refused("another program listens on this socket")
        self.assertServes()
        server.kill()
        server.wait()
        self.assertTrue(os.path.lexists(self.path))
        server = self.serve()
        self.assertServes()
        self.end(server)

    def test_a_successor_keeps_its_socket(self):
        first = self.serve()
        os.unlink(self.path)
        second = self.serve()
        self.servers.remove(first)
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=PATIENCE)
        self.assertServes()
        self.end(second)

    def test_paths_that_cannot_be(self):
        with open(self.path, "w", encoding="ascii") as file:
            file.write("precious")
        self.refused("exists and is not a socket")
        with open(self.path, encoding="ascii") as file:
            self.assertEqual(file.read(), "precious")
        self.refused("the path of the unix socket has 200 bytes, expected 1 to 107", path="/" + "a" * 199)
        self.refused("No such file", path=os.path.join(self.folder, "none", "socket"))

    def test_accepted_requests_are_answered_at_the_end(self):
        server = self.serve()
        busy = socket.socket(socket.AF_UNIX)
        busy.settimeout(PATIENCE)
        busy.connect(self.path)
        busy.sendall(b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(BODY))
        waiting = []
        for _ in range(20):
            one = UnixConnection(self.path)
            one.request("POST", "/embed", BODY)
            waiting.append(one)
        server.send_signal(signal.SIGTERM)
        for one in waiting:
            reply = one.getresponse()
            self.assertEqual(reply.status, 200, reply.read())
            reply.read()
            one.close()
        busy.sendall(BODY.encode())
        self.assertTrue(busy.recv(100).startswith(b"HTTP/1.1 200 "))
        busy.close()
        self.servers.remove(server)
        _, err = server.communicate(timeout=PATIENCE)
        self.assertEqual(server.returncode, 0, err)
        self.assertFalse(os.path.lexists(self.path))

    def test_the_watchdog_asks_there(self):
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(os.path.join(self.folder, "notify"))
        notify.settimeout(PATIENCE)
        server = self.serve(env={"NOTIFY_SOCKET": os.path.join(self.folder, "notify"),
                                 "WATCHDOG_USEC": "200000"})
        said = [notify.recv(100) for _ in range(3)]
        self.assertEqual(said, [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"])
        self.end(server)
        notify.close()


if __name__ == "__main__":
    main(__name__)
