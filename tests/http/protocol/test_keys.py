"""API keys, their rates, and pages of other origins (T14)."""
import hashlib
import os
import re
import signal
import tempfile
import time
import unittest

from serving import MINILM, Served, Server, environment, figure, main, run_as_nobody, wait_until
from common import gpuserve

KEY, HASHED, RAW = "sk-first-0123456789", "second+key/of=mine", "third-key"
OPEN = ["/health", "/ping", "/healthz", "/readyz", "/livez", "/v2/health/live", "/v2/health/ready"]
# Of the page: the same bytes from every server. It asks for a key itself.
FILES = ["/", "/page.css", "/base.js", "/charts.js", "/live.js", "/page.js", "/docs", "/docs.js", "/openapi.json", "/api-doc/openapi.json"]


def key_file(text):
    handle, path = tempfile.mkstemp(suffix=".keys")
    os.write(handle, text.encode())
    os.close(handle)
    return path


class Keys(Served):
    @classmethod
    def setUpClass(cls):
        cls.file = key_file("# ours\n\nsha256:%s\n  %s  \n" %
                            (hashlib.sha256(HASHED.encode()).hexdigest(), RAW))
        cls.log = open(cls.file + ".log", "w+", encoding="utf-8")
        cls.server = Server(MINILM, "--api-key", KEY, "--api-key-file", cls.file, "-v",
                            stderr=cls.log)

    @classmethod
    def tearDownClass(cls):
        code, _ = cls.server.stop()
        cls.log.seek(0)
        err = cls.log.read()
        cls.log.close()
        os.unlink(cls.file)
        os.unlink(cls.file + ".log")
        assert code == 0, err
        for key in (KEY, HASHED, RAW, "wrong-key"):
            assert key not in err, "a key is in the log"

    def routes(self):
        """(method, path) of each route that the server's document has, and of one that is not there."""
        paths = self.server.get("/openapi.json").json()["paths"]
        found = [(method.upper(), re.sub(r"\{\w+\}", "1", path))
                 for path, methods in paths.items() for method in methods]
        self.assertGreater(len(found), 50)
        return [route for route in found if route not in [("GET", path) for path in OPEN + FILES]] + [
            ("GET", "/nowhere")]

    def test_no_route_without_a_key(self):
        for method, path in self.routes():
            for headers in ({}, {"Authorization": "Bearer wrong-key"}, {"Authorization": "Bearer "},
                            {"Authorization": KEY[:-1]}, {"x-api-key": KEY + "x"},
                            {"Authorization": "sha256:" + hashlib.sha256(KEY.encode()).hexdigest()}):
                body = b"{}" if method == "POST" else None
                reply = self.server.request(method, path, body, headers)
                self.assertEqual(reply.status, 401, (method, path, headers, reply.body))
                self.assertEqual(reply.headers["WWW-Authenticate"], "Bearer")
                self.assertNotIn("Allow", reply.headers)
                self.assertNotIn(b"wrong-key", reply.body)

    def test_no_method_without_a_key(self):
        """Nor does anybody learn which there are: by HEAD, by one that is none, by other ways to write a path."""
        for path in sorted({path for _, path in self.routes()} - set(OPEN + FILES)):
            for method in ("HEAD", "OPTIONS", "PUT", "DELETE", "BREW"):
                reply = self.server.request(method, path)
                self.assertEqual((reply.status, reply.headers["Allow"]), (401, None), (method, path))
        for path in ("/info?", "/info?a=b", "/inf%6f", "/info/", "//info", "/INFO", "/./info", "/health/../info", "/health%2f..%2finfo",
                     "/metrics#", "/v2/health/live/../../models", "/health;/info"):
            self.assertEqual(self.server.get(path).status, 401, path)

    def test_health_needs_none(self):
        for path in OPEN + FILES:
            self.assertEqual(self.server.get(path).status, 200, path)

    def test_ways_to_show_a_key(self):
        for key in (KEY, HASHED, RAW):
            for headers in ({"Authorization": "Bearer " + key}, {"Authorization": "bearer  " + key},
                            {"Authorization": key}, {"x-api-key": key}, {"api-key": key}):
                reply = self.server.post("/embed", {"inputs": "a dog"}, headers)
                self.assertEqual(reply.status, 200, (headers, reply.body))

    def test_words_of_each_dialect(self):
        error = self.server.post("/v1/embeddings", {"input": "a"}).json()["error"]
        self.assertEqual((error["type"], error["code"]), ("invalid_request_error", "invalid_api_key"))
        error = self.server.post("/embed", {"inputs": "a"}).json()
        self.assertEqual(error["error_type"], "Unauthorized")
        self.assertIn("API key", self.server.post("/v2/rerank", {}).json()["message"])
        self.assertIn("API key", self.server.post("/api/embed", {}).json()["error"])

    def test_other_addresses_are_allowed_with_a_key(self):
        server = Server(MINILM, "--host", "0.0.0.0", "--api-key", KEY)
        self.assertEqual(server.post("/embed", {"inputs": "a"}).status, 401)
        self.assertEqual(server.stop()[0], 0)
        done = gpuserve("serve", MINILM, "--port", "0", "--host", "0.0.0.0")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--api-key-file", done.err)


class Environment(unittest.TestCase):
    def test_names(self):
        for name in ("GPUSERVE_API_KEY", "API_KEY"):
            server = Server(MINILM, env=environment(**{name: KEY}))
            self.assertEqual(server.get("/info").status, 401)
            self.assertEqual(server.get("/info", Authorization="Bearer " + KEY).status, 200)
            self.assertEqual(server.stop()[0], 0)

    def test_metrics(self):
        server = Server(MINILM, "--api-key", KEY, "--open-metrics")
        self.assertEqual(server.get("/metrics").status, 200)
        self.assertEqual(server.get("/info").status, 401)
        self.assertEqual(server.stop()[0], 0)


class Bad(unittest.TestCase):
    def fails(self, words, *options):
        done = gpuserve("serve", MINILM, "--port", "0", *options)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(words, done.err)
        return done.err

    def test_files(self):
        self.fails("No such file", "--api-key-file", "/nowhere/keys")
        for text, words in (("", "has no key"), ("# only remarks\n", "has no key"),
                            ("good\nsha256:12\n", "line 2: sha256: must be followed by 64"),
                            ("a b\n", "line 1: the key has a space"), ("x" * 600, "more than 512"),
                            ("x" * 5000, "exceeds 1022"),
                            ("good\nsecond\0third\n", "line 2 has a NUL"), ("\0" * 5000, "line 1 exceeds 1022"),
                            ("good\n" + ("#" * 1000 + "\n") * 16777 + "last\n", "exceed 16777216 bytes"),
                            ("".join("key-%d\n" % i for i in range(10001)), "line 10001: more than 10000 keys")):
            path = key_file(text)
            err = self.fails(words, "--api-key-file", path)
            self.assertNotIn("xxxx", err)
            os.unlink(path)
        path = key_file("k")
        os.chmod(path, 0)
        done = run_as_nobody("serve", "model", "--check-config", "--api-key-file", path)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(path + ": Permission denied", done.stderr)
        os.unlink(path)
        self.fails("Is a directory", "--api-key-file", "/tmp")

    def test_options(self):
        self.fails("the key is empty", "--api-key", "")
        self.fails("no API key is set", "--key-rate", "5")
        self.fails("is not an origin", "--cors-origin", "example.com")
        self.fails("is not an origin", "--cors-origin", "https://example.com/")


class Rates(unittest.TestCase):
    def test_each_key_has_its_own(self):
        server = Server(MINILM, "--api-key", KEY, "--api-key", RAW, "--key-rate", 60,
                        "--key-burst", 3)

        def ask(key, path="/embed", body=None):
            return server.post(path, body or {"inputs": "a"}, {"Authorization": "Bearer " + key})

        started = time.monotonic()
        for _ in range(3):
            self.assertEqual(ask(KEY).status, 200)
        refused = ask(KEY, "/v1/embeddings", {"input": "a"})
        if time.monotonic() - started < 1:
            self.assertEqual(refused.status, 429)
            self.assertEqual(refused.headers["Retry-After"], "1")
            self.assertLessEqual(int(refused.headers["retry-after-ms"]), 1001)
            self.assertEqual(refused.json()["error"]["type"], "rate_limit_error")
            self.assertEqual(ask(KEY, "/v2/models/all-MiniLM-L6-v2/infer", {}).status, 429)
        self.assertEqual(ask(RAW).status, 200)
        self.assertEqual(server.get("/health").status, 200)
        self.assertEqual(server.get("/info").status, 401)
        refused = ask(KEY)
        while refused.status == 200:
            refused = ask(KEY)
        time.sleep(int(refused.headers["retry-after-ms"]) / 1000)  # the wait that is told is enough
        self.assertEqual(ask(KEY).status, 200)
        self.assertEqual(server.stop()[0], 0)

    def test_a_model_has_a_quota_of_tokens(self):
        """For all keys together; the first request takes far more than a second's."""
        server = Server(MINILM, "--tokens-per-second", 10)
        self.assertEqual(server.post("/embed", {"inputs": ["word " * 40, "a" + " word" * 39]}).status, 200)
        refused = server.post("/embed", {"inputs": "a"})
        self.assertEqual(refused.status, 429)
        self.assertIn("quota of 10 tokens per second", refused.body.decode())
        self.assertNotIn("--queue", refused.body.decode())
        self.assertIn(int(refused.headers["Retry-After"]), range(5, 9))  # 84 tokens less 10, less the time since
        self.assertEqual(server.stop()[0], 0)

    def test_reload_gives_no_new_tokens(self):
        """A key without tokens stays limited after a reload; a new key has its full burst."""
        path = key_file("one\n")
        server = Server(MINILM, "--api-key-file", path, "--key-rate", 1, "--key-burst", 2, "--open-metrics")

        def statuses(key):
            return [server.get("/info", Authorization=key).status for _ in range(3)]

        self.assertEqual(statuses("one"), [200, 200, 429])
        with open(path, "a", encoding="ascii") as file:
            file.write("two\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: figure(server, "gpuserve_http_reloads_total") == 1)
        self.assertEqual((statuses("one"), statuses("two")), ([429] * 3, [200, 200, 429]))
        reply = server.get("/info", Authorization="one")
        self.assertTrue(20 < int(reply.headers["Retry-After"]) <= 60, reply.headers["Retry-After"])
        self.assertEqual(server.stop()[0], 0)
        os.unlink(path)


class Origins(unittest.TestCase):
    PREFLIGHT = {"Access-Control-Request-Method": "POST",
                 "Access-Control-Request-Headers": "authorization, content-type"}

    def test_named(self):
        server = Server(MINILM, "--cors-origin", "https://a.example", "--api-key", KEY)
        reply = server.request("OPTIONS", "/embed", None,
                               {"Origin": "https://a.example", **self.PREFLIGHT})
        self.assertEqual((reply.status, reply.body), (204, b""))
        self.assertEqual(reply.headers["Access-Control-Allow-Origin"], "https://a.example")
        self.assertIn("POST", reply.headers["Access-Control-Allow-Methods"])
        self.assertIn("authorization", reply.headers["Access-Control-Allow-Headers"])
        reply = server.post("/embed", {"inputs": "a"},
                            {"Origin": "https://a.example", "Authorization": KEY})
        self.assertEqual(reply.status, 200)
        self.assertEqual(reply.headers["Access-Control-Allow-Origin"], "https://a.example")
        self.assertEqual(reply.headers["Vary"], "Origin")
        reply = server.post("/embed", {"inputs": "a"}, {"Origin": "https://a.example"})
        self.assertEqual(reply.status, 401)  # and the page may read why
        self.assertEqual(reply.headers["Access-Control-Allow-Origin"], "https://a.example")
        for origin in ("https://b.example", "https://a.example.evil", "null"):
            reply = server.request("OPTIONS", "/embed", None, {"Origin": origin, **self.PREFLIGHT})
            self.assertEqual(reply.status, 401)
            self.assertNotIn("Access-Control-Allow-Origin", reply.headers)
        self.assertEqual(server.stop()[0], 0)

    def test_all_and_none(self):
        server = Server(MINILM, "--cors-origin", "*")
        reply = server.get("/info", Origin="https://b.example")
        self.assertEqual(reply.headers["Access-Control-Allow-Origin"], "*")
        self.assertEqual(server.stop()[0], 0)
        server = Server(MINILM)
        reply = server.get("/info", Origin="https://b.example")
        self.assertNotIn("Access-Control-Allow-Origin", reply.headers)
        self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    main(__name__)
