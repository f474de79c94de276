"""--log-format json: each line on standard error is one JSON object, whatever bytes a message holds."""
import datetime
import json
import random
import re
import signal
import subprocess
import tempfile
import unittest

from serving import MINILM, Server, figure, main, wait_until

from common import PROGRAM, environment


def objects(text):
    return [json.loads(line) for line in text.split("\n")[:-1]]


class Failing(unittest.TestCase):
    """Messages of a server that does not start. The bytes are those of an argument."""

    def run_bytes(self, name, *options, **variables):
        done = subprocess.run([PROGRAM, "serve", "m", *options, "--alias", b"a=" + name], capture_output=True, check=False,
                              env={**environment(), **variables})
        self.assertEqual(done.returncode, 2)
        return done.stderr

    def message(self, name):
        got = self.run_bytes(name, "--log-format", "json")
        self.assertEqual(got.count(b"\n"), 1, got)
        line = json.loads(got.decode())  # strict: invalid UTF-8 fails here
        self.assertEqual(list(line), ["time", "level", "message"])
        self.assertEqual(line["level"], "error")
        return line["message"]

    def test_any_bytes(self):
        order = random.Random(1)
        cases = [bytes(range(1, 256)), "é ".encode() + b'"\\/\n\t\x7f', b"\xed\xa0\x80 \xc0\xaf \xf4\x90\x80\x80 \xe2\x82 \xf0\x9f\x98",
                 "\U0001f600\u20ac".encode()]
        cases += [bytes(order.randrange(1, 256) for _ in range(300)) for _ in range(6)]
        for name in cases:
            want = '--alias a=%s: no model argument has the name "%s"' % ((name.decode(errors="replace"),) * 2)
            # A decoder may replace a cut character by one U+FFFD or by one for each byte.
            self.assertEqual(re.sub("\ufffd+", "\ufffd", self.message(name)), re.sub("\ufffd+", "\ufffd", want))

    def test_long(self):
        for character in ('"', "é", "\u20ac", "\x01", "\U0001f600"):
            name = (character * 5000).encode()
            message = self.message(name)
            self.assertRegex(message, "^--alias a=" + re.escape(character) + "{500,}$")
            self.assertLessEqual(len(self.run_bytes(name, "--log-format", "json")), 4096)

    def test_time(self):
        before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(milliseconds=1)
        line = json.loads(self.run_bytes(b"b", "--log-format", "json"))
        self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        now = datetime.datetime.fromisoformat(line["time"].replace("Z", "+00:00"))
        self.assertLessEqual(before, now)
        self.assertLess(now - before, datetime.timedelta(seconds=60))

    def test_who_chooses(self):
        """The messages about other variables have the format too."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write('{"log-format": "json"}')
            file.flush()
            for options, variables in (((), {"GPUSERVE_LOG_FORMAT": "json"}), ((), {"JSON_OUTPUT": "true"}), (("--json-output",), {}),
                                       (("--config", file.name), {})):
                lines = objects(self.run_bytes(b"b", *options, **variables).decode())
                self.assertEqual([one["level"] for one in lines], ["error"])
        lines = objects(self.run_bytes(b"b", HF_TOKEN="secret", GPUSERVE_LOG_FORMAT="json").decode())
        self.assertEqual([one["level"] for one in lines], ["warning", "error"])
        self.assertIn("HF_TOKEN of text-embeddings-inference has no effect", lines[0]["message"])
        text = self.run_bytes(b"b", "--log-format", "text", GPUSERVE_LOG_FORMAT="json")
        self.assertEqual(text, b'gpuserve: --alias a=b: no model argument has the name "b"\n')

    def test_hint(self):
        done = subprocess.run([PROGRAM, "serve", "--log-format", "json"], capture_output=True, check=False, env=environment())
        lines = objects(done.stderr.decode())
        self.assertEqual([one["level"] for one in lines], ["error", "info"])
        self.assertTrue(lines[1]["message"].startswith("hint: usage: gpuserve serve"), lines)


class Running(unittest.TestCase):
    def test_server_and_requests(self):
        with tempfile.NamedTemporaryFile("r") as log:
            server = Server(MINILM, "--no-sandbox", "--log-format", "json", "--access-log", log.name)
            server.get("/health")
            server.post("/embed", {"inputs": "a"})
            server.get("/%ff")
            server.get("/%22%5C")
            server.get("/%C3%A9" + "x" * 600)
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: figure(server, "gpuserve_http_reloads_total") == 1)
            code, err = server.stop()
            self.assertEqual(code, 0)
            said = [(one["level"], one["message"]) for one in objects(err)]
            self.assertEqual(said, [("info", "reloaded"), ("info", "signal 15: the server answers accepted requests for at most 30 s")])
            lines = objects(log.read())[:5]
            self.assertEqual([(one["level"], one["message"]) for one in lines], [
                ("info", "GET /health 200"), ("info", "POST /embed 200"), ("info", "GET  400"), ("info", "GET /\"\\ 404"),
                ("info", "GET /é%s 404" % ("x" * 397))])
            self.assertEqual(list(lines[1])[:3], ["time", "level", "message"])
            self.assertEqual((lines[1]["path"], lines[1]["tokens"]), ("/embed", 3))


if __name__ == "__main__":
    main(__name__)
