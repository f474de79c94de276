#!/usr/bin/env python3
"""Write tests/data/long-texts: a small random model and the vectors of texts over its limit.

make_long_texts.py (needs torch, transformers, sentence-transformers and tokenizers)

The token vectors come from the Transformer module of sentence-transformers, the vectors of windows from its
Pooling module, and a whole text from SentenceTransformer.encode(). Chunks are the mean of their tokens, as in
chunked_pooling() of Jina's late chunking, where the tokens before the text belong to the first chunk and those
after it to the last one ("Late Chunking", section 4.1). Of overlapping windows each token is taken from the one
in which it is farthest from the nearer end. The rules are written here by their definition, not as in the library.
"""
import json
import pathlib
import sys

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import BertWordPieceTokenizer, Tokenizer
from transformers import BertConfig, BertModel, BertTokenizerFast

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/long-texts"
LIMIT = 24
WORDS = ("the a dog cat runs sleeps over lazy fox quick brown in house of big small red and it is was . , ! ? ; ( ) \" 3 5 "
         "u s mr smith e g berlin wetter 食 べ 物 。 ü").split()
PIECES = [*"abcdefghijklmnopqrstuvwxyz", *("##" + c for c in "abcdefghijklmnopqrstuvwxyz0123456789ü")]
SENTENCES = ["The quick brown fox runs over the lazy dog.", "It was red, big and small!", "The U.S. house is 3.5 of it, e.g. the dog.",
             "\"Is it a cat?\" It is.", "Über Berlin: das Wetter.", "食べ物。", "The cat sleeps in the house and the dog runs."]
SHORT = "The quick brown fox runs."
LONG = " ".join(SENTENCES)


def write_model(folder):
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(WORDS + PIECES)]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    torch.manual_seed(5)
    model = BertModel(BertConfig(vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                 intermediate_size=48, max_position_embeddings=LIMIT, initializer_range=0.3),
                      add_pooling_layer=False).eval()
    plain = folder.parent / "plain"
    model.save_pretrained(plain)
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt"), tokenizer_object=BertWordPieceTokenizer(
        str(folder / "vocab.txt"), strip_accents=False)._tokenizer, strip_accents=False).save_pretrained(plain)
    transformer = Transformer(str(plain), max_seq_length=LIMIT)
    made = SentenceTransformer(modules=[transformer, Pooling(32, pooling_mode="mean"), Normalize()],
                               prompts={"query": "Find it: "}, device="cpu")
    made.save(str(folder), create_model_card=False)
    for path in plain.iterdir():
        path.unlink()
    plain.rmdir()
    return made


class Oracle:
    def __init__(self, model, folder):
        self.model, self.transformer, self.pooling = model, model[0], model[1]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    def tokens(self, text, prompt=""):
        """ids before the text, its own with their byte spans, ids after it."""
        encoded = self.tokenizer.encode(prompt + text)
        byte_at = np.cumsum([0] + [len(c.encode()) for c in prompt + text])
        size = len(prompt.encode())
        spans = [(int(byte_at[b]) - size, int(byte_at[e]) - size) for b, e in encoded.offsets]
        first = next((i for i, (b, e) in enumerate(spans) if i > 0 and e > 0), 1)
        ids = encoded.ids
        return ids[:first], ids[first:-1], spans[first:-1], ids[-1:]

    def run(self, ids):
        """[n, hidden] token vectors, and the pooled vector."""
        features = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
        with torch.no_grad():
            features = self.pooling(self.transformer(features))
        return features["token_embeddings"][0].double().numpy(), features["sentence_embedding"][0].double().numpy()

    def windows(self, text, prompt, size, stride):
        """(first own token, end, vectors of all its tokens, pooled vector) of each window."""
        before, own, spans, after = self.tokens(text, prompt)
        room = size - len(before) - len(after)
        found, begin = [], 0
        while True:
            end = min(begin + room, len(own))
            found.append((begin, end, *self.run(before + own[begin:end] + after)))
            if end == len(own):
                return before, own, spans, after, found
            begin += stride

    def by_windows(self, text, prompt, size, stride):
        _, _, spans, _, found = self.windows(text, prompt, size, stride)
        weights = np.array([end - begin for begin, end, *_ in found], float)
        mean = (np.array([one[3] for one in found]) * weights[:, None]).sum(axis=0) / weights.sum()
        return [mean], [[spans[b][0], spans[e - 1][1]] for b, e, *_ in found]

    def token_vectors(self, text, prompt, size, stride):
        """The vectors of all tokens: each from the window in which it is farthest from the nearer end."""
        before, own, spans, after, found = self.windows(text, prompt, size, stride)
        rows = list(found[0][2][:len(before)])
        for i in range(len(own)):
            def depth(window):
                begin, end = window[:2]
                return min(i - begin, end - 1 - i) if begin <= i < end else -1
            best = max(found, key=depth)  # the first of equal ones
            rows.append(best[2][len(before) + i - best[0]])
        rows += list(found[-1][2][len(found[-1][2]) - len(after):])
        return np.array(rows), len(before), spans

    def late(self, text, prompt, size, stride, ranges, given=None):
        """Chunks of ranges of own tokens; `given`: their spans, if not those of the tokens."""
        rows, n_before, spans = self.token_vectors(text, prompt, size, stride)
        n_own, vectors = len(spans), []
        for begin, end in ranges:
            left = 0 if begin == 0 else n_before + begin
            right = len(rows) if end == n_own else n_before + end
            vectors.append(rows[left:right].sum(axis=0) / (right - left))
        return vectors, given or [[spans[b][0], spans[e - 1][1]] for b, e in ranges]

    def ranges_in(self, text, spans):
        """The own tokens within each byte span."""
        tokens = self.tokens(text)[2]
        found = []
        for begin, end in spans:
            inside = [i for i, (b, e) in enumerate(tokens) if begin <= b and e <= end]
            found.append((inside[0], inside[-1] + 1))
        return found


def sentence_spans(text, sentences):
    spans, at = [], 0
    for one in sentences:
        at = text.encode().index(one.encode(), at)
        spans.append([at, at + len(one.encode())])
        at = spans[-1][1]
    return spans


def normalized(vectors):
    return [(v / np.linalg.norm(v)).tolist() for v in vectors]


def cases(oracle, model):
    n = len(oracle.tokens(LONG)[1])
    parts = ["The quick brown fox runs over the lazy dog.", "It was red, big and small!", "The U.S. house is 3.5 of it, e.g. the dog.",
             "\"Is it a cat?\"", "It is.", "Über Berlin: das Wetter.", "食べ物。", "The cat sleeps in the house and the dog runs."]
    spans = sentence_spans(LONG, parts)
    some = [spans[1], [spans[3][0], spans[5][1]], spans[7]]
    rows = [
        ("window", SHORT, "", {}, lambda p: ([model.encode(SHORT).astype(float)], [[0, len(SHORT)]])),
        ("window", LONG, "", {}, lambda p: oracle.by_windows(LONG, p, LIMIT, LIMIT - 2)),
        ("window", LONG, "", {"window_tokens": 16, "stride": 5}, lambda p: oracle.by_windows(LONG, p, 16, 5)),
        ("window", LONG, "query", {"window_tokens": 20, "stride": 9}, lambda p: oracle.by_windows(LONG, p, 20, 9)),
        ("late", SHORT, "", {"chunk_tokens": 100}, lambda p: oracle.late(SHORT, p, LIMIT, 1, [(0, 6)])),
        ("late", SHORT, "query", {"chunk_tokens": 4}, lambda p: oracle.late(SHORT, p, LIMIT, 1, [(0, 4), (4, 6)])),
        ("late", LONG, "", {"chunk_tokens": 7, "stride": 11},
         lambda p: oracle.late(LONG, p, LIMIT, 11, [(i, min(i + 7, n)) for i in range(0, n, 7)])),
        ("late", LONG, "", {"chunk_tokens": 9}, lambda p: oracle.late(LONG, p, LIMIT, 22 - 5, [(i, min(i + 9, n)) for i in range(0, n, 9)])),
        ("late", LONG, "", {"chunk_by": "sentence", "stride": 4, "window_tokens": 17},
         lambda p: oracle.late(LONG, p, 17, 4, oracle.ranges_in(LONG, spans), spans)),
        ("late", LONG, "query", {"chunk_by": "sentence", "stride": 8},
         lambda p: oracle.late(LONG, p, LIMIT, 8, oracle.ranges_in(LONG, spans), spans)),
        ("late", LONG, "", {"chunk_by": "spans", "spans": some, "stride": 13},
         lambda p: oracle.late(LONG, p, LIMIT, 13, oracle.ranges_in(LONG, some), some)),
    ]
    for method, text, prompt_name, options, make in rows:
        vectors, found = make(model.prompts[prompt_name] if prompt_name else "")
        yield {"method": method, "text": text, "prompt_name": prompt_name or None, **options, "want_spans": found,
               "vectors": [[float("%.9g" % x) for x in one] for one in normalized(vectors)]}


def main():
    torch.use_deterministic_algorithms(True)
    model = write_model(OUT / "model")
    oracle = Oracle(model, OUT / "model")
    found = list(cases(oracle, model))
    assert np.allclose(found[0]["vectors"], found[4]["vectors"], atol=1e-6)  # one chunk is the text
    with open(OUT / "reference.json", "w", encoding="utf-8") as file:
        json.dump(found, file, ensure_ascii=False, indent=0)
        file.write("\n")
    print(len(found), "cases", sorted(str(p.relative_to(OUT)) for p in OUT.rglob("*") if p.is_file()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
