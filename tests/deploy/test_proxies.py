"""Replicas behind HAProxy and nginx, by the files of deploy/: one that is killed, or told to end,
under load loses no request."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "http"), os.path.join(os.path.dirname(HERE), "http", "net")]
from serving import MINILM, Server, cosine, embed, main  # noqa: E402
from test_framing import CASES, GOOD  # noqa: E402

DEPLOY = os.path.join(os.path.dirname(os.path.dirname(HERE)), "deploy")
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
TEXTS = ["a replica ends, and nobody notices", "a second text"]
N_CLIENTS, N_BEFORE, N_AFTER = 4, 40, 80


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def changed(text, pattern, replacement):
    """`text` with every match replaced; none is an error: the file is not what we think."""
    text, n = re.subn(pattern, replacement, text, flags=re.MULTILINE)
    assert n, "nothing matches " + pattern
    return text


def read(*path):
    with open(os.path.join(DEPLOY, *path), encoding="utf-8") as file:
        return file.read()


def served(replica):
    """How many requests it has answered."""
    metrics = replica.get("/metrics").body.decode()
    return int(re.search(r'^gpuserve_requests_total\{result="ok"\} (\d+)', metrics, re.M)[1])


class Load:
    """Clients that ask on and on; what each answer was, in order."""

    def __init__(self, port):
        self.port, self.ended, self.answers = port, threading.Event(), []
        self.changed = threading.Condition()
        self.threads = [threading.Thread(target=self.ask) for _ in range(N_CLIENTS)]
        for thread in self.threads:
            thread.start()

    def ask(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = json.dumps({"inputs": TEXTS})
        while not self.ended.is_set():
            try:
                connection.request("POST", "/embed", body, {"Content-Type": "application/json"})
                reply = connection.getresponse()
                answer = reply.status, reply.read()
            except (OSError, http.client.HTTPException) as error:
                answer = 0, repr(error).encode()
                connection.close()
            with self.changed:
                self.answers.append(answer)
                self.changed.notify_all()
        connection.close()

    def wait(self, more):
        """Until `more` requests have been answered from here on."""
        with self.changed:
            until = len(self.answers) + more
            if not self.changed.wait_for(lambda: len(self.answers) >= until, timeout=60):
                raise AssertionError("only %d answers" % len(self.answers))

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()


class Proxy:
    """What HAProxy and nginx have in common. A subclass writes its file and names its commands."""
    program = None

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.port = free_port()

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def start(self, *command):
        with open(os.path.join(self.folder, "log"), "wb") as log:
            proxy = subprocess.Popen(command, stdout=log, stderr=log)

        def end():
            proxy.terminate()
            proxy.wait(timeout=60)
        self.addCleanup(end)
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                self.assertIsNone(proxy.poll(), "the proxy ended")
                time.sleep(0.05)
        self.fail("the proxy does not listen")

    def replica(self, port=0):
        server = Server(MINILM, "--threads", "1", "--quiet", "--port", port)
        self.addCleanup(server.stop, signal.SIGKILL)
        return server

    def test_the_file_as_it_is(self):
        command = self.check(self.configuration())
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("WARNING", (done.stdout + done.stderr).upper())

    def run_through(self, number):
        """One replica ends, comes back at its address, then the other one ends."""
        want = embed(TEXTS)
        replicas = [self.replica(), self.replica()]
        self.start(*self.serve(self.configuration(replicas)))
        load = Load(self.port)
        try:
            load.wait(N_BEFORE)
            self.assertGreater(served(replicas[0]), 0)
            replicas[0].process.send_signal(number)
            load.wait(N_AFTER)
            replicas[0].process.wait(timeout=60)
            replicas[0] = self.replica(replicas[0].port)
            # Not at its first answer: a try from before may still be counted against it, for two seconds, and with
            # the other one gone there would be no replica.
            while served(replicas[0]) < N_AFTER:
                load.wait(1)
            replicas[1].process.send_signal(number)
            load.wait(N_AFTER)
            replicas[1].process.wait(timeout=60)
        finally:
            load.end()
        wrong = [answer for answer in load.answers if answer[0] != 200]
        self.assertEqual(wrong, [], "%d of %d" % (len(wrong), len(load.answers)))
        for _, body in load.answers:
            for got, vector in zip(json.loads(body), want, strict=True):
                self.assertGreater(cosine(got, vector), 0.9999)

    def test_a_large_request(self):
        """More than a buffer of HAProxy and than nginx keeps in memory."""
        self.start(*self.serve(self.configuration([self.replica(), self.replica()])))
        body = json.dumps({"inputs": "many words " * 80000, "truncate": True})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/embed", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        self.assertEqual((reply.status, len(json.loads(reply.read())[0])), (200, 384))
        self.assertEqual(reply.headers["x-gpuserve-truncated"], "1")
        connection.close()

    def send_raw(self, sent, name):
        """All bytes, then the end of what is sent; the status of every answer, of which none is to a body."""
        got = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as client:
            try:
                client.sendall(sent)
                client.shutdown(socket.SHUT_WR)
                while more := client.recv(65536):
                    got += more
            except ConnectionError:
                pass
        self.assertNotIn(b"x-request-id: inner", got, name)
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", got)]

    def test_no_framing_leads_astray(self):
        """After each of the raw requests that readers could disagree about, another client still
        gets its own answer, and nothing is worse than refused."""
        replicas = [self.replica(), self.replica()]
        self.start(*self.serve(self.configuration(replicas)))
        other = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        for name, (sent, _) in CASES.items():
            statuses = self.send_raw(sent + GOOD, name)
            self.assertLessEqual(set(statuses), {100, 200, 400, 403, 404, 405, 408, 413, 414, 422, 431, 501, 505}, name)
            for text in (name, name + " once more"):
                body = json.dumps({"inputs": text})
                other.request("POST", "/tokenize", body, {"Content-Type": "application/json"})
                answer = other.getresponse()
                self.assertEqual((answer.status, json.loads(answer.read())),
                                 (200, replicas[0].post("/tokenize", {"inputs": text}).json()), name)
        other.close()

    def test_a_replica_is_killed(self):
        self.run_through(signal.SIGKILL)

    def test_a_replica_drains(self):
        self.run_through(signal.SIGTERM)


@unittest.skipUnless(shutil.which("haproxy", path=PATH), "haproxy is not installed")
class HAProxy(Proxy, unittest.TestCase):
    program = shutil.which("haproxy", path=PATH)

    def configuration(self, replicas=()):
        text = read("haproxy", "haproxy.cfg")
        if replicas:
            text = changed(text, r"^    (user|group|log /dev).*\n", "")
            text = changed(text, r"^    bind :80$", "    bind 127.0.0.1:%d" % self.port)
            for n, replica in enumerate(replicas, 1):
                text = changed(text, r"^(    server replica%d) \S+" % n,
                               r"\1 127.0.0.1:%d" % replica.port)
        return self.write("haproxy.cfg", text)

    def check(self, path):
        return [self.program, "-c", "-f", path]

    def serve(self, path):
        return [self.program, "-db", "-f", path]


@unittest.skipUnless(shutil.which("nginx", path=PATH), "nginx is not installed")
class Nginx(Proxy, unittest.TestCase):
    program = shutil.which("nginx", path=PATH)

    def configuration(self, replicas=()):
        text = changed(read("nginx", "gpuserve.conf"), r"^    listen 80;",
                       "    listen 127.0.0.1:%d;" % self.port)
        for n, replica in enumerate(replicas, 1):
            text = changed(text, r"^    server 10\.0\.0\.1%d:8080" % n,
                           "    server 127.0.0.1:%d" % replica.port)
        self.write("gpuserve.conf", text)
        paths = "".join("    %s_temp_path %s/%s;\n" % (kind, self.folder, kind)
                        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user root;\n" if os.geteuid() == 0 else ""
        return self.write("nginx.conf", user + (
            "worker_processes 1;\npid %s/pid;\nerror_log stderr;\nevents {}\nhttp {\n"
            "    access_log off;\n%s    include %s/gpuserve.conf;\n}\n")
            % (self.folder, paths, self.folder))

    def check(self, path):
        return [self.program, "-t", "-p", self.folder, "-c", path]

    def serve(self, path):
        return [self.program, "-p", self.folder, "-c", path, "-g", "daemon off;"]


if __name__ == "__main__":
    if HAProxy.program is None and Nginx.program is None:
        print("neither haproxy nor nginx is installed")
        sys.exit(77)
    main(__name__)
