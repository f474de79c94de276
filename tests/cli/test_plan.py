#!/usr/bin/env python3
"""`gpuserve plan` on canned measurements, and the limiting resource of `gpuserve bench`.

The queue is compared with what is known of it: M/D/1, M/M/1-like bounds, and the simulation of the
real runtime in benchmarks/results.
"""
import copy
import json
import os
import tempfile
import unittest

import common
from common import ROOT, gpuserve

TEXT = {"batch_s": 0.0, "token_s": 0.001}
# A thread runs one text of 10 tokens in 10 ms: 100 texts a second, batches of one text.
SINGLE = {"processor": "canned", "threads": 1, "max_batch_tokens": 10, "lengths": [10],
          "dtypes": [{"dtype": "float32", "rounds": [TEXT], "factors": [1.0],
                      "texts_per_s_one_thread": 100, "texts_per_s_all_threads": 100,
                      "base_bytes": 1e8, "bytes_per_thread": 1e7}]}


def changed(**fields):
    measured = copy.deepcopy(SINGLE)
    for name, value in fields.items():
        if name in measured:
            measured[name] = value
        else:
            measured["dtypes"][0][name] = value
    return measured


class Plan(unittest.TestCase):
    def run_plan(self, measured, *options):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"measured": measured} if isinstance(measured, dict) else measured, file)
            file.flush()
            return gpuserve("plan", "--measured", file.name, *options)

    def plan(self, measured, rate, p99_ms=50.0, *options, code=0):
        done = self.run_plan(measured, "--rate", rate, "--p99-ms", p99_ms, "--json", *options)
        self.assertEqual(done.returncode, code, done.err)
        return json.loads(done.out)

    def only(self, *arguments, **options):
        return self.plan(*arguments, **options)["plans"][0]

    def test_a_queue_of_equal_texts_waits_as_in_theory(self):
        """M/D/1 at 70 %: p50 and p99 of the waiting time, known to three digits."""
        row = self.only(SINGLE, 70, 1000)
        self.assertEqual(row["cores"], 1)
        self.assertAlmostEqual(row["busy"], 0.7, delta=0.02)
        # Erlang's distribution of M/D/1: P(wait <= 7.30 ms) = 0.5, P(wait <= 64.9 ms) = 0.99
        self.assertAlmostEqual(row["p50_ms"], 17.3, delta=1.2)
        self.assertAlmostEqual(row["p99_ms"], 74.9, delta=10)

    def test_more_texts_need_more_cores(self):
        rows = [self.only(SINGLE, rate) for rate in (10, 50, 150, 500, 2000)]
        cores = [row["cores"] for row in rows]
        self.assertEqual(cores, sorted(cores))
        self.assertEqual(cores[0], 1)
        for row, rate in zip(rows, (10, 50, 150, 500, 2000)):
            self.assertGreater(row["cores"] * 100, rate)
            self.assertLess(row["cores"], rate / 100 * 1.3 + 2)
            self.assertLessEqual(row["p99_ms"], 50)
            self.assertAlmostEqual(row["memory_bytes"], 1e8 + 1e7 * row["cores"])
            self.assertAlmostEqual(row["cost_per_million"],
                                   row["cores"] * 0.04 / 3600 / rate * 1e6, places=6)

    def test_a_tighter_latency_needs_more_cores(self):
        cores = [self.only(SINGLE, 300, p99)["cores"] for p99 in (500, 100, 30, 15, 11)]
        self.assertEqual(cores, sorted(cores))
        self.assertLess(cores[0], cores[-1])

    def test_batches_raise_the_rate_of_a_core(self):
        measured = changed(max_batch_tokens=1000,
                           rounds=[{"batch_s": 0.009, "token_s": 0.0001}])
        self.assertEqual(self.only(SINGLE, 400)["cores"], 5)
        self.assertEqual(self.only(measured, 400)["cores"], 1)

    def test_threads_that_slow_each_other_need_more_cores(self):
        fast = changed(threads=4, texts_per_s_all_threads=400)
        slow = changed(threads=4, texts_per_s_all_threads=200)
        self.assertGreater(self.only(slow, 200, 200)["cores"], self.only(fast, 200, 200)["cores"])

    def test_the_spread_of_the_measurement_is_that_of_the_answer(self):
        even = self.only(SINGLE, 350)
        uneven = self.only(changed(rounds=[TEXT, {"batch_s": 0.0, "token_s": 0.0015}]), 350)
        self.assertLessEqual(even["cores_high"] - even["cores_low"], 1)
        self.assertGreater(uneven["cores_high"] - uneven["cores_low"], 1)
        self.assertEqual(uneven["cores"], uneven["cores_high"])
        noisy = self.only(changed(factors=[0.5, 0.5, 0.5, 2.5]), 70, 10000)
        self.assertGreater(noisy["p99_ms"], 1.3 * self.only(SINGLE, 70, 10000)["p99_ms"])

    def test_the_fewest_cores_are_the_answer(self):
        measured = changed()
        int8 = copy.deepcopy(measured["dtypes"][0])
        int8.update(dtype="int8", rounds=[{"batch_s": 0, "token_s": 0.0004}])
        measured["dtypes"].append(int8)
        self.assertEqual(self.plan(measured, 500)["answer"], "int8")
        self.assertEqual(self.plan(measured, 20)["answer"], "float32", "one core suffices for both")

    def test_text_for_humans_says_how_sure_it_is(self):
        done = self.run_plan(SINGLE, "--rate", "350", "--core-price", "0.1")
        self.assertEqual(done.returncode, 0, done.err)
        for part in ("350 texts/s, p99 within 50 ms, on canned", "answer: float32 on ",
                     "19 of 20", "extrapolated without a measurement of several"):
            self.assertIn(part, done.out)
        done = self.run_plan(changed(threads=2, texts_per_s_all_threads=190), "--rate", "350")
        self.assertIn("these 2 are 1.90 times as fast as one", done.out)
        done = self.run_plan(changed(threads=8, texts_per_s_all_threads=800), "--rate", "350")
        self.assertNotIn("less sure", done.out)
        self.assertNotIn("measure again", done.out)
        done = self.run_plan(changed(threads=8, texts_per_s_all_threads=150), "--rate", "50")
        self.assertIn("8 threads are 1.50 times as fast as one", done.out)

    def test_an_impossible_latency_is_an_error(self):
        done = self.run_plan(SINGLE, "--rate", "10", "--p99-ms", "5")
        self.assertEqual(done.returncode, 1)
        self.assertIn("more than 256 cores: these complete 25600 texts/s, p99 is ", done.out)
        self.assertIn("no dtype meets p99 5 ms at 10 texts/s", done.err)
        self.assertIsNone(self.plan(SINGLE, 10, 5, code=1)["answer"])

    def test_the_output_is_a_measurement(self):
        first = self.plan(SINGLE, 350)
        self.assertEqual(self.plan(first["measured"], 350)["plans"], first["plans"])

    def test_a_wrong_file_is_refused_by_name(self):
        cases = [(changed(lengths=[]), "measured.lengths"), (changed(lengths=[0]), "measured.lengths"),
                 (changed(lengths=["x"]), "measured.lengths"),
                 (changed(lengths=[1] * 2001), "measured.lengths"),
                 (changed(threads=0), "measured.threads"), (changed(threads=1.5), "measured.threads"),
                 (changed(threads=1e300), "measured.threads"),
                 (changed(max_batch_tokens=-1), "measured.max_batch_tokens"),
                 (changed(dtypes=[]), "measured.dtypes"), (changed(dtype=3), "measured.dtypes[0].dtype"),
                 (changed(dtype="x" * 16), "measured.dtypes[0].dtype"),
                 (changed(rounds=[]), "measured.dtypes[0].rounds"),
                 (changed(rounds=[{"batch_s": 0, "token_s": 0}]), "measured.dtypes[0].rounds[0].token_s"),
                 (changed(rounds=[TEXT, {"batch_s": -1, "token_s": 1}]), "measured.dtypes[0].rounds[1].batch_s: expected a number from 0 to 1e+15"),
                 (changed(factors=[-1]), "measured.dtypes[0].factors: expected a list of 1 to 2000 numbers from 1e-09 to 1e+15"),
                 (changed(texts_per_s_one_thread=0), "measured.dtypes[0].texts_per_s_one_thread"),
                 (changed(base_bytes="much"), "measured.dtypes[0].base_bytes"),
                 ([], "measured.threads")]
        for measured, name in cases:
            done = self.run_plan(measured, "--rate", "10")
            self.assertEqual(done.returncode, 1, name)
            self.assertIn(name, done.err)
        self.assertEqual(gpuserve("plan", "--measured", "/nowhere", "--rate", "1").returncode, 1)

    def test_wrong_options_are_usage_errors(self):
        for options in ((), ("--rate", "0"), ("--rate", "10", "--device", "cuda:0")):
            self.assertEqual(self.run_plan(SINGLE, *options).returncode, 2, options)
        self.assertEqual(gpuserve("plan", "--rate", "10").returncode, 2)
        for options in (("model",), ("--dtype", "int8"), ("--seconds", "3"), ("--input", "texts.txt"), ("--threads", "2")):
            done = self.run_plan(SINGLE, "--rate", "10", *options)
            self.assertEqual(done.returncode, 2, options)
            self.assertIn("--measured replaces the measurement", done.err)

    def test_the_simulated_runtime_is_within_twice_the_plan(self):
        """64 devices of a set speed under the real runtime: docs/batching.md."""
        path = os.path.join(ROOT, "benchmarks/results/2026-11-22-simulation.json")
        with open(path, encoding="utf-8") as file:
            runs = json.load(file)["random_arrivals"]["cpu"]
        measured = changed(threads=64, max_batch_tokens=512, lengths=[14],
                           rounds=[{"batch_s": 100e-6, "token_s": 1 / 2300}],
                           texts_per_s_one_thread=1, texts_per_s_all_threads=64)
        for run in runs:
            if run["load"] > 0.7:
                continue
            # As many cores as the plan needs for a latency that they just meet.
            row = self.only(measured, run["texts_per_s"], run["p99_us"] / 1e3)
            self.assertLessEqual(row["cores"], run["n"], run)
            alone = 14 / 2.3 + 0.1
            self.assertAlmostEqual(run["p50_us"] / 1e3, alone, delta=alone * 1.1)


class Measured(unittest.TestCase):
    """On a small random model; the numbers are this machine's."""
    options = ("--random", "layers=2,hidden=64,vocab=2000", "--threads", "2")

    def test_a_plan_from_a_measurement(self):
        done = gpuserve("plan", *self.options, "--rate", "20", "--p99-ms", "10000", "--seconds", "0.6",
                        "--json")
        self.assertEqual(done.returncode, 0, done.err)
        plan = json.loads(done.out)
        names = [row["dtype"] for row in plan["plans"]]
        self.assertEqual(names[:2], ["float32", "bfloat16"])
        self.assertEqual(plan["measured"]["threads"], 2)
        for dtype in plan["measured"]["dtypes"]:
            self.assertGreaterEqual(len(dtype["rounds"]), 3)
            self.assertGreater(dtype["texts_per_s_all_threads"], 0)
            self.assertGreater(dtype["bytes_per_thread"], 0)

    def test_bench_names_the_limiting_resource(self):
        done = gpuserve("bench", *self.options, "--workload", "W1-8,W2", "--seconds", "0.2", "--json")
        self.assertEqual(done.returncode, 0, done.err)
        for name, row in json.loads(done.out)["workloads"].items():
            self.assertIn(row["limit"], ("compute", "memory bandwidth", "threads"), name)
            self.assertTrue(0 < row["threads_busy"] <= 1, row)
            self.assertTrue(0 <= row["weights_share"] <= 1, row)
            memory, busy = row["weights_share"] >= 0.5, row["threads_busy"] >= 0.85
            self.assertEqual(row["limit"], "memory bandwidth" if memory else
                             "compute" if busy else "threads")
        done = gpuserve("bench", *self.options, "--workload", "W2", "--seconds", "0.2")
        self.assertIn("limit: ", done.out)


if __name__ == "__main__":
    common.main(__name__)
