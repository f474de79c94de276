#!/usr/bin/env python3
"""`gpuserve classify` with models that label tokens."""
import json
import os
import subprocess

from common import Case, PROGRAM, ROOT, environment, gpuserve, lines, main, model

MINILM = "all-MiniLM-L6-v2"


class Entities(Case):
    """A model that labels tokens: transformers' pipeline is the oracle, entities.json."""
    NAMES = ("bert-tokens", "distilbert-tokens")
    KEYS = ("entity", "entity_group", "index", "word", "start", "end")

    def setUp(self):
        super().setUp()
        self.model = os.path.join(ROOT, "tests", "data", "models", "bert-tokens")

    def rows(self, name="bert-tokens"):
        with open(os.path.join(ROOT, "tests", "data", "models", name, "entities.json"), encoding="utf-8") as file:
            return [row for row in json.load(file) if row["text"]]

    def found(self, *arguments, **more):
        return [line["entities"] for line in lines(self.works("classify", "-m", self.model, *arguments, **more).out)]

    def same(self, got, want):
        self.assertEqual([{k: one[k] for k in self.KEYS if k in one} for one in got],
                         [{k: one[k] for k in self.KEYS if k in one} for one in want])
        for one, other in zip(got, want):
            self.assertAlmostEqual(one["score"], other["score"], delta=2e-6)

    def test_as_transformers(self):
        for name in self.NAMES:
            self.model = os.path.join(ROOT, "tests", "data", "models", name)
            rows = self.rows(name)
            texts = "".join(json.dumps({"text": row["text"]}) + "\n" for row in rows)
            for arguments, key in (((), "simple"), (("--aggregation", "simple"), "simple"), (("--aggregation", "none"), "none")):
                got = self.found("--input-format", "jsonl", "-q", *arguments, stdin=texts)
                self.assertEqual(len(got), len(rows))
                for one, row in zip(got, rows):
                    self.same(one, row[key])

    def test_many_texts_in_chunks(self):
        rows = self.rows() * 40
        for batch in ("1", "7", "64", "65536"):
            got = self.found("--batch", batch, "-q", *[row["text"] for row in rows])
            self.assertEqual(len(got), len(rows))
            for one, row in zip(got, rows):
                self.same(one, row["simple"])

    def test_ignored_labels(self):
        rows = self.rows()
        found = self.found("-q", "--aggregation", "none", "--ignore-label", "", *[row["text"] for row in rows])
        for one, row in zip(found, rows):
            self.same([entity for entity in one if entity["entity"] != "O"], row["none"])
        every, text = next((one, row["text"]) for one, row in zip(found, rows) if len(one) > len(row["none"]))
        some = self.found("--aggregation", "none", "--ignore-label", "MISC", "--ignore-label", "O", text)[0]
        self.assertEqual(some, [one for one in every if one["entity"] not in ("MISC", "O")])
        raw = self.found("--raw", "--aggregation", "none", "--ignore-label", "", text)[0]
        self.assertEqual([one["word"] for one in raw], [one["word"] for one in every])
        self.assertNotAlmostEqual(raw[0]["score"], every[0]["score"], delta=1e-3)
        self.assertEqual(self.found(""), [[]])

    def test_line_by_line(self):
        """What there is is answered before more is waited for."""
        process = subprocess.Popen([PROGRAM, "classify", "-m", self.model, "-q"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   env=environment(), text=True)
        for row in self.rows()[:3]:
            if "\n" in row["text"]:
                continue
            process.stdin.write(row["text"] + "\n")
            process.stdin.flush()
            self.same(json.loads(process.stdout.readline())["entities"], row["simple"])
        process.communicate()
        self.assertEqual(process.returncode, 0)

    def test_what_is_told(self):
        done = self.works("classify", "-m", self.model, "w1 " * 100, "w1")
        self.assertIn("1 of 2 texts were longer than", done.err)
        head = os.path.join(ROOT, "share", "heads", "sentiment.safetensors")
        for words, arguments in (("--pairs and --top are not valid", ("-m", self.model, "--top", "1", "a")),
                                 ("the limit is 40", ("-m", self.model, "--truncate", "strict", "w1 " * 100)),
                                 ("--aggregation and --ignore-label are not valid",
                                  ("-m", model(MINILM), "--head", head, "--aggregation", "none", "a")),
                                 ('unknown value "most"', ("-m", self.model, "--aggregation", "most", "a"))):
            done = gpuserve("classify", *arguments)
            self.assertNotEqual(done.returncode, 0, arguments)
            self.assertIn(words, done.err)


if __name__ == "__main__":
    main(__name__)
