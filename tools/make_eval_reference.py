#!/usr/bin/env python3
"""Write tests/data/eval.json: scores that scipy, scikit-learn and sentence-transformers compute from similarities and
vectors of the program. Needs scikit-learn and sentence-transformers."""
import json
import os
import random
import subprocess
import sys
import types

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, average_precision_score, classification_report, f1_score

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TINY = os.path.join(ROOT, "tests", "data", "models", "st-weighted-layers")
PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")


def best(metric, labels, similarity):
    """Over the middles of adjacent similarities; the highest threshold of equal scores."""
    found = np.unique(similarity)[::-1]
    middles = (found[:-1] + found[1:]) / 2
    scores = [metric(labels, similarity > t) for t in middles]
    return float(max(scores)), float(middles[int(np.argmax(scores))])


def vectors(program, model, texts, *options):
    out = subprocess.run([program, "embed", model, "-d", "cpu", *options], input="\n".join(texts), capture_output=True, text=True, check=True).stdout
    return np.array([json.loads(line)["embedding"] for line in out.splitlines()], dtype=np.float64)


def retrieval(program, rng):
    """Rows of queries and relevant documents, and what sentence-transformers' evaluator says of the search."""
    from sentence_transformers.evaluation import InformationRetrievalEvaluator
    words = lambda n: " ".join("w%d" % rng.randint(1, 20) for _ in range(n))  # noqa: E731
    documents = list(dict.fromkeys(words(rng.randint(3, 8)) for _ in range(40)))
    queries = list(dict.fromkeys(" ".join(rng.sample(text.split(), 2)) for text in documents[:25]))
    rows = [[query, text] for query in queries for text in documents if all(f" {w} " in f" {text} " for w in query.split())]
    rows += [[queries[0], text] for text in documents[-14:]] + rows[:3]  # more than ten relevant ones; rows that are there twice
    rng.shuffle(rows)
    queries, documents = (list(dict.fromkeys(column)) for column in zip(*rows))
    model = os.path.join(ROOT, "tests", "data", "models", "embeddinggemma")
    cosine = vectors(program, model, queries, "--prompt-name", "query") @ vectors(program, model, documents, "--prompt-name", "document").T
    relevant = {q: {d for one, d in rows if one == q} for q in queries}
    evaluator = InformationRetrievalEvaluator({q: q for q in queries}, {d: d for d in documents}, relevant, mrr_at_k=[10],
                                              ndcg_at_k=[10], accuracy_at_k=[1], precision_recall_at_k=[10], map_at_k=[10])
    found = [[{"corpus_id": documents[d], "score": row[d]} for d in np.argsort(-row, kind="stable")] for row in cosine]
    got = evaluator.compute_metrics(found)
    return {"rows": rows, "n": len(queries), "documents": len(documents),
            "scores": {"ndcg@10": float(got["ndcg@k"][10]), "mrr@10": float(got["mrr@k"][10]),
                       "recall@10": float(got["recall@k"][10]), "accuracy@1": float(got["accuracy@k"][1])}}


class Quantized:
    """What EmbeddingSimilarityEvaluator asks of a model: vectors of the program, stored with the ranges of a file."""

    def __init__(self, program, precision, ranges=None, dimensions=None):
        self.program, self.precision, self.ranges, self.dimensions = program, precision, ranges, dimensions
        self.model_card_data = types.SimpleNamespace(set_evaluation_metrics=lambda *_: None)

    def encode(self, sentences, **_):
        from sentence_transformers.util import quantize_embeddings
        rows = vectors(self.program, TINY, sentences).astype(np.float32)[:, :self.dimensions]
        return rows if self.precision == "float32" else quantize_embeddings(rows, self.precision, ranges=self.ranges)


def precisions(program, pairs, score):
    """sts with each precision and similarity."""
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
    rows = vectors(program, TINY, sorted({text for pair in pairs for text in pair}))
    ranges = np.array([rows.min(axis=0), rows.max(axis=0)], dtype=np.float32)

    def measure(precision, similarity, dimensions=None):
        evaluator = EmbeddingSimilarityEvaluator(*zip(*pairs), score, precision=precision, similarity_fn_names=[similarity], write_csv=False)
        got = evaluator(Quantized(program, precision, ranges, dimensions))
        return {name: float(got[next(key for key in got if key.endswith(f"{name}_{similarity}"))]) for name in ("spearman", "pearson")}

    return {"ranges": ranges.tolist(), **{similarity: {precision: measure(precision, similarity) for precision in PRECISIONS}
                                          for similarity in ("cosine", "dot")},
            "binary of 12 dimensions": measure("binary", "dot", 12)}  # the last byte of a vector is not full


def classification(program, rng):
    """Texts of four labels; what scikit-learn says of its own LogisticRegression on the program's vectors. One label has no
    test text, but is predicted; another has test texts, but is never predicted."""
    topics = {"north": range(1, 8), "east": range(6, 13), "south": range(11, 18), "west": range(15, 21)}
    text = lambda label: " ".join("w%d" % rng.choice(topics[label]) for _ in range(rng.randint(5, 9)))  # noqa: E731
    train = [[text(label), label] for label in topics for _ in range(30)]
    train += [[text("north"), "rare"], [text("south"), "rare"]]
    test = [[text(label), label if rng.random() > 0.2 else rng.choice(["north", "east", "rare"])] for label in topics for _ in range(12)]
    test = [[text, "east" if label == "west" else label] for text, label in test]
    (x, y), (x_test, wanted) = (list(zip(*rows)) for rows in (train, test))
    options = {}
    for name, more in (("all", ()), ("dimensions", ("--dimensions", "16"))):
        x_vectors, x_test_vectors = (vectors(program, TINY, texts, "--normalize", *more) for texts in (x, x_test))
        fitted = LogisticRegression(C=10, tol=1e-9, max_iter=10000).fit(x_vectors, y)
        best = np.sort(fitted.predict_proba(x_test_vectors), axis=1)
        assert (best[:, -1] - best[:, -2]).min() > 0.01, (best[:, -1] - best[:, -2]).min()
        found = fitted.predict(x_test_vectors)
        options[name] = {"found": found.tolist(), "report": classification_report(wanted, found, output_dict=True, zero_division=0)}
    assert "west" in options["all"]["found"] and "rare" not in options["all"]["found"]
    return {"train": train, "test": test, **options}


def main():
    """Arguments: the program."""
    rng = random.Random(7)
    pairs = [[" ".join("w%d" % rng.randint(1, 20) for _ in range(rng.randint(1, 6))) for _ in range(2)] for _ in range(60)]
    pairs += pairs[:6]  # equal similarities
    lines = "".join(json.dumps({"text": a, "pair": b}) + "\n" for a, b in pairs)
    out = subprocess.run([sys.argv[1], "similarity", TINY, "--pairs", "--input-format", "jsonl", "-d", "cpu"], input=lines,
                         capture_output=True, text=True, check=True).stdout
    similarity = np.array([json.loads(line)["similarity"] for line in out.splitlines()])
    score = [round(float(s) * 5 + rng.gauss(0, 0.5)) for s in similarity]
    label = [int(s + rng.gauss(0, 0.1) > np.median(similarity)) for s in similarity]
    accuracy, f1 = (best(metric, label, similarity) for metric in (accuracy_score, f1_score))
    made = {"texts": pairs, "similarity": similarity.tolist(), "score": score, "label": label,
            "sts": {"spearman": float(spearmanr(similarity, score)[0]), "pearson": float(pearsonr(similarity, score)[0])},
            "pairs": {"average_precision": float(average_precision_score(label, similarity)), "accuracy": accuracy[0],
                       "accuracy_threshold": accuracy[1], "f1": f1[0], "f1_threshold": f1[1]},
            "precisions": precisions(sys.argv[1], pairs, score), "retrieval": retrieval(sys.argv[1], random.Random(11)),
            "classification": classification(sys.argv[1], random.Random(6))}
    with open(os.path.join(ROOT, "tests", "data", "eval.json"), "w", encoding="utf-8") as file:
        json.dump(made, file)
        file.write("\n")


if __name__ == "__main__":
    main()
