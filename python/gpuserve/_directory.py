"""What is known of a model directory without an open :class:`Model`."""
from __future__ import annotations

import json
from ctypes import byref, c_void_p, cast as cast_to_pointer
from typing import Any, Dict, List, Optional

from ._ffi import abi
from ._ffi.arguments import Path
from ._ffi.library import call, encode_path, text_of
from ._options import Opening
from ._ffi.values import number
from .context import Context, private_or


class Directory:
    """The static methods of :class:`Model`."""

    @staticmethod
    def footprint(model_name_or_path: Path, *, context: Optional[Context] = None,
                  **options: Any) -> Dict[str, int]:
        """The bytes a model needs, by purpose, without loading it; options as for Model."""
        opening = Opening(options)
        footprint = abi.new(abi.Footprint)
        with private_or(context) as used:
            call(used._library.gpuserve_model_footprint, used._open_handle(),
                 encode_path(model_name_or_path), byref(opening.struct), byref(footprint))
        return {name: getattr(footprint, name) for name, *_ in footprint._fields_[1:]}

    @staticmethod
    def inspect(model_name_or_path: Path, *, context: Optional[Context] = None,
                **options: Any) -> Dict[str, Any]:
        """Describe a model directory, from its configuration and file headers only; options as for Model."""
        opening = Opening(options)
        with private_or(context) as used:
            facts: Dict[str, Any] = json.loads(text_of(
                used._library.gpuserve_model_inspect, used._open_handle(),
                encode_path(model_name_or_path), byref(opening.struct)))
        return facts

    @staticmethod
    def profile(model_name_or_path: Path, *, text_tokens: int = 0, n_texts: int = 0, rounds: int = 0,
                trace: bool = False, context: Optional[Context] = None,
                **options: Any) -> Dict[str, Any]:
        """Load a model, run one batch repeatedly, and report where the time goes.

        Args:
            text_tokens, n_texts: of the batch; default 128, and as many as fit.
            rounds: default 20; results are medians.
            trace: add a ``"trace"`` for the viewers of Chrome and Perfetto.
            options: as for Model.
        """
        opening = Opening(options)
        how = abi.new(abi.ProfileOptions, text_tokens=number(text_tokens, "text_tokens"),
                       n_texts=number(n_texts, "n_texts"), rounds=number(rounds, "rounds"),
                       trace=int(trace))
        found: List[bytes] = []

        def keep(_user: Any, text: bytes, _size: int) -> None:
            found.append(text)

        write = abi.TextFn(keep)
        with private_or(context) as used:
            call(used._library.gpuserve_model_profile, used._open_handle(),
                 encode_path(model_name_or_path), byref(opening.struct), byref(how),
                 cast_to_pointer(write, c_void_p), None)
        profile: Dict[str, Any] = json.loads(found[0])
        return profile
