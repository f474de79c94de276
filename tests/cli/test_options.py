#!/usr/bin/env python3
"""Options whose value would be ignored are refused: 0 where it would mean the default, and options of other commands."""
from common import Case, main

RANDOM = ("--random", "bert-tiny")


class Options(Case):
    def test_zero_is_not_the_default(self):
        for command in (("plan", "--rate", "0"), ("plan", "--rate", "1", "--p99-ms", "0"), ("plan", "--rate", "1", "--core-price", "0.0"),
                        ("plan", "--rate", "1", "--seconds", "0"), ("bench", *RANDOM, "--seconds", "0"),
                        ("classify", *RANDOM, "--labels", "a", "--threshold", "0"), ("devices", "--watch", "--interval", "0"),
                        ("fit", "--C", "0"), ("fit", "--tolerance", "0")):
            self.fails(2, "%s: %s is not above 0" % command[-2:], *command)

    def test_options_without_effect(self):
        for command in ("plan", "bench", "tokenize", "rerank"):
            self.fails(2, command + " has no option --batch", command, *RANDOM, "--batch", "7")

    def test_the_folder_of_packed_weights(self):
        for folder in ("weights", "./weights", "on", ""):
            self.fails(2, '--weights-cache: "%s" is neither an absolute path nor off' % folder, "embed", *RANDOM,
                       "--weights-cache", folder, "a")
        for folder in ("off", self.path("weights")):
            self.works("embed", *RANDOM, "--weights-cache", folder, "a")


if __name__ == "__main__":
    main(__name__)
