#!/usr/bin/env python3
"""/tokenize and /decode by byte pairs and by Unigram, as Hugging Face's tokenizers have it."""
import os
import unittest

from tokenizers import Tokenizer

from serving import Server, main

from common import ROOT

MODELS = os.path.join(ROOT, "tests/data/models")


class OtherTokenizers(unittest.TestCase):
    TEXTS = ["Hello  wörld \U0001f642, don't", " a", "naïve   café\n\n東京 ", "x"]

    def test_pieces(self):
        for name in ("roberta-texts", "st-xlm-roberta"):
            folder = os.path.join(MODELS, name)
            oracle = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
            oracle.no_truncation()
            oracle.no_padding()
            server = Server(folder)
            for text in self.TEXTS:
                want = oracle.encode(text)
                rows = server.post("/tokenize", {"inputs": text}).json()[0]
                self.assertEqual([row["id"] for row in rows], want.ids, (name, text))
                for row, (begin, end), special in zip(rows, want.offsets, want.special_tokens_mask):
                    self.assertEqual(row["special"], bool(special), (name, text, row))
                    if not special:
                        self.assertEqual((row["start"], row["stop"], row["text"]),
                                         (begin, end, text[begin:end]), (name, text))
                for skip in (True, False):
                    self.assertEqual(server.post("/decode", {"ids": want.ids, "skip_special_tokens": skip}).json(),
                                     [oracle.decode(want.ids, skip_special_tokens=skip)], (name, text))
            self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    main(__name__)
