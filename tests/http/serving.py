"""What the tests of the server share: a running server, plain requests, the library's vectors."""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "cli"))
from common import (FINDING, PATIENCE, PROGRAM, environment, gpuserve, lines, main, model,  # noqa: E402
                    wait_until)

__all__ = ["MINILM", "PATIENCE", "Served", "Server", "UnixConnection", "cosine", "embed", "figure", "main", "model", "run_as_nobody", "use_clients", "wait_until"]
MINILM = model("all-MiniLM-L6-v2")


def use_clients(variable="GPUSERVE_CLIENTS_PYTHON"):
    """Go on in the environment that has the real clients."""
    python = os.environ.get(variable)
    if python and os.path.realpath(sys.prefix) != os.path.realpath(
            os.path.dirname(os.path.dirname(python))):
        os.execv(python, [python, *sys.argv])


def embed(texts, *options):
    """The library's own vectors, by the command line."""
    done = gpuserve("embed", "-m", MINILM, "--quiet", *options, "--input-format", "jsonl",
                    stdin="\n".join(json.dumps({"text": text}) for text in texts))
    assert done.returncode == 0, done.err
    return [line["embedding"] for line in lines(done.out)]


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b))
    return dot / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


def figure(server, name):
    """Of /metrics."""
    for line in server.get("/metrics").body.decode().splitlines():
        if line.startswith(name + " "):
            return int(line.split()[1])
    raise AssertionError(name)

def run_as_nobody(*arguments):
    """The program as a user whom file modes keep out, which root is not. That user runs a copy: the checkout may
    lie below a home of mode 700."""
    if os.getuid() != 0:
        return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False, env=environment())
    source = os.path.dirname(os.path.dirname(PROGRAM))
    with tempfile.TemporaryDirectory() as target:
        for part in ("cli/gpuserve", "lib/libgpuserve.so.0", "lib/http/libgpuserve-http.so.0"):
            os.makedirs(os.path.dirname(os.path.join(target, part)), exist_ok=True)
            shutil.copy(os.path.join(source, part), os.path.join(target, part))
        subprocess.run(["chmod", "-R", "a+rX", target], check=True)
        return subprocess.run([os.path.join(target, "cli/gpuserve"), *arguments], capture_output=True, text=True,
                              check=False, env=environment(), user=65534, group=65534, extra_groups=[])



class Reply:
    def __init__(self, response):
        self.status, self.headers = response.status, response.headers
        self.body = response.read()

    def json(self):
        return json.loads(self.body)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.path)


class Server:
    """`gpuserve serve` on a free port, or at the path `unix`, until stop()."""

    def __init__(self, *arguments, env=None, stderr=subprocess.PIPE, before=None, tls=None, unix=None):
        self.tls = tls  # the ssl.SSLContext of a client, where the server speaks TLS
        self.unix = unix
        self.process = subprocess.Popen(
            [PROGRAM, "serve", *(("--unix", unix) if unix else ("--port", "0")), *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=stderr, env=env or environment(), text=True, preexec_fn=before)
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            raise AssertionError("no server: " + self.process.stderr.read())
        if not unix:
            self.host, self.port = self.url.split("//")[1].rsplit(":", 1)
            self.port = int(self.port)

    def connect(self):
        if self.unix:
            return UnixConnection(self.unix)
        if self.tls:
            return http.client.HTTPSConnection(self.host, self.port, timeout=PATIENCE, context=self.tls)
        return http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)

    def request(self, method, path, body=None, headers=None):
        connection = self.connect()
        try:
            connection.request(method, path, body=body, headers=headers or {})
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.request("GET", path, headers=headers)

    def post(self, path, value, headers=None):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.request("POST", path, body, headers)

    def stop(self, number=signal.SIGTERM):
        """Ends it; (exit code, standard error)."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, err = self.process.communicate(timeout=300)
        assert self.process.returncode != FINDING, err
        return self.process.returncode, err


class Served(unittest.TestCase):
    """Tests against one server for all of them."""
    arguments = (MINILM,)

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.arguments)

    @classmethod
    def tearDownClass(cls):
        code, err = cls.server.stop()
        assert code == 0, (code, err)

    def refused(self, status, words, path, value, headers=None, server=None):
        """The reply is an error of that status whose text holds `words`; returns its JSON."""
        reply = (server or self.server).post(path, value, headers)
        self.assertEqual(reply.status, status, reply.body)
        self.assertIn(words, reply.body.decode())
        return reply.json()

    def assertVector(self, got, want, tolerance=1e-6):
        self.assertEqual(len(got), len(want))
        self.assertLessEqual(max(abs(a - b) for a, b in zip(got, want)), tolerance)
