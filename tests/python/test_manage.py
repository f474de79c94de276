#!/usr/bin/env python3
"""Models and devices under control: swap, suspend, find, budgets, caches, arithmetic."""
import ctypes
import re
import threading
from pathlib import Path

import numpy as np

import gpuserve
from common import ROOT, Case, main, model
from gpuserve import Compute, Context, Model, errors
from gpuserve._ffi import abi as _abi

TINY, MINILM = "splade-tiny", "all-MiniLM-L6-v2"
TEXTS = [f"text number {i}" for i in range(40)]


class Exchange(Case):
    def setUp(self):
        super().setUp()
        self.context = Context()
        self.addCleanup(self.context.close)
        self.model = Model(model(TINY), name="tiny", version="1", context=self.context)
        self.addCleanup(self.model.close)

    def test_a_swap_for_the_same_changes_nothing(self):
        before = self.model.encode(TEXTS)
        self.assertEqual(self.model.swap(version="2"), frozenset())
        self.assertTrue((self.model.encode(TEXTS) == before).all())
        self.assertEqual([(one["name"], one["version"], one["swaps"]) for one
                          in self.context.models()], [("tiny", "2", 1)])

    def test_a_swap_that_may_not_change_the_shape_leaves_the_old_model(self):
        before = self.model.encode("a")
        with self.assertRaises(errors.InvalidError) as caught:
            self.model.swap(model(MINILM))
        self.assertIn("384", str(caught.exception))
        with self.assertRaises(errors.MismatchError):
            self.model.swap(fingerprint="0" * 32)
        with self.assertRaises(errors.NotFoundError):
            self.model.swap("/nonexistent/model")
        with self.assertRaises(ValueError):
            self.model.swap(allow=["nonsense"])
        self.assertTrue((self.model.encode("a") == before).all())

    def test_calls_go_on_while_the_shape_changes(self):
        """Every answer is wholly of the one model or wholly of the other."""
        expected = {128: self.model.encode(TEXTS)}
        with Model(model(MINILM)) as other:
            expected[384] = other.encode(TEXTS)
        wrong, seen, stop = [], set(), threading.Event()

        def work():
            while not stop.is_set():
                try:
                    found = self.model.encode(TEXTS)
                except errors.MismatchError:    # it was swapped between the look and the call
                    continue
                seen.add(found.shape[1])
                if not (found == expected[found.shape[1]]).all():
                    wrong.append(found.shape)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for name in (MINILM, TINY, MINILM):
            changed = self.model.swap(model(name), allow=["dim"])
            self.assertLessEqual({"dim", "fingerprint"}, changed)
        while 384 not in seen and any(thread.is_alive() for thread in threads):
            pass
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual((self.model.dim, self.model.max_seq_length), (384, 256))

    def test_a_stream_is_not_continued_by_another_model(self):
        stream = self.model.encode_stream(TEXTS, batch_size=2)
        self.assertEqual(next(stream).shape, (2, 128))
        self.model.swap(model(MINILM), allow="dim")
        with self.assertRaises(errors.MismatchError):
            list(stream)

    def test_a_suspended_model_holds_nothing_and_comes_back(self):
        before = self.model.encode(TEXTS)
        self.model.suspend()
        (told,) = self.context.models()
        self.assertEqual((told["state"], told["bytes"]), ("suspended", 0))
        self.assertTrue((self.model.encode(TEXTS) == before).all())
        self.model.suspend()
        self.model.resume()
        self.assertEqual(self.context.models()[0]["state"], "ready")

    def test_a_suspended_model_may_refuse(self):
        with Model(model(TINY), when_suspended="refuse") as refusing:
            refusing.ready()
            refusing.suspend()
            for use in (refusing.ready, lambda: refusing.encode("a"),
                        lambda: refusing.submit("a").result()):
                with self.assertRaises(errors.BusyError) as caught:
                    use()
                self.assertGreater(caught.exception.retry_after, 0)
            refusing.resume()
            self.assertEqual(refusing.encode("a").shape, (128,))

    def test_finding_gives_the_object_that_was_opened(self):
        self.assertIs(self.context.find("tiny"), self.model)
        self.assertIs(self.context.find("tiny", "1"), self.model)
        for name, version in (("another", None), ("tiny", "7")):
            with self.assertRaises(errors.NotFoundError):
                self.context.find(name, version)
        for name in (None, "a\0b"):
            with self.assertRaises(errors.InvalidError):
                self.context.find(name)
        with self.assertRaises(errors.InvalidError):
            Model(model(TINY), name="tiny", version="1", context=self.context)
        self.model.close()
        with self.assertRaises(errors.NotFoundError):
            self.context.find("tiny")


class Budgets(Case):
    def test_idle_models_make_room(self):
        bytes_of = Model.footprint(model(TINY))["total_bytes"]
        with Context(memory_budget=bytes_of * 3 // 2, memory_policy="evict") as context, \
                Model(model(TINY), name="a", context=context) as first, \
                Model(model(TINY), name="b", context=context) as second:
            self.assertEqual([one["state"] for one in context.models()], ["suspended", "ready"])
            self.assertTrue((first.encode("x") == second.encode("x")).all())
            self.assertGreater(context.stats()["requests_ok"], 1)

    def test_a_budget_may_change(self):
        with Context(memory_budget=1 << 20) as context:
            with self.assertRaises(errors.TooLargeError):
                Model(model(TINY), context=context)
            context.set_budget(0)
            Model(model(TINY), context=context).close()
            context.set_budget(1 << 20, "cpu")
            with self.assertRaises(errors.TooLargeError):
                Model(model(TINY), context=context)
        with self.assertRaises(errors.TooLargeError):
            Model(model(TINY), memory_budget=1 << 20)

    def test_numbers_that_no_field_holds(self):
        for options in ({"max_tokens": -1}, {"n_threads": 1 << 32}, {"cache_bytes": -1},
                        {"when_suspended": "perhaps"}, {"on_device_lost": "moon"}, {"name": "a\0b"},
                        {"name": "\ud800"}):
            with self.assertRaises(ValueError, msg=str(options)):
                Model(model(TINY), **options)
        for options in ({"max_tokens": 1.5}, {"n_threads": "2"}, {"name": 7}, {"dtype": 32}):
            with self.assertRaises(TypeError, msg=str(options)):
                Model(model(TINY), **options)
        with self.assertRaises(TypeError):
            Model.footprint(model(TINY), nonsense=1)

    def test_loading_is_told_and_may_be_ended(self):
        seen = []
        Model(model(TINY), warmup=2, progress=lambda *told: seen.append(told)).close()
        self.assertEqual(seen[0][:2], ("weights", 0))
        self.assertEqual(seen[-1], ("warmup", 2, 2))
        with self.assertRaises(errors.CancelledError):
            Model(model(TINY), progress=lambda *told: False)
        with self.assertRaises(ZeroDivisionError):
            Model(model(TINY), progress=lambda *told: 1 // 0)

    def test_a_cache_answers_and_is_told(self):
        with Model(model(TINY), cache_bytes=1 << 20) as cached:
            first, items = cached.encode(["a", "b"], return_items=True)
            self.assertEqual(items.cached.tolist(), [False, False])
            again, items = cached.encode(["a", "c"], return_items=True)
            self.assertEqual(items.cached.tolist(), [True, False])
            self.assertTrue((again[0] == first[0]).all())
            _, items = cached.encode(["a"], cache="off", return_items=True)
            self.assertEqual(items.cached.tolist(), [False])
            self.assertEqual(cached.context.stats()["cache_hits"], 1)
            counts = cached.counts()
            self.assertEqual((counts["batches"], counts["items"]), (3, 4))  # not what the cache had
            self.assertGreater(counts["compute_ns"], 0)
            batches = cached.batches()
            self.assertEqual({size: row["batches"] for size, row in batches.items()}, {1: 2, 2: 1})
            self.assertEqual(sum(row["input_ns"] + row["infer_ns"] + row["output_ns"] for row in batches.values()),
                             counts["compute_ns"])
            expected = cached.fingerprint
            self.assertEqual(cached.encode("a", expected_fingerprint=expected).shape, (128,))
            with self.assertRaises(errors.MismatchError):
                cached.encode("a", expected_fingerprint="f" * 32)
        with Model(model(TINY)) as plain, self.assertRaises(errors.UnsupportedError):
            plain.encode("a", cache="on")


class Facts(Case):
    def test_every_function_of_the_library_is_used(self):
        """What the headers offer can be reached from Python, except what Python has itself."""
        spare = {
            "gpuserve_embed", "gpuserve_classify",        # gpuserve_run does both
            "gpuserve_context_ref", "gpuserve_model_ref",  # Python counts its own references
            "gpuserve_dot", "gpuserve_vector_ranges_read",  # numpy
            "gpuserve_status_name",                       # the classes of errors
            # gpuserve_model_get_properties has them
            "gpuserve_model_dim", "gpuserve_model_max_tokens", "gpuserve_model_label_count",
            "gpuserve_model_fingerprint",
            "gpuserve_model_head",                        # in info()
            "gpuserve_long_texts_run",                    # Python runs the jobs one by one, for signals
            # gpuserve_entity_query_run submits, waits and decodes
            "gpuserve_entity_query_job", "gpuserve_entity_query_decode",
        }
        sources = "".join(path.read_text() for path in Path(ROOT, "python/gpuserve").rglob("*.py")
                          if path.name != "abi.py")
        unused = {name for name in _abi.FUNCTIONS if not re.search(rf"\b{name}\b", sources)}
        self.assertEqual(unused, spare)
        self.assertIn("rerank", Model.inspect(model(MINILM)) | Model(model(MINILM)).info())

    def test_devices_are_selected_as_the_library_does(self):
        cpu = gpuserve.select("cpu")
        self.assertEqual(cpu.selector, "cpu")
        self.assertIn("GPU", gpuserve.select().reason)
        self.assertEqual([device.selector for device in gpuserve.select_all("cpu")], ["cpu"])
        self.assertGreater(gpuserve.refresh(cpu).memory_free_bytes, 0)
        with self.assertRaises(errors.DeviceError):
            gpuserve.select("cuda:7")
        with self.assertRaises(errors.InvalidError):
            gpuserve.select("the fast one")
        with Context() as context, Model(model(TINY), context=context):
            self.assertGreater(gpuserve.devices(context)[0].held_bytes, 0)
            self.assertEqual(context.device_report()["devices"][0]["selector"], "cpu")

    def test_inspect_and_profile(self):
        self.assertEqual(Model.inspect(model(TINY))["architecture"], "BertForMaskedLM")
        self.assertEqual(Model.inspect(model(MINILM))["labels"], [])
        self.assertEqual(Model.inspect(model(MINILM), head="sentiment")["labels"], ["negative", "positive"])
        self.assertEqual(Model.inspect(model(MINILM), max_tokens=99)["max_tokens"], 99)
        told = Model.profile(model(TINY), rounds=1, text_tokens=16, n_texts=2, device="cpu")
        self.assertEqual(told["device"], "cpu")

    def test_sparse_vectors_and_token_ids(self):
        with Model(model(TINY)) as tiny:
            one, other = tiny.encode_sparse(["a cat sat on a mat", "stocks fell"])
            self.assertTrue((np.diff(one.ids.astype(int)) > 0).all() and (one.weights > 0).all())
            self.assertIn("cat", tiny.decode(one.ids.astype(int)))
            self.assertNotEqual(one.ids.tolist(), other.ids.tolist())
            ids = [tiny.tokenize(text).ids for text in TEXTS]
            self.assertTrue((tiny.encode_ids(ids) == tiny.encode(TEXTS)).all())
            self.assertEqual(tiny.encode_ids([]).shape, (0, 128))
            for bad in ([[10 ** 7]], [["a"]], [[2 ** 40]], [[1.5]], [[-1]], [[1, [2]]]):
                with self.assertRaises(ValueError, msg=str(bad)):
                    tiny.encode_ids(bad)
        with Model(model(MINILM)) as dense, self.assertRaises(errors.UnsupportedError):
            dense.encode_sparse("a")


class Arithmetic(Case):
    def setUp(self):
        super().setUp()
        self.compute = Compute("cpu")
        self.addCleanup(self.compute.close)
        self.random = np.random.default_rng(1)

    def numbers(self, *shape):
        return self.random.standard_normal(shape).astype(np.float32)

    def test_products_of_any_layout(self):
        a, b, wide = self.numbers(37, 21), self.numbers(21, 18), self.numbers(37, 64)
        layouts = {"tight": (a, b), "transposed": (self.numbers(21, 37).T, self.numbers(18, 21).T),
                   "rows of a wider one": (wide[:, 5:26], b), "every second": (wide[:, ::3][:, :21], b),
                   "reversed": (a[::-1], b), "one row": (a[:1], b), "nothing": (a[:0], b)}
        for name, (left, right) in layouts.items():
            found = self.compute.matmul(left, right)
            self.assertTrue(np.allclose(found, left.astype(float) @ right, atol=1e-4), name)
        c = np.ones((37, 18), np.float32)
        self.assertIs(self.compute.matmul(a, b, c, alpha=2, beta=3, variant="naive"), c)
        self.assertTrue(np.allclose(c, 2 * (a.astype(float) @ b) + 3, atol=1e-4))
        self.assertEqual(self.compute.took.variant, "naive")
        for bad in (lambda: self.compute.matmul(a, a), lambda: self.compute.matmul(a, b, beta=1),
                    lambda: self.compute.matmul(a, b[0]),
                    lambda: self.compute.matmul(a, b, np.zeros((37, 18)))):
            with self.assertRaises(errors.InvalidError):
                bad()
        with self.assertRaises(errors.UnsupportedError):
            self.compute.matmul(a, b, variant="tensor_core")

    def test_measured_copies(self):
        for direction in ("to_device", "from_device"):
            seconds = self.compute.transfer(1 << 20, direction, copies=3)
            self.assertEqual(len(seconds), 3)
            self.assertTrue(all(0 < one < 60 for one in seconds), seconds)
        with self.assertRaisesRegex(errors.UnsupportedError, "a CPU has no pinned memory"):
            self.compute.transfer(1, pinned=True)
        with self.assertRaisesRegex(errors.InvalidError, "n_copies is 0|copies"):
            self.compute.transfer(1, copies=0)
        with self.assertRaisesRegex(errors.GpuserveError, "n_copies is 20000, the limit is 10000"):
            self.compute.transfer(1, copies=20000)
        with self.assertRaisesRegex(errors.InvalidError, "direction"):
            self.compute.transfer(1, "sideways")

    def test_lstm_over_packed_sequences(self):
        rng = np.random.default_rng(5)
        weights = {}
        for name, shape in (("weight_ih", (24, 4)), ("weight_hh", (24, 6)), ("bias_ih", (24,))):
            for end in ("", "_reverse"):
                weights[f"{name}_l0{end}"] = rng.normal(size=shape).astype(np.float32)
        texts = [rng.normal(size=(n, 4)).astype(np.float32) for n in (3, 0, 5)]
        lstm = self.compute.lstm(weights)
        rows, (h_n, c_n) = lstm(texts)
        sigmoid = lambda x: 1 / (1 + np.exp(-x))
        for i, text in enumerate(texts):
            for d, end in enumerate(("", "_reverse")):
                h, c = np.zeros(6), np.zeros(6)
                for t in range(len(text))[::1 - 2 * d]:
                    sums = (weights[f"weight_ih_l0{end}"] @ text[t] + weights[f"weight_hh_l0{end}"] @ h
                            + weights[f"bias_ih_l0{end}"])
                    a, f, g, o = np.split(sums.astype(np.float64), 4)
                    c = sigmoid(f) * c + sigmoid(a) * np.tanh(g)
                    h = sigmoid(o) * np.tanh(c)
                    np.testing.assert_allclose(rows[i][t, 6 * d:6 * d + 6], h, atol=2e-6)
                np.testing.assert_allclose(h_n[d, i], h, atol=2e-6)
                np.testing.assert_allclose(c_n[d, i], c, atol=2e-6)
        again, _ = lstm(texts[:1], state=(h_n[:, :1], c_n[:, :1]), variant="steps")
        self.assertEqual(self.compute.took.variant, "steps")
        self.assertFalse(np.allclose(again[0], rows[0]))
        for bad in (lambda: self.compute.lstm({}), lambda: lstm([np.zeros((2, 5))]),
                    lambda: lstm(texts, state=(h_n[:1], c_n)), lambda: lstm(texts, variant="fast"),
                    lambda: self.compute.lstm({**weights, "bias_ih_l0": np.zeros(23)}),
                    lambda: self.compute.lstm({"weight_ih_l0": weights["weight_ih_l0"]})):
            with self.assertRaises(errors.InvalidError):
                bad()
        lstm.close()
        with self.assertRaises(errors.InvalidError):
            lstm(texts)

    def test_chains(self):
        x = self.numbers(3, 50)
        found = self.compute.chain(x, [("fma", 2, 1), "absolute", "sqrt", ("maximum", 0.5)])
        self.assertTrue(np.allclose(found, np.maximum(np.sqrt(np.abs(2 * x + 1)), 0.5), atol=1e-6))
        self.assertIs(self.compute.chain(x, [], out=x), x)
        for bad in (["nonsense"], [("add",)], [("exp", 1)]):
            with self.assertRaises(errors.InvalidError):
                self.compute.chain(x, bad)
        self.compute.close()
        with self.assertRaises(errors.ClosedError):
            self.compute.chain(x, ["exp"])

    def test_the_best_rows(self):
        rows, query = self.numbers(100, 8), self.numbers(8)
        numbers, scores = gpuserve.top_k(query, rows, 5)
        expected = np.argsort(-(rows @ query))[:5]
        self.assertEqual(numbers.tolist(), expected.tolist())
        self.assertTrue(np.allclose(scores, (rows @ query)[expected], atol=1e-5))
        self.assertEqual(gpuserve.top_k(query, rows[:2], 5)[0].size, 2)
        self.assertEqual(gpuserve.top_k(query, rows[:0], 5)[0].size, 0)
        with self.assertRaises(errors.InvalidError):
            gpuserve.top_k(query[:3], rows, 5)


class Callbacks(Case):
    def test_a_lost_device_is_told_in_python_s_words(self):
        """What the library does when a device is lost: it calls the function in the options."""
        from gpuserve._options import Opening

        heard = []
        opening = Opening({"lost": lambda *told: heard.append(told)})
        cause = _abi.new(_abi.Error, status=8, message=b"the GPU fell off the bus", hint=b"restart")
        tell = ctypes.cast(opening.struct.lost, _abi.LostFn)
        for status, device in ((_abi.E_BUSY, None), (_abi.OK, b"cpu"), (_abi.E_DEVICE, None)):
            tell(None, status, device, ctypes.byref(cause))
        self.assertEqual([told[:2] for told in heard],
                         [("moving", None), ("moved", "cpu"), ("failed", None)])
        self.assertIsInstance(heard[0][2], errors.DeviceError)


if __name__ == "__main__":
    main(__name__)
