"""The access log, and options from flags, environment and file."""
import json
import os
import shutil
import signal
import socket
import tempfile
import unittest

from serving import MINILM, Server, environment, figure, main, wait_until
from common import gpuserve

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()

    def tearDown(self):
        shutil.rmtree(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)


class AccessLog(Folder):
    def lines(self, name="log", n=1):
        """Once there are n, of requests that do not look for figures."""
        def read():
            with open(self.path(name), encoding="utf-8") as file:
                found = [json.loads(line) for line in file.read().splitlines()]
            return [line for line in found if line.get("path") != "/metrics"]

        wait_until(lambda: len(read()) >= n, "no line for each request")
        self.assertEqual(len(read()), n)
        return read()

    def test_a_line_for_each_request(self):
        server = Server(MINILM, "--access-log", self.path("log"), "--api-key", "secret-key")
        key = {"Authorization": "Bearer secret-key"}
        server.post("/embed?secret=query", {"inputs": "a dog"}, {
            **key, "x-request-id": "my-id", "traceparent": "00-%s-%s-01" % (TRACE, PARENT),
            "User-Agent": 'an "agent" \u00e9'.encode("latin-1")})
        server.post("/embed", {"inputs": "a dog"},
                    {**key, "traceparent": "00-%s-%s-01" % ("0" * 32, PARENT)})
        server.get("/info")
        server.get("/nowhere%0a\u00e4".replace("\u00e4", "%ff"), **key)
        # written when all is done with a request: the next one's line may overtake it
        lines = sorted(self.lines(n=4), key=lambda line: (line["method"] != "POST", line["status"],
                                                          line["id"] != "my-id"))
        first, second, last, third = lines
        self.assertEqual((first["id"], first["trace_id"], first["parent_id"], first["method"],
                          first["path"], first["model"], first["status"], first["tokens"]),
                         ("my-id", TRACE, PARENT, "POST", "/embed", "all-MiniLM-L6-v2", 200, 4))
        self.assertEqual(first["client"], "127.0.0.1")
        self.assertEqual(len(first["key"]), 8)
        self.assertGreater(first["bytes"], 1000)
        self.assertGreater(first["us"], first["compute_us"])
        self.assertNotIn("trace_id", second)
        self.assertEqual((third["status"], third.get("key")), (401, None))
        self.assertEqual(last["status"], 400)  # no UTF-8
        os.rename(self.path("log"), self.path("old"))
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: os.path.exists(self.path("log")))
        server.get("/health")
        self.assertEqual(self.lines(n=1)[0]["path"], "/health")
        self.assertEqual(server.stop()[0], 0)
        with open(self.path("old"), encoding="utf-8") as file:
            text = file.read()
        self.assertNotIn("secret", text)

    def test_what_clients_send_is_cut(self):
        server = Server(MINILM, "--access-log", self.path("log"))
        server.get("/" + "p" * 600, **{"User-Agent": "a" * 511 + "\u00e9" * 80})
        line = self.lines()[0]
        self.assertEqual((line["path"], line["agent"]), ("/" + "p" * 511, "a" * 511))
        self.assertEqual(server.stop()[0], 0)

    def test_who_left_before_the_answer(self):
        server = Server(MINILM, "--access-log", self.path("log"))
        body = json.dumps({"inputs": ["text %d " % i + "of many words " * 60 for i in range(1500)]}).encode()
        with socket.create_connection((server.host, server.port)) as client:
            client.sendall(b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            wait_until(lambda: figure(server, "te_queue_size") > 0)
        line = self.lines(n=1)[0]
        self.assertEqual(line["status"], 499)
        self.assertEqual((line["method"], line["path"], line["bytes"] < 1000), ("POST", "/embed", True))
        self.assertEqual(server.stop()[0], 0)

    def test_traces(self):
        """W3C's form, no other: what is no trace is in no line."""
        good = ["00-%s-%s-01", "00-%s-%s-00", "01-%s-%s-01", "01-%s-%s-01-more", "cc-%s-%s-01-"]
        bad = ["ff-%s-%s-01", "00-%s-%s", "00-%s-%s-", "00-%s-%s-0", "00-%s-%s-0g", "00-%s-%s-01-", "00-%s-%s-01-more", "00-%s-%s-011",
               "01-%s-%s-01x", "0-%s-%s-01", "0g-%s-%s-01", "00_%s-%s-01", "00-%s_%s-01", "00-%s-%s_01", " 00-%s0%s-01"]
        server = Server(MINILM, "--access-log", self.path("log"))
        sent = [form % (TRACE, PARENT) for form in good + bad]
        sent += ["00-%s-%s-01" % pair for pair in ((TRACE.upper(), PARENT), (TRACE, "0" * 16), ("0" * 32, PARENT), (TRACE[1:], PARENT),
                                                   (TRACE + "0", PARENT), (TRACE, PARENT[1:]))]
        for trace in sent:
            server.get("/livez", traceparent=trace)
        got = [line.get("trace_id") for line in self.lines(n=len(sent))]
        self.assertEqual(got.count(TRACE), len(good), list(zip(sent, got)))
        self.assertEqual(set(got), {TRACE, None})
        self.assertEqual(server.stop()[0], 0)

    def test_a_full_disk_is_survived(self):
        server = Server(MINILM, "--access-log", "/dev/full")
        for _ in range(3):
            self.assertEqual(server.post("/embed", {"inputs": "a"}).status, 200)
        metrics = server.get("/metrics").body.decode()
        self.assertRegex(metrics, r"(?m)^gpuserve_http_access_log_lost_total [23]$")
        self.assertEqual(server.stop()[0], 0)

    def test_standard_output(self):
        server = Server(MINILM, "--access-log", "-")
        server.get("/health")
        self.assertEqual(json.loads(server.process.stdout.readline())["path"], "/health")
        for _ in range(600):  # more than a pipe holds, and nobody reads
            self.assertEqual(server.get("/health", **{"x-request-id": "i" * 128}).status, 200)
        self.assertEqual(server.stop()[0], 0)

    def test_a_file_that_cannot_be_opened(self):
        done = gpuserve("serve", MINILM, "--port", "0", "--access-log", "/nowhere/log")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere/log: No such file", done.err)


class Configuration(Folder):
    def check(self, *arguments, **variables):
        done = gpuserve("serve", "--check-config", *arguments, env=environment(**variables))
        self.assertEqual(done.returncode, 0, done.err)
        return json.loads(done.out)

    def fails(self, words, *arguments, **variables):
        done = gpuserve("serve", "--check-config", *arguments, env=environment(**variables))
        self.assertNotEqual(done.returncode, 0)
        for word in words:
            self.assertIn(word, done.err)

    def test_who_goes_before_whom(self):
        path = self.write("c.json", json.dumps({
            "models": ["a", "b=c"], "port": 1, "max-tokens": 11, "batch-tokens": 21,
            "auto-truncate": True, "api-key": ["x", "y"], "dtype": "int8"}))
        self.assertEqual(self.check("--config", path), {
            "models": ["a", "b=c"], "port": 1, "max-tokens": 11, "batch-tokens": 21,
            "auto-truncate": True, "api-key": ["(hidden)"] * 2, "dtype": "int8"})
        got = self.check("m", "--port", "3", GPUSERVE_CONFIG=path, GPUSERVE_PORT="2",
                         GPUSERVE_MAX_TOKENS="12", MAX_BATCH_TOKENS="22", API_KEY="k")
        self.assertEqual(got, {"models": ["m"], "port": 3, "max-tokens": 12, "batch-tokens": 22,
                               "auto-truncate": True, "api-key": ["(hidden)"], "dtype": "int8"})

    def test_names_of_tei(self):
        got = self.check(MODEL_ID="m", PORT="8123", MAX_BATCH_TOKENS="4096", AUTO_TRUNCATE="true",
                         MAX_CLIENT_BATCH_SIZE="64", PAYLOAD_LIMIT="1000", POOLING="mean",
                         CORS_ALLOW_ORIGIN="*", SERVED_MODEL_NAME="n")
        self.assertEqual(got, {"model": "m", "port": 8123, "batch-tokens": 4096, "pooling": "mean",
                               "auto-truncate": True, "max-client-batch-size": 64,
                               "max-body-bytes": 1000, "cors-origin": ["*"], "alias": ["n"]})
        self.assertEqual(self.check("--model-id", "m", "--max-batch-tokens=4096", "--hostname",
                                    "::1", "--payload-limit", 9, "--served-model-name", "n"),
                         {"model": "m", "batch-tokens": 4096, "host": "::1", "max-body-bytes": 9,
                          "alias": ["n"]})
        self.assertNotIn("auto-truncate", self.check("m", AUTO_TRUNCATE="false"))
        for name, ours in (("float32", "fp32"), ("float16", "fp16"), ("bfloat16", "bf16")):
            self.assertEqual(self.check("m", DTYPE=name)["dtype"], ours)
            self.assertEqual(self.check("m", "--dtype", name)["dtype"], ours)
        self.assertEqual(self.check("m", MAX_CONCURRENT_REQUESTS="7")["max-connections"], 7)
        self.assertEqual(self.check("m", "--max-concurrent-requests", "8")["max-connections"], 8)

    def test_names_of_tei_that_mean_nothing_here(self):
        """Are passed over with their values, and said; what would change answers is not."""
        given = ["--tokenization-workers", "4", "--max-batch-requests=3", "--json-output", "--disable-spans",
                 "--otlp-endpoint", "http://a", "--otlp-service-name=b", "--prometheus-port", "9000", "--uds-path", "c"]
        done = gpuserve("serve", "--check-config", *given, "--model-id", "m")
        self.assertEqual((done.returncode, json.loads(done.out)), (0, {"model": "m"}), done.err)
        self.assertEqual(done.err.count("means nothing here"), 8)
        for option in ("--default-prompt", "--default-prompt-name", "--revision"):
            self.fails(["has no option " + option], "m", option, "x")
        done = gpuserve("embed", "--json-output")
        self.assertIn("embed has no option --json-output", done.err)

    def test_wrong_values_name_their_place(self):
        self.fails(["--port", "eighty", "GPUSERVE_PORT"], "m", GPUSERVE_PORT="eighty")
        self.fails(["AUTO_TRUNCATE", "maybe"], "m", AUTO_TRUNCATE="maybe")
        self.fails(["no model"])
        self.fails(["/nowhere.json", "No such file"], "m", "--config", "/nowhere.json")
        for text, words in (('{"prot": 1}', ['"prot"', 'did you mean "port"']),
                            ('{"port": 1, "port": 2}', ["duplicate"]), ("[1]", ["no JSON object"]),
                            ('{"port": {}}', ['"port"', "neither text"]), ('{"port"', ["line 1"]),
                            ('{"port": 70000}', ["70000", '"port"']),
                            ('{"models": []}', ["not a list"]), ('{"models": [{}]}', ["model 1"]),
                            ('{"config": "x"}', ['"config"'])):
            arguments = [] if "models" in text else ["m"]
            self.fails(words, *arguments, "--config", self.write("c.json", text))

    def test_no_message_tells_a_key(self):
        """Neither what holds in the end nor what is wrong."""
        key = "sk-0123456789"
        bad = ['{"api-key": ["a" "%s"]}', '{"api-key" "%s"}', '{"api-key": "%s}', '{"api-key": ["%s"], "prot": 1}',
               '{"api-key": {"a": "%s"}}', '{"api-key": ["%s", {}]}', '{"api-key": [["%s"]]}', '{"api-key": "%s", "api-key": "a"}',
               '{"api-key": "a %s"}', '{"api-key": ["%s"], "port": "x"}', '{"api-key": "%s"} x']
        configs = [self.write("%d.json" % i, text % key) for i, text in enumerate(bad)]
        for wrong, arguments, variables in (
                *((True, ["m", "--config", path], {}) for path in configs),
                *((True, ["m", *given], {}) for given in (
                    ["--api_key=" + key], ["--apikey=" + key], ["-k" + key], ["--api-key=" + key, "--port", "x"],
                    ["--api-key", key + " b"], ["--api-key", key, "--key-burst", "x"], ["--api-key", key, "--tls-cert", "/none"])),
                (True, ["m"], {"API_KEY": key + " b"}), (True, ["m", "--port", "x"], {"GPUSERVE_API_KEY": key}),
                (False, ["m", "--api-key", key], {}), (False, ["m", "-v"], {"GPUSERVE_API_KEY": key}), (False, ["m"], {"API_KEY": key}),
                (False, ["m", "--config", self.write("good.json", json.dumps({"api-key": [key, key + "2"]}))], {}),
                (False, ["m", "--api-key-file", self.write("keys", key + "\n"), "-v"], {}),
                (True, ["m", "--api-key-file", self.write("bad", key + " b\n")], {}),
                (True, ["m", "--api-key-file", self.write("short", "sha256:" + key)], {})):
            done = gpuserve("serve", "--check-config", *arguments, env=environment(**variables))
            self.assertEqual(done.returncode != 0, wrong, (arguments, done.err))
            self.assertNotIn(key, done.out + done.err, (arguments, variables))

    def test_a_server_by_file(self):
        path = self.write("c.json", json.dumps({"models": ["mini=" + MINILM], "alias": ["other"],
                                                "max-client-batch-size": 2}))
        server = Server("--config", path)
        self.assertEqual(server.post("/v1/embeddings", {"input": "a", "model": "other"}).status, 200)
        self.assertEqual(server.post("/embed", {"inputs": ["a"] * 3}).status, 422)
        self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    main(__name__)
