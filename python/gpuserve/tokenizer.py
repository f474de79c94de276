"""A tokenizer without a model."""

from __future__ import annotations

import threading
import time
from ctypes import byref, c_size_t, c_void_p
from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple, TypeVar, Union, cast

import numpy as np
from numpy.typing import NDArray

from ._ffi import abi, arguments as _arguments
from ._ffi.arguments import Path
from ._ffi.closing import Closing
from ._ffi.library import call, encode_path, library, raise_status, text_of
from ._ffi.texts import _encode, address, token_ids
from ._ffi.values import number
from .context import Context
from .errors import ClosedError

Result = TypeVar("Result")
Text = Union[str, Tuple[str, str]]


class Encoding(NamedTuple):
    """The tokens of a text or a pair of texts."""

    ids: "NDArray[np.int32]"
    #: 1 for tokens of the second text, in models that have token types.
    type_ids: "NDArray[np.int32]"
    #: [n, 2]: start and end byte offset in the UTF-8 text; end is 0 for special tokens.
    spans: "NDArray[np.uint32]"


class Tokenizer(Closing):
    """The tokenizer of a directory, which needs no weights and no config.json.

    In a model's directory, the ids and spans are those of :meth:`gpuserve.Model.tokenize`. Threads may share
    a tokenizer.

    Args:
        path: a directory with tokenizer files, or a model name in the cache.
        context: its cache directory is searched for names; default: as of the environment.

    Example::

        with Tokenizer("all-MiniLM-L6-v2") as tokenizer:
            ids = tokenizer.encode("a text").ids
    """

    def __init__(self, path: Path, *, context: Optional[Context] = None) -> None:
        self._handle = c_void_p()
        self._lock = threading.RLock()  # reentrant: close() from the garbage collector may acquire it again
        self._closing = False
        #: One entry per call in progress; a set, as in Handle: no lock, so a signal can interrupt anywhere.
        self._active: Set[object] = set()
        self._library = library()
        call(self._library.gpuserve_tokenizer_open, byref(self._handle),
             context._open_handle() if context is not None else None, encode_path(path))

    def encode(self, inputs: Union[Text, Iterable[Text]], *, add_special_tokens: bool = True,
               max_tokens: int = 0, truncation: str = "default") -> Union[Encoding, List[Encoding]]:
        """Token ids with their type ids and spans, equal to Hugging Face ``tokenizers``.

        Args:
            inputs: a text, or a tuple of two texts, or a list of them.
            add_special_tokens: add ``[CLS]``, ``[SEP]`` and similar.
            max_tokens: token limit, special tokens included; 0: no limit.
            truncation: ``"default"``, ``"right"``, ``"left"``, or ``"strict"``: reject longer texts.
        """
        options = _options(add_special_tokens, max_tokens, truncation)
        if isinstance(inputs, (str, tuple)):
            return self._guarded(lambda: self._encoded(cast(Text, inputs), options))
        texts = list(inputs)
        return self._guarded(lambda: [self._encoded(one, options) for one in texts])

    def count(self, inputs: Union[Text, Iterable[Text]], *, add_special_tokens: bool = True
              ) -> Union[int, List[int]]:
        """The number of tokens, as :meth:`encode` returns them."""
        options = _options(add_special_tokens, 0, "default")
        if isinstance(inputs, (str, tuple)):
            return self._guarded(lambda: self._counted(cast(Text, inputs), options))
        texts = list(inputs)
        return self._guarded(lambda: [self._counted(one, options) for one in texts])

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of token ids."""
        array = token_ids(ids)
        return self._guarded(lambda: text_of(
            self._library.gpuserve_tokenizer_decode, self._handle, address(array), array.size,
            int(skip_special_tokens)))

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> List[str]:
        """Each token as written in the vocabulary, with its markers: ``##ing``, ``\u0120dog``."""
        return self._guarded(lambda: [
            text_of(self._library.gpuserve_tokenizer_token_text, self._handle, int(one)) for one in ids])

    @property
    def vocab_size(self) -> int:
        """The largest token id plus one."""
        return int(self._guarded(lambda: self._library.gpuserve_tokenizer_vocab_size(self._handle)))

    def close(self) -> None:
        """Wait for calls in progress and release the tokenizer."""
        self._closing = True
        while self._active:
            time.sleep(0.001)
        with self._lock:
            if self._handle:
                self._library.gpuserve_tokenizer_close(byref(self._handle))

    def __reduce__(self) -> Any:
        raise TypeError("a gpuserve.Tokenizer cannot be pickled: open it in each process")

    # -------------------------------------------------------------------------------- internal

    def _guarded(self, work: Callable[[], Result]) -> Result:
        """Run a function with the handle, which stays open meanwhile."""
        token = object()
        try:
            self._active.add(token)
            if self._closing:
                raise ClosedError("the tokenizer was closed")
            return work()
        finally:
            self._active.discard(token)

    def _run(self, text: Text, output: Optional[abi.TokenizerOutput], n: c_size_t,
             options: abi.TokenizeOptions) -> Tuple[int, abi.Error]:
        one, other = (text, None) if isinstance(text, str) else _pair(text)
        first = _encode(one, 0, "text")
        second = None if other is None else _encode(other, 0, "pair")
        given = abi.new(abi.TokenizerInput, text=first, size=len(first), pair=second,
                         pair_size=len(second or b""))
        error = abi.new(abi.Error)
        status = self._library.gpuserve_tokenizer_encode(
            self._handle, byref(given), None if output is None else byref(output), byref(n),
            byref(options), byref(error))
        return status, error

    def _encoded(self, text: Text, options: abi.TokenizeOptions) -> Encoding:
        capacity = sum(map(len, (text,) if isinstance(text, str) else _pair(text))) // 2 + 16
        n = c_size_t()
        while True:
            ids, type_ids = np.empty((2, capacity), dtype=np.int32)
            spans = np.empty((capacity, 2), dtype=np.uint32)
            output = abi.new(abi.TokenizerOutput, capacity=capacity, ids=address(ids),
                              type_ids=address(type_ids), spans=address(spans))
            status, error = self._run(text, output, n, options)
            if status == abi.E_TOO_LARGE and n.value > capacity:
                capacity = n.value
                continue
            if status != abi.OK:
                raise_status(status, error)
            return Encoding(ids[: n.value].copy(), type_ids[: n.value].copy(), spans[: n.value].copy())

    def _counted(self, text: Text, options: abi.TokenizeOptions) -> int:
        n = c_size_t()
        status, error = self._run(text, None, n, options)
        if status != abi.OK:
            raise_status(status, error)
        return n.value


def _pair(texts: Tuple[str, str]) -> Tuple[str, str]:
    if not isinstance(texts, tuple) or len(texts) != 2 or not all(isinstance(one, str) for one in texts):
        raise TypeError("a text is a str, and a pair of texts a tuple of two")
    return texts


def _options(add_special_tokens: bool, max_tokens: int, truncation: str) -> abi.TokenizeOptions:
    return abi.new(abi.TokenizeOptions, no_special=0 if add_special_tokens else 1,
                    max_tokens=number(max_tokens, "max_tokens"),
                    truncation=_arguments.named(_arguments.TRUNCATIONS, truncation, "truncation"))
