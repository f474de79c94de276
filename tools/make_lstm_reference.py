#!/usr/bin/env python3
"""Write tests/data/lstm: small random LSTMs with what torch.nn.LSTM computes of them in float64.

Usage: make_lstm_reference.py [OUT]        (default tests/data/lstm)
Needs torch; made with 2.15 on a CPU.

Each file is little-endian: eight int32 (input_size, hidden_size, n_layers, directions, n_sequences, steps of
all sequences, 1 with biases, 1 with initial states), the length of each sequence as int32, then float32: of
each layer and direction weight_ih, weight_hh, bias_ih, bias_hh; input; h_0, c_0; and the results output,
h_n, c_n. Arrays that are not there are left out.
"""
import pathlib
import sys

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

CASES = {  # input_size, hidden_size, n_layers, bidirectional, bias, states, lengths
    "one": (5, 7, 1, False, True, False, [3, 1, 4]),
    "deep": (9, 13, 2, True, True, True, [6, 2, 1, 5, 6]),
    "plain": (17, 33, 1, True, False, True, [12, 19]),
    "three": (3, 32, 3, False, True, False, [8, 1]),
    "single": (1, 1, 1, False, True, True, [25]),
}
NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def write(path, case, seed):
    size, hidden, layers, both, bias, states, lengths = case
    torch.manual_seed(seed)
    directions = 2 if both else 1
    net = torch.nn.LSTM(size, hidden, layers, bias=bias, bidirectional=both).double()
    for p in net.parameters():
        p.data = (torch.randn(p.shape) * (2.0 / (p.shape[-1] + 1) ** 0.5)).float().double()
    texts = [torch.randn(n, size).float().double() for n in lengths]
    start = [(torch.randn(layers * directions, len(lengths), hidden) * 0.7).float().double() for _ in range(2)]
    packed = pack_padded_sequence(pad_sequence(texts), torch.tensor(lengths), enforce_sorted=False)
    out, last = net(packed, tuple(start)) if states else net(packed)
    padded, _ = pad_packed_sequence(out)
    rows = torch.cat([padded[:n, i] for i, n in enumerate(lengths)])
    arrays = []
    for layer in range(layers):
        for suffix in ("", "_reverse")[:directions]:
            arrays += [getattr(net, f"{name}_l{layer}{suffix}") for name in NAMES[:4 if bias else 2]]
    arrays += [torch.cat(texts), *(start if states else []), rows, *last]
    head = [size, hidden, layers, directions, len(lengths), sum(lengths), int(bias), int(states), *lengths]
    with open(path, "wb") as file:
        file.write(torch.tensor(head, dtype=torch.int32).numpy().tobytes())
        for array in arrays:
            file.write(array.detach().float().contiguous().numpy().tobytes())


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "tests/data/lstm")
    out.mkdir(parents=True, exist_ok=True)
    for seed, (name, case) in enumerate(CASES.items()):
        write(out / f"{name}.f32", case, seed)


if __name__ == "__main__":
    main()
