"""What all makers of small family models share: weights, texts, float64 references, directories."""
import json
import os
import shutil

import torch
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode

LENGTHS = [1, 2, 7, 16, 33, 5]  # 33 is the limit of most models
VOCABULARY = 48
PAD, BOS, EOS, MASK = 0, 3, 4, 5  # ids below FIRST are special
FIRST = 6
# Names of norm layers' weights, which start at 1, or at 0 where the family adds 1 itself.
NORMS = ("norm", "ln", "layernorm")


class InDouble(TorchFunctionMode):
    """Computes in float64 where a model asks for float32: softmax, norms and rotary angles do in many families."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.float:
            function = torch.Tensor.double
        args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        kwargs = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        return function(*args, **kwargs)


def is_norm(name):
    parts = name.lower().split(".")
    return any(norm in part for part in parts[:-1] for norm in NORMS) and "embeddings_layer" not in name


def randomize(model, seed, scale=1.0):
    """Weights large enough that a mistake shows; transformers' own start values hide most."""
    generator = torch.Generator().manual_seed(seed)
    adds_one = model.config.model_type.startswith("gemma")
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if p.dim() >= 2 and ("embed" in name or "shared" in name) and not is_norm(name) and "project" not in name:
            p.copy_(noise * 0.5)
        elif p.dim() >= 2:
            p.copy_(noise * 0.2 * scale)
        else:
            p.copy_(noise * 0.1 + (1.0 if is_norm(name) and name.endswith("weight") and not adds_one else 0.0))
    return model.eval()


def texts(seed, lengths, vocabulary=VOCABULARY):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(FIRST, vocabulary, (1, n), generator=generator) for n in lengths]


def with_pads(pad, unlike=()):
    """A text with the pad id inside, twice in a row and at the end."""
    return torch.tensor([[BOS, 11, pad, 12, pad, pad, 13, *unlike, EOS, pad]])


def in_double(make, config, weights):
    """The model again, from config and float32 weights, computing in float64 throughout."""
    config = type(config).from_dict(json.loads(config.to_json_string(use_diff=False)))
    config._attn_implementation = "eager"
    torch.set_default_dtype(torch.float64)
    try:
        with InDouble():
            model = make(config).double().eval()
            model.load_state_dict({k: v.double() for k, v in weights.items()})
    finally:
        torch.set_default_dtype(torch.float32)
    return model


def compute(model, ids, **more):
    with InDouble():
        return model(input_ids=ids, attention_mask=torch.ones_like(ids), **more)


POOLINGS = {
    "cls": lambda hidden: hidden[:, 0],
    "mean": lambda hidden: hidden.mean(1),
    "lasttoken": lambda hidden: hidden[:, -1],
}
PROBABILITIES = {
    "single_label_classification": lambda logits: torch.softmax(logits, -1),
    "multi_label_classification": torch.sigmoid,
    "regression": lambda logits: logits.clone(),
}


def score_of(config):
    if config.problem_type:
        return PROBABILITIES[config.problem_type]
    return PROBABILITIES["regression" if config.num_labels == 1 else "single_label_classification"]


def write_reference(folder, sentences, columns, name="reference"):
    out = {"ids": torch.cat([s[0] for s in sentences]).int(),
           "n_tokens": torch.tensor([s.shape[1] for s in sentences]).int(), **columns}
    save_file({k: v.contiguous() for k, v in out.items()}, f"{folder}/{name}.safetensors")


def refer(folder, model, sentences, tokens=(), pooling=None, logits=None, sparse=False, more=None):
    """Computes each text alone. `tokens`: which of hidden, logits are wanted by token."""
    columns = {k: [] for k in ("hidden_f64", "embedding_f64", "logits_f64", "probs_f64", "sparse_f64")}
    for ids in sentences:
        if "hidden" in tokens or pooling:
            out = compute(model if pooling == "own" else getattr(model, "encoder_only", model.base_model), ids, **(more or {}))
            if "hidden" in tokens:
                columns["hidden_f64"].append(out.last_hidden_state[0])
            if pooling:
                columns["embedding_f64"].append(
                    out.text_embeds if pooling == "own" else POOLINGS[pooling](out.last_hidden_state))
        if logits or sparse:
            out = compute(model, ids, **(more or {})).logits
            if sparse:
                columns["sparse_f64"].append(torch.log1p(torch.relu(out[0])).max(0).values[None])
            else:
                out = out[0] if "logits" in tokens else out
                columns["logits_f64"].append(out)
                columns["probs_f64"].append(logits(out))
    write_reference(folder, sentences, {k: torch.cat(v) for k, v in columns.items() if v})


def types_of(ids):
    """The tokens from the middle on are the second text's."""
    types = torch.zeros_like(ids)
    types[:, (ids.shape[1] + 1) // 2:] = 1
    return types


def write_pairs(folder, sentences, hidden):
    write_reference(folder, sentences, {"type_ids": torch.cat([types_of(ids)[0] for ids in sentences]).int(),
                                        "hidden_f64": torch.cat(hidden)}, "pairs")


def refer_pairs(folder, model, seed, vocabulary):
    """Pairs of texts: token type 1 for the second one."""
    sentences = texts(seed + 7000, [2, 9, 33, 5], vocabulary)
    write_pairs(folder, sentences, [compute(model, ids, token_type_ids=types_of(ids)).last_hidden_state[0] for ids in sentences])


def write_json(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        json.dump(data, file, indent=2)
        file.write("\n")


def read_json(path):
    with open(path) as file:
        return json.load(file)


def write_pooling(folder, width, pooling, normalize=False):
    """modules.json and 1_Pooling as sentence-transformers writes them."""
    kinds = ["base.modules.transformer.Transformer", "sentence_transformer.modules.pooling.Pooling",
             "sentence_transformer.modules.normalize.Normalize"][:3 if normalize else 2]
    paths = ["", "1_Pooling", "2_Normalize"]
    write_json(f"{folder}/modules.json", [
        {"idx": i, "name": str(i), "path": paths[i], "type": "sentence_transformers." + kind}
        for i, kind in enumerate(kinds)])
    write_json(f"{folder}/1_Pooling/config.json",
               {"embedding_dimension": width, "pooling_mode": pooling, "include_prompt": True})


# Models of tools/make_test_models.py, with the same reference.
MADE_BEFORE = [(name, name.split("-")[0]) for name in (
    "bert", "bert-gelu-new", "bert-masked", "bert-single", "bert-multi", "bert-regression", "distilbert-single", "distilbert-masked",
    "mpnet", "mpnet-masked", "roberta", "roberta-masked")] + [("xlm-roberta-single", "xlm-roberta")] + [
        (name, "sentence-chains") for name in ("st-dense", "st-newer", "st-poolings")]


class Maker:
    """Writes directories below `out`; `only` limits them to names that start with one of it."""

    def __init__(self, out, only=()):
        self.out, self.only, self.seed = out, tuple(only), 100
        self.family, self.names = None, []

    def wants(self, name, listed=True, counted=True):
        """True if this model is to be written. `listed`: it has a reference.safetensors."""
        self.seed += counted
        if listed:
            self.names.append((name, self.family))
        return not self.only or name.startswith(self.only)

    def write_list(self):
        with open(os.path.join(self.out, "families.txt"), "w") as file:
            file.write("# Written by tools/make_family_models: the models of test_model_families.c, and their families.\n")
            file.writelines(f"{name}\t{family}\n" for name, family in self.names + MADE_BEFORE)

    def folder(self, name):
        folder = os.path.join(self.out, name)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        print(name)
        return folder

    def write(self, name, make, config, pooling=None, lengths=LENGTHS, edit=None, pads=True, normalize=False,
              hidden=None, scale=1.0, extra=(), more=None, original=True,
              seed=None, pairs=False, end=None):
        """One directory: the model as save_pretrained() writes it, `edit`ed (hub layout), and its reference.

        With `pooling` the model embeds; a class ...ForSequenceClassification, ...ForTokenClassification or
        ...ForMaskedLM gets what its head computes. `original`: with the names of tensors that transformers writes by
        itself, which are those of the repositories, not those of its own modules. `end`: the last token of each text
        of `lengths`, which the head needs.
        """
        if not self.wants(name, counted=seed is None):
            return None
        seed = seed or self.seed  # of its own: models added later leave those of others as they are
        folder = self.folder(name)
        model = randomize(make(config), seed, scale)
        model.save_pretrained(folder, save_original_format=original)
        if os.path.exists(f"{folder}/generation_config.json"):
            os.remove(f"{folder}/generation_config.json")
        weights = {k: v.clone() for k, v in model.state_dict().items()}
        exact = in_double(make, config, weights)
        head = make.__name__
        whole = pooling and config.num_hidden_layers > 1  # one layer is enough to see an option in the embedding
        by_token = [t for t, wanted in (("hidden", whole if hidden is None else hidden),
                                        ("logits", "ForTokenClass" in head)) if wanted]
        sentences = texts(seed, lengths, config.vocab_size)
        for ids in sentences if end is not None else ():
            ids[0, -1] = end
        if pads and config.pad_token_id is not None:
            sentences.append(with_pads(config.pad_token_id))
        refer(folder, exact, sentences + list(extra), by_token, pooling,
              score_of(config) if "ForSequence" in head or "ForTokenClass" in head else None, "ForMaskedLM" in head, more)
        if pairs:
            refer_pairs(folder, exact, seed, config.vocab_size)
        if pooling and pooling not in ("mean", "own"):
            write_pooling(folder, config.hidden_size, pooling, normalize)
        if edit:
            edit(folder)
        return folder


def rename(folder, change, config=None):
    """Rewrites model.safetensors with change(tensors) and config.json with config(dict)."""
    path = f"{folder}/model.safetensors"
    save_file({k: v.contiguous() for k, v in change(load_file(path)).items()}, path, metadata={"format": "pt"})
    if config:
        write_json(f"{folder}/config.json", config(read_json(f"{folder}/config.json")))


TINY = dict(hidden_size=16, num_attention_heads=2, intermediate_size=16)  # of models whose head matters


def heads_of(maker, name, classes, config, sizes=TINY, **more):
    """A directory for each head of a family; the three problem types take turns over the families."""
    kinds = {"single": dict(id2label={0: "bad", 1: "good", 2: "so so"}, problem_type="single_label_classification"),
             "multi": dict(num_labels=4, problem_type="multi_label_classification"),
             "regression": dict(num_labels=1, problem_type="regression"),
             "tokens": dict(id2label={0: "O", 1: "B-PER", 2: "I-PER"}), "masked": {}}
    for kind, make in classes.items():
        maker.write(f"{name}-{kind}", make, config(**sizes, **kinds[kind]), **more)
