"""A model: text in, numpy out."""

from __future__ import annotations

import asyncio
import atexit
import json
import sys
import threading
import weakref
from ctypes import byref, c_void_p
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
    Union,
    cast,
)
from concurrent.futures import Future

import numpy as np

from . import _abi, _arguments as arguments, _texts
from ._calls import Call, Floats, Items, finish, items_of, patiently, rerank, run, submit
from ._futures import Dispatcher
from ._arguments import Path
from ._library import call, encode_path, library, text_of
from ._progress import Progress
from ._tokens import Tokens, decode, tokenize
from .context import Context
from .errors import BusyError, ClosedError, InvalidError, UnsupportedError

Result = TypeVar("Result")

#: Submissions of a long call that are under way together: one is computed, the next one waits.
IN_FLIGHT = 3

_open_models: "weakref.WeakSet[Model]" = weakref.WeakSet()


class Model:
    """An embedding or classification model on a device.

    Thread-safe; calls of many threads are batched together by the library, and the interpreter's
    lock is free while it computes. Close it, or use it in a ``with`` statement, to give its memory
    back at once.

    Args:
        model_name_or_path: a directory, or the name of a model in the Hugging Face cache.
        device: ``"auto"``, ``"cpu"``, ``"cuda:0"``, ...; an explicit one that cannot be had is an
            error.
        dtype: ``"float32"``, ``"float16"``, ``"bfloat16"``, ``"tf32"``, ``"int8"``; default
            float32 on a CPU and float16 on a GPU.
        head: a classifier head over the embedding, as ``gpuserve fit`` makes them.
        max_tokens: limit of a text; default the model's.
        max_batch_tokens: most tokens computed together.
        n_threads: of the context's threads.
        pooling: instead of the model's own: cls, mean, max, mean_sqrt_len, weighted_mean, last.
        mmap: map the weights; the file must not be changed while the model is open.
        max_queue_tokens: most tokens waiting.
        context: shared threads and budgets; default: the model's own.
    """

    def __init__(self, model_name_or_path: Path, *, device: Optional[str] = None,
                 dtype: Optional[str] = None, head: Optional[Path] = None, max_tokens: int = 0,
                 max_batch_tokens: int = 0, n_threads: int = 0, pooling: Optional[str] = None,
                 mmap: bool = False, max_queue_tokens: int = 0,
                 context: Optional[Context] = None) -> None:
        self._handle: Optional[c_void_p] = None
        self._closing = False
        self._n_calls = 0
        self._idle = threading.Condition()
        self._dispatcher: Optional[Dispatcher] = None
        self._library = library()
        self._own_context = context is None
        self._context = context or Context()
        options = arguments.options(device, dtype, head, max_tokens, max_batch_tokens, n_threads, pooling,
                           mmap, max_queue_tokens)
        handle = c_void_p()
        try:
            call(self._library.gpuserve_model_open, byref(handle), self._context._open_handle(),
                 encode_path(model_name_or_path), byref(options))
        except BaseException:
            if self._own_context:
                self._context.close()
            raise
        self._handle = handle
        #: Length of an embedding.
        self.dim: int = self._library.gpuserve_model_dim(handle)
        #: Most tokens of a text; longer ones are cut.
        self.max_seq_length: int = self._library.gpuserve_model_max_tokens(handle)
        #: The labels of the model's head, in the order of its scores.
        self.labels: List[str] = [
            self._library.gpuserve_model_label(handle, i).decode("utf-8")
            for i in range(self._library.gpuserve_model_label_count(handle))
        ]
        #: The name of the vector space: store it beside vectors.
        self.fingerprint: str = self._library.gpuserve_model_fingerprint(handle).decode()
        self._facts: Dict[str, Any] = self.info()
        #: The prompts of the model, by name.
        self.prompts: Dict[str, str] = self._facts.get("prompts") or {}
        #: What the model runs on.
        self.device: str = str(self._facts.get("device", "cpu"))
        _open_models.add(self)

    # ------------------------------------------------------------------------------ embeddings

    def encode(self, inputs: Union[str, Iterable[str], None] = None,
               prompt_name: Optional[str] = None, prompt: Optional[str] = None,
               batch_size: Optional[int] = None, show_progress_bar: Optional[bool] = None,
               output_value: str = "sentence_embedding", precision: str = "float32",
               convert_to_numpy: bool = True, convert_to_tensor: bool = False,
               device: Optional[str] = None, normalize_embeddings: bool = False,
               truncate_dim: Optional[int] = None, *, sentences: Union[str, Iterable[str], None] = None,
               truncation: str = "default", out: Optional[Floats] = None,
               return_items: bool = False) -> Any:
        """Embed one text or many; the arguments are those of sentence-transformers.

        Args:
            inputs: one text, or any iterable of them. ``sentences=`` is the same.
            prompt_name: one of the model's prompts; ``prompt`` is one of your own.
            batch_size: most texts of one submission; the library makes its own batches, so the
                default is best.
            show_progress_bar: on standard error.
            output_value: ``"token_embeddings"`` gives a list of [n_tokens, hidden] arrays.
            precision: ``"float32"``, or ``"binary"`` / ``"ubinary"``: signs, eight in a byte.
            convert_to_numpy: False gives a list of vectors instead of one array.
            convert_to_tensor: a torch tensor, sharing its memory with the array.
            device: where the model is; another one is refused: open a model there.
            normalize_embeddings: to length 1, also where the model does not do so itself.
            truncate_dim: keep the first numbers of each vector.
            truncation: ``"right"``, ``"left"``, or ``"strict"``: refuse what is too long.
            out: write here, [n, dim] float32 with tight columns; it is returned.
            return_items: return (vectors, :class:`Items`) with the tokens of each text and
                whether it was cut.

        Returns:
            [dim] for one text, [n, dim] for many; float32, in memory of its own.
        """
        inputs = arguments.one_of(inputs, sentences)
        if device is not None and device not in (self.device, self.device.split(":")[0]):
            raise InvalidError(f"this model is on {self.device}, not on {device}",
                               f'open another: Model(..., device="{device}")')
        if precision not in ("float32", "binary", "ubinary"):
            raise InvalidError(f'precision "{precision}" is unknown',
                               "known are float32, binary and ubinary")
        fields = {**arguments.prompt_fields(prompt_name, prompt),
                  "dimensions": arguments.dimensions(truncate_dim, self.dim),
                  "normalize": 1 if normalize_embeddings else 0,
                  "truncation": arguments.named(arguments.TRUNCATIONS, truncation, "truncation")}
        if output_value == "token_embeddings":
            return self._token_embeddings(inputs, fields)
        if output_value != "sentence_embedding":
            raise InvalidError(f'output_value "{output_value}" is unknown',
                               "known are sentence_embedding and token_embeddings")
        if not self.dim:
            raise UnsupportedError("this model has no embeddings: it only classifies")
        vectors, items, alone = self._rows(
            inputs, _abi.TASK_EMBED, fields["dimensions"] or self.dim, fields, batch_size=batch_size,
            progress=show_progress_bar, out=out, want_items=return_items)
        shaped = arguments.precision(vectors, precision)
        result = arguments.converted(shaped[0] if alone else shaped, alone, convert_to_numpy,
                            convert_to_tensor)
        return (result, items) if return_items else result

    def encode_query(self, inputs: Union[str, Iterable[str], None] = None, **options: Any) -> Any:
        """:meth:`encode` with the model's prompt for queries, if it has one."""
        return self._encode_as("query", inputs, options)

    def encode_document(self, inputs: Union[str, Iterable[str], None] = None,
                        **options: Any) -> Any:
        """:meth:`encode` with the model's prompt for documents, if it has one."""
        return self._encode_as("document", inputs, options)

    def prompt_name_for(self, kind: str) -> Optional[str]:
        """The model's prompt for ``"query"`` or ``"document"``; None where it has none."""
        names = {"query": ("query",), "document": ("document", "passage", "corpus")}[kind]
        return next((name for name in names if name in self.prompts), None)

    def _encode_as(self, kind: str, inputs: Union[str, Iterable[str], None],
                   options: Dict[str, Any]) -> Any:
        if options.get("prompt") is None and options.get("prompt_name") is None:
            options["prompt_name"] = self.prompt_name_for(kind)
        return self.encode(inputs, **options)

    def encode_stream(self, inputs: Iterable[str], *, batch_size: int = arguments.CHUNK_TEXTS,
                      prompt_name: Optional[str] = None, prompt: Optional[str] = None,
                      normalize_embeddings: bool = False,
                      truncate_dim: Optional[int] = None) -> Iterator[Floats]:
        """Embed any number of texts in bounded memory: [at most batch_size, dim] at a time."""
        fields = {**arguments.prompt_fields(prompt_name, prompt),
                  "dimensions": arguments.dimensions(truncate_dim, self.dim),
                  "normalize": 1 if normalize_embeddings else 0}
        columns = fields["dimensions"] or self.dim
        for made in self._stream(arguments.chunks(inputs, batch_size), _abi.TASK_EMBED, columns, fields):
            yield made.output

    def similarity(self, a: Any, b: Any) -> Floats:
        """Cosine similarity of each row of ``a`` with each row of ``b``: [len(a), len(b)]."""
        result: Floats = arguments.unit(a) @ arguments.unit(b).T
        return result

    def similarity_pairwise(self, a: Any, b: Any) -> Floats:
        """Cosine similarity of row i of ``a`` with row i of ``b``."""
        result: Floats = np.einsum("ij,ij->i", arguments.unit(a), arguments.unit(b))
        return result

    # -------------------------------------------------------------------------- classification

    def predict_proba(self, inputs: Union[str, Iterable[str]],
                      pairs: Union[str, Iterable[str], None] = None, *, score: str = "default",
                      truncation: str = "default", batch_size: Optional[int] = None,
                      show_progress_bar: Optional[bool] = None) -> Floats:
        """Scores of every label, [n, len(labels)]: probabilities unless the model is a regression.

        Args:
            pairs: second texts, for a model of pairs.
            score: ``"raw"``, ``"softmax"``, ``"sigmoid"``; default what the model says.
        """
        if not self.labels:
            raise UnsupportedError("this model has no labels: it only embeds",
                                   "open it with head=FILE, as `gpuserve fit` makes them")
        fields = {"score": arguments.named(arguments.SCORES, score, "score"),
                  "truncation": arguments.named(arguments.TRUNCATIONS, truncation, "truncation")}
        scores, _, alone = self._rows(inputs, _abi.TASK_CLASSIFY, len(self.labels), fields,
                                      pairs=pairs, batch_size=batch_size, progress=show_progress_bar)
        return cast(Floats, scores[0] if alone else scores)

    def classify(self, inputs: Union[str, Iterable[str]],
                 pairs: Union[str, Iterable[str], None] = None, *, top_k: Optional[int] = 1,
                 **options: Any) -> Any:
        """Labels with their scores, best first, as a ``transformers`` pipeline gives them.

        Returns:
            ``{"label", "score"}`` for one text and ``top_k=1``; a list of such for more labels
            (``top_k=None``: all) ; a list of either for many texts.
        """
        scores = self.predict_proba(inputs, pairs, **options)
        if scores.ndim == 1:
            return arguments.labelled(self.labels, scores, top_k)
        return [arguments.labelled(self.labels, row, top_k) for row in scores]

    def predict(self, inputs: Sequence[Any], *, activation: str = "default", **options: Any) -> Floats:
        """Scores of pairs, as ``CrossEncoder.predict``: [n] for one label, else [n, labels]."""
        alone = len(inputs) == 2 and all(isinstance(text, str) for text in inputs)
        pairs = [inputs] if alone else list(inputs)
        for i, pair in enumerate(pairs):
            if isinstance(pair, str) or len(pair) != 2:
                raise InvalidError(f"input {i} is no pair of texts")
        scores = self.predict_proba([pair[0] for pair in pairs], [pair[1] for pair in pairs],
                                    score=activation, **options)
        flat = scores[:, 0] if scores.shape[1] == 1 else scores
        return cast(Floats, flat[0] if alone else flat)

    def rank(self, query: str, documents: Sequence[str], top_k: Optional[int] = None,
             return_documents: bool = False) -> List[Dict[str, Any]]:
        """Documents in the order of their relevance, as ``CrossEncoder.rank``.

        By the model's own score of the pair where it is a cross-encoder, else by the cosine
        similarity of the embeddings.
        """
        if _texts.is_text(documents):
            raise TypeError("documents is one str, not a list of them")
        scores = np.empty(len(documents), dtype=np.float32)
        for i in range(0, len(documents), arguments.CHUNK_TEXTS):
            part = slice(i, i + arguments.CHUNK_TEXTS)
            patiently(lambda: self._guarded(
                lambda: rerank(self, query, documents[part], scores[part], i)))
        order = np.argsort(-scores, kind="stable")[:top_k]
        return [{"corpus_id": int(i), "score": float(scores[i]),
                 **({"text": documents[i]} if return_documents else {})} for i in order]

    # ------------------------------------------------------------------------------------ text

    def tokenize(self, inputs: Union[str, Iterable[str]], *, add_special_tokens: bool = True,
                 max_tokens: int = 0) -> Union[Tokens, List[Tokens]]:
        """Token ids and their places, equal to Hugging Face ``tokenizers``."""
        if _texts.is_text(inputs):
            return self._guarded(lambda: tokenize(self, cast(str, inputs), add_special_tokens,
                                                  max_tokens))
        return self._guarded(lambda: [tokenize(self, text, add_special_tokens, max_tokens)
                                      for text in inputs])

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of token ids."""
        return self._guarded(lambda: decode(self, ids, skip_special_tokens))

    # ---------------------------------------------------------------------------- asynchronous

    def submit(self, inputs: Union[str, Sequence[str]], *, prompt_name: Optional[str] = None,
               prompt: Optional[str] = None, normalize_embeddings: bool = False,
               truncate_dim: Optional[int] = None, deadline: Optional[float] = None,
               priority: str = "normal") -> "Future[Floats]":
        """Start to embed and return at once; the future gives what :meth:`encode` would.

        Cancelling the future cancels the work, if it has not begun. A full queue is a
        :class:`~gpuserve.errors.BusyError` with the time to try again.

        Args:
            deadline: seconds from now; what has not begun by then is
                :class:`~gpuserve.errors.ExpiredError`.
            priority: ``"high"``, ``"normal"`` or ``"low"``.
        """
        alone = _texts.is_text(inputs)
        texts = [cast(str, inputs)] if alone else list(inputs)
        dimensions = arguments.dimensions(truncate_dim, self.dim)
        output = np.empty((len(texts), dimensions or self.dim), dtype=np.float32)

        def start() -> "Future[Floats]":
            started = Call(texts, output, task=_abi.TASK_EMBED, dimensions=dimensions,
                           normalize=1 if normalize_embeddings else 0,
                           deadline_us=0 if deadline is None else int(deadline * 1e6) or -1,
                           priority=arguments.named(arguments.PRIORITIES, priority, "priority"),
                           **arguments.prompt_fields(prompt_name, prompt))
            return self._futures().start(
                self, started, lambda done: done.output[0] if alone else done.output)
        return self._guarded(start)

    async def encode_async(self, inputs: Union[str, Sequence[str]], **options: Any) -> Floats:
        """:meth:`encode` without blocking the event loop; options as for :meth:`submit`."""
        while True:
            try:
                return await asyncio.wrap_future(self.submit(inputs, **options))
            except BusyError as error:
                await asyncio.sleep(error.retry_after or 0.001)

    def _futures(self) -> Dispatcher:
        with self._idle:
            if self._dispatcher is None:
                self._dispatcher = Dispatcher(self)
            return self._dispatcher

    # ----------------------------------------------------------------------------------- facts

    def info(self) -> Dict[str, Any]:
        """Facts of the open model: architecture, device and why, dtype, memory, fingerprint."""
        facts: Dict[str, Any] = self._guarded(
            lambda: json.loads(text_of(self._library.gpuserve_model_info, self._handle)))
        return facts

    @staticmethod
    def footprint(model_name_or_path: Path, *, context: Optional[Context] = None,
                  **options: Any) -> Dict[str, int]:
        """The bytes a model would take, by purpose, without loading it; options as for Model."""
        own = context is None
        context = context or Context()
        known: Dict[str, Any] = {
            "device": None, "dtype": None, "head": None, "max_tokens": 0, "max_batch_tokens": 0,
            "n_threads": 0, "pooling": None, "mmap": False, "max_queue_tokens": 0, **options}
        try:
            footprint = _abi.new(_abi.Footprint)
            call(context._library.gpuserve_model_footprint, context._open_handle(),
                 encode_path(model_name_or_path), byref(arguments.options(**known)), byref(footprint))
        finally:
            if own:
                context.close()
        return {name: getattr(footprint, name) for name, *_ in footprint._fields_[1:]}

    def get_sentence_embedding_dimension(self) -> int:
        """As in sentence-transformers; the same as ``dim``."""
        return self.dim

    # --------------------------------------------------------------------------------- the end

    def close(self) -> None:
        """Wait for calls in progress, cancel what is asynchronous, and give everything back."""
        with self._idle:
            self._closing = True
            while self._n_calls:
                self._idle.wait()
            handle, self._handle = self._handle, None
            dispatcher, self._dispatcher = self._dispatcher, None
        if handle is None:
            return
        if dispatcher is not None:
            dispatcher.stop()
        self._library.gpuserve_model_close(byref(handle))
        if self._own_context:
            self._context.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and not sys.is_finalizing():
            self.close()

    def __repr__(self) -> str:
        if self._handle is None:
            return "<gpuserve.Model, closed>"
        return f"<gpuserve.Model {self._facts.get('path')} on {self.device}, dim {self.dim}>"

    def __reduce__(self) -> Any:
        raise TypeError("a gpuserve.Model cannot be pickled: open it in each process")

    # -------------------------------------------------------------------------------- internal

    def _guarded(self, work: Callable[[], Result]) -> Result:
        """Do something with the handle, which is not closed meanwhile."""
        with self._idle:
            if self._handle is None or self._closing:
                raise ClosedError("the model was closed")
            self._n_calls += 1
        try:
            return work()
        finally:
            with self._idle:
                self._n_calls -= 1
                if self._closing:
                    self._idle.notify_all()

    def _rows(self, inputs: Union[str, Iterable[str]], task: int, columns: int,
              fields: Dict[str, Any], *, pairs: Union[str, Iterable[str], None] = None,
              batch_size: Optional[int] = None, progress: Optional[bool] = None,
              out: Optional[Floats] = None,
              want_items: bool = False) -> Tuple[Any, Optional[Items], bool]:
        """The rows of all inputs, what became of each, and whether there was one text alone."""
        alone = _texts.is_text(inputs)
        texts = [cast(str, inputs)] if alone else arguments.sequence(inputs)
        seconds = None if pairs is None else (
            [cast(str, pairs)] if _texts.is_text(pairs) else arguments.sequence(pairs))
        if seconds is not None and len(seconds) != len(texts):
            raise InvalidError(f"{len(texts)} texts but {len(seconds)} second texts")
        size = arguments.batch_size(batch_size)
        output = arguments.output(out, len(texts), columns)
        if len(texts) <= size and not progress:
            if not texts:
                return output, items_of(np.zeros((0, 8), np.uint32)) if want_items else None, alone
            one = Call(texts, output, pairs=seconds, task=task, want_items=want_items, **fields)
            patiently(lambda: self._guarded(lambda: run(self, one)))
            return output, items_of(cast(Any, one.items)) if want_items else None, alone
        parts = ((texts[i:i + size], seconds[i:i + size] if seconds else None)
                 for i in range(0, len(texts), size))
        raw = []
        bar = Progress(len(texts), bool(progress))
        for made in self._stream(parts, task, columns, fields, output):
            bar.advance(made.job.n_items)
            raw.append(made.items)
        bar.close()
        return output, items_of(np.concatenate(cast(Any, raw))) if want_items else None, alone

    def _stream(self, parts: Iterable[Tuple[Sequence[str], Optional[Sequence[str]]]], task: int,
                columns: int, fields: Dict[str, Any],
                output: Optional[Floats] = None) -> Iterator[Call]:
        """Calls in their order, a few of them under way; into `output`, or each its own array."""
        waiting: List[Tuple[int, Call, c_void_p]] = []
        first = 0
        try:
            for texts, pairs in parts:
                rows = (output[first:first + len(texts)] if output is not None
                        else np.empty((len(texts), columns), dtype=np.float32))
                started = Call(texts, rows, first=first, pairs=pairs, task=task, **fields)
                request = patiently(lambda: self._guarded(lambda: submit(self, started)))
                waiting.append((first, started, request))
                first += len(texts)
                if len(waiting) >= IN_FLIGHT:
                    yield self._finished(*waiting.pop(0))
            while waiting:
                yield self._finished(*waiting.pop(0))
        finally:
            for _, _, request in waiting:
                self._library.gpuserve_cancel(request)
                self._library.gpuserve_request_free(byref(request))

    def _finished(self, first: int, started: Call, request: c_void_p) -> Call:
        finish(self, started, request, first)
        return started

    def _token_embeddings(self, inputs: Union[str, Iterable[str]], fields: Dict[str, Any]) -> Any:
        """The last hidden state of each text."""
        alone = _texts.is_text(inputs)
        texts = [cast(str, inputs)] if alone else arguments.sequence(inputs)
        hidden = int(self._facts["hidden_size"])
        found: List[Floats] = []
        options = {name: fields[name] for name in fields if name not in ("dimensions", "normalize")}
        for text in texts:
            counted = self.max_seq_length
            output = np.empty((counted, hidden), dtype=np.float32)
            offsets = np.zeros(2, dtype=np.uint64)
            one = Call([text], output, task=_abi.TASK_TOKEN_VECTORS,
                       token_offsets=_texts.address(offsets), **options)
            patiently(lambda: self._guarded(lambda: run(self, one)))
            found.append(output[: int(offsets[1])].copy())
        return found[0] if alone else found


@atexit.register
def _close_all() -> None:
    """Close models while Python still stands, so that no thread of theirs outlives it."""
    for model in list(_open_models):
        model.close()
