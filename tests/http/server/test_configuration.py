"""The access log, and options from flags, environment and file."""
import json
import os
import re
import shutil
import signal
import socket
import tempfile
import unittest

from serving import MINILM, Server, environment, figure, main, wait_until
from common import ROOT, gpuserve

TINY = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "data", "models")
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def options_from(variables):
    """An environment whose only options are these: that of the tests switches the cache of weights off."""
    kept = environment(**variables)
    kept.pop("GPUSERVE_WEIGHTS_CACHE")
    return kept


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
            client.sendall(b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
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
        for _ in range(600):  # more than a pipe holds, without a reader
            self.assertEqual(server.get("/health", **{"x-request-id": "i" * 128}).status, 200)
        self.assertEqual(server.stop()[0], 0)

    def test_a_file_that_cannot_be_opened(self):
        done = gpuserve("serve", MINILM, "--port", "0", "--access-log", "/nowhere/log")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere/log: No such file", done.err)


class Configuration(Folder):
    def check(self, *arguments, **variables):
        done = gpuserve("serve", "--check-config", *arguments, env=options_from(variables))
        self.assertEqual(done.returncode, 0, done.err)
        return json.loads(done.out)

    def fails(self, words, *arguments, **variables):
        done = gpuserve("serve", "--check-config", *arguments, env=options_from(variables))
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

    def test_values_that_are_zero_inside_go_first_too(self):
        """The first value of a list of choices, the number 0 and "false" are values like any other."""
        lowest = {"compress": "remote", "on-device-lost": "fail", "memory-policy": "refuse", "shutdown-delay": 0.0}
        given = [word for name, value in lowest.items() for word in ("--" + name, "0" if value == 0 else value)]
        other = {"compress": "always", "on-device-lost": "exit", "memory-policy": "evict", "shutdown-delay": 7}
        variables = {"GPUSERVE_" + name.upper().replace("-", "_"): str(value) for name, value in other.items()}
        path = self.write("c.json", json.dumps({**other, "auto-truncate": True, "open-metrics": True}))
        self.assertEqual(self.check("m", **variables), {"models": ["m"], **other})
        self.assertEqual(self.check("m", *given, **variables), {"models": ["m"], **lowest})
        self.assertEqual(self.check("m", *given, "--auto-truncate", "false", "--config", path, GPUSERVE_OPEN_METRICS="0"),
                         {"models": ["m"], **lowest})
        self.assertEqual(self.check("m", "--auto-truncate", "false", GPUSERVE_AUTO_TRUNCATE="1"), {"models": ["m"]})
        path = self.write("d.json", json.dumps({**lowest, "auto-truncate": False}))
        self.assertEqual(self.check("m", "--config", path), {"models": ["m"], **lowest})
        self.assertEqual(self.check("m", "--config", path, **variables), {"models": ["m"], **other})

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
        self.assertEqual(self.check("m", AIP_HTTP_PORT="7080", AIP_PREDICT_ROUTE="/v1/a:predict", AIP_HEALTH_ROUTE="/v1/a"),
                         {"models": ["m"], "port": 7080, "predict-route": "/v1/a:predict", "health-route": "/v1/a"})
        self.fails(["`predict_route`", "is not a path"], "m", "--predict-route", "predict")
        self.assertEqual(self.check("m", "--max-concurrent-requests", "8")["max-connections"], 8)

    # Every option of text-embeddings-inference's router, as its README lists them (1.9): flag, value, what
    # comes of it: our option and its value, or words of the remark, or words of the error.
    TEI = (
        ("model-id", "m", {"model": "m"}), ("revision", "refs/pr/2", {"revision": "refs/pr/2"}),
        ("tokenization-workers", "4", "--http-threads"), ("dtype", "float16", {"dtype": "fp16"}),
        ("served-model-name", "n", {"alias": ["n"]}), ("pooling", "cls", {"pooling": "cls"}),
        ("pooling", "mean", {"pooling": "mean"}), ("pooling", "last-token", {"pooling": "last"}),
        ("pooling", "splade", ("splade", "uses SPLADE pooling without this option")),
        ("max-concurrent-requests", "7", {"max-connections": 7}), ("max-batch-tokens", "4096", {"batch-tokens": 4096}),
        ("max-batch-requests", "3", "--batch-tokens"), ("max-client-batch-size", "64", {"max-client-batch-size": 64}),
        ("auto-truncate", "true", {"auto-truncate": True}), ("auto-truncate", "false", {}),
        ("default-prompt-name", "query", {"default-prompt-name": "query"}), ("default-prompt", "query: ", {"default-prompt": "query: "}),
        ("dense-path", "2_Dense_8192", ("is not supported", "modules.json")), ("hf-token", "hf_secret", "gpuserve pull"),
        ("hf-api-token", "hf_secret", "gpuserve pull"), ("hostname", "::1", {"host": "::1"}), ("port", "8123", {"port": 8123}),
        ("uds-path", "/tmp/a", "in its own process"), ("huggingface-hub-cache", "/data", {"cache-dir": "/data"}),
        ("payload-limit", "1000", {"max-body-bytes": 1000}), ("api-key", "k", {"api-key": ["(hidden)"]}),
        ("json-output", None, {"log-format": "json"}), ("disable-spans", None, "no spans"), ("otlp-endpoint", "http://a", {"otlp-endpoint": "http://a"}),
        ("otlp-service-name", "b", {"otlp-service-name": "b"}), ("prometheus-port", "9000", "--open-metrics"),
        ("cors-allow-origin", "*", {"cors-origin": ["*"]}))

    def test_every_option_of_tei(self):
        """Is honoured, or passed over with a word of what is done instead, or refused with a word of what to use."""
        for flag, value, want in self.TEI:
            variable = flag.upper().replace("-", "_")
            model = [] if flag == "model-id" else ["m"]
            for arguments, variables, name in (
                    (["--" + flag, *([value] if value else [])], {}, "--" + flag),
                    (["--%s=%s" % (flag, value) if value else "--" + flag], {}, "--" + flag),
                    ([], {variable: value or "true"}, variable)):
                done = gpuserve("serve", "--check-config", *arguments, *model, env=options_from(variables))
                where = (arguments, variables, done.err)
                self.assertNotIn("hf_secret", done.err + done.out)
                if isinstance(want, tuple):
                    self.assertEqual(done.returncode, 2, where)
                    for words in want:
                        self.assertIn(words, done.err, where)
                    continue
                self.assertEqual(done.returncode, 0, where)
                expected = {"models": model} if model else {}
                self.assertEqual(json.loads(done.out), {**expected, **(want if isinstance(want, dict) else {})}, where)
                if isinstance(want, dict):
                    self.assertEqual(done.err, "", where)
                else:
                    self.assertIn(name + " of text-embeddings-inference has no effect", done.err)
                    self.assertIn(want, done.err)
                    self.assertEqual(done.err.count("\n"), 1, where)

    def test_page_about_tei_has_the_options_that_exist(self):
        """docs/moving-from-tei.md: a row for each flag of the router, with the option that the flag sets."""
        with open(os.path.join(ROOT, "docs/moving-from-tei.md"), encoding="utf-8") as file:
            page = file.read()
        flags = page[page.index("## Flags"):page.index("## Endpoints")]
        rows = {}
        for first, second in re.findall(r"(?m)^\| (`--[^|]*) \| ([^|]*) \|", flags):
            names, options = (re.findall(r"`--([\w-]+)`", cell) for cell in (first, second))
            rows.update(zip(names, options) if options else dict.fromkeys(names, second))
        want = {}
        for flag, _, outcome in self.TEI:
            if isinstance(outcome, dict):
                want[flag] = next(iter(outcome), flag)
            else:
                want.setdefault(flag, "none, error" if isinstance(outcome, tuple) else "none, warning")
        self.assertEqual(rows, want)
        help_text = gpuserve("serve", "--help").out
        own = set(re.findall(r"(?m)^ +(?:-\w, )?--([\w-]+)", help_text))
        self.assertIn("batch-tokens", own)
        self.assertLessEqual(set(re.findall(r"--([a-z][\w-]+)", page)) - set(want), own)
        self.assertLessEqual({option for option in rows.values() if not option.startswith("none")}, own)

    def test_names_of_tei_at_their_borders(self):
        for arguments, variables, want in (
                (["-p", "8124", "m"], {}, {"models": ["m"], "port": 8124}),
                (["--auto-truncate", "m"], {}, {"models": ["m"], "auto-truncate": True}),
                (["m", "--auto-truncate"], {"AUTO_TRUNCATE": "false"}, {"models": ["m"], "auto-truncate": True}),
                (["m"], {"HOSTNAME": "3f2a1b9c"}, {"models": ["m"]}),  # a container's name is no address
                (["m"], {"HOSTNAME": "127.0.0.1"}, {"models": ["m"], "host": "127.0.0.1"}),
                (["m", "--host", "::1"], {"HOSTNAME": "127.0.0.1"}, {"models": ["m"], "host": "::1"}),
                (["m"], {"JSON_OUTPUT": "false", "DISABLE_SPANS": "0"}, {"models": ["m"]}),
                (["-q", "m"], {"HF_TOKEN": "a", "UDS_PATH": "b"}, {"models": ["m"], "quiet": True})):
            done = gpuserve("serve", "--check-config", *arguments, env=options_from(variables))
            self.assertEqual((done.returncode, done.err), (0, ""), (arguments, variables))
            self.assertEqual(json.loads(done.out), want)
        self.fails(["exclude each other"], "m", "--default-prompt", "a", DEFAULT_PROMPT_NAME="b")
        self.fails(["does not accept a value"], "m", "--auto-truncate=maybe")
        self.fails(["does not accept a value"], "m", "--insecure=true")
        self.fails(["does not accept a value"], "m", "--json-output=true")
        self.fails(["JSON_OUTPUT", "maybe"], "m", JSON_OUTPUT="maybe")
        self.assertEqual(self.check("m", "--log-format", "text", JSON_OUTPUT="true")["log-format"], "text")
        self.fails(["only with one model", "MODEL@REVISION"], "m", "n", "--revision", "a")
        self.fails(["only with one model"], "m@b", "--revision", "a")
        self.fails(["not a branch, tag or commit"], "m", "--revision", "../a")
        self.fails(["a directory, not a name"], self.folder, "--revision", "a")
        done = gpuserve("embed", "--json-output")
        self.assertIn("embed has no option --json-output", done.err)

    def test_wrong_values_name_their_place(self):
        self.fails(["--port", "eighty", "GPUSERVE_PORT"], "m", GPUSERVE_PORT="eighty")
        self.fails(["AUTO_TRUNCATE", "maybe"], "m", AUTO_TRUNCATE="maybe")
        self.fails(["the model is missing"])
        self.fails(["/nowhere.json", "No such file"], "m", "--config", "/nowhere.json")
        self.fails([self.folder, "Is a directory"], "m", "--config", self.folder)
        self.fails(["/dev/zero exceeds 1048576 bytes"], "m", "--config", "/dev/zero")
        for text, words in (('{"prot": 1}', ['"prot"', 'did you mean "port"']),
                            ('{"port": 1, "port": 2}', ["duplicate"]), ("[1]", ["not a JSON object"]),
                            ('{"port": {}}', ['"port"', "not a string, a number"]), ('{"port"', ["line 1"]),
                            ('{"port": 70000}', ["70000", '"port"']),
                            ('{"models": []}', ["not a list"]), ('{"models": [{}]}', ["model 1"]),
                            ('{"config": "x"}', ['"config"']), ("[" * 3000, ["line 1", "depth"]),
                            ('{"port": 1' + " " * (1 << 20) + "}", ["exceeds 1048576 bytes"])):
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
            done = gpuserve("serve", "--check-config", *arguments, env=options_from(variables))
            self.assertEqual(done.returncode != 0, wrong, (arguments, done.err))
            self.assertNotIn(key, done.out + done.err, (arguments, variables))

    def test_a_server_by_file(self):
        path = self.write("c.json", json.dumps({"models": ["mini=" + MINILM], "alias": ["other"],
                                                "max-client-batch-size": 2}))
        server = Server("--config", path)
        self.assertEqual(server.post("/v1/embeddings", {"input": "a", "model": "other"}).status, 200)
        self.assertEqual(server.post("/embed", {"inputs": ["a"] * 3}).status, 422)
        self.assertEqual(server.stop()[0], 0)

    def test_default_prompts(self):
        """Are before the texts of every request that names no prompt, in all dialects and forms."""
        dense = os.path.join(TINY, "st-dense")
        plain = Server(dense)
        texts = ["w1 w2", "w3"]
        self.assertEqual(plain.post("/embed", {"inputs": texts}).json(),
                         plain.post("/embed", {"inputs": texts, "prompt_name": "query"}).json())
        for arguments, prompt in ((["--default-prompt", "w7 w8 "], "w7 w8 "), (["--default-prompt-name", "passage"], "passage: "),
                                  (["--default-prompt", ""], "")):
            server = Server(dense, *arguments)
            whole = {"inputs": [prompt + text for text in texts]}
            ids = [[token["id"] for token in one] for one in server.post("/tokenize", {"inputs": texts}).json()]
            if prompt:  # what the server of no prompt makes of the whole text
                other = Server(dense, "--default-prompt", "")
            else:
                other = server
            want = other.post("/embed", whole).json()
            self.assertEqual(ids, [[token["id"] for token in one] for one in other.post("/tokenize", whole).json()])
            self.assertEqual(server.post("/embed", {"inputs": texts}).json(), want)
            self.assertEqual(server.post("/embed", {"inputs": [texts[0], ids[1]]}).json(), want)
            got = server.post("/v1/embeddings", {"input": texts}).json()["data"]
            self.assertEqual([item["embedding"] for item in got], want)
            self.assertEqual(server.post("/embed", {"inputs": texts, "prompt_name": "query"}).json(),
                             plain.post("/embed", {"inputs": texts}).json())
            for one in {server, other}:
                self.assertEqual(one.stop()[0], 0)
        self.assertEqual(plain.stop()[0], 0)
        done = gpuserve("serve", dense, "--port", "0", "--default-prompt-name", "question")
        self.assertEqual(done.returncode, 1)
        self.assertIn('unknown prompt "question": the model has "query", "passage"', done.err)

    def test_revisions(self):
        """Of a model in the hub's cache, which is called without it."""
        hub = self.path("hub/models--org--net")
        for commit, name in (("a" * 40, "st-dense"), ("b" * 40, "st-newer")):
            shutil.copytree(os.path.join(TINY, name), os.path.join(hub, "snapshots", commit))
        for ref, commit in (("main", "a" * 40), ("refs/pr/2", "b" * 40)):
            os.makedirs(os.path.dirname(os.path.join(hub, "refs", ref)), exist_ok=True)
            self.write(os.path.join(hub, "refs", ref), commit)
        for arguments, dim in ((["org/net"], 24), (["org/net", "--revision", "refs/pr/2"], 32), (["org/net@" + "b" * 40], 32),
                               (["--model-id", "org/net", "--revision", "main"], 24)):
            server = Server(*arguments, "--cache-dir", self.path("hub"))
            reply = server.post("/v1/embeddings", {"model": "org/net", "input": "w1"}).json()
            self.assertEqual((reply["model"], len(reply["data"][0]["embedding"])), ("org/net", dim))
            self.assertEqual(server.stop()[0], 0)
        done = gpuserve("serve", "org/net", "--port", "0", "--revision", "v2", "--cache-dir", self.path("hub"))
        self.assertIn('org/net: revision "v2" is not in the cache', done.err)
        self.assertIn("gpuserve pull --revision v2 org/net", done.err)


if __name__ == "__main__":
    main(__name__)
