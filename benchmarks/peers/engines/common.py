"""What adapters share: the interface, sorting by length, pooling, several workers."""
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from tokenizers import Tokenizer

MAX_TOKENS = 256


class Unavailable(Exception):
    """This engine cannot run here, and why."""


def prepared_facts(paths):
    """What prepare.py wrote of the model: its name, inputs, pooling, pad id, and failed conversions."""
    return json.loads((paths["prepared"] / "facts.json").read_text("utf-8"))


def need(paths, name):
    """The converted file or folder; raises Unavailable with the converter's reason."""
    path = paths["prepared"] / name
    if not path.exists():
        raise Unavailable(prepared_facts(paths)["failed"].get(name, f"{name} was not made"))
    return path


class Engine:
    """One way of turning texts into vectors.

    load() is timed as loading; embed() does everything from text to normalized vectors and is what
    the workloads time. A setting is one of settings(): the harness tries all of them for the bulk
    workloads and keeps the fastest, so that each engine runs at its best.
    """

    latency_setting = {"batch": 1}

    def load(self, paths, threads):
        raise NotImplementedError

    def facts(self):
        """What is worth keeping of the loaded engine."""
        return {}

    def settings(self):
        return [{"batch": batch} for batch in (8, 16, 32, 64)]

    def embed(self, texts, setting):
        raise NotImplementedError


class PaddedEngine(Engine):
    """An engine that runs padded batches of token ids: tokenizes, sorts by length, pools.

    A setting's `workers` is how many batches run side by side, each on threads / workers threads.
    """

    def load(self, paths, threads):
        self.threads, self.model = threads, prepared_facts(paths)
        self.tokenizer = Tokenizer.from_file(str(paths["model"] / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.runners = {1: self.make_runner(paths, 1, threads)}
        if threads > 1:
            self.runners[threads] = self.make_runner(paths, threads, 1)

    latency_setting = {"batch": 1, "workers": 1}

    def settings(self):
        return [{"batch": batch, "workers": workers}
                for workers in self.runners for batch in (4, 8, 16, 32)]

    def make_runner(self, paths, workers, threads_each):
        """An object whose run(ids) turns lists of token ids into normalized vectors."""
        raise NotImplementedError

    def embed(self, texts, setting):
        runner = self.runners[setting["workers"]]
        if len(texts) == 1:
            return runner.run([self.tokenizer.encode(texts[0]).ids])
        ids = [encoded.ids for encoded in self.tokenizer.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]), reverse=True)
        groups = [order[i:i + setting["batch"]] for i in range(0, len(order), setting["batch"])]
        batches = [[ids[i] for i in group] for group in groups]
        if setting["workers"] == 1:
            results = [runner.run(batch) for batch in batches]
        else:
            with ThreadPoolExecutor(setting["workers"]) as pool:
                results = list(pool.map(runner.run, batches))
        vectors = np.empty((len(texts), results[0].shape[1]), np.float32)
        for group, result in zip(groups, results):
            vectors[group] = result
        return vectors


def pad(batch, pad_id=0):
    """Lists of ids as one array, and the mask of what is real."""
    width = max(map(len, batch))
    ids = np.full((len(batch), width), pad_id, np.int64)
    mask = np.zeros((len(batch), width), np.int64)
    for row, tokens in enumerate(batch):
        ids[row, :len(tokens)] = tokens
        mask[row, :len(tokens)] = 1
    return ids, mask


def inputs_of(model, batch):
    """{name: array} of the exported graph's inputs."""
    ids, mask = pad(batch, model["pad_id"])
    found = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    return {name: found[name] for name in model["inputs"]}


def pool(hidden, lengths, pooling):
    """One normalized vector a text. hidden: [batch, width, dim]"""
    lengths = np.asarray(lengths)
    if pooling == "cls":
        found = hidden[:, 0]
    elif pooling == "lasttoken":
        found = hidden[np.arange(len(lengths)), lengths - 1]
    else:  # the length of a mean cancels out
        weights = (np.arange(hidden.shape[1])[None, :] < lengths[:, None])
        found = np.matmul(weights[:, None, :].astype(np.float32), hidden)[:, 0]
    return found / np.linalg.norm(found, axis=1, keepdims=True)
