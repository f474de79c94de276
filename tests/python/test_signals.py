#!/usr/bin/env python3
"""Exceptions of signal handlers at random moments of calls: Ctrl-C, pytest-timeout, Celery's time limit.

Python raises them between any two instructions. The library must not write to memory that the call had, no
request may be left behind, and nothing may crash. GPUSERVE_TEST_INTERRUPTIONS: how many (10,000 by default).
"""
import asyncio
import gc
import os
import random
import resource
import signal
import sys
import threading
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "cli"))
from common import main, model  # noqa: E402

from gpuserve import Model, _calls  # noqa: E402

N = int(os.environ.get("GPUSERVE_TEST_INTERRUPTIONS", "10000"))
TEXTS = ["interrupted text number %d of a call" % i for i in range(200)]


class Interrupted(BaseException):
    pass


def interrupt(*_):
    raise Interrupted


def free_memory():
    """What was interrupted while it was freed is freed with the next request."""
    gc.collect()
    _calls._free_abandoned()


class Signals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = Model(model("splade-tiny"), device="cpu", pooling="mean")
        cls.random = random.Random(7)
        cls.before = signal.signal(signal.SIGALRM, interrupt)

    @classmethod
    def tearDownClass(cls):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, cls.before)
        cls.model.close()

    def interrupted(self, work, longest):
        """Whether an alarm after a random time ended the work. It may come a moment late, outside of it."""
        try:
            signal.setitimer(signal.ITIMER_REAL, self.random.random() * longest + 1e-6)
            work()
            signal.setitimer(signal.ITIMER_REAL, 0)
            return False
        except Interrupted:
            return True

    def try_often(self, work, n, check=lambda: None):
        started = time.perf_counter()
        work()
        longest = 1.2 * (time.perf_counter() - started)
        hits = 0
        for _ in range(n):
            try:
                hits += self.interrupted(work, longest)
            except Interrupted:  # while the alarm was being switched off
                hits += 1
            check()
        self.assertGreater(hits, n // 20, "hardly any call was interrupted")
        free_memory()
        self.assertEqual(_calls._submitted, {}, "requests were left behind")
        return hits

    def test_encode_into_memory_of_the_caller(self):
        out = np.zeros((len(TEXTS), self.model.dim), dtype=np.float32)
        state = {}

        def work():
            self.model.encode(TEXTS, out=out, batch_size=50)

        def check():
            """After the exception nothing changes any more."""
            state["n"] = state.get("n", 0) + 1
            if state["n"] % 50 == 0:
                out[...] = -7
                time.sleep(0.002)
                self.assertTrue((out == -7).all(), "the library wrote after the exception")

        self.try_often(work, N // 4, check)

    def test_encode_and_classes_of_calls(self):
        self.try_often(lambda: self.model.encode(TEXTS[:100]), N // 4)
        self.try_often(lambda: self.model.encode_sparse(TEXTS[:70]), N // 20)
        self.try_often(lambda: self.model.rerank("text", TEXTS[:70]), N // 20)

    def test_streams(self):
        self.try_often(lambda: list(self.model.encode_stream(TEXTS, batch_size=40)), N // 5)

    def test_futures(self):
        def work():
            futures = [self.model.submit(TEXTS[i:i + 20]) for i in range(0, 100, 20)]
            for future in futures:
                future.result()

        self.try_often(work, N // 5)

        async def some():
            await asyncio.gather(*(self.model.aencode(TEXTS[i:i + 9]) for i in range(0, 27, 9)))

        asyncio.run(some())
        until = time.monotonic() + 60
        while self.model._dispatcher._pending and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual(self.model._dispatcher._pending, {})

    def test_memory_stays(self):
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        work = lambda: self.model.encode(TEXTS, batch_size=64)  # noqa: E731
        self.try_often(work, N // 20)
        first = peak()
        self.try_often(work, N // 10)
        self.assertLess(peak() - first, 50_000, "kB more after as many interruptions again")

    def test_a_model_closed_by_the_collector_in_its_own_lock(self):
        """__del__ may run in a thread that holds the dispatcher's lock: it takes it again."""
        one = Model(model("splade-tiny"), device="cpu", pooling="mean")
        one.submit("a").result()
        dispatcher = one._dispatcher
        done = threading.Event()

        def close():
            with dispatcher._lock:
                one.close()
            done.set()

        threading.Thread(target=close, daemon=True).start()
        self.assertTrue(done.wait(60), "close() waits for a lock that its own thread holds")


if __name__ == "__main__":
    sys.exit(main())
