#!/usr/bin/env python3
"""Exceptions of signal handlers at random moments of calls: Ctrl-C, pytest-timeout, Celery's time limit.

Python raises them between any two instructions. The library must not write to memory that the call had, no
request may be left behind, and nothing may crash. GPUSERVE_TEST_INTERRUPTIONS: how many, about; 10,000 by default.
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

from gpuserve import Model  # noqa: E402
from gpuserve._ffi import calls as _calls  # noqa: E402

N = int(os.environ.get("GPUSERVE_TEST_INTERRUPTIONS", "10000"))
TEXTS = ["text %d" % i for i in range(100)]  # more than 64: a call waits for its parts; short ones, for cheap calls


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
        cls.model = Model(model("splade-tiny"), device="cpu")
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
            try:
                signal.setitimer(signal.ITIMER_REAL, self.random.random() * longest + 1e-6)
                work()
            finally:  # another error is a failure of the test, which no alarm must cut off
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
            hit = self.interrupted(work, longest)
            hits += hit
            longest *= 1.05 if hit else 0.95  # half of the calls, though the first one was slow on a busy machine
            check()
        self.assertGreater(hits, n // 20, "hardly any call was interrupted")
        self.assertNothingLeft()
        return hits

    def assertNothingLeft(self):
        """Abandoned futures complete, and each turn of the dispatcher drops what was never submitted."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            free_memory()
            if self.model._dispatcher is not None:
                self.model.submit("a").result()
                if self.model._dispatcher._pending:
                    time.sleep(0.01)
                    continue
            if not _calls._submitted:
                break
        self.assertEqual(len(_calls._submitted), 0, "requests were left behind")

    def test_encode_into_memory_of_the_caller(self):
        out = np.zeros((len(TEXTS), self.model.dim), dtype=np.float32)
        state = {}

        def work():
            self.model.encode(TEXTS, out=out, batch_size=25)

        def check():
            """After the exception nothing changes any more."""
            state["n"] = state.get("n", 0) + 1
            if state["n"] % 50 == 0:
                out[...] = -7
                time.sleep(0.002)
                self.assertTrue((out == -7).all(), "the library wrote after the exception")

        self.try_often(work, N // 4, check)

    def test_encode_and_classes_of_calls(self):
        self.try_often(lambda: self.model.encode(TEXTS[:70]), N // 4 + N // 25)
        self.try_often(lambda: self.model.encode_sparse(TEXTS[:70]), N // 100)  # rows of the vocabulary: slow
        self.try_often(lambda: self.model.rank("text", TEXTS[:70]), N // 20)

    def test_streams(self):
        self.try_often(lambda: list(self.model.encode_stream(TEXTS, batch_size=20)), N // 5)

    def test_futures(self):
        def work():
            """Not result(): concurrent.futures itself may keep its lock when it is interrupted."""
            for i in range(0, 100, 20):
                self.model.submit(TEXTS[i:i + 20])

        self.try_often(work, N // 5)

        async def some():
            await asyncio.gather(*(self.model.encode_async(TEXTS[i:i + 9]) for i in range(0, 27, 9)))

        asyncio.run(some())
        self.assertNothingLeft()

    def test_memory_stays(self):
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        work = lambda: self.model.encode(TEXTS, batch_size=32)  # noqa: E731
        self.try_often(work, N // 20)
        first = peak()
        self.try_often(work, N // 10)
        self.assertLess(peak() - first, 50_000, "kB more after as many interruptions again")

    def test_callbacks_do_not_block_on_the_dispatchers_lock(self):
        """A future may be cancelled, and its model closed by the collector, in a thread that holds any lock."""
        one = Model(model("splade-tiny"), device="cpu")
        one.submit("a").result()
        done = threading.Event()
        with one._dispatcher._lock:
            threading.Thread(target=lambda: (one._dispatcher._cancel(0), done.set()), daemon=True).start()
            self.assertTrue(done.wait(60), "cancelling waits for the lock")
        one.close()


class Collected(unittest.TestCase):
    def test_a_model_that_the_collector_closes_in_the_dispatchers_thread(self):
        """There __del__ runs while the thread holds the dispatcher's lock."""
        one = Model(model("splade-tiny"), device="cpu")
        one.submit("a").result()
        dispatcher = one._dispatcher
        keys, handles = dispatcher._keys, [one]
        del one

        def keys_while_collecting():
            with dispatcher._lock:
                handles.clear()  # the last reference
            return keys()

        dispatcher._keys = keys_while_collecting
        os.write(dispatcher._wake_write, b"x")
        dispatcher._thread.join(60)
        self.assertFalse(dispatcher._thread.is_alive(), "close() waits for a lock that its own thread holds")


if __name__ == "__main__":
    main(__name__)
