#!/usr/bin/env python3
"""`gpuserve fit`: the head is at the minimum, and C is the one that scikit-learn chooses (tests/data/fit.json)."""
import json
import math
import os
import random
import re

from common import Case, ROOT, environment, lines, main, model, safetensors

SPLADE = "splade-tiny"
TINY = os.path.join(ROOT, "tests", "data", "models", "st-weighted-layers")
with open(os.path.join(ROOT, "tests", "data", "fit.json"), encoding="utf-8") as file:
    WANT = json.load(file)


class Head(Case):
    def rows(self, count, noise=0):
        """Texts of three kinds, some with the wrong label."""
        kinds = (("7", "the cat and dog number %d"), ("10", "invoice %d is due"),
                 ("8", "rain and sun on day %d"))
        for i in range(count):
            label, text = kinds[i % 3]
            yield ("10" if noise and i % noise == 0 else label), text % i

    def csv(self, name, rows):
        return self.write(name, "kind,body,extra\n" + "".join(
            '%s,"%s, ""quoted""\nand more",x%s\n' % (label, text, label) for label, text in rows))

    def fit(self, *options):
        head = self.path("h.safetensors")
        done = self.works("fit", "-m", model(SPLADE), "-o", head, "--json", "--label-column",
                          "kind", "--text-column", "body", "-q", *options)
        return json.loads(done.out), safetensors(head), done

    def test_sets_and_labels(self):
        train = self.csv("train.csv", self.rows(90, 7))
        other = self.csv("other.csv", self.rows(30))
        facts, tensors, _ = self.fit("--train", train, "--test", other, "--validation", other,
                                     "--label-name", "10=bill", "--data-name", "made up")
        meta = tensors["__metadata__"]
        self.assertEqual(json.loads(meta["labels"]), ["7", "8", "bill"])  # by number, not "10" first
        self.assertEqual((meta["activation"], meta["input"], meta["provenance"]),
                         ("softmax", "normalized", "made up"))
        self.assertEqual((meta["n_train"], meta["n_test"]), ("90", "30"))
        self.assertRegex(meta["model_fingerprint"], "^[0-9a-f]{32}$")
        self.assertEqual(tensors["weight"][0], [3, 128])
        self.assertEqual(tensors["bias"][0], [3])
        self.assertGreater(facts["test_accuracy"], 0.95)
        self.assertEqual(facts["n_validation"], 30)

    def slopes(self, rows, tensors, c):
        """The gradient of C * sum of log losses + 1/2 * squared weights at the head's weights; for
        two labels of scikit-learn's one row, the difference of the two here."""
        vectors = [o["embedding"] for o in lines(self.works(
            "embed", "-m", model(SPLADE), "-d", "cpu", "--normalize",
            stdin="\n".join(text for _, text in rows)).out)]
        labels = json.loads(tensors["__metadata__"]["labels"])
        weight, bias, dim = tensors["weight"][1], tensors["bias"][1], len(vectors[0])
        count = len(labels)
        slopes = [[weight[k * dim + j] for j in range(dim)] + [0] for k in range(count)]
        if count == 2:
            slopes[1] = [b - a for a, b in zip(*slopes)]
        for (label, _), vector in zip(rows, vectors):
            odds = [math.exp(sum(w * x for w, x in zip(weight[k * dim:], vector)) + bias[k])
                    for k in range(count)]
            for k in range(count):
                wrong = c * (odds[k] / sum(odds) - (labels[k] == label))
                for j, x in enumerate(vector + [1]):
                    slopes[k][j] += wrong * x
        return slopes[1] if count == 2 else sum(slopes, [])

    def test_head_is_at_the_minimum(self):
        for count in (3, 2):
            rows = [(label, text) for label, text in self.rows(60, 7) if count == 3 or label != "8"]
            train = self.write("train.jsonl", "".join(
                json.dumps({"kind": label, "body": text}) + "\n" for label, text in rows))
            for c in (0.5, 10):
                _, tensors, _ = self.fit("--train", train, "--C", c, "--tolerance", "1e-8")
                self.assertEqual(tensors["weight"][0][0], count)
                steepest = max(map(abs, self.slopes(rows, tensors, c)))
                self.assertLess(steepest, 2e-4, (count, c))

    def test_split_keeps_equal_texts_together(self):
        rows = list(self.rows(60))
        train = self.csv("train.csv", rows * 3)
        facts, _, done = self.fit("--train", train, "--split", 0.3)
        self.assertEqual(facts["n_train"] + facts["n_test"], 180)
        self.assertEqual(facts["n_test"] % 3, 0)
        self.assertTrue(20 < facts["n_test"] < 90, facts)
        self.assertNotIn("also training texts", done.err)

    def test_limit_and_where(self):
        train = self.csv("train.csv", self.rows(60))
        self.assertEqual(self.fit("--train", train, "--limit", 30)[0]["n_train"], 30)
        self.fails(1, "only one label", "fit", "-m", model(SPLADE), "-o", self.path("x"),
                   "--train", train, "--label-column", "kind", "--text-column", "body", "--where",
                   "extra=x7")

    def test_faults(self):
        head = self.path("x.safetensors")
        for content, message in (("kind,body\n", "no labelled texts"), ("a,b\n1,2\n", "is missing"),
                                 ("kind,body\n,text\n", "line 2: a label is empty")):
            self.fails(1, message, "fit", "-m", model(SPLADE), "--label-column", "kind",
                       "--text-column", "body", "-o", head, "--train", self.write("t.csv", content))
        train = self.csv("train.csv", self.rows(9))
        for options in (("--where", "x"), ("--label-name", "7"), ("--test", "t", "--split", "0.1")):
            self.fails(2, options[0], "fit", "-m", model(SPLADE), "--label-column", "kind",
                       "--text-column", "body", "-o", head, "--train", train, *options)
        self.assertFalse(os.path.exists(head))


class Selection(Case):
    def csv(self, name, rows):
        return self.write(name, "text,label\n" + "".join("%s,%s\n" % (text, label) for text, label in rows))

    def fit(self, rows, *options):
        """(facts, tensors, messages)"""
        head = self.path("h.safetensors")
        done = self.works("fit", TINY, "-d", "cpu", "--train", self.csv("train.csv", rows), "-o", head, "--json", *options)
        return json.loads(done.out), safetensors(head), done.err

    def refused(self, code, message, rows, *options):
        return self.fails(code, message, "fit", TINY, "-d", "cpu", "--train", self.csv("train.csv", rows), "-o",
                          self.path("none.safetensors"), *options)

    def assert_scores(self, found, want):
        self.assertEqual(len(found), len(want["scores"]))
        for one, score in zip(found, want["scores"]):
            self.assertAlmostEqual(one["C"] / score["C"], 1, delta=1e-8)
            self.assertAlmostEqual(one["accuracy"], score["accuracy"], delta=1e-8, msg=str(score))
            self.assertAlmostEqual(one["log_loss"] / score["log_loss"], 1, delta=2e-3, msg=str(score))

    def test_c_is_that_of_scikit_learn(self):
        for name in ("three", "two", "rare"):
            want = WANT[name]
            options = ["--tolerance", "1e-8", "--seed", want["seed"]] + ([] if want["folds"] in (3, 5) else ["--folds", want["folds"]])
            facts, tensors, messages = self.fit(want["rows"], *options)
            chosen = facts["selection"]
            self.assertEqual((chosen["method"], chosen["folds"], chosen["seed"]), ("cross-validation", want["folds"], want["seed"]))
            self.assertAlmostEqual(facts["C"] / want["C"], 1, delta=1e-8, msg=name)
            self.assertAlmostEqual(facts["train_accuracy"], want["train_accuracy"], delta=1e-8)
            self.assert_scores(chosen["scores"], want)
            meta = tensors["__metadata__"]
            self.assertEqual((meta["C_selection"], meta["n_folds"]), ("cross-validation", str(want["folds"])))
            self.assertEqual("3 different training texts: 3 folds, not 5" in messages, name == "rare", messages)
            # The order of the file, the number of threads: neither changes the choice.
            again, _, _ = self.fit(want["rows"][::-1], *options, "--threads", "1")
            self.assert_scores(again["selection"]["scores"], want)
            # The head is that of the chosen C on all texts.
            _, fixed, _ = self.fit(want["rows"], "--tolerance", "1e-8", "--C", repr(want["C"]))
            self.assertEqual(fixed["__metadata__"]["C_selection"], "fixed")
            for a, b in zip(tensors["weight"][1], fixed["weight"][1]):
                self.assertAlmostEqual(a, b, delta=1e-4)

    def test_c_of_validation_texts(self):
        want = WANT["validation"]
        facts, _, _ = self.fit(want["rows"], "--tolerance", "1e-8", "--validation", self.csv("v.csv", want["held_out"]))
        self.assertEqual(facts["selection"]["method"], "validation")
        self.assertAlmostEqual(facts["C"] / want["C"], 1, delta=1e-8)
        self.assert_scores(facts["selection"]["scores"], want)

    def test_table(self):
        train = self.csv("train.csv", WANT["three"]["rows"])
        done = self.works("fit", TINY, "-d", "cpu", "--train", train, "-o", self.path("h"), "--tolerance", "1e-8")
        table = [line for line in done.out.splitlines() if line[:2] in ("  ", "* ") and line[2:].split()[0][0].isdigit()]
        self.assertEqual(len(table), 10, done.out)
        (best,) = [line for line in table if line[0] == "*"]
        self.assertAlmostEqual(float(best.split()[1]) / WANT["three"]["C"], 1, delta=1e-4)
        self.assertAlmostEqual(float(best.split()[2]), min(score["log_loss"] for score in WANT["three"]["scores"]), delta=2e-4)

    def test_too_few_texts(self):
        """No cross-validation is possible: a warning says why and C is 10, unless --folds asks for one."""
        pair = [("w1", "a"), ("w2", "b")]
        one = [("w%d" % (i % 9 + 1), "ab"[i % 2]) for i in range(8)] + [("w12", "c")]
        equal = [("w1", "a"), ("w2", "a"), ("w3", "b"), ("w3", "b"), ("w3", "b")]
        # Both texts of z are texts of a too, and the fold of the text that is there three times is full.
        same = [("w1", "a")] * 4 + [("w2", "a"), ("w3", "a"), ("w2", "z"), ("w3", "z")]
        for rows, message in ((pair, 'line 2: label "a" has no two different training texts'),
                              (one, 'line 10: label "c" has no two different training texts'),
                              (equal, 'line 4: label "b" has no two different training texts'),
                              (same, 'label "z" has all its texts in one fold')):
            facts, tensors, messages = self.fit(rows)
            self.assertIn(message, messages)
            self.assertIn("no cross-validation, C is 10", messages)
            self.assertEqual((facts["C"], facts["selection"]), (10, {"method": "default"}))
            self.assertEqual(tensors["__metadata__"]["C_selection"], "default")
        self.refused(1, "--folds 2 needs 2", one, "--folds", 2)
        self.refused(1, "all its texts in one fold", same, "--folds", 2)
        self.refused(1, 'label "a" has 4 different training texts, --folds 5 needs 5', one[:8], "--folds", 5)
        facts, _, _ = self.fit(one[:8], "--folds", 4)
        self.assertEqual(facts["selection"]["folds"], 4)

    def test_equal_texts_are_in_one_fold(self):
        """Each text is there six times: a held-out text that is also a training text would be known by heart."""
        rows = [("w%d w%d w%d" % (i % 18 + 1, i * 7 % 19 + 1, i * 5 % 17 + 1), "ab"[i * i * i % 7 % 2]) for i in range(24)]
        facts, _, _ = self.fit(rows * 6, "--tolerance", "1e-7")
        self.assertEqual(facts["selection"]["folds"], 5)
        self.assertLess(max(score["accuracy"] for score in facts["selection"]["scores"]), 0.8)
        self.assertGreater(facts["selection"]["scores"][-1]["log_loss"], 0.7)

    def test_progress_counts_the_heads(self):
        words = random.Random(1)
        rows = [(" ".join("w%d" % words.randint(1, 20) for _ in range(5)), words.choice("abc")) for _ in range(400)]
        done = self.works("fit", TINY, "-d", "cpu", "--train", self.csv("train.csv", rows), "-o", self.path("h"), "--tolerance", "1e-9",
                          env=environment(GPUSERVE_PROGRESS="lines"))
        counts = [int(line.split()[1]) for line in done.err.splitlines() if re.fullmatch(r"progress: \d+ 50", line)]
        self.assertTrue(counts and counts == sorted(counts) and counts[-1] <= 50, done.err)

    def test_labels(self):
        rows = [("w1", "1"), ("w2", "2"), ("w3", "3"), ("w4", "1"), ("w5", "2"), ("w6", "3")]
        for names in (("1=x", "3=x"), ("1=2",)):
            done = self.refused(2, "have the same name", rows, *[word for name in names for word in ("--label-name", name)])
            self.assertIn('labels "1" and "%s" have the same name "%s"' % ("32"[len(names) == 1], "x2"[len(names) == 1]), done.err)
        test = self.csv("test.csv", rows + [("w7", "4")])
        self.refused(1, 'test.csv: line 8: label "4" has no text in', rows, "--test", test)
        done = self.refused(1, "has no text in", rows, "--limit", 2)
        self.assertIn("--seed N selects others", done.err)
        self.refused(1, "only one label", [("w1", "a"), ("w2", "a")])

    def test_wrong_use(self):
        rows = WANT["two"]["rows"]
        self.refused(2, "--folds and --C exclude", rows, "--folds", 3, "--C", 1)
        self.refused(2, "--folds and --validation exclude", rows, "--folds", 3, "--validation", self.csv("v.csv", rows))
        self.refused(2, "two folds or more", rows, "--folds", 1)


if __name__ == "__main__":
    main(__name__)
