"""Tokenization without inference."""

from __future__ import annotations

from ctypes import byref, c_size_t
from typing import TYPE_CHECKING, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from ._ffi import abi, texts as _texts
from ._ffi.library import raise_status, text_of

if TYPE_CHECKING:
    from ._handle import Handle


class Tokens(NamedTuple):
    """The tokens of one text."""

    ids: "NDArray[np.int32]"
    #: [n, 2]: start and end byte offset in the UTF-8 text; end is 0 for special tokens.
    spans: "NDArray[np.uint32]"


def tokenize(model: "Handle", text: str, add_special_tokens: bool, max_tokens: int,
             truncation: int = abi.TRUNCATE_DEFAULT) -> Tokens:
    """Tokenize a text."""
    encoded = _texts._encode(text, 0, "text")
    options = abi.new(abi.TokenizeOptions, no_special=0 if add_special_tokens else 1,
                       max_tokens=max_tokens, truncation=truncation)
    capacity = len(encoded) // 2 + 16
    while True:
        ids = np.empty(capacity, dtype=np.int32)
        spans = np.empty((capacity, 2), dtype=np.uint32)
        n = c_size_t()
        error = abi.new(abi.Error)
        status = model._library.gpuserve_tokenize(
            model._handle, encoded, len(encoded), _texts.address(ids), _texts.address(spans),
            capacity, byref(n), byref(options), byref(error))
        if status == abi.E_TOO_LARGE and n.value > capacity:
            capacity = n.value
            continue
        if status != abi.OK:
            raise_status(status, error)
        return Tokens(ids[: n.value].copy(), spans[: n.value].copy())


def decode(model: "Handle", ids: Sequence[int], skip_special_tokens: bool) -> str:
    """The text of token ids."""
    array = _texts.token_ids(ids)
    return text_of(model._library.gpuserve_detokenize, model._handle, _texts.address(array),
                   array.size, int(skip_special_tokens))


def token_text(model: "Handle", token_id: int) -> str:
    """A token as written in the vocabulary."""
    return text_of(model._library.gpuserve_token_text, model._handle, token_id)
