#!/usr/bin/env python3
"""Who frees a request, and which locks stay taken, when exceptions, threads and the collector meet.

Exceptions come at each place where Python 3.11 calls signal handlers, one after the other: after a call, at the
begin of a function, at a jump back. test_signals.py does the same with signals at random moments.
"""
import dis
import gc
import os
import signal
import sys
import threading
import time

import numpy as np

from common import PATIENCE, Case, main, model
from gpuserve import Model, _calls

TEXTS = ["text number %d of a call" % i for i in range(70)]
LONG = ["long text %d " % i + "word " * 100 for i in range(400)]


class Interrupted(BaseException):
    pass


def interrupt(*_):
    raise Interrupted


class Points:
    """Raises at the n-th place where a signal handler may raise, in code of the package and of `threading`."""

    def __init__(self, n):
        self.left = n
        self._before = {}
        self._names = {}

    def __call__(self, frame, event, _argument):
        name = frame.f_code.co_filename
        if "gpuserve" not in name and not name.endswith("threading.py"):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and self._is_place(frame):
            self.left -= 1
            if self.left < 0:
                sys.settrace(None)
                raise Interrupted
        return self

    def _is_place(self, frame):
        code = frame.f_code
        if code not in self._names:
            self._names[code] = {one.offset: one.opname for one in dis.get_instructions(code)}
        before = self._before.get(frame, "")
        self._before[frame] = self._names[code].get(frame.f_lasti, "")
        return before.startswith(("CALL", "RESUME", "JUMP_BACKWARD"))


class Ownership(Case):
    def setUp(self):
        super().setUp()
        self.model = Model(model("splade-tiny"), device="cpu")
        self.addCleanup(self.model.close)

    def at_every_place(self, work, most=3000, step=1):
        """Interrupt the work at each place; returns at how many."""
        work()
        for n in range(0, most, step):
            raised = None
            trace = Points(n)
            sys.settrace(trace)
            try:
                work()
            except Interrupted as error:
                raised = error
            finally:
                sys.settrace(None)
            if trace.left >= 0:
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
            # Blocked by nobody: both are pending when the wait of the main thread returns.
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
        one = self.model
        one.submit("a").result()
        dispatcher = one._dispatcher
        real, asked = _calls.Request.submit, []


        def slow(request, handle):
            real(request, handle)
            state = request._state
            waiting = [False]
            original = _calls.Request.wait

            def wait(other, *arguments):
                waiting[0] = waiting[0] or other._state is state
                return original(other, *arguments)

            _calls.Request.wait = wait
            try:
                for _ in range(20):
                    os.write(dispatcher._wake_write, b"x")
                    time.sleep(0.002)
            finally:
                _calls.Request.wait = original
            asked.append(waiting[0])

        _calls.Request.submit = slow
        try:
            future = one.submit("b")
        finally:
            _calls.Request.submit = real
        future.result(timeout=PATIENCE)
        self.assertEqual(asked, [False])

    def test_close_that_was_interrupted_is_finished_by_the_next(self):
        for n in range(0, 200):
            one = Model(model("splade-tiny"), device="cpu")
            one.submit("a").result()
            handle = one._handle
            trace = Points(n)
            sys.settrace(trace)
            try:
                one.close()
            except Interrupted:
                pass
            finally:
                sys.settrace(None)
            one.close()
            self.assertFalse(handle.value, f"at {n}: the model was not closed")
            if trace.left >= 0:
                break
        self.assertGreater(n, 5)


if __name__ == "__main__":
    main(__name__)
