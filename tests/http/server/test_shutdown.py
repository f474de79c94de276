"""--shutdown-delay: after SIGTERM the server serves on and says that it is not ready, so that balancers choose others."""
import json
import signal
import socket
import unittest

from serving import MINILM, Server, main, wait_until

from common import gpuserve

BODY = {"inputs": "a dog"}


class Delay(unittest.TestCase):
    def test_serves_on_and_is_not_ready(self):
        server = Server(MINILM, "--shutdown-delay", 3600)
        try:
            self.assertEqual(server.get("/health").status, 200)
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: server.get("/health").status == 503)
            for path in ("/readyz", "/ping", "/v2/health/ready", "/v2/models/all-MiniLM-L6-v2/ready"):
                self.assertEqual(server.get(path).status, 503, path)
            self.assertEqual(server.get("/livez").status, 200)
            for _ in range(20):  # each over a new connection
                self.assertEqual(server.post("/embed", BODY).status, 200)
            server.process.send_signal(signal.SIGTERM)  # the second ends it at once
            self.assertEqual(server.process.wait(60), -signal.SIGTERM)
        finally:
            server.process.kill()
            server.process.communicate()

    def test_ends_after_the_delay(self):
        server = Server(MINILM, "--shutdown-delay", 0.5)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(60), 0)
        with self.assertRaises(OSError):
            socket.create_connection((server.host, server.port), 5)
        server.process.communicate()

    def test_without_a_delay(self):
        for arguments in ((), ("--shutdown-delay", 0)):
            server = Server(MINILM, *arguments)
            self.assertEqual(server.stop()[0], 0)

    def test_checked(self):
        done = gpuserve("serve", MINILM, "--check-config", "--shutdown-delay", 5)
        self.assertEqual(json.loads(done.out)["shutdown-delay"], 5)
        self.assertNotEqual(gpuserve("serve", MINILM, "--check-config", "--shutdown-delay", -1).returncode, 0)


main(__name__)
