#!/usr/bin/env python3
"""`--stream-weights` and `--device-budget` on the emulated CUDA device: the vectors are those of all weights on the device."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cli"))

from common import PROGRAM, Case, environment, main  # pylint: disable=wrong-import-position

MODEL = ("--random", "layers=8,hidden=64,vocab=1000,positions=64", "--device", "cuda:0", "--dtype", "fp16", "--batch-tokens", "64")
TEXTS = ("w1 w2", "hello", "")


class Streaming(Case):
    def test_vectors_have_the_same_bits(self):
        whole = self.works("embed", *MODEL, "--deterministic", *TEXTS)
        streamed = self.works("embed", *MODEL, "--deterministic", "--stream-weights", "--device-budget", "12MB", "-v", *TEXTS)
        self.assertEqual(streamed.out, whole.out)
        self.assertRegex(streamed.err, r"each batch copies the weights of [3-8] of 8 layers, \d{6} bytes")

    def test_a_model_that_fits_is_not_streamed(self):
        streamed = self.works("embed", *MODEL, "--stream-weights", "-v", *TEXTS)
        self.assertNotIn("each batch copies", streamed.err)

    def test_the_budget_of_the_device(self):
        failed = self.fails(1, "the budget of cuda:0 is 12000000 bytes", "embed", *MODEL, "--device-budget", "12MB", *TEXTS)
        self.assertIn("stream_weights", failed.err)
        facts = {words: json.loads(self.works("inspect", *MODEL, "--device-budget", "12MB", *words, "--json").out)["footprint"]
                 for words in ((), ("--stream-weights",))}
        self.assertEqual([one["fits"] for one in facts.values()], [False, True])
        self.assertEqual([one["n_streams"] for one in facts.values()], [2, 1])

    def test_two_processes_keep_to_their_parts(self):
        """One device of 32 MB, split into 13 and 19 MB: both models run at once, the first one streamed."""
        parts = (("--device-budget", "13MB", "--stream-weights"), ("--device-budget", "19MB"))
        facts = [json.loads(self.works("inspect", *MODEL, *words, "--json").out)["footprint"] for words in parts]
        for footprint, most in zip(facts, (13e6, 19e6)):
            self.assertTrue(footprint["fits"])
            self.assertLessEqual(footprint["weights_bytes"] + footprint["workspace_bytes"] + footprint["stream_bytes"], most)
        small = environment(GSV_EMU_MEMORY=str(32 << 20))
        running = [subprocess.Popen([PROGRAM, "embed", *MODEL, *words, "-q", *TEXTS], stdout=subprocess.PIPE, env=small) for words in parts]
        outputs = [process.communicate()[0] for process in running]
        self.assertEqual([process.returncode for process in running], [0, 0])
        self.assertEqual([len(output.splitlines()) for output in outputs], [len(TEXTS)] * 2)
        self.fails(1, "the budget of cuda:0 is 13000000 bytes", "embed", *MODEL, *parts[0][:2], *TEXTS, env=small)

    def test_a_budget_without_a_gpu_is_refused(self):
        self.fails(1, "--device-budget: the plugin is missing", "embed", *MODEL[:2], "--device-budget", "12MB", *TEXTS,
                   env=environment(GPUSERVE_PLUGIN_DIR="/nonexistent"))


if __name__ == "__main__":
    main(__name__)
