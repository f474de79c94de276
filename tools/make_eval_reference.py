#!/usr/bin/env python3
"""Write tests/data/eval.json: scores that scipy, scikit-learn and sentence-transformers compute from similarities and
vectors of the program. Needs scikit-learn and sentence-transformers."""
import json
import os
import random
import subprocess
import sys

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, average_precision_score, f1_score

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def best(metric, labels, similarity):
    """Over the middles of adjacent similarities; the highest threshold of equal scores."""
    found = np.unique(similarity)[::-1]
    middles = (found[:-1] + found[1:]) / 2
    scores = [metric(labels, similarity > t) for t in middles]
    return float(max(scores)), float(middles[int(np.argmax(scores))])


def vectors(program, model, texts, prompt):
    out = subprocess.run([program, "embed", model, "--prompt-name", prompt, "-d", "cpu"], input="\n".join(texts),
                         capture_output=True, text=True, check=True).stdout
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
    cosine = vectors(program, model, queries, "query") @ vectors(program, model, documents, "document").T
    relevant = {q: {d for one, d in rows if one == q} for q in queries}
    evaluator = InformationRetrievalEvaluator({q: q for q in queries}, {d: d for d in documents}, relevant, mrr_at_k=[10],
                                              ndcg_at_k=[10], accuracy_at_k=[1], precision_recall_at_k=[10], map_at_k=[10])
    found = [[{"corpus_id": documents[d], "score": row[d]} for d in np.argsort(-row, kind="stable")] for row in cosine]
    got = evaluator.compute_metrics(found)
    return {"rows": rows, "n": len(queries), "documents": len(documents),
            "scores": {"ndcg@10": float(got["ndcg@k"][10]), "mrr@10": float(got["mrr@k"][10]),
                       "recall@10": float(got["recall@k"][10]), "accuracy@1": float(got["accuracy@k"][1])}}


def main():
    """Arguments: the program."""
    rng = random.Random(7)
    pairs = [[" ".join("w%d" % rng.randint(1, 20) for _ in range(rng.randint(1, 6))) for _ in range(2)] for _ in range(60)]
    pairs += pairs[:6]  # equal similarities
    lines = "".join(json.dumps({"text": a, "pair": b}) + "\n" for a, b in pairs)
    model = os.path.join(ROOT, "tests", "data", "models", "st-weighted-layers")
    out = subprocess.run([sys.argv[1], "similarity", model, "--pairs", "--input-format", "jsonl", "-d", "cpu"], input=lines,
                         capture_output=True, text=True, check=True).stdout
    similarity = np.array([json.loads(line)["similarity"] for line in out.splitlines()])
    score = [round(float(s) * 5 + rng.gauss(0, 0.5)) for s in similarity]
    label = [int(s + rng.gauss(0, 0.1) > np.median(similarity)) for s in similarity]
    accuracy, f1 = (best(metric, label, similarity) for metric in (accuracy_score, f1_score))
    made = {"texts": pairs, "similarity": similarity.tolist(), "score": score, "label": label,
            "sts": {"spearman": float(spearmanr(similarity, score)[0]), "pearson": float(pearsonr(similarity, score)[0])},
            "pairs": {"average_precision": float(average_precision_score(label, similarity)), "accuracy": accuracy[0],
                       "accuracy_threshold": accuracy[1], "f1": f1[0], "f1_threshold": f1[1]},
            "retrieval": retrieval(sys.argv[1], random.Random(11))}
    with open(os.path.join(ROOT, "tests", "data", "eval.json"), "w", encoding="utf-8") as file:
        json.dump(made, file)
        file.write("\n")


if __name__ == "__main__":
    main()
