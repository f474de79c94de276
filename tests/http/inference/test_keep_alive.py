"""Ollama's `keep_alive`: an idle model is suspended, and the next request of any dialect resumes it."""
import threading
import time
import unittest

from serving import MINILM, Server, figure, main, use_clients, wait_until

use_clients()

import ollama  # noqa: E402

NAME = "all-MiniLM-L6-v2"


class KeepAlive(unittest.TestCase):
    def start(self, *arguments):
        self.server = Server(MINILM, "--device", "cpu", *arguments)
        self.addCleanup(self.server.stop)
        self.client = ollama.Client(host=self.server.url)

    def suspends(self):
        return figure(self.server, "gpuserve_http_idle_suspends_total")

    def loaded(self):
        return [one.name for one in self.client.ps().models]

    def vector(self, **options):
        return self.client.embed(model=NAME, input="a dog", **options).embeddings[0]

    def test_at_once(self):
        self.start("--model-control")
        want = self.vector()
        self.assertEqual(self.loaded(), [NAME])
        for n in range(1, 4):
            self.assertEqual(self.vector(keep_alive=0), want)
            wait_until(lambda n=n: self.suspends() == n)
            self.assertEqual(self.loaded(), [])
            self.assertEqual(self.server.get("/health").status, 200)
        self.assertEqual(self.server.post("/embed", {"inputs": "a dog"}).json()[0], want)
        wait_until(lambda: self.suspends() == 4)  # the time stays until another one is given
        self.assertEqual(self.vector(keep_alive=-1), want)
        time.sleep(0.5)
        self.assertEqual((self.suspends(), self.loaded()), (4, [NAME]))
        self.client.embeddings(model=NAME, prompt="", keep_alive=0)
        wait_until(lambda: self.suspends() == 5)

    def test_after_a_time_without_any_request(self):
        self.start("--model-control")
        want = self.vector(keep_alive="1s")
        for _ in range(20):
            before, longest, last = self.suspends(), 0, time.monotonic()
            for _ in range(10):
                time.sleep(0.2)
                self.assertEqual(self.server.post("/embed", {"inputs": "a dog"}).json()[0], want)
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
            if longest < 0.9:  # else the machine was too busy: the time without a request was over
                break
        self.assertEqual(self.suspends(), before)
        begin = time.monotonic()
        wait_until(lambda: self.suspends() == before + 1)
        self.assertGreater(time.monotonic() - begin, 0.6)
        self.assertEqual(self.vector(keep_alive="5m"), want)
        self.assertEqual(self.loaded(), [NAME])

    def test_requests_that_meet_a_suspension(self):
        self.start("--model-control")
        want, wrong = self.vector(keep_alive=0), []

        def ask():
            client = ollama.Client(host=self.server.url)
            for _ in range(20):
                if client.embed(model=NAME, input="a dog").embeddings[0] != want:
                    wrong.append(1)
                time.sleep(0.01)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(self.server.stop()[0], 0)

    def test_only_where_clients_may_control_models(self):
        self.start()
        self.vector(keep_alive=0)
        time.sleep(0.5)
        self.assertEqual((self.suspends(), self.loaded()), (0, [NAME]))

    def test_what_is_no_time(self):
        self.start("--model-control")
        for value in ("5 minutes", "", True, [], {}):
            reply = self.server.post("/api/embed", {"model": NAME, "input": "a dog", "keep_alive": value})
            self.assertEqual((reply.status, "`keep_alive`" in reply.body.decode()), (400, True), value)
        for value in (None, 1e300, "1h30m", "-1s", 0.5):
            reply = self.server.post("/api/embed", {"model": NAME, "input": "a dog", "keep_alive": value})
            self.assertEqual(reply.status, 200, value)


if __name__ == "__main__":
    main(__name__)
