#!/usr/bin/env python3
"""`gpuserve tokenize` with directories that have tokenizer files only."""
import json
import os
import shutil
import tempfile

from common import ORACLE, ROOT, Case, lines, main, model, safetensors

MINILM = "all-MiniLM-L6-v2"
TEXTS = os.path.join(ORACLE, "texts.jsonl")


class TokenizeWithoutModel(Case):
    """Directories that have tokenizer files only."""

    def directory(self, *names, source):
        made = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, made)
        for name in names:
            shutil.copy(os.path.join(source, name), made)
        return made

    def test_tokenizer_json_alone(self):
        only = self.directory("tokenizer.json", source=model(MINILM))
        tensors = safetensors(os.path.join(ORACLE, "tokens", "minilm-wordpiece.safetensors"))
        found = lines(self.works("tokenize", "-m", only, "--input", TEXTS).out)
        ids, offsets = tensors["ids"][1], tensors["offsets"][1]
        self.assertEqual(len(found), len(offsets) - 1)
        for row, one in enumerate(found):
            self.assertEqual(one["ids"], list(ids[offsets[row]:offsets[row + 1]]), row)

    def test_vocab_txt_with_its_configuration(self):
        source = os.path.join(ROOT, "tests/data/tokenizers/cased")
        only = self.directory("vocab.txt", "tokenizer_config.json", source=source)
        with open(os.path.join(source, "expected.json"), encoding="utf-8") as file:
            rows = [row for row in json.load(file) if not row["lower"]]
        single = [row for row in rows if row["pair"] is None]
        found = lines(self.works("tokenize", "-m", only, "--input-format", "jsonl", "--input", "-",
                                 stdin="".join(json.dumps({"text": row["text"]}) + "\n"
                                               for row in single)).out)
        self.assertEqual([one["ids"] for one in found], [row["ids"] for row in single])

    def test_pairs(self):
        only = self.directory("tokenizer.json", source=model(MINILM))
        done = self.works("tokenize", "-m", only, "--pairs", "--spans", "--input-format", "jsonl", "--input", "-",
                          stdin='{"text": "a cat", "pair": "a dog"}\n')
        self.assertEqual(lines(done.out), [{
            "ids": [101, 1037, 4937, 102, 1037, 3899, 102], "type_ids": [0, 0, 0, 0, 1, 1, 1],
            "spans": [[0, 0], [0, 1], [2, 5], [0, 0], [0, 1], [2, 5], [0, 0]]}])

    def test_a_directory_without_a_tokenizer(self):
        self.fails(1, "neither tokenizer.json nor vocab.txt", "tokenize", "-m", self.directory(source="/"), "x")


if __name__ == "__main__":
    main(__name__)
