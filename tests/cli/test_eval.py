#!/usr/bin/env python3
"""`gpuserve eval` against tests/data/eval.json: what scipy, scikit-learn and sentence-transformers compute from the
program's own similarities and vectors (tools/fixtures/make_eval_reference.py)."""
import csv
import json
import os
import struct

from common import Case, ROOT, lines, main

PROMPTS = os.path.join(ROOT, "tests", "data", "models", "embeddinggemma")  # of queries and of documents
TINY = os.path.join(ROOT, "tests", "data", "models", "st-weighted-layers")
with open(os.path.join(ROOT, "tests", "data", "eval.json"), encoding="utf-8") as opened:
    WANT = json.load(opened)


class Eval(Case):
    def rows(self, task, *options):
        column = "score" if task == "sts" else "label"
        source = self.write(task + ".jsonl", "".join(
            json.dumps({"text": a, "pair": b, column: row}) + "\n" for (a, b), row in zip(WANT["texts"], WANT[column])))
        return json.loads(self.works("eval", TINY, "--task", task, "-i", source, "-d", "cpu", "--json", *options).out)["rows"]

    def test_similarities_are_those_of_the_reference(self):
        source = self.write("pairs.jsonl", "".join(json.dumps({"text": a, "pair": b}) + "\n" for a, b in WANT["texts"]))
        found = lines(self.works("similarity", TINY, "--pairs", "-i", source, "-d", "cpu").out)
        for row, want in zip(found, WANT["similarity"], strict=True):
            self.assertAlmostEqual(row["similarity"], want, delta=1e-5)

    def test_scores(self):
        for task in ("sts", "pairs"):
            row, = self.rows(task)
            for name, want in WANT[task].items():
                self.assertAlmostEqual(row[name], want, delta=1e-5, msg=name)

    def test_dtypes(self):
        rows = self.rows("sts", "--dtypes", "float32,bfloat16")
        self.assertEqual([row["dtype"] for row in rows], ["float32", "bfloat16"])
        self.assertAlmostEqual(rows[0]["spearman"], WANT["sts"]["spearman"], delta=1e-5)

    def npy(self, name, rows):
        header = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }" % (len(rows), len(rows[0]))
        header += " " * (-(len(header) + 11) % 64) + "\n"
        return self.write(name, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                          b"".join(struct.pack("<%df" % len(row), *row) for row in rows))

    def test_precisions(self):
        """As EmbeddingSimilarityEvaluator. A value at the edge of a bucket of int8 may fall on either side of it, and the rounding
        of unit lengths orders equal cosines of bits by chance."""
        want = WANT["precisions"]
        for similarity in ("cosine", "dot"):
            rows = self.rows("sts", "--precisions", ",".join(want[similarity]), "--ranges", self.npy("ranges.npy", want["ranges"]),
                             "--similarity", similarity)
            self.assertEqual([row["precision"] for row in rows], list(want[similarity]))
            for row, (name, scores) in zip(rows, want[similarity].items()):
                for score in scores:
                    by_chance = "int" in name or ("binary" in name and (similarity, score) == ("cosine", "spearman"))
                    self.assertAlmostEqual(row[score], scores[score], delta=4e-3 if by_chance else 1e-5, msg=(similarity, name))
        row, = self.rows("sts", "--precision", "binary", "--similarity", "dot", "--dimensions", "12")
        for score, found in want["binary of 12 dimensions"].items():
            self.assertAlmostEqual(row[score], found, delta=1e-5, msg=score)
        rows = self.rows("sts", "--dtypes", "float32,bfloat16", "--precisions", "float16,int8")
        self.assertEqual([(row["dtype"], row["precision"]) for row in rows],
                         [("float32", "float16"), ("float32", "int8"), ("bfloat16", "float16"), ("bfloat16", "int8")])
        self.assertAlmostEqual(rows[0]["pearson"], WANT["sts"]["pearson"], delta=1e-3)

    def retrieval(self, rows, *options):
        source = self.write("retrieval.jsonl", "".join(json.dumps({"text": a, "pair": b}) + "\n" for a, b in rows))
        row, = json.loads(self.works("eval", PROMPTS, "--task", "retrieval", "-i", source, "-d", "cpu", "--json", *options).out)["rows"]
        return row

    def test_retrieval(self):
        want = WANT["retrieval"]
        row = self.retrieval(want["rows"])
        self.assertEqual((row["n"], row["documents"]), (want["n"], want["documents"]))
        for name, score in want["scores"].items():
            self.assertAlmostEqual(row[name], score, delta=1e-9, msg=name)
        self.assertEqual(self.retrieval(want["rows"], "--prompt-name", "query"), row)
        self.assertNotEqual(self.retrieval(want["rows"], "--prompt", "w9 w9 "), row)
        self.assertNotEqual(self.retrieval(want["rows"], "--dimensions", "2"), row)
        binary = self.retrieval(want["rows"], "--precision", "binary")
        self.assertEqual(self.retrieval(want["rows"], "--precision", "ubinary"), binary)
        self.assertNotEqual(binary, row)
        self.assertNotEqual(self.retrieval(want["rows"], "--precision", "binary", "--similarity", "dot"), binary)

    def labelled(self, name, rows):
        """CSV or JSON Lines of (text, label)."""
        if name.endswith(".jsonl"):
            return self.write(name, "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
        with open(self.path(name), "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
        return self.path(name)

    def classification(self, model, source, *options):
        done = self.works("eval", model, "--task", "classification", "-i", source, "-d", "cpu", "--json", *options)
        return json.loads(done.out)["rows"]

    def assert_report(self, row, want):
        """Equal to classification_report of scikit-learn."""
        want = dict(want["report"])
        self.assertEqual(row["n"], want["macro avg"]["support"])
        self.assertAlmostEqual(row["accuracy"], want.pop("accuracy"), delta=1e-9)
        self.assertAlmostEqual(row["macro_f1"], want.pop("macro avg")["f1-score"], delta=1e-9)
        self.assertAlmostEqual(row["weighted_f1"], want.pop("weighted avg")["f1-score"], delta=1e-9)
        self.assertEqual([label["label"] for label in row["labels"]], sorted(want))
        for label in row["labels"]:
            scores = want[label.pop("label")]
            for name, of_sklearn in (("precision", "precision"), ("recall", "recall"), ("f1", "f1-score"), ("support", "support")):
                self.assertAlmostEqual(label.pop(name), scores[of_sklearn], delta=1e-9)
            self.assertEqual(label, {})

    def test_classification_of_vectors(self):
        """The head is that of LogisticRegression on the same vectors."""
        want = WANT["classification"]
        train, test = self.labelled("train.jsonl", want["train"]), self.labelled("test.csv", want["test"])
        row, other = self.classification(TINY, test, "--train", train, "--tolerance", "1e-7", "--dtypes", "float32,bfloat16")
        self.assertEqual((row["n_train"], row["dtype"], other["dtype"]), (len(want["train"]), "float32", "bfloat16"))
        self.assert_report(row, want["all"])
        row, = self.classification(TINY, test, "--train", train, "--tolerance", "1e-7", "--dimensions", "16")
        self.assert_report(row, want["dimensions"])
        rows = self.classification(TINY, test, "--train", train, "--precisions", "float16,int8,uint8,binary,ubinary")
        scores = {row["precision"]: row["macro_f1"] for row in rows}
        self.assertEqual(scores["binary"], scores["ubinary"])
        self.assertTrue(all(0.2 < score < 0.7 for score in scores.values()), scores)

    def test_classification_of_a_head(self):
        want = WANT["classification"]
        train, test = self.labelled("train.csv", want["train"]), self.labelled("test.jsonl", want["test"])
        head = self.path("head.safetensors")
        self.works("fit", TINY, "--train", train, "--C", "10", "--tolerance", "1e-7", "-o", head, "-d", "cpu")
        texts = self.write("texts.txt", "".join(text + "\n" for text, _ in want["test"]))
        found = [row["label"] for row in lines(self.works("classify", TINY, "--head", head, "-i", texts, "-d", "cpu").out)]
        self.assertEqual(found, want["all"]["found"])
        row, = self.classification(TINY, test, "--head", head)
        self.assert_report(row, want["all"])
        done = self.works("eval", TINY, "--task", "classification", "--head", head, "-i", test, "-d", "cpu")
        self.assertRegex(done.out, r"^n 48  accuracy 0\.625000  macro_f1 .*\n  east +precision 0\.916667  recall 0\.500000  f1 .*  support 22")
        self.fails(2, "--precision is for embedding models", "eval", TINY, "--task", "classification", "--head", head, "-i", test,
                   "--precisions", "float32,int8")

    def test_classification_of_a_classifier(self):
        model = os.path.join(ROOT, "share", "models", "lstm-sentiment")
        texts = ["a wonderful film", "a waste of time", "dull and boring", "great fun", "the worst film of the year", "I loved it"]
        found = [row["label"] for row in lines(self.works("classify", model, *texts, "-d", "cpu").out)]
        names = sorted(set(found))
        self.assertEqual(len(names), 2)
        rows = [(text, names.index(label)) for text, label in zip(texts, found)]
        rows[0] = (texts[0], 1 - rows[0][1])
        renamed = [option for i, name in enumerate(names) for option in ("--label-name", "%d=%s" % (i, name))]
        row, = self.classification(model, self.labelled("test.csv", rows), *renamed)
        self.assertAlmostEqual(row["accuracy"], 5 / 6)
        self.assertEqual({label["label"]: label["support"] for label in row["labels"]},
                         {name: [label for _, label in rows].count(i) for i, name in enumerate(names)})

    def test_stratified_split(self):
        rows = [row for row in WANT["classification"]["train"] if row[1] != "rare"]
        rows = list({text: (text, label) for text, label in rows}.values())
        rows = [row for row in rows if row[1] != "west"] + [row for row in rows if row[1] == "west"][:5]
        counts = {label: [row[1] for row in rows].count(label) for _, label in rows}
        source = self.labelled("rows.csv", rows)
        row, = self.classification(TINY, source)
        self.assertEqual((row["seed"], row["split"], row["n_train"] + row["n"]), (0, 0.2, len(rows)))
        self.assertEqual({label["label"]: label["support"] for label in row["labels"]},
                         {label: int(n / 5 + 0.5) for label, n in counts.items()})
        again, = self.classification(TINY, self.labelled("again.csv", rows[::-1]))
        self.assertEqual(again["labels"], row["labels"])
        other, = self.classification(TINY, source, "--seed", "5", "--split", "0.5")
        self.assertEqual((other["seed"], other["split"]), (5, 0.5))
        self.assertNotEqual(other["labels"], row["labels"])
        self.assertIn("seed 5 ", self.works("eval", TINY, "--task", "classification", "-i", source, "-d", "cpu", "--seed", "5").out)
        # Equal texts are on one side: no test text is also a training text.
        done = self.works("eval", TINY, "--task", "classification", "-i", self.labelled("three.csv", rows * 3), "-d", "cpu", "--json")
        self.assertEqual(json.loads(done.out)["rows"][0]["n"] % 3, 0)
        self.assertNotIn("also training texts", done.err)
        self.fails(1, 'one.csv: line 6: label "c" has one text', "eval", TINY, "--task", "classification", "-i",
                   self.write("one.csv", "text,label\nw1,a\nw2,a\nw3,b\nw4,b\nw5,c\n"))
        self.fails(1, 'line 2: label "a" has equal texts only', "eval", TINY, "--task", "classification", "-i",
                   self.write("equal.csv", "text,label\nw1,a\nw1,a\nw3,b\nw4,b\n"))

    def test_labels_that_do_not_fit(self):
        for content, message in (("text,kind\nw1,a\n", 'bad.csv: column "label" is missing'),
                                 ("text,label\nw1,a\nw2,a\n", 'bad.csv: line 2: label "a" is the only one'),
                                 ("text,label\nw1,a\nw2,\n", "bad.csv: line 3: a label is empty")):
            self.fails(1, message, "eval", TINY, "--task", "classification", "-i", self.write("bad.csv", content))
        self.fails(1, "must be .csv or .jsonl", "eval", TINY, "--task", "classification", "-i", self.write("x.txt", "w1\n"))
        source = self.write("new.csv", "text,label\nw1,a\nw2,b\nw3,c\nw4,c\n")
        train = self.write("train.csv", "text,label\nw1,a\nw2,b\n")
        self.fails(1, 'new.csv: line 4: label "c" has no text in', "eval", TINY, "--task", "classification", "-i", source, "--train", train)
        head = self.path("head.safetensors")
        self.works("fit", TINY, "--train", train, "-o", head, "-d", "cpu")
        done = self.fails(1, 'new.csv: line 4: label "c"', "eval", TINY, "--head", head, "--task", "classification", "-i", source)
        self.assertIn("the model's labels are a, b; --label-name", done.err)
        self.fails(1, 'has no label "d"', "eval", TINY, "--head", head, "--task", "classification", "-i", source, "--label-name", "c=d")
        row, = self.classification(TINY, source, "--head", head, "--label-name", "c=b")
        self.assertEqual([label["support"] for label in row["labels"]], [1, 3])
        self.fails(2, "same name", "eval", TINY, "--task", "classification", "-i", source, "--train", source, "--label-name", "c=b")

    def test_wrong_use(self):
        self.fails(2, "--task", "eval", TINY)
        source = self.write("bad.csv", "text,pair,label\nw1,w2,0\nw1,w3,2\n")
        self.fails(1, "line 3", "eval", TINY, "--task", "pairs", "-i", source)
        self.fails(1, "not a number", "eval", TINY, "--task", "sts", "-i", self.write("s.csv", "text,pair,score\nw1,w2,x\n"))
        self.fails(1, "needs both", "eval", TINY, "--task", "pairs", "-i", self.write("o.csv", "text,pair,label\nw1,w2,1\nw2,w3,1\n"))
        self.fails(2, "reads no labels", "eval", TINY, "--task", "retrieval", "-i", source, "--label-column", "label")
        self.fails(2, "unknown value", "eval", TINY, "--task", "sts", "-i", source, "--dtypes", "float32,other")
        self.fails(2, "unknown value", "eval", TINY, "--task", "sts", "-i", source, "--precisions", "int8,int4")
        for options in (("--dtypes", "int8", "--dtype", "int8"), ("--precisions", "int8", "--precision", "int8")):
            self.fails(2, "exclude each other", "eval", TINY, "--task", "pairs", "-i", source, *options)
        self.fails(2, "--ranges needs", "eval", TINY, "--task", "pairs", "-i", source, "--ranges", "x.npy")
        self.fails(2, "belong to --task classification", "eval", TINY, "--task", "pairs", "-i", source, "--split", "0.5")
        for options in (("--pair-column", "pair"), ("--similarity", "dot")):
            self.fails(2, options[0], "eval", TINY, "--task", "classification", "-i", source, *options)
        self.fails(2, "--train and --split", "eval", TINY, "--task", "classification", "-i", source, "--train", source, "--split", "0.5")


if __name__ == "__main__":
    main(__name__)
