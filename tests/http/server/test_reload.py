"""SIGHUP takes up new files under load, SIGTERM loses nothing (T13; ./dev withstand has it at full size)."""
import http.client
import json
import os
import shutil
import signal
import socket
import tempfile
import time
import unittest

import withstand
from common import ROOT
from serving import MINILM, PATIENCE, Server, figure, main, wait_until

TEXT, SECOND = withstand.TEXTS
TINY = os.path.join(ROOT, "tests/data/models")


class Reload(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.link = os.path.join(self.folder, "model")

    def tearDown(self):
        shutil.rmtree(self.folder)

    @staticmethod
    def reload(server, name="gpuserve_http_reloads_total"):
        withstand.hang_up(server, name)

    def test_every_answer_is_old_or_new(self):
        figures = withstand.reload(20)
        self.assertGreater(figures["answered"], 20)
        self.assertEqual((figures["lost"], figures["wrong"]), (0, 0))

    def test_loading_and_unloading_by_clients(self):
        """Each answer is the model's, or says that it is not there; no connection is lost."""
        server = Server(MINILM, "--model-control", "--quiet")
        known = server.post("/embed", {"inputs": [TEXT, SECOND]}).body
        load = withstand.Load(server)
        path = "/v2/repository/models/all-MiniLM-L6-v2/"
        for i in range(20):
            self.assertEqual(server.post(path + "unload", {}).status, 200)
            self.assertEqual(server.get("/readyz").status, 503)
            self.assertEqual(server.post(path + "load", {}).status, 200)
            self.assertEqual(server.get("/readyz").status, 200)
            self.assertEqual(server.post("/embed", {"inputs": [TEXT, SECOND]}).body, known)
        load.stop()
        self.assertEqual(load.failures, [])
        self.assertLessEqual({status for status, _ in load.answers}, {200, 503})
        self.assertEqual({body for status, body in load.answers if status == 200}, {known})
        self.assertEqual(server.stop()[0], 0)

    def test_what_is_unloaded_meanwhile_stays_so(self):
        server = Server(MINILM, "--model-control", "--quiet")
        path = "/v2/repository/models/all-MiniLM-L6-v2/"
        for i in range(10):
            reloads = figure(server, "gpuserve_http_reloads_total")
            server.process.send_signal(signal.SIGHUP)
            time.sleep(i / 500)  # loading takes some 50 ms
            self.assertEqual(server.post(path + "unload", {}).status, 200)
            wait_until(lambda: figure(server, "gpuserve_http_reloads_total") > reloads)
            self.assertEqual(server.get("/readyz").status, 503)
            self.assertEqual(server.post(path + "load", {}).status, 200)
            self.assertEqual(server.get("/readyz").status, 200)
        self.assertEqual(server.stop()[0], 0)

    def test_a_bad_model_changes_nothing(self):
        withstand.point(self.link, MINILM)
        server = Server(self.link, "--alias", "a")
        before = server.post("/embed", {"inputs": TEXT}).body
        bad = os.path.join(self.folder, "bad")
        shutil.copytree(MINILM, bad, copy_function=withstand.link_or_copy)
        os.unlink(os.path.join(bad, "config.json"))
        withstand.point(self.link, bad)
        self.reload(server, "gpuserve_http_failed_reloads_total")
        self.assertEqual(server.post("/embed", {"inputs": TEXT}).body, before)
        withstand.point(self.link, MINILM)
        self.reload(server)
        code, err = server.stop()
        self.assertEqual(code, 0)
        self.assertIn("model as it was", err)
        self.assertIn("config.json", err)
        self.assertIn("reloaded", err)

    def test_labels_follow_the_model(self):
        """After a reload the labels of every dialect are those of the model loaded last."""
        pairs = os.path.join(TINY, "bert-pairs")
        renamed = os.path.join(self.folder, "renamed")
        shutil.copytree(pairs, renamed)
        with open(os.path.join(pairs, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        known = config["id2label"]
        config["id2label"] = {key: "new " + label for key, label in known.items()}
        config["label2id"] = {label: int(key) for key, label in config["id2label"].items()}
        with open(os.path.join(renamed, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        withstand.point(self.link, pairs)
        server = Server("m=" + self.link)
        for folder, labels in ((pairs, known), (renamed, config["id2label"]), (pairs, known)):
            withstand.point(self.link, folder)
            self.reload(server)
            want = set(labels.values())
            self.assertEqual({one["label"] for one in server.post("/predict", {"inputs": "w1 w2"}).json()}, want)
            got = server.post("/v1/models/m:classify", {"examples": [{"text": "w1 w2"}]}).json()["result"][0]
            self.assertEqual({label for label, _ in got}, want)
            self.assertEqual(server.get("/info").json()["model_type"]["classifier"]["id2label"], labels)
        one = os.path.join(self.folder, "one")  # the sandbox opens the link's folder and the first target
        shutil.copytree(os.path.join(TINY, "bert-cross-encoder"), one)
        withstand.point(self.link, one)
        self.reload(server)
        self.assertEqual(server.get("/v1/models/m").json()["labels"], 1)
        self.assertEqual(len(server.post("/predict", {"inputs": [["w1", "w2"]]}).json()[0]), 1)
        self.assertEqual(server.stop()[0], 0)

    def test_keys(self):
        path = os.path.join(self.folder, "keys")

        def write(text):
            with open(path + ".new", "w", encoding="ascii") as file:
                file.write(text)
            os.rename(path + ".new", path)

        def statuses():
            return [server.get("/info", Authorization="Bearer " + key).status
                    for key in ("one", "two", "three")]

        write("one\n")
        server = Server(MINILM, "--api-key-file", path, "--api-key", "three", "--open-metrics")
        self.assertEqual(statuses(), [200, 401, 200])
        write("two\n")
        self.reload(server)
        self.assertEqual(statuses(), [401, 200, 200])
        for text in ("", "a b\n"):
            write(text)
            self.reload(server, "gpuserve_http_failed_reloads_total")
            self.assertEqual(statuses(), [401, 200, 200])
        code, err = server.stop()
        self.assertEqual(code, 0)
        self.assertIn("the server keeps the key file as it was", err)


class End(unittest.TestCase):
    def test_no_accepted_request_is_lost(self):
        figures = withstand.end(20)
        self.assertGreater(figures["answered"], 20)
        self.assertEqual((figures["lost"], figures["wrong"]), (0, 0))

    def ends(self, server):
        """It has been told to, and takes no connection any more."""
        server.process.send_signal(signal.SIGTERM)

        def is_deaf():
            try:
                server.connect().connect()
            except OSError:
                return True

        wait_until(is_deaf)

    def test_not_ready_at_once(self):
        server = Server(MINILM)
        begun, fresh, busy = (socket.create_connection((server.host, server.port), timeout=PATIENCE) for _ in range(3))
        body = json.dumps({"inputs": ["words " * 200] * 50}).encode()
        busy.sendall(b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body))
        begun.sendall(b"GET /readyz ")
        told = time.monotonic()
        self.ends(server)
        fresh.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        in_time = time.monotonic() - told < 1  # for so long those without a request yet are waited for
        begun.sendall(b"HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for client in (begun, fresh) if in_time else (begun,):
            reply = http.client.HTTPResponse(client)
            reply.begin()
            self.assertEqual(reply.status, 503, reply.read())
            self.assertEqual(reply.headers["Connection"], "close")
        busy.sendall(body)
        self.assertTrue(busy.recv(100).startswith(b"HTTP/1.1 200 "))
        for client in (begun, fresh, busy):
            client.close()
        self.assertEqual(server.process.wait(timeout=PATIENCE), 0)
        server.stop()

    def test_hangup_while_draining_ends_nothing(self):
        server = Server(MINILM)
        busy = socket.create_connection((server.host, server.port), timeout=PATIENCE)
        busy.sendall(b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\n")
        self.ends(server)
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
        busy.sendall(b'{"inputs":"a"}')
        self.assertTrue(busy.recv(100).startswith(b"HTTP/1.1 200 "))
        busy.close()
        self.assertEqual(server.process.wait(timeout=PATIENCE), 0)
        server.stop()


if __name__ == "__main__":
    main(__name__)
