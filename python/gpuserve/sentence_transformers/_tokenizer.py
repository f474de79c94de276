"""The tokenizer of a model with the calls of ``transformers`` that users of sentence-transformers make."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, cast

from .._ffi import texts as _texts
from .._tokens import Tokens
from ..errors import InvalidError
from ..model import Model
from ._tensors import padded, require, tensor


class TokenizerProxy:
    """Token ids of a model's texts.

    Args:
        model: the model.
        padding_id: token id of padded places.
    """

    def __init__(self, model: Model, padding_id: int) -> None:
        self._model = model
        #: Token id of padded places.
        self.pad_token_id = padding_id

    @property
    def model_max_length(self) -> int:
        """Token limit of a text."""
        return self._model.max_seq_length

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return int(self._model.info()["tokenizer"]["vocab_size"])

    def __len__(self) -> int:
        return self.vocab_size

    def encode(self, text: str, add_special_tokens: bool = True, truncation: bool = False,
               max_length: Optional[int] = None) -> List[int]:
        """Token ids of a text; cut only with `truncation`."""
        return self._ids(text, add_special_tokens, truncation, max_length)

    def tokenize(self, text: str) -> List[str]:
        """Tokens of a text as written in the vocabulary."""
        return self._model.convert_ids_to_tokens(self._ids(text, False, False, None))

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of token ids."""
        return self._model.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def batch_decode(self, sequences: Sequence[Sequence[int]], skip_special_tokens: bool = False) -> List[str]:
        """The text of each list of token ids."""
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    def convert_ids_to_tokens(self, ids: Any) -> Any:
        """Tokens as written in the vocabulary; one id gives one token."""
        if hasattr(ids, "__index__"):
            return self._model.convert_ids_to_tokens([int(ids)])[0]
        return self._model.convert_ids_to_tokens([int(one) for one in ids])

    def __call__(self, text: Any, padding: Any = False, truncation: Any = False, max_length: Optional[int] = None,
                 return_tensors: Optional[str] = None, add_special_tokens: bool = True) -> Dict[str, Any]:
        """``input_ids`` and ``attention_mask`` of one text or many."""
        if padding not in (True, False, "longest", "do_not_pad"):
            raise InvalidError(f"padding {padding!r} is unknown", "known are True, False, longest, do_not_pad")
        if return_tensors not in (None, "pt", "np"):
            raise InvalidError(f"return_tensors {return_tensors!r} is unknown", "known are pt and np")
        if return_tensors == "pt":
            require('return_tensors="pt"')
        alone = _texts.is_text(text)
        lists = [self._ids(one, add_special_tokens, bool(truncation), max_length)
                 for one in ([text] if alone else text)]
        masks = [[1] * len(ids) for ids in lists]
        pads = padding in (True, "longest")
        if return_tensors is None and not pads:
            return {"input_ids": lists[0] if alone else lists, "attention_mask": masks[0] if alone else masks}
        if not pads and len({len(ids) for ids in lists}) > 1:
            raise InvalidError("the texts have different numbers of tokens", "give padding=True")
        rows = {"input_ids": padded(lists, self.pad_token_id), "attention_mask": padded(masks, 0)}
        if return_tensors is None:
            return {name: one[0].tolist() if alone else one.tolist() for name, one in rows.items()}
        return {name: tensor(one) if return_tensors == "pt" else one for name, one in rows.items()}

    def _ids(self, text: Any, add_special_tokens: bool, cut: bool, max_length: Optional[int]) -> List[int]:
        if not _texts.is_text(text):
            raise InvalidError(f"a text is {type(text).__name__}, not str")
        limit = (max_length or self.model_max_length) if cut else (1 << 31) - 1
        found = self._model.tokenize(text, add_special_tokens=add_special_tokens, max_tokens=limit)
        return [int(one) for one in cast(Tokens, found).ids]
