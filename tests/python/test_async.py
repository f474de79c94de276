#!/usr/bin/env python3
"""Asynchronous calls: futures, asyncio, cancellation, closing with work in flight."""
import asyncio
import concurrent.futures
import os
import threading

import numpy as np

import gpuserve
from common import ROOT, Case, main, model
from gpuserve import Model

TEXTS = [f"text number {i}" for i in range(200)]
LONG = [f"word{i} " * 150 for i in range(2000)]


class Asynchronous(Case):
    def setUp(self):
        super().setUp()
        self.model = Model(model("splade-tiny"))
        self.addCleanup(self.model.close)

    def test_awaiting_gives_what_encode_gives(self):
        async def all_of_them():
            return await asyncio.gather(*[self.model.encode_async(text) for text in TEXTS])

        found = np.stack(asyncio.run(all_of_them()))
        self.assertTrue((found == self.model.encode(TEXTS)).all())

    def test_several_event_loops(self):
        expected, wrong = self.model.encode(TEXTS[:20]), []

        def loop():
            async def work():
                found = await self.model.encode_async(TEXTS[:20])
                if not (found == expected).all():
                    wrong.append(1)

            asyncio.run(work())

        threads = [threading.Thread(target=loop) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_the_event_loop_runs_meanwhile(self):
        async def work():
            task = asyncio.ensure_future(self.model.encode_async(LONG[:100]))
            turns = 0
            while not task.done():
                turns += 1
                await asyncio.sleep(0.001)
            await task
            return turns

        self.assertGreater(asyncio.run(work()), 5)

    def test_a_bad_text_fails_its_future_or_its_call(self):
        with self.assertRaises(gpuserve.errors.InvalidError):
            self.model.submit("\ud800").result()
        with self.assertRaises(gpuserve.errors.InvalidError):
            self.model.submit("a", prompt_name="nonsense").result()

    def test_cancelling_a_task_cancels_the_work(self):
        async def work():
            task = asyncio.ensure_future(self.model.encode_async(LONG))
            await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(work())
        self.model.close()

    def test_a_deadline_that_has_passed(self):
        with self.assertRaises(gpuserve.errors.ExpiredError):
            self.model.submit("a", deadline=-1.0).result()
        self.assertEqual(self.model.submit("a", deadline=60, priority="high").result().shape,
                         (self.model.dim,))

    def test_a_full_queue_is_told_and_closing_cancels_what_is_pending(self):
        # A part of the queue is kept for clients with nothing in it: two that fill all of it do not fit.
        futures = [self.model.submit(LONG), self.model.submit(LONG[:700])]
        with self.assertRaises(gpuserve.errors.BusyError) as caught:
            self.model.submit(LONG)
        self.assertGreater(caught.exception.retry_after, 0)
        self.model.close()
        for future in futures:
            self.assertTrue(future.done())
        self.assertTrue(any(isinstance(future.exception(), gpuserve.errors.CancelledError)
                            for future in futures))
        with self.assertRaises(gpuserve.errors.ClosedError):
            self.model.submit("a")

    def test_a_client_with_nothing_in_the_queue_finds_room(self):
        """A full queue keeps a part for it: of the same request only the other client's is taken."""
        futures = [self.model.submit(LONG, client=1)]
        for n in range(1500, 0, -50):
            with self.assertRaises(gpuserve.errors.BusyError):
                futures.append(self.model.submit(LONG[:n], client=1))
            try:
                futures.append(self.model.submit(LONG[:n], client=2**64 - 1))
                break
            except gpuserve.errors.BusyError:
                pass
        self.assertEqual(len(futures), 2)

    def test_every_call_takes_a_client(self):
        want = self.model.encode(TEXTS)
        self.assertTrue((self.model.encode(TEXTS, client=7) == want).all())
        self.assertTrue((self.model.encode(TEXTS[0], client=7) == want[0]).all())
        self.assertTrue((next(self.model.encode_stream(TEXTS, client=7)) == want).all())
        self.assertEqual(len(self.model.rank("a", TEXTS[:3], client=7)), 3)
        ids = [self.model.tokenize(TEXTS[0]).ids]
        self.assertTrue((self.model.encode_ids(ids, client=7) == want[:1]).all())
        tokens = os.path.join(ROOT, "tests", "data", "models", "bert-tokens")
        for path, calls in ((model("splade-tiny"), ("encode_sparse",)), (tokens, ("label_tokens", "entities"))):
            with Model(path) as other:
                for call in calls:
                    self.assertEqual(str(getattr(other, call)("w1 w2", client=7)), str(getattr(other, call)("w1 w2")))
                    with self.assertRaises(gpuserve.errors.InvalidError):
                        getattr(other, call)("a", client=-1)
        with self.assertRaises(gpuserve.errors.InvalidError):
            self.model.encode_ids(ids, client=2**64)
        for wrong, error in ((-1, gpuserve.errors.InvalidError), (2**64, gpuserve.errors.InvalidError), ("a", TypeError)):
            for call in (self.model.encode, self.model.submit):
                with self.assertRaises(error):
                    call("a", client=wrong)
            with self.assertRaises(error):
                self.model.rank("a", ["b"], client=wrong)

    def test_closing_ends_a_long_call_of_another_thread(self):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            call = pool.submit(self.model.encode, LONG)
            threading.Event().wait(0.05)
            self.model.close()
            with self.assertRaises(gpuserve.errors.GpuserveError):
                call.result(timeout=60)


if __name__ == "__main__":
    main(__name__)
