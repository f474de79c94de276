#!/usr/bin/env python3
"""Write tests/data/rerankers: small Qwen3 rerankers with random weights and a small tokenizer, and the scores that
transformers computes in float64 from the token ids of Qwen3-Reranker's model card.

    causal        Qwen3ForCausalLM as Qwen3-Reranker is published: the answer is "yes" or "no"
    logit-score   the same weights with sentence-transformers' LogitScore module and a chat template
    sequence      the same as Qwen3ForSequenceClassification with one label, with a chat template

Usage: make_rerankers.py [OUT]      (default tests/data/rerankers)
Needs torch, transformers and tokenizers; made with 2.15, 5.23 and 0.23.3.
"""
import json
import os
import shutil
import sys

import torch
import transformers as tf
from tokenizers import AddedToken, Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../tests/data/rerankers")
TOKENIZER = os.path.join(HERE, "../tests/data/tokenizers/family-qwen2/tokenizer.json")
MAX_TOKENS = 320

# The texts of the model card.
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
BEFORE = ("<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
          "Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n")
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
CHAT_TEMPLATE = ('{%- set instruction = messages | selectattr("role", "eq", "system") | map(attribute="content") | first '
                 '| default("' + INSTRUCTION + '") -%}\n' + BEFORE + '<Instruct>: {{ instruction }}\n'
                 '<Query>: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}\n'
                 '<Document>: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}'
                 '{{ "' + AFTER.replace("\n", "\\n") + '" }}\n')
CASES = [(None, "Hello world", "the hello of the world"), (None, "Hello world", ""), (None, "Hello world", "in the 2 rings  \n"),
         (None, "Hello world", "<|im_end|> e\u0301 中文 " * 3), (None, "Hello world", "worlds are wide and whole " * 60),
         ("Find the same words", "Hello world", "the hello of the world"), ("Find the same words", "Hello world", "naïve 11123")]


def make_tokenizer():
    tokenizer = Tokenizer.from_file(TOKENIZER)
    model = json.loads(tokenizer.to_str())
    vocab, merges = model["model"]["vocab"], model["model"]["merges"]
    for left, right in (("n", "o"), ("y", "e"), ("ye", "s")):
        merges.append([left, right])
        vocab[left + right] = max(*vocab.values(), *(t["id"] for t in model["added_tokens"])) + 1
    tokenizer = Tokenizer.from_str(json.dumps(model))
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in ("<think>", "</think>")])
    return tokenizer


def write_tokenizer(folder, tokenizer, template=None):
    tokenizer.save(os.path.join(folder, "tokenizer.json"), pretty=False)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"model_max_length": MAX_TOKENS, "padding_side": "left", "tokenizer_class": "Qwen2Tokenizer"}, f, indent=1)
    if template:
        with open(os.path.join(folder, "chat_template.jinja"), "w") as f:
            f.write(template)


def ids_of(tokenizer, instruction, query, document):
    """The ids as in the model card: the middle is cut, the text around it is not."""
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    before, after = encode(BEFORE), encode(AFTER)
    middle = encode("<Instruct>: %s\n<Query>: %s\n<Document>: %s" % (instruction or INSTRUCTION, query, document))
    return before + middle[:MAX_TOKENS - len(before) - len(after)] + after


def write_module(folder, yes, no):
    os.makedirs(os.path.join(folder, "1_LogitScore"))
    package = "sentence_transformers."
    for name, content in (
            ("modules.json", [{"idx": 0, "name": "0", "path": "", "type": package + "base.modules.transformer.Transformer"},
                              {"idx": 1, "name": "1", "path": "1_LogitScore",
                               "type": package + "cross_encoder.modules.logit_score.LogitScore"}]),
            ("sentence_bert_config.json", {
                "transformer_task": "text-generation", "module_output_name": "causal_logits", "modality_config": {
                    "text": {"method": "forward", "method_output_name": "logits"},
                    "message": {"method": "forward", "method_output_name": "logits", "format": "flat"}}}),
            ("1_LogitScore/config.json", {"true_token_id": yes, "false_token_id": no, "module_input_name": "causal_logits"}),
            ("config_sentence_transformers.json", {"activation_fn": "torch.nn.modules.activation.Sigmoid", "model_type": "CrossEncoder",
                                                   "prompts": {"same": "Find the same words"}, "default_prompt_name": None})):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(content, f, indent=1)


def main():
    tokenizer = make_tokenizer()
    yes, no = tokenizer.token_to_id("yes"), tokenizer.token_to_id("no")
    sizes = dict(vocab_size=tokenizer.get_vocab_size(), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                 head_dim=8, intermediate_size=24, max_position_embeddings=512, initializer_range=0.3, tie_word_embeddings=True)
    shutil.rmtree(OUT, ignore_errors=True)
    torch.manual_seed(3)
    model = tf.Qwen3ForCausalLM(tf.Qwen3Config(**sizes)).eval()
    folders = {name: os.path.join(OUT, name) for name in ("causal", "logit-score", "sequence")}
    for name in ("causal", "logit-score"):
        model.save_pretrained(folders[name])
        write_tokenizer(folders[name], tokenizer, CHAT_TEMPLATE if name == "logit-score" else None)
    write_module(folders["logit-score"], yes, no)
    head = model.lm_head.weight[yes] - model.lm_head.weight[no]
    single = tf.Qwen3ForSequenceClassification(tf.Qwen3Config(**sizes, num_labels=1, pad_token_id=tokenizer.token_to_id("<|endoftext|>")))
    single.model.load_state_dict(model.model.state_dict())
    single.score.weight.data[0] = head
    single.save_pretrained(folders["sequence"])
    write_tokenizer(folders["sequence"], tokenizer, CHAT_TEMPLATE)
    rows = []
    for instruction, query, document in CASES:
        ids = ids_of(tokenizer, instruction, query, document)
        logits = model.double()(torch.tensor([ids])).logits[0, -1]
        rows.append({"instruction": instruction, "query": query, "document": document, "ids": ids,
                     "logit": (logits[yes] - logits[no]).item(), "score": torch.softmax(logits[[no, yes]], 0)[1].item()})
    with open(os.path.join(OUT, "expected.json"), "w") as f:
        json.dump(rows, f, ensure_ascii=False, indent=1)
        f.write("\n")


main()
