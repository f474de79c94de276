#!/usr/bin/env python3
"""Ids of tests/data/oracle, made by Hugging Face `tokenizers` elsewhere, against lib/text.

    oracle.py ENCODE_SERVER ORACLE_FOLDER

Also: what is no UTF-8 is refused, and a vocab.txt, or vocab.json and merges.txt, without tokenizer.json gives the same
ids.
"""
import json
import pathlib
import shutil
import sys
import tempfile

from safetensors.numpy import load_file

from differential import Server, find_model

MODELS = {"minilm-wordpiece": "all-MiniLM-L6-v2", "splade-bert-wordpiece": "splade-tiny",
          "gpt2-bytebpe": "gpt2", "deepseek-bytebpe": "deepseek", "deberta-v3-unigram": "deberta-v3"}


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def differing(server, wanted, texts):
    """How many texts have other ids than the reference."""
    failed = 0
    for special, suffix in ((True, ""), (False, "_nospecial")):
        ends = wanted["offsets" + suffix]
        ids = wanted["ids" + suffix].tolist()
        starts = ends.tolist() if len(ends) == len(texts) + 1 else [0] + ends.tolist()
        if len(starts) != len(texts) + 1:
            sys.exit("%d texts, %d offsets" % (len(texts), len(ends)))
        for i, text in enumerate(texts):
            got = server.encode(text.encode(), special=special)[1]
            if got != ids[starts[i]:starts[i + 1]]:
                failed += 1
                print("text %d, special %s: %s, not %s" % (i, special, got, ids[starts[i]:starts[i + 1]]))
    return failed


def accepted(server, cases):
    """How many byte strings that are no UTF-8 were not refused as GPUSERVE_E_INVALID."""
    return sum(server.encode(bytes.fromhex(case["hex"]))[0] != 1 for case in cases)


def copy_vocab(folder):
    for file in ("vocab.txt", "tokenizer_config.json"):
        shutil.copy(find_model("all-MiniLM-L6-v2") / file, folder)


def write_merges(folder):
    """The vocab.json and merges.txt that GPT-2's tokenizer.json was made of."""
    model = json.loads((find_model("gpt2") / "tokenizer.json").read_text("utf-8"))["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), "utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(merge + "\n" for merge in model["merges"]), "utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}', "utf-8")


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    texts = [line["text"] for line in lines(folder / "texts.jsonl")]
    failed = 0
    for name, model in MODELS.items():
        server = Server(program, find_model(model))
        failed += differing(server, load_file(folder / "tokens" / (name + ".safetensors")), texts)
        failed += accepted(server, lines(folder / "invalid_utf8.jsonl"))
        server.close()
    for fill, name in ((copy_vocab, "minilm-wordpiece"), (write_merges, "gpt2-bytebpe")):
        with tempfile.TemporaryDirectory() as bare:
            fill(pathlib.Path(bare))
            server = Server(program, bare)
            failed += differing(server, load_file(folder / "tokens" / (name + ".safetensors")), texts)
            server.close()
    print("%d texts, %d differ" % (len(texts), failed))
    sys.exit(1 if failed or not texts else 0)


if __name__ == "__main__":
    main()
