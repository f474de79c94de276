"""SIGHUP takes up new files under load, SIGTERM loses nothing (T13, scaled down)."""
import http.client
import json
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
import unittest

from serving import MINILM, Server, embed, main

TEXT = "a dog in the park"
SECOND = "a cat on the roof"


def figure(server, name):
    for line in server.get("/metrics").body.decode().splitlines():
        if line.startswith(name + " "):
            return int(line.split()[1])
    raise AssertionError(name)


def link_or_copy(source, target):
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copyfile(source, target)


def variant(folder, pooling):
    """MiniLM with another pooling: other vectors from the same weights."""
    target = os.path.join(folder, pooling)
    shutil.copytree(MINILM, target, copy_function=link_or_copy)
    path = os.path.join(target, "1_Pooling", "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    os.unlink(path)
    for key in config:
        if key.startswith("pooling_mode_"):
            config[key] = key == "pooling_mode_" + pooling
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    return target


def point(link, target):
    os.symlink(target, link + ".new")
    os.rename(link + ".new", link)


class Load:
    """Threads that ask until stop(): every answer's status and body, every failure."""

    def __init__(self, server, n=3, texts=(TEXT, SECOND)):
        self.server, self.answers, self.failures = server, [], []
        self.ending, self.body = threading.Event(), json.dumps({"inputs": list(texts)}).encode()
        self.threads = [threading.Thread(target=self.run) for _ in range(n)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.ending.is_set():
            connection = self.server.connect()
            try:
                connection.connect()
            except OSError:
                return  # the server takes no more: nothing was accepted
            try:
                connection.request("POST", "/embed", self.body)
                reply = connection.getresponse()
                self.answers.append((reply.status, reply.read()))
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
            finally:
                connection.close()

    def stop(self):
        self.ending.set()
        for thread in self.threads:
            thread.join()


class Reload(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.link = os.path.join(self.folder, "model")

    def tearDown(self):
        shutil.rmtree(self.folder)

    def reload(self, server, name="gpuserve_http_reloads_total"):
        before = figure(server, name)
        server.process.send_signal(signal.SIGHUP)
        until = time.monotonic() + 200  # a busy machine takes its time
        while figure(server, name) == before:
            self.assertLess(time.monotonic(), until, "no reload")
            time.sleep(0.005)

    def test_every_answer_is_old_or_new(self):
        targets = [variant(self.folder, pooling) for pooling in ("mean_tokens", "cls_token")]
        point(self.link, targets[0])
        server = Server(self.link, "--quiet")
        known = []
        for target in targets:
            point(self.link, target)
            self.reload(server)
            known.append(server.post("/embed", {"inputs": [TEXT, SECOND]}).body)
        self.assertNotEqual(known[0], known[1])
        for got, want in zip(json.loads(known[0]), embed([TEXT, SECOND])):
            self.assertLessEqual(max(abs(a - b) for a, b in zip(got, want)), 1e-6)
        load = Load(server)
        for i in range(20):
            point(self.link, targets[i % 2])
            self.reload(server)
            reply = server.post("/embed", {"inputs": [TEXT, SECOND]})
            self.assertEqual(reply.body, known[i % 2])
        load.stop()
        self.assertEqual(load.failures, [])
        self.assertGreater(len(load.answers), 20)
        self.assertEqual({status for status, _ in load.answers}, {200})
        self.assertLessEqual({body for _, body in load.answers}, set(known))
        self.assertEqual(server.stop()[0], 0)

    def test_loading_and_unloading_by_clients(self):
        """Each answer is the model's, or says that it is not there; no connection is lost."""
        server = Server(MINILM, "--model-control", "--quiet")
        known = server.post("/embed", {"inputs": [TEXT, SECOND]}).body
        load = Load(server)
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

    def test_a_bad_model_changes_nothing(self):
        point(self.link, MINILM)
        server = Server(self.link, "--alias", "a")
        before = server.post("/embed", {"inputs": TEXT}).body
        bad = os.path.join(self.folder, "bad")
        shutil.copytree(MINILM, bad, copy_function=link_or_copy)
        os.unlink(os.path.join(bad, "config.json"))
        point(self.link, bad)
        self.reload(server, "gpuserve_http_failed_reloads_total")
        self.assertEqual(server.post("/embed", {"inputs": TEXT}).body, before)
        point(self.link, MINILM)
        self.reload(server)
        code, err = server.stop()
        self.assertEqual(code, 0)
        self.assertIn("model stays as it was", err)
        self.assertIn("config.json", err)
        self.assertIn("reloaded", err)

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
        self.assertIn("the key file stays as it was", err)


class End(unittest.TestCase):
    def test_no_accepted_request_is_lost(self):
        answered = 0
        for i in range(20):
            server = Server(MINILM, "--quiet")
            load = Load(server, texts=(TEXT, "some words " * (1 + 3 * i)))
            time.sleep(0.05 + 0.003 * i)
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(timeout=20)
            load.stop()
            self.assertEqual(load.failures, [])
            self.assertEqual({status for status, _ in load.answers}, {200})
            self.assertEqual(server.stop()[0], 0)
            answered += len(load.answers)
        self.assertGreater(answered, 60)

    def test_not_ready_at_once(self):
        server = Server(MINILM)
        kept = http.client.HTTPConnection(server.host, server.port, timeout=20)
        busy = socket.create_connection((server.host, server.port), timeout=20)
        body = json.dumps({"inputs": ["words " * 200] * 50}).encode()
        busy.sendall(b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body))
        kept.connect()
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.15)
        kept.request("GET", "/readyz")  # made before, no request yet: it is still answered
        reply = kept.getresponse()
        self.assertEqual(reply.status, 503, reply.read())
        self.assertEqual(reply.headers["Connection"], "close")
        busy.sendall(body)
        self.assertTrue(busy.recv(100).startswith(b"HTTP/1.1 200 "))
        busy.close()
        self.assertEqual(server.process.wait(timeout=20), 0)
        server.stop()

    def test_hangup_while_draining_ends_nothing(self):
        server = Server(MINILM)
        busy = socket.create_connection((server.host, server.port), timeout=20)
        busy.sendall(b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Length: 14\r\n\r\n")
        time.sleep(0.1)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
        busy.sendall(b'{"inputs":"a"}')
        self.assertTrue(busy.recv(100).startswith(b"HTTP/1.1 200 "))
        busy.close()
        self.assertEqual(server.process.wait(timeout=20), 0)
        server.stop()


if __name__ == "__main__":
    main(__name__)
