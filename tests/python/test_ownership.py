#!/usr/bin/env python3
"""Ownership of requests and locks with exceptions, threads and the garbage collector at the same time.

test_signals.py does the same with signals at random moments.
"""
import gc
import os
import signal
import sys
import threading
import time

import numpy as np

import gpuserve.compute
import gpuserve.context
from common import PATIENCE, ROOT, Case, main, model
from gpuserve import Compute, Context, Model, _handle
from gpuserve._ffi import calls as _calls

TEXTS = ["text number %d of a call" % i for i in range(70)]
LONG = ["long text %d " % i + "word " * 100 for i in range(400)]


# A checkout may lie in a folder of the package's name: only the whole path tells the package's files.
PLACES = (os.path.dirname(gpuserve.__file__) + os.sep, threading.__file__)


class Interrupted(BaseException):
    pass


def interrupt(*_):
    raise Interrupted


class Points:
    """Raises at the n-th place where Python 3.11 calls signal handlers: where a function of the package or of
    `threading` begins, and where a call of a function in C or of the library ends."""

    def __init__(self, n):
        self.left = n
        self.thread = threading.get_ident()
        self.is_on = False

    def __call__(self, frame, event, _argument):
        name = frame.f_code.co_filename
        if event in ("call", "c_return") and name.startswith(PLACES):
            self.place()

    def place(self):
        if not self.is_on or threading.get_ident() != self.thread:
            return
        self.left -= 1
        if self.left < 0:
            self.stop()
            raise Interrupted

    def start(self):
        self.is_on = True
        sys.setprofile(self)

    def stop(self):
        sys.setprofile(None)
        self.is_on = False


class PointsButOne(Points):
    """But where __del__() begins: no code in Python can catch what is raised there."""

    def __call__(self, frame, event, argument):
        if event != "call" or frame.f_code.co_name != "__del__":
            super().__call__(frame, event, argument)


class Library:
    """The library; `after` is called with its name when one of its functions returns. `n_open` counts handles."""
    OPENS = ("gpuserve_context_create", "gpuserve_compute_open", "gpuserve_model_open", "gpuserve_lstm_create",
             "gpuserve_context_find")
    CLOSES = ("gpuserve_context_unref", "gpuserve_compute_close", "gpuserve_model_close", "gpuserve_lstm_free")

    def __init__(self, library):
        self._library = library
        self.after = None
        self.n_open = 0

    def __getitem__(self, name):
        return self._library[name]

    def __getattr__(self, name):
        function = getattr(self._library, name)

        def called(*arguments):
            if name in self.CLOSES and arguments[0]._obj:
                self.n_open -= 1
            status = function(*arguments)
            if name in self.OPENS and status == 0:
                self.n_open += 1
            if self.after is not None:
                self.after(name)
            return status

        return called


class Ownership(Case):
    def setUp(self):
        super().setUp()
        self.model = Model(model("splade-tiny"), device="cpu")
        self.addCleanup(self.model.close)
        self.library = self.model._library = Library(self.model._library)

    def at_every_place(self, work, most=3000):
        """Interrupt the work at each place; returns at how many."""
        work()
        for n in range(most):
            raised = None
            points = Points(n)
            self.library.after = lambda _name, points=points: points.place()
            try:
                points.start()
                work()
            except Interrupted as error:
                raised = error
            finally:
                points.stop()
                self.library.after = None
            if points.left >= 0:
                return n
            self.check(n, raised)
        return most

    def check(self, n, raised):
        """While the exception, and with it all frames, still exists."""
        self.assertEqual(len(self.model._active), 0, f"at {n}: close() would wait for ever: {raised!r}")
        free = []
        thread = threading.Thread(target=lambda: free.append(self.model._mutex.acquire(timeout=PATIENCE)
                                                             and not self.model._mutex.release()))
        thread.start()
        thread.join()
        self.assertEqual(free, [True], f"at {n}: a lock stays taken")

    def left(self):
        gc.collect()
        _calls._free_abandoned()
        return len(_calls._submitted)

    def test_an_exception_at_each_place_of_encode(self):
        self.assertGreater(self.at_every_place(lambda: self.model.encode(TEXTS)), 50)
        self.assertEqual(self.left(), 0)

    def test_an_exception_at_each_place_of_a_stream(self):
        self.assertGreater(self.at_every_place(
            lambda: list(self.model.encode_stream(TEXTS[:9], batch_size=3))), 100)
        self.assertEqual(self.left(), 0)

    def test_an_exception_at_each_place_of_submit(self):
        self.assertGreater(self.at_every_place(lambda: self.model.submit(TEXTS[:2]) and None), 50)
        until = time.monotonic() + PATIENCE
        while self.left() and time.monotonic() < until:
            self.model.submit("a").result()
        self.assertEqual(self.left(), 0)

    def test_an_exception_at_each_place_of_classes_of_calls(self):
        for work in (lambda: self.model.encode_sparse("a"), lambda: self.model.encode("a"),
                     lambda: self.model.rank("a", TEXTS[:3]), lambda: self.model.tokenize("a b")):
            self.assertGreater(self.at_every_place(work), 5)
        self.assertEqual(self.left(), 0)

    def test_an_exception_at_each_place_of_classify(self):
        self.model = Model(model("splade-tiny"), device="cpu",
                           head=os.path.join(ROOT, "tests/data/heads/splade-polarity.safetensors"))
        self.addCleanup(self.model.close)
        self.library = self.model._library = Library(self.model._library)
        want = self.model.classify(TEXTS)
        for work in (lambda: self.model.classify("a"), lambda: self.model.classify(TEXTS)):
            self.assertGreater(self.at_every_place(work), 10)
            self.assertEqual(self.left(), 0)
        self.assertEqual(self.model.classify(TEXTS), want)

    def test_two_signals_at_once_leave_nothing_that_writes(self):
        """The second handler raises while the first exception is on its way: in the cleanup."""
        before = [(one, signal.signal(one, interrupt)) for one in (signal.SIGUSR1, signal.SIGUSR2)]
        self.addCleanup(lambda: [signal.signal(*one) for one in before])
        out = np.empty((len(LONG), self.model.dim), np.float32)
        for options in ({"batch_size": 500}, {"batch_size": 50}):
            for _ in range(20):
                out[...] = -7
                raised = self.doubly_interrupted(lambda: self.model.encode(LONG, out=out, **options))
                seen = out.copy()
                self.assertIsNotNone(raised)
                self.assertEqual(len(_calls._submitted), 0, "a request lives on")
                self.assertTrue((out == seen).all())

    def doubly_interrupted(self, work):
        """Both signals are sent while the library waits for a request."""
        def send():
            while not any(state.pointer.value for state in list(_calls._submitted.values())):
                time.sleep(0.0001)
            # Not blocked: both are pending when the wait of the main thread returns.
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR2)

        sender = threading.Thread(target=send)
        raised = None
        sender.start()
        try:
            try:
                work()
            except Interrupted as error:
                raised = error
            sender.join()
        except Interrupted as error:
            raised = error
        sender.join()
        return raised

    def test_nothing_is_asked_of_a_request_before_its_submission_is_over(self):
        """The pointer is there before the request is in the queue; expiring it then would free it too early."""
        self.model.submit("a").result()
        dispatcher = self.model._dispatcher
        asked, within, turns, keys = [], [1], threading.Semaphore(0), dispatcher._keys
        dispatcher._keys = lambda: (turns.release(), keys())[1]

        def after(name):
            if name == "gpuserve_wait" and within:
                asked.append(name)
            if name == "gpuserve_submit":
                for _ in range(3):  # the first turn may have begun before, and the last one has just begun
                    os.write(dispatcher._wake_write, b"x")
                    self.assertTrue(turns.acquire(timeout=PATIENCE))
                within.clear()

        self.library.after = after
        future = self.model.submit("b")
        self.assertEqual(asked, [])
        future.result(timeout=PATIENCE)

    def test_close_that_was_interrupted_is_finished_by_the_next(self):
        for n in range(200):
            one = Model(model("splade-tiny"), device="cpu")
            one.submit("a").result()
            handle, points = one._handle, Points(n)
            one._library = Library(one._library)
            one._library.after = lambda _name, points=points: points.place()
            try:
                points.start()
                one.close()
            except Interrupted:
                pass
            finally:
                points.stop()
            one.close()
            self.assertFalse(handle.value, f"at {n}: the model was not closed")
            if points.left >= 0:
                break
        self.assertGreater(n, 5)


class Handles(Case):
    """Exceptions at each place where a handle is opened or closed: none is left open, and no close() is lost."""

    def setUp(self):
        super().setUp()
        self.library = Library(_handle.library())
        for module in (gpuserve.context, gpuserve.compute, _handle):
            self.addCleanup(setattr, module, "library", module.library)
            module.library = lambda: self.library

    def interrupted(self, n, work):
        """Whether the work came to the n-th place."""
        points = PointsButOne(n)
        self.library.after = lambda _name: points.place()
        try:
            points.start()
            work()
        except Interrupted:
            pass
        finally:
            points.stop()
            self.library.after = None
        return points.left < 0

    def check_opening(self, make, least):
        """... and forgotten."""
        opened, kept = self.library.n_open, []
        for drop in (lambda: None, kept.clear):
            for n in range(3000):
                was_there = self.interrupted(n, lambda: (kept.append(make()), drop()))
                kept.clear()
                gc.collect()
                self.assertEqual(self.library.n_open, opened, f"at {n}: a handle stays open")
                if not was_there:
                    break
            self.assertGreater(n, least)

    def check_closing(self, make, least):
        for n in range(3000):
            one = make()
            was_there = self.interrupted(n, one.close)
            one.close()
            self.assertFalse(one._handle, f"at {n}: it was not closed")
            self.assertEqual(self.library.n_open, 0, f"at {n}: a handle stays open")
            if not was_there:
                break
        self.assertGreater(n, least)

    def test_opening(self):
        self.check_opening(Context, 5)
        self.check_opening(lambda: Compute("cpu"), 5)
        self.check_opening(lambda: Model(model("splade-tiny"), device="cpu"), 20)

    def test_opening_an_lstm(self):
        random = np.random.RandomState(1)
        weights = {"weight_ih_l0": random.rand(12, 4), "weight_hh_l0": random.rand(12, 3)}
        with Compute("cpu") as compute:
            self.check_opening(lambda: compute.lstm(weights), 5)

    def test_finding(self):
        with Context() as context, Model(model("splade-tiny"), device="cpu", name="one", context=context) as one:
            opened = self.library.n_open
            self.assertIs(context.find("one"), one)
            for n in range(3000):
                was_there = self.interrupted(n, lambda: context.find("one"))
                self.assertEqual(self.library.n_open, opened, f"at {n}: a handle stays open")
                if not was_there:
                    break
            self.assertGreater(n, 3)

    def test_closing(self):
        self.check_closing(Context, 1)
        self.check_closing(lambda: Compute("cpu"), 1)

        def used():
            one = Model(model("splade-tiny"), device="cpu")
            one.submit("a").result()
            return one

        self.check_closing(used, 5)


if __name__ == "__main__":
    main(__name__)
