"""Clients of other toolchains: curl, Go's net/http and Java's java.net.http, each with its first example (embed, rerank)
and errors. A toolchain that is not installed skips its test; Python's urllib is always there."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

from serving import Served, cosine, embed, main

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
TEXTS = ["a dog", "Größe, 大きさ", "cats and dogs"]
REQUESTS = (
    ("/v1/embeddings", {"model": "all-MiniLM-L6-v2", "input": TEXTS}),
    ("/v2/rerank", {"model": "all-MiniLM-L6-v2", "query": "a puppy", "documents": TEXTS, "top_n": 2}),
    ("/v1/embeddings", {"model": "no-such-model", "input": "a"}),
    ("/embed", {"inputs": ""}),
    ("/nowhere", {}),
    # A body that curl announces with `Expect: 100-continue`, and that does not fit one read.
    ("/v1/embeddings", {"input": "a dog", "user": "x" * 2000000}),
)


def has(*names):
    return unittest.skipUnless(all(map(shutil.which, names)), "needs " + ", ".join(names))


class Toolchains(Served):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.mkdtemp()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)
        super().tearDownClass()

    def check(self, replies):
        """`replies` are (status, Content-Type, JSON) of REQUESTS."""
        self.assertEqual([status for status, _, _ in replies], [200, 200, 404, 400, 404, 200])
        self.assertEqual({kind for _, kind, _ in replies}, {"application/json"})
        vectors, ranking, unknown, empty, nowhere, large = (reply for _, _, reply in replies)
        query, *want = embed(["a puppy", *TEXTS])
        for one, vector in zip(vectors["data"], want):
            self.assertVector(one["embedding"], vector)
        self.assertVector(large["data"][0]["embedding"], want[0])
        best = sorted(range(3), key=lambda i: -cosine(query, want[i]))[:2]
        self.assertEqual([one["index"] for one in ranking["results"]], best)
        for one in ranking["results"]:
            self.assertAlmostEqual(one["relevance_score"], (1 + cosine(query, want[one["index"]])) / 2, places=5)
        self.assertIn("no-such-model", unknown["error"]["message"])
        self.assertEqual(empty["error_type"], "Empty")
        self.assertIn("/nowhere", json.dumps(nowhere))

    def of_program(self, *command):
        """A program that reads a line PATH BODY a request and prints STATUS TYPE BODY a reply."""
        lines = "".join("%s %s\n" % (path, json.dumps(body, ensure_ascii=False)) for path, body in REQUESTS)
        done = subprocess.run([*command, self.server.url], input=lines.encode(), capture_output=True, check=False, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line.split(" ", 2) for line in done.stdout.decode().splitlines()]
        self.check([(int(status), kind, json.loads(text)) for status, kind, text in rows])

    def compile(self, *command, env=None):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})}, timeout=280)
        self.assertEqual(done.returncode, 0, done.stderr)

    @has("go")
    def test_go(self):
        program = os.path.join(self.folder, "client")
        self.compile("go", "build", "-o", program, os.path.join(HERE, "client.go"), env={
            "GOCACHE": os.environ.get("GOCACHE") or os.path.join(CACHE, "gpuserve/go-build"), "GO111MODULE": "off", "CGO_ENABLED": "0"})
        self.of_program(program)

    @has("java", "javac")
    def test_java(self):
        """It offers HTTP/2 by `Upgrade: h2c` in each connection's first request."""
        self.compile("javac", "-Xlint:all", "-Werror", "-d", self.folder, os.path.join(HERE, "Client.java"))
        self.of_program("java", "-cp", self.folder, "Client")

    @has("curl")
    def test_curl(self):
        for options in ((), ("--compressed",), ("--http2",), ("-H", "Transfer-Encoding: chunked"), ("-H", "Expect:")):
            replies = []
            for path, body in REQUESTS:
                done = subprocess.run(
                    ["curl", "-sS", "-m", "100", self.server.url + path, "-H", "Content-Type: application/json", *options, "--data-binary", "@-",
                     "-w", "\n%{http_code} %{content_type}"], input=json.dumps(body).encode(), capture_output=True, check=False)
                self.assertEqual(done.returncode, 0, (options, done.stderr))
                text, end = done.stdout.decode().rsplit("\n", 1)
                replies.append((int(end.split()[0]), end.split()[1], json.loads(text)))
            self.check(replies)

    @has("curl")
    def test_curl_fails_with_an_error(self):
        done = subprocess.run(["curl", "-sS", "--fail", "-m", "100", self.server.url + "/v1/embeddings", "-d", "{}"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 22, done.stderr)
        self.assertIn("400", done.stderr)

    def test_urllib(self):
        replies = []
        for path, body in REQUESTS:
            asked = urllib.request.Request(self.server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
            try:
                reply = urllib.request.urlopen(asked, timeout=100)
            except urllib.error.HTTPError as error:
                reply = error
            with reply:
                replies.append((reply.status, reply.headers["Content-Type"], json.load(reply)))
        self.check(replies)


if __name__ == "__main__":
    main(__name__)
