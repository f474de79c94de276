"""Write the small random models of every family, with what transformers computes of them in float64.

Usage: make_family_models [OUT [NAME...]]     (default tests/data/models; NAME: only models whose name starts so)
Needs torch, transformers and sentence-transformers; made with torch 2.15, transformers 5.23 and sentence-transformers 6.2
on a CPU.

Each model is an ordinary directory with one more file, reference.safetensors:
    ids, n_tokens   the texts, as token ids one after the other
    hidden_f64      the last hidden state, a row for each token
    embedding_f64   one row a text, pooled as the family usually is
    logits_f64      one row a text or, for those that label tokens, a token; probs_f64 as its problem_type says
    sparse_f64      one row a text of max over its tokens of log(1 + relu(logit)), of masked language models
"""
import os
import sys

import torch

torch.set_grad_enabled(False)
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import authors  # noqa: E402
import decoders  # noqa: E402
import encoders  # noqa: E402
import hub_layouts  # noqa: E402
import sentence  # noqa: E402
from reference import Maker  # noqa: E402

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/data/models")
maker = Maker(OUT, sys.argv[2:])
for module in (encoders, decoders, hub_layouts, sentence, authors):
    for family in module.FAMILIES:
        maker.family = family.__name__.replace("_", "-")
        family(maker)
maker.write_list()
