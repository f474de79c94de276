"""Each kind of output on the device against the CPU, in float32, over the Python package, as JSON lines.

    outputs.py LIBRARY FIXTURES [dry]       FIXTURES: tests/data, or the copy that a pack has (see --list);
                                            dry: fewer models and short texts, for the emulator
    outputs.py --list                       the parts of tests/data that are read, one per line

The models are small ones with random weights. A case that fails does not end the others.
"""
import json
import os
import pathlib
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EMBEDDERS = ["bert", "modernbert", "qwen3-embedding", "nomic-moe-hub", "t5-encoder-gated", "eurobert", "mobilebert", "deberta-v3",
             "embeddinggemma", "gemma2", "jina-v2-hub", "gte", "st-weighted-layers", "st-dense", "st-static"]
OTHERS = ["st-xlm-roberta", "st-multi-vector", "bert-multi", "bert-pairs", "bert-tokens", "deberta-v3-entities"]
FOLDERS = [f"models/{name}" for name in EMBEDDERS + OTHERS] + ["lora", "late-heads"]

if __name__ == "__main__" and sys.argv[1:] == ["--list"]:
    print("\n".join(FOLDERS))
    sys.exit()

try:
    import numpy as np
except ImportError:
    print(json.dumps({"stage": "outputs", "skipped": "no numpy"}))
    sys.exit()

DRY = sys.argv[-1] == "dry"
DEVICE = "cuda:0"
BOUND = 2e-5 # of vectors; scores of a token's labels are logits

LENGTHS = (3, 1, 17, 20) if DRY else (3, 1, 17, 60, 5, 31, 2, 9)
TEXTS = [" ".join("w%d" % (8 + (7 * i + j) % 40) for j in range(length)) for i, length in enumerate(LENGTHS)]


def prepared(name, folder):
    """A copy of a fixture; one without a tokenizer gets a vocabulary of words."""
    folder = f"{folder}/{name}"
    if os.path.exists(folder):
        return folder
    shutil.copytree(f"{FIXTURES}/models/{name}", folder)
    if not {"tokenizer.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model"} & set(os.listdir(folder)):
        config = json.loads(pathlib.Path(folder, "config.json").read_text(encoding="utf-8"))
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        words += ["w%d" % i for i in range(len(words), config["vocab_size"])]
        pathlib.Path(folder, "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    return folder


def apart(a, b):
    """The largest difference of two results of one shape, relative to values above 1."""
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b), (len(a), len(b))
        return max((apart(one, other) for one, other in zip(a, b)), default=0.0)
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    assert a.shape == b.shape and np.isfinite(a).all(), (a.shape, b.shape)
    return float((np.abs(a - b) / np.maximum(1, np.abs(b))).max()) if a.size else 0.0


def pair(folder, **options):
    return Model(folder, device=DEVICE, dtype="float32", **options), Model(folder, device="cpu", dtype="float32", **options)


def unit_vectors(folder):
    ours, cpu = pair(folder)
    with ours, cpu:
        return apart(ours.encode(TEXTS, normalize_embeddings=True), cpu.encode(TEXTS, normalize_embeddings=True))


def deterministic_bits(folder):
    """Different bits in a batch and alone."""
    with Model(folder, device=DEVICE, deterministic=True) as model:
        together = model.encode(TEXTS)
        return float(sum(together[i].tobytes() != model.encode([one])[0].tobytes() for i, one in enumerate(TEXTS)))


def token_vectors(folder):
    ours, cpu = pair(folder)
    with ours, cpu:
        return apart(ours.encode(TEXTS, output_value="token_embeddings"), cpu.encode(TEXTS, output_value="token_embeddings"))


def cut_vectors(folder):
    ours, cpu = pair(folder)
    with ours, cpu:
        return apart(ours.encode(TEXTS, truncate_dim=16, normalize_embeddings=True),
                     cpu.encode(TEXTS, truncate_dim=16, normalize_embeddings=True))


def precision_of(name):
    """int8 and uint8 differ by one step at most, float16 by its rounding; of signs those of values near zero."""
    def compare(folder):
        ours, cpu = pair(folder)
        with ours, cpu:
            got, want = (model.encode(TEXTS, precision=name) for model in (ours, cpu))
            assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, got.shape, want.shape)
            if name in ("binary", "ubinary"):
                return float((np.unpackbits(got.view(np.uint8)) != np.unpackbits(want.view(np.uint8))).mean()) / 1e-3 * BOUND
            if name == "float16":
                return apart(got, want) / 1e-3 * BOUND
            return float(np.abs(got.astype(int) - want.astype(int)).max() > 1)
    return compare


def three_outputs(folder):
    """BGE-M3: dense, sparse and token vectors of one pass."""
    for name in ("sparse_linear.pt", "colbert_linear.pt"):
        shutil.copy(f"{FIXTURES}/late-heads/{name}", folder)
    ours, cpu = pair(folder)
    with ours, cpu:
        got, want = ours.encode_multi(TEXTS), cpu.encode_multi(TEXTS)
        assert all(np.array_equal(a.ids, b.ids) for a, b in zip(got["sparse"], want["sparse"]))
        return max(apart(got["dense"], want["dense"]), apart(got["colbert"], want["colbert"]),
                   apart([one.weights for one in got["sparse"]], [one.weights for one in want["sparse"]]))


def max_sim_ranking(folder):
    ours, cpu = pair(folder)
    with ours, cpu:
        scores = [{one["corpus_id"]: one["score"] for one in model.rank(TEXTS[0], TEXTS)} for model in (ours, cpu)]
        return apart([scores[0][i] for i in range(len(TEXTS))], [scores[1][i] for i in range(len(TEXTS))])


def probabilities(folder):
    ours, cpu = pair(folder)
    with ours, cpu:
        return apart(ours.predict_proba(TEXTS), cpu.predict_proba(TEXTS))


def pair_scores(folder):
    pairs = list(zip(TEXTS, TEXTS[1:]))
    ours, cpu = pair(folder)
    with ours, cpu:
        return apart(ours.predict(pairs), cpu.predict(pairs))


def token_labels(folder):
    ours, cpu = pair(folder)
    with ours, cpu:
        return apart([one.scores for one in ours.label_tokens(TEXTS, score="raw")], [one.scores for one in cpu.label_tokens(TEXTS, score="raw")])


def adapters_in_one_batch(folder):
    """LoRA adapters by request: texts of the base and of two adapters wait together."""
    adapters = {}
    for name in ("attention", "words"):
        adapters[name] = shutil.copytree(f"{FIXTURES}/lora/{name}", f"{folder}-{name}")
        path = pathlib.Path(adapters[name], "adapter_config.json")
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "base_model_name_or_path": folder}), encoding="utf-8")
    ours, cpu = pair(folder, adapters=adapters)
    with ours, cpu:
        names = [name for _ in range(1 if DRY else 8) for name in (None, *adapters)]
        futures = [ours.submit(TEXTS, prompt_name=name) for name in names]
        return max(apart(np.array(future.result()), cpu.encode(TEXTS, prompt_name=name)) for future, name in zip(futures, names))


def many_lengths(folder):
    """300 texts of random lengths in several batches, twice: the second ones are replayed graphs."""
    random = np.random.default_rng(7)
    texts = [" ".join("w%d" % random.integers(5, 48) for _ in range(random.integers(1, 9 if DRY else 90))) for _ in range(8 if DRY else 300)]
    ours, cpu = pair(folder, max_batch_tokens=1024)
    with ours, cpu:
        want = cpu.encode(texts, normalize_embeddings=True)
        return max(apart(ours.encode(texts, normalize_embeddings=True), want) for _ in range(2))


def cases():
    for name in EMBEDDERS[:4] if DRY else EMBEDDERS:
        yield unit_vectors, name
    for name in ("bert",) if DRY else ("bert", "modernbert", "qwen3-embedding", "nomic-moe-hub", "deberta-v3"):
        yield deterministic_bits, name
        yield many_lengths, name
    for name in ("bert",) if DRY else ("bert", "modernbert", "qwen3-embedding"):
        yield token_vectors, name
        yield cut_vectors, name
    for precision in ("float16", "int8", "uint8", "binary", "ubinary"):
        compare = precision_of(precision)
        compare.__name__ = precision
        yield compare, "bert"
    yield three_outputs, "st-xlm-roberta"
    yield max_sim_ranking, "st-multi-vector"
    yield probabilities, "bert-multi"
    yield pair_scores, "bert-pairs"
    yield token_labels, "bert-tokens"
    yield token_labels, "deberta-v3-entities"
    yield adapters_in_one_batch, "bert"


def run(folder):
    for compare, name in cases():
        try:
            largest = compare(prepared(name, folder))
            line = {"largest": largest, "ok": largest <= BOUND}
        except Exception as problem: # a case that fails says so; the others are run
            line = {"error": f"{type(problem).__name__}: {problem}"[:300], "ok": False}
        print(json.dumps({"stage": "outputs", "name": compare.__name__, "model": name, **line}), flush=True)
    ours, cpu = (Model(ROOT / "share" / "models" / "lstm-sentiment", device=one) for one in (DEVICE, "cpu"))
    with ours, cpu:
        texts = ["A wonderful film with a great cast.", "The plot is dull and the acting is worse.", "It was fine."] * (1 if DRY else 20)
        largest = apart(ours.predict_proba(texts), cpu.predict_proba(texts))
        print(json.dumps({"stage": "outputs", "name": "probabilities", "model": "lstm-sentiment", "largest": largest, "ok": largest < 2e-3}), flush=True)


if __name__ == "__main__":
    os.environ["GPUSERVE_LIBRARY"], FIXTURES = sys.argv[1:3]
    sys.path.insert(0, str(ROOT / "python"))
    from gpuserve import Model
    with tempfile.TemporaryDirectory() as temporary:
        run(temporary)
