#!/usr/bin/env python3
"""Train a sentiment head on frozen embeddings with scikit-learn, and evaluate it.

    pip install dist/gpuserve-*.whl scikit-learn
    python3 examples/python/sentiment_head.py
"""
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import classification_report, confusion_matrix
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from common import arguments, reviews
from gpuserve.sklearn import TextEmbedder

OWN = ["A warm, funny and moving film.", "Two hours of my life that I will never get back."]


def main():
    given = arguments(__doc__.split("\n")[0], texts=(4000, "reviews, a quarter of them for the test"))
    texts, labels = reviews(given.texts, "rotten_tomatoes")
    train, test, y_train, y_test = train_test_split(texts, labels, test_size=0.25, random_state=0,
                                                    stratify=labels)
    classifier = make_pipeline(TextEmbedder(given.model, device=given.device),
                               LogisticRegression(C=10, max_iter=1000))
    classifier.fit(train, y_train)
    found = classifier.predict(test)
    print(classification_report(y_test, found, target_names=["bad", "good"], digits=3))
    print("bad and good ones, as found:\n", confusion_matrix(y_test, found), sep="")
    print(f"accuracy {np.mean(found == np.array(y_test)):.3f}")
    for text, (_, good) in zip(OWN, classifier.predict_proba(OWN)):
        print(f"{good:.2f}  {text}")


if __name__ == "__main__":
    main()
