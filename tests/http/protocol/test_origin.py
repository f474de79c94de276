"""Requests of pages of other origins, and by names of other hosts (DNS rebinding), at a server without keys."""
import json
import os
import shutil
import socket
import tempfile
import unittest

from serving import MINILM, Server, main

from common import environment, gpuserve

BODY = json.dumps({"inputs": "a dog"}).encode()
KEY = "one-key-of-many"
# Every path that computes or changes something, in each dialect; the models' list and figures.
POSTS = ("/embed", "/v1/embeddings", "/v2/embed", "/api/embed", "/predict", "/rerank", "/tokenize", "/",
         "/v2/models/all-MiniLM-L6-v2/infer", "/v2/repository/models/all-MiniLM-L6-v2/unload", "/v2/repository/index")


class Checks(unittest.TestCase):
    """One server a class; `ask` returns the status."""
    arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(MINILM, *cls.arguments)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def ask(self, path="/embed", method="POST", body=BODY, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.server.request(method, path, body, headers)

    def passes(self, **headers):
        reply = self.ask(**headers)
        self.assertEqual(reply.status, 200, (headers, reply.body))

    def refused(self, words, path="/embed", **headers):
        reply = self.ask(path, **headers)
        self.assertEqual(reply.status, 403, (path, headers, reply.body))
        self.assertIn(words, reply.body.decode())
        return reply


class Loopback(Checks):
    arguments = ("--model-control",)

    def test_own_hosts(self):
        port = self.server.port
        for host in ("localhost", "LOCALHOST", "localhost.", "127.0.0.1", "127.1.2.3", "[::1]", socket.gethostname()):
            self.passes(Host=host)
            self.passes(Host="%s:%d" % (host, port))
            self.passes(Host=host + ":9")  # a forwarded port

    def test_other_hosts(self):
        for host in ("evil.example", "evil.example:%d" % self.server.port, "10.0.0.1", "[::2]", "localhost.evil.example",
                     "127.0.0.1.evil.example", "a" * 300, "x127.0.0.1"):
            self.refused("--allowed-host", Host=host)
        for path in POSTS:
            self.refused("evil.example", path, Host="evil.example")
        for path in ("/v1/models", "/info", "/metrics", "/v2", "/health/deep"):
            reply = self.ask(path, "GET", None, Host="evil.example")
            self.assertEqual(reply.status, 403, path)

    def test_health_and_static_files_are_open(self):
        for path in ("/livez", "/readyz", "/health", "/v2/health/ready", "/", "/page.js", "/docs"):
            for headers in ({"Host": "10.1.2.3:8080"}, {"Sec_Fetch_Site": "cross-site"}):
                self.assertEqual(self.ask(path, "GET", None, **headers).status, 200, path)

    def test_without_host(self):
        with socket.create_connection((self.server.host, self.server.port), 10) as connection:
            connection.sendall(b"POST /embed HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY))
            self.assertTrue(connection.recv(100).startswith(b"HTTP/1.1 200 "))

    def test_origins(self):
        own = "http://127.0.0.1:%d" % self.server.port
        self.passes()
        self.passes(Origin=own)
        self.passes(Origin=own, Sec_Fetch_Site="same-origin")
        self.passes(Origin="http://localhost:9", Host="localhost:9")
        for origin in ("https://evil.example", "null", "http://127.0.0.1", "http://127.0.0.1:9", "http://localhost:%d" %
                       self.server.port, "file://", "", "://" + own):
            for site in (None, "cross-site", "same-site", "none"):
                self.refused("--cors-origin", Origin=origin, **({"Sec_Fetch_Site": site} if site else {}))
        for path in POSTS:
            self.refused("https://evil.example", path, Origin="https://evil.example", Content_Type="text/plain")

    def test_unload_of_another_page_changes_nothing(self):
        path = "/v2/repository/models/all-MiniLM-L6-v2/unload"
        self.refused("origin", path, Origin="https://evil.example", Content_Type="text/plain")
        self.passes()

    def test_sites_without_an_origin(self):
        self.passes(Sec_Fetch_Site="none")
        for site in ("cross-site", "same-site", "what"):
            self.refused("Sec-Fetch-Site", Sec_Fetch_Site=site)
            navigation = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "navigate"}
            self.assertEqual(self.ask("/v1/models", "GET", None, Sec_Fetch_Dest="document", **navigation).status, 200)
            self.assertEqual(self.ask("/v1/models", "GET", None, Sec_Fetch_Dest="iframe", **navigation).status, 403)
            self.refused("Sec-Fetch-Site", Sec_Fetch_Dest="document", **navigation)

    def test_words_of_the_dialect(self):
        error = self.refused("evil", "/v1/embeddings", Host="evil.example").body
        self.assertEqual(json.loads(error)["error"]["code"], "forbidden")
        self.assertIn("message", json.loads(self.refused("evil", "/v2/embed", Host="evil.example").body))


class Opened(Checks):
    arguments = ("--allowed-host", "GPU.example.com", "--allowed-host", "fd00::1", "--cors-origin", "https://a.example")

    def test_hosts(self):
        for host in ("gpu.example.com", "gpu.example.com:80", "[fd00::1]:80", "localhost"):
            self.passes(Host=host)
        self.refused("--allowed-host", Host="example.com")

    def test_origins(self):
        self.passes(Origin="https://a.example", Sec_Fetch_Site="cross-site")
        self.passes(Host="gpu.example.com", Origin="https://gpu.example.com")
        self.refused("--cors-origin", Origin="https://b.example")


class AllOpened(Checks):
    arguments = ("--allowed-host", "*", "--cors-origin", "*")

    def test_all(self):
        self.passes(Host="evil.example", Origin="https://evil.example", Sec_Fetch_Site="cross-site")
        self.passes(Sec_Fetch_Site="cross-site")


class Insecure(Checks):
    """Beyond the loopback address, as behind a service of Kubernetes: any Host, but the pages of no other origin."""
    arguments = ("--host", "0.0.0.0", "--insecure")

    def test_checks(self):
        self.passes(Host="10.1.2.3:8080")
        self.passes(Host="gpuserve.default.svc", Origin="http://gpuserve.default.svc")
        self.refused("--cors-origin", Host="gpuserve.default.svc", Origin="http://evil.example")
        self.refused("Sec-Fetch-Site", Sec_Fetch_Site="cross-site")


class InsecureWithHosts(Checks):
    arguments = ("--host", "0.0.0.0", "--insecure", "--allowed-host", "gpu.example.com")

    def test_checks(self):
        self.passes(Host="gpu.example.com")
        self.refused("--allowed-host", Host="evil.example")


class WithKey(Checks):
    """No page of another site knows the key."""
    arguments = ("--api-key", KEY)

    def test_checks(self):
        self.passes(Host="evil.example", Origin="https://evil.example", Authorization="Bearer " + KEY)
        self.assertEqual(self.ask(Host="evil.example").status, 401)


class UnixSocket(unittest.TestCase):
    def test_checks(self):
        folder = tempfile.mkdtemp()
        server = Server(MINILM, unix=os.path.join(folder, "socket"))
        try:
            self.assertEqual(server.post("/embed", BODY, {"Host": "anything.example"}).status, 200)
            self.assertEqual(server.post("/embed", BODY, {"Origin": "http://evil.example"}).status, 403)
        finally:
            server.stop()
            shutil.rmtree(folder)


class Configuration(unittest.TestCase):
    def test_bad_hosts(self):
        for host in ("http://a.example", "a.example:80", "", "[::1]", "a b"):
            done = gpuserve("serve", MINILM, "--check-config", "--allowed-host", host)
            self.assertNotEqual(done.returncode, 0, host)
            self.assertIn("host", done.err)

    def test_places(self):
        file = tempfile.NamedTemporaryFile("w", suffix=".json")
        with file:
            json.dump({"models": [MINILM], "allowed-host": ["a.example", "b.example"]}, file)
            file.flush()
            done = gpuserve("serve", "--check-config", "--config", file.name)
            self.assertEqual(json.loads(done.out)["allowed-host"], ["a.example", "b.example"])
        done = gpuserve("serve", MINILM, "--check-config", env=environment(GPUSERVE_ALLOWED_HOST="c.example"))
        self.assertEqual(json.loads(done.out)["allowed-host"], ["c.example"])


main(__name__)
