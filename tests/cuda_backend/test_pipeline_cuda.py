#!/usr/bin/env python3
"""`--pipeline` on two emulated CUDA devices: the vectors are those of one device."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cli"))

from common import Case, environment, main  # pylint: disable=wrong-import-position

MODEL = ("--random", "layers=8,hidden=64,vocab=1000,positions=64", "--dtype", "fp16", "--batch-tokens", "64")
TEXTS = ("w1 w2", "hello", "")
TWO = environment(GSV_EMU_DEVICES="2")


class Pipeline(Case):
    def test_vectors_have_the_same_bits(self):
        one = self.works("embed", *MODEL, "--deterministic", "--device", "cuda:0", *TEXTS, env=TWO)
        two = self.works("embed", *MODEL, "--deterministic", "--device", "cuda:1,cuda:0", "--pipeline", "-v", *TEXTS, env=TWO)
        self.assertEqual(two.out, one.out)
        self.assertRegex(two.err, r"layers 0 to ([2-5]) of 8 on cuda:1, \d+ bytes\n(.*\n)?.*layers [3-6] to 7 of 8 on cuda:0, \d+ bytes")

    def test_the_footprint(self):
        facts = {words: json.loads(self.works("inspect", *MODEL, "--device", "cuda:*", *words, "--json", env=TWO).out)["footprint"]
                 for words in ((), ("--pipeline",))}
        replicas, pipeline = facts.values()
        self.assertEqual((replicas["n_streams"], pipeline["n_streams"]), (4, 6))
        self.assertLess(pipeline["weights_bytes"], replicas["weights_bytes"] * 0.6)
        self.assertGreater(pipeline["weights_bytes"], replicas["weights_bytes"] * 0.5 - 1)

    def test_what_it_needs(self):
        self.fails(1, "pipeline needs 2 GPUs or more, the device is cuda:0 alone", "embed", *MODEL, "--device", "cuda:0", "--pipeline", *TEXTS, env=TWO)
        self.fails(1, "pipeline needs 2 GPUs or more, the device is cpu alone", "embed", *MODEL[:2], "--device", "cpu", "--pipeline", *TEXTS, env=TWO)
        self.fails(1, "pipeline and stream_weights exclude each other", "embed", *MODEL, "--device", "cuda:*", "--pipeline", "--stream-weights", *TEXTS,
                   env=TWO)


if __name__ == "__main__":
    main(__name__)
