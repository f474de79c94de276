"""Model: text in, numpy arrays out."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import closing
from typing import (
    Any,
    Dict,
    Generator,
    Iterable,
    Iterator,
    List,
    Literal,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
    cast,
    overload,
)

import numpy as np

from ._ffi import abi, arguments, texts as _texts
from ._ffi.arguments import Path
from ._ffi.calls import (
    Call, Floats, Made, Request, finish, free_all, items_of, patiently, rerank, result_of, run,
)
from ._directory import Directory
from ._entities import Entity, TokenLabels, entities, label_tokens
from ._label_entities import Labels, label_entities
from ._handle import Handle, View
from ._heads import heads_of, labelled_by_head
from ._long_texts import KINDS, METHODS, LongText, encode_long
from ._multi import Encoding, max_sim, outputs_of
from ._options import Lost, Progress as LoadProgress
from ._progress import Progress
from ._sparse import Sparse, compact
from ._tokens import Tokens, decode, token_text, tokenize
from ._ffi.values import number, text
from ._zero_shot import zero_shot
from .context import Context
from .errors import BusyError, InvalidError, UnsupportedError
from .quantization import Form, calibration_texts, vector_ranges

#: Submissions of a long call in flight together: one is computed, the next one waits.
IN_FLIGHT = 3
#: Texts per submission of sparse vectors; each row has one value per vocabulary entry.
SPARSE_TEXTS = 32


class Model(Directory, Handle):
    """An embedding or classification model on a device.

    Thread-safe; the library batches calls of several threads together and releases the GIL while it
    computes. Close it, or use it in a ``with`` statement, to release its memory at once.

    Args:
        model_name_or_path: a directory, a GGUF file, the name of a model in the Hugging Face cache (fetched there
            first if it is missing, see :func:`gpuserve.pull`), or ``"random:SHAPE"``, such as
            ``"random:bert-base,seed=1"``: random weights, made without files.
        device: ``"auto"``, ``"cpu"``, ``"cuda:0"``, ...; an unavailable explicit device is an
            error.
        dtype: ``"float32"``, ``"float16"``, ``"bfloat16"``, ``"tf32"``, ``"int8"``; default
            float32 on a CPU and float16 on a GPU.
        head: a classifier head over the embedding, as written by ``gpuserve fit``.
        heads: further heads, name to file. ``heads=[NAME, ...]`` of a call chooses any of them, which are
            computed in one pass; a call without it gets the first.
        adapters: LoRA adapters in PEFT's format, name to directory. ``prompt_name=NAME`` of a call chooses one;
            a call without it gets the model without an adapter.
        max_tokens: token limit of a text; default the model's.
        max_batch_tokens: max tokens of a batch, which one thread computes.
        n_threads: number of the context's threads.
        pooling: overrides the model's own: cls, mean, max, mean_sqrt_len, weighted_mean, last.
        mmap: on a CPU, map packed weights of any dtype read-only from the weights cache, so that
            processes share them.
        deterministic: on a GPU, the bits of a text's result do not depend on its batch, at a cost in speed.
        portable_bits: on a CPU, they are the same on every processor.
        stream_weights: on a GPU, layers that do not fit stay in host memory and are copied in each batch.
        pipeline: the GPUs of a ``device`` of several share the layers of one copy of the weights.
        max_queue_tokens, max_queue_bytes: queue limits.
        max_queue_ms: queue limit in time, at the recently measured throughput; default none.
        max_tokens_per_second: quota of computed tokens; above it :class:`BusyError`; default none.
        default_prompt_name, default_prompt: one of the model's prompts, or a text, prepended to texts
            of calls that name no prompt; default the model's own. ``""``: none.
        max_wait_us: max wait for a fuller batch while the device is busy; default none on a CPU,
            300 on a GPU.
        cache_bytes: max memory of the result cache; default no cache.
        memory_budget: max bytes of this model, of every kind; default none.
        warmup: batches to run before the model is returned, ``"auto"``, or ``"gpu"``: auto on a GPU only; default ``"off"``.
        name, version: key for :meth:`gpuserve.Context.find`; default the path.
        keep: never evict it in favour of another model.
        when_suspended: a request to a suspended model ``"resume"``s it or is ``"refuse"``d.
        on_device_lost: ``"fail"``, or failover to the ``"cpu"``, another ``"gpu"``, ``"gpu_or_cpu"``.
        progress: called with (stage, done, total) during the load; False aborts it.
        lost: called with (``"moving"``, ``"moved"`` or ``"failed"``, device, cause) if its device is
            lost, from a library thread: must not use the model.
        context: shared threads and budgets; default: a private one.
    """

    def __init__(self, model_name_or_path: Path, *, device: Optional[str] = None,
                 dtype: Optional[str] = None, head: Optional[Path] = None,
                 heads: Optional[Mapping[str, Path]] = None,
                 adapters: Optional[Mapping[str, Path]] = None, max_tokens: int = 0,
                 max_batch_tokens: int = 0, n_threads: int = 0, pooling: Optional[str] = None,
                 mmap: bool = False, deterministic: bool = False, portable_bits: bool = False, stream_weights: bool = False, pipeline: bool = False,
                 max_queue_tokens: int = 0, max_queue_bytes: int = 0, max_queue_ms: int = 0, max_tokens_per_second: int = 0,
                 cache_bytes: int = 0, memory_budget: int = 0, max_wait_us: int = 0,
                 default_prompt_name: Optional[str] = None,
                 default_prompt: Optional[str] = None,
                 warmup: Union[int, str] = 0, name: Optional[str] = None,
                 version: Optional[str] = None, keep: bool = False, when_suspended: str = "resume",
                 on_device_lost: str = "fail", progress: Optional[LoadProgress] = None,
                 lost: Optional[Lost] = None, context: Optional[Context] = None) -> None:
        super().__init__(model_name_or_path, context, {
            "device": device, "dtype": dtype, "head": head, "heads": heads, "adapters": adapters,
            "max_tokens": max_tokens, "max_batch_tokens": max_batch_tokens, "n_threads": n_threads, "pooling": pooling,
            "mmap": mmap, "deterministic": deterministic, "portable_bits": portable_bits, "stream_weights": stream_weights, "pipeline": pipeline,
            "max_queue_tokens": max_queue_tokens,
            "max_queue_bytes": max_queue_bytes, "max_queue_ms": max_queue_ms, "max_tokens_per_second": max_tokens_per_second, "cache_bytes": cache_bytes,
            "max_wait_us": max_wait_us, "default_prompt_name": default_prompt_name,
            "default_prompt": default_prompt,
            "memory_budget": memory_budget, "warmup": warmup, "name": name, "version": version,
            "keep": keep, "when_suspended": when_suspended, "on_device_lost": on_device_lost,
            "progress": progress, "lost": lost})

    # ------------------------------------------------------------------------------ embeddings

    @overload
    def encode(self, inputs: Union[str, Iterable[str], None] = ..., prompt_name: Optional[str] = ...,
               prompt: Optional[str] = ..., batch_size: Optional[int] = ..., show_progress_bar: Optional[bool] = ...,
               output_value: Literal["sentence_embedding"] = ..., precision: Literal["float32"] = ...,
               convert_to_numpy: Literal[True] = ..., convert_to_tensor: Literal[False] = ...,
               device: Optional[str] = ..., normalize_embeddings: bool = ..., truncate_dim: Optional[int] = ..., *,
               sentences: Union[str, Iterable[str], None] = ..., truncation: str = ..., cache: str = ...,
               client: int = ..., expected_fingerprint: Optional[str] = ..., out: Optional[Floats] = ...,
               ranges: Optional[Any] = ..., return_items: Literal[False] = ...,
               return_result: Literal[False] = ...) -> Floats: ...

    @overload
    def encode(self, inputs: Union[str, Iterable[str], None] = ..., prompt_name: Optional[str] = ...,
               prompt: Optional[str] = ..., batch_size: Optional[int] = ..., show_progress_bar: Optional[bool] = ...,
               output_value: str = ..., precision: str = ..., convert_to_numpy: bool = ...,
               convert_to_tensor: bool = ..., device: Optional[str] = ..., normalize_embeddings: bool = ...,
               truncate_dim: Optional[int] = ..., *, sentences: Union[str, Iterable[str], None] = ...,
               truncation: str = ..., cache: str = ..., client: int = ..., expected_fingerprint: Optional[str] = ...,
               out: Optional[Floats] = ..., ranges: Optional[Any] = ..., return_items: bool = ...,
               return_result: bool = ...) -> Any: ...

    def encode(self, inputs: Union[str, Iterable[str], None] = None,
               prompt_name: Optional[str] = None, prompt: Optional[str] = None,
               batch_size: Optional[int] = None, show_progress_bar: Optional[bool] = None,
               output_value: str = "sentence_embedding", precision: str = "float32",
               convert_to_numpy: bool = True, convert_to_tensor: bool = False,
               device: Optional[str] = None, normalize_embeddings: bool = False,
               truncate_dim: Optional[int] = None, *, sentences: Union[str, Iterable[str], None] = None,
               truncation: str = "default", cache: str = "default", client: int = 0,
               expected_fingerprint: Optional[str] = None, out: Optional[Floats] = None,
               ranges: Optional[Any] = None, return_items: bool = False, return_result: bool = False) -> Any:
        """Embed one text or many; the arguments are those of sentence-transformers.

        Args:
            inputs: one text, or any iterable of texts. ``sentences=`` is the same.
            prompt_name: one of the model's prompts; ``prompt`` is a custom one.
            batch_size: max texts per submission; the library forms its own batches, so the
                default is best.
            show_progress_bar: on standard error.
            output_value: ``"token_embeddings"`` returns a list of [n_tokens, hidden] arrays.
            precision: ``"float32"``, ``"float16"``, ``"int8"``, ``"uint8"``, or ``"binary"`` /
                ``"ubinary"``: signs, eight per byte. See :func:`gpuserve.quantize_embeddings`.
            ranges: [2, dim], of :func:`gpuserve.vector_ranges`, for int8 and uint8. Default: those of
                the library's calibration texts, computed once, so that vectors of several calls are
                comparable (sentence-transformers takes those of the call's own vectors).
            convert_to_numpy: False returns a list of vectors instead of one array.
            convert_to_tensor: a torch tensor that shares its memory with the array.
            device: the model's device; another one is an error: open a model there.
            normalize_embeddings: to L2 norm 1, even if the model does not.
            truncate_dim: keep the first values of each vector after the model's modules. The norm is then
                below 1, as in sentence-transformers, unless normalize_embeddings makes it 1.
            truncation: ``"right"``, ``"left"``, or ``"strict"``: reject texts over the token limit.
            cache: ``"on"``: use the model's result cache, an error without one; ``"off"``: compute
                every text, also equal ones.
            client: any number that identifies the client for fair queueing, 0 to 2**64 - 1: a full
                queue has a reserve for clients with little queued work.
            expected_fingerprint: an error if the model's fingerprint differs.
            out: output array, [n, dim] float32 with contiguous columns; it is returned.
            return_items: return (vectors, :class:`Items`) with the token count of each text and
                whether it was cut.
            return_result: return (vectors, :class:`Result`) with the device, the tokens and the
                times of the call; with both it comes last.

        Returns:
            [dim] for one text, [n, dim] for many; float32, in newly allocated memory.
        """
        first: Any = cast("List[Any]", inputs)[0] if type(inputs) is list and len(inputs) == 1 else inputs  # type: ignore[redundant-cast]
        if (type(first) is str and convert_to_numpy and not convert_to_tensor
                and prompt_name is None and prompt is None and truncate_dim is None and out is None
                and device is None and sentences is None and expected_fingerprint is None
                and batch_size is None and client == 0 and precision == "float32"
                and output_value == "sentence_embedding" and truncation == cache == "default"
                and not (normalize_embeddings or show_progress_bar or return_items or return_result)):
            vector = self._embed_one(first)
            if vector is not None:
                return vector if first is inputs else vector.reshape(1, -1)
        inputs = arguments.one_of(inputs, sentences)
        if device is not None and device not in (self.device, self.device.split(":")[0]):
            raise InvalidError(f"this model is on {self.device}, not on {device}",
                               f'open another: Model(..., device="{device}")')
        view = self._view
        shape = arguments.vector_fields(truncate_dim, view.dim, normalize_embeddings)
        fields = {**arguments.prompt_fields(prompt_name, prompt), **shape,
                  "client": number(client, "client", 64),
                  "cache": arguments.named(arguments.CACHES, cache, "cache"),
                  "truncation": arguments.named(arguments.TRUNCATIONS, truncation, "truncation")}
        if expected_fingerprint is not None:
            fields["expected_fingerprint"] = text(expected_fingerprint, "expected_fingerprint")
        if output_value == "token_embeddings":
            return self._token_embeddings(view, inputs, fields)
        if output_value != "sentence_embedding":
            raise InvalidError(f'output_value "{output_value}" is unknown',
                               "known are sentence_embedding and token_embeddings")
        if not view.dim:
            raise UnsupportedError("this model has no embeddings: it only "
                                   + ("classifies" if view.labels else "makes sparse vectors"))
        wanted = self._form(view, precision, ranges, fields)
        form = wanted if out is None else Form("float32", shape["dimensions"] or view.dim, None)
        made = self._rows(
            view, inputs, abi.TASK_EMBED, form.columns, {**fields, **form.fields}, batch_size=batch_size,
            progress=show_progress_bar, out=out, want_items=return_items,
            want_result=return_result)
        shaped = form.vectors(made.output) if out is None else wanted.convert(made.output)
        return made.with_more(arguments.converted(shaped[0] if made.alone else shaped, made.alone,
                                                  convert_to_numpy, convert_to_tensor))

    def _form(self, view: Any, precision: str, ranges: Optional[Any], fields: Dict[str, Any]) -> Form:
        """The vectors in a precision. Default ranges are computed here."""
        if ranges is None and precision in ("int8", "uint8"):
            ranges = self._default_ranges(view, fields)
        return Form(precision, fields["dimensions"] or view.dim, ranges)

    def _default_ranges(self, view: Any, fields: Dict[str, Any]) -> Floats:
        """Ranges of the calibration texts for vectors of these dimensions and this normalization."""
        form = {name: fields[name] for name in ("dimensions", "normalize")}
        key = (view.fingerprint, *form.values())
        if key not in self._ranges:
            made = self._rows(view, calibration_texts(), abi.TASK_EMBED, form["dimensions"] or view.dim, form)
            self._ranges[key] = vector_ranges(made.output, margin=abi.CALIBRATION_MARGIN_PERCENT / 100)
        return self._ranges[key]

    def encode_query(self, inputs: Union[str, Iterable[str], None] = None, **options: Any) -> Any:
        """:meth:`encode` with the model's prompt for queries, if it has one."""
        return self._encode_as("query", inputs, options)

    def encode_document(self, inputs: Union[str, Iterable[str], None] = None,
                        **options: Any) -> Any:
        """:meth:`encode` with the model's prompt for documents, if it has one."""
        return self._encode_as("document", inputs, options)

    def prompt_name_for(self, kind: str) -> Optional[str]:
        """The model's prompt for ``"query"`` or ``"document"``; None if it has none."""
        return arguments.prompt_name_for(self.prompts, kind)

    def _encode_as(self, kind: str, inputs: Union[str, Iterable[str], None],
                   options: Dict[str, Any]) -> Any:
        if options.get("prompt") is None and options.get("prompt_name") is None:
            options["prompt_name"] = self.prompt_name_for(kind)
        return self.encode(inputs, **options)

    def encode_stream(self, inputs: Iterable[str], *, batch_size: int = arguments.CHUNK_TEXTS,
                      prompt_name: Optional[str] = None, prompt: Optional[str] = None,
                      normalize_embeddings: bool = False,
                      truncate_dim: Optional[int] = None, precision: str = "float32",
                      ranges: Optional[Any] = None, client: int = 0) -> Iterator[Any]:
        """Embed any number of texts in bounded memory: yields arrays of [at most batch_size, dim].

        ``precision`` and ``ranges`` as for :meth:`encode`.
        """
        view = self._view
        shape = arguments.vector_fields(truncate_dim, view.dim, normalize_embeddings)
        fields = {**arguments.prompt_fields(prompt_name, prompt), **shape,
                  "client": number(client, "client", 64)}
        form = self._form(view, precision, ranges, fields)
        with closing(self._stream(view, arguments.chunks(inputs, batch_size), abi.TASK_EMBED,
                                  form.columns, {**fields, **form.fields})) as stream:
            for made in stream:
                yield form.vectors(made.output)

    def encode_ids(self, ids: Iterable[Sequence[int]], *, normalize_embeddings: bool = False,
                   truncate_dim: Optional[int] = None, client: int = 0) -> Floats:
        """Embed lists of token ids, special tokens included, as :meth:`tokenize` returns them.

        A list over the model's limit is an error, never cut. ``client`` as for :meth:`encode`.
        """
        caller = number(client, "client", 64)
        view = self._view
        lists = list(ids)
        shape = arguments.vector_fields(truncate_dim, view.dim, normalize_embeddings)
        output = np.empty((len(lists), shape["dimensions"] or view.dim), dtype=np.float32)
        if lists:
            one = Call.of_ids(lists, output, task=abi.TASK_EMBED, client=caller, **shape)
            patiently(self, lambda: self._guarded(lambda: run(self, one), view))
        return output

    def encode_long(self, inputs: Union[str, Iterable[str]], method: str = "window", *,
                    chunk_by: str = "tokens", chunk_tokens: int = 0, window_tokens: int = 0,
                    stride: int = 0, spans: Optional[Sequence[Any]] = None,
                    prompt_name: Optional[str] = None, prompt: Optional[str] = None,
                    normalize_embeddings: bool = False, truncate_dim: Optional[int] = None,
                    precision: str = "float32", ranges: Optional[Any] = None,
                    cache: str = "default", client: int = 0) -> Union[LongText, List[LongText]]:
        """Embed texts of any length, whole: :class:`LongText` for one text, a list of them for many.

        Args:
            method: ``"window"``: one vector per text, the mean of its windows weighted by their tokens;
                ``"late"``: late chunking, the mean of the token vectors of each chunk, computed with
                the context around it.
            chunk_by: late: ``"tokens"``, ``"sentence"``, or ``"spans"``: the given byte spans.
            chunk_tokens: late: tokens of a chunk, default 256; by sentence: adjacent sentences of
                together at most that many tokens, default each sentence.
            window_tokens: tokens of a window, including prompt and special tokens; default the model's
                limit.
            stride: tokens of the text from the begin of a window to that of the next one; default no
                overlap, with late chunking an overlap of 256 tokens, at most a quarter.
            spans: late: pairs of byte offsets in the UTF-8 text, in order, without overlap; for many
                texts a list of them for each.
            prompt_name, prompt, normalize_embeddings, truncate_dim, precision, ranges, cache, client: as
                for :meth:`encode`.
        """
        view = self._view
        alone = _texts.is_text(inputs)
        texts = [cast(str, inputs)] if alone else arguments.sequence(inputs)
        kind = "spans" if spans is not None and chunk_by == "tokens" else chunk_by
        fields = {"method": arguments.named(METHODS, method, "method"),
                  "chunk_by": arguments.named(KINDS, kind, "chunk_by"),
                  "chunk_tokens": number(chunk_tokens, "chunk_tokens"),
                  "window_tokens": number(window_tokens, "window_tokens"), "stride": number(stride, "stride"),
                  **arguments.prompt_fields(prompt_name, prompt),
                  **arguments.vector_fields(truncate_dim, view.dim, normalize_embeddings)}
        how = {"cache": arguments.named(arguments.CACHES, cache, "cache"), "client": number(client, "client", 64)}
        given = [spans] if alone and spans is not None else spans
        convert = self._form(view, precision, ranges, fields).convert
        found = encode_long(self, view, texts, given, fields, how)
        if precision != "float32":
            found = [one._replace(vectors=convert(one.vectors)) for one in found]
        return found[0] if alone else found

    def encode_sparse(self, inputs: Union[str, Iterable[str]], *,
                      client: int = 0) -> Union[Sparse, List[Sparse]]:
        """Sparse vectors of a masked language model (SPLADE): one weight per vocabulary entry.

        Only the positive weights, in ascending token id order: :class:`Sparse`. ``client`` as for
        :meth:`encode`.
        """
        caller = number(client, "client", 64)
        view = self._view
        if not view.sparse_dim:
            raise UnsupportedError("this model makes no sparse vectors: it is not a masked language model")
        alone = _texts.is_text(inputs)
        texts = [cast(str, inputs)] if alone else arguments.sequence(inputs)
        rows = np.empty((min(len(texts), SPARSE_TEXTS), view.sparse_dim), dtype=np.float32)
        found: List[Sparse] = []
        for i in range(0, len(texts), SPARSE_TEXTS):
            part = texts[i:i + SPARSE_TEXTS]
            one = Call(part, rows[:len(part)], first=i, task=abi.TASK_SPARSE, client=caller)
            patiently(self, lambda: self._guarded(lambda: run(self, one, i), view))
            found += [compact(self._library, row) for row in rows[:len(part)]]
        return found[0] if alone else found

    def encode_multi(self, inputs: Union[str, Iterable[str]], outputs: Optional[Sequence[str]] = None, *,
                     prompt_name: Optional[str] = None, prompt: Optional[str] = None,
                     normalize_embeddings: bool = False, truncate_dim: Optional[int] = None,
                     precision: str = "float32", ranges: Optional[Any] = None, score: str = "default",
                     truncation: str = "default", cache: str = "default", client: int = 0,
                     heads: Optional[Sequence[str]] = None) -> Dict[str, Any]:
        """Several outputs of each text from one pass of the encoder, with the bits of separate calls.

        Args:
            outputs: any of ``"dense"``, ``"sparse"``, ``"colbert"`` (token vectors) and ``"labels"``
                (scores). Default: dense, sparse and colbert, as far as the model makes them.
            score: of the labels, as for :meth:`predict_proba`.
            heads: of the labels: names of heads of the model; default the first.
            prompt_name, prompt, normalize_embeddings, truncate_dim, precision, ranges, truncation, cache,
                client: as for :meth:`encode`; those of vectors apply to the dense ones.

        Returns:
            A dict by output. ``"dense"``: [n, dim]. ``"sparse"``: a list of :class:`Sparse`.
            ``"colbert"``: a list of [n_tokens, token_dim]; of a BGE-M3 without the first token, as in
            FlagEmbedding. ``"labels"``: [n, labels]; with ``heads`` a dict of these by the head's name.
            For one text without the dimension of texts.
        """
        view = self._view
        names = outputs_of(view, outputs)
        fields: Dict[str, Any] = {
            **arguments.prompt_fields(prompt_name, prompt), "client": number(client, "client", 64),
            "cache": arguments.named(arguments.CACHES, cache, "cache"), "dimensions": 0,
            "truncation": arguments.named(arguments.TRUNCATIONS, truncation, "truncation")}
        if "dense" in names:
            fields.update(arguments.vector_fields(truncate_dim, view.dim, normalize_embeddings))
        elif normalize_embeddings or truncate_dim is not None or precision != "float32":
            raise InvalidError("normalize_embeddings, truncate_dim and precision are of dense vectors, "
                               "which outputs does not have")
        chosen = heads_of(view, heads)
        if "labels" in names:
            fields["score"] = arguments.named(arguments.SCORES, score, "score")
        elif chosen:
            raise InvalidError("heads is of the output labels, which outputs does not have")
        alone = _texts.is_text(inputs)
        texts = [cast(str, inputs)] if alone else arguments.sequence(inputs)
        convert = self._form(view, precision, ranges, fields).convert
        encoding = Encoding(self, view, names, fields, chosen)
        size = encoding.size()
        for i in range(0, len(texts), size):
            encoding.add(texts[i:i + size], i)
        made = encoding.result(alone)
        if precision != "float32":
            made["dense"] = convert(made["dense"])
        return made

    def max_sim(self, query: Any, documents: Sequence[Any]) -> Floats:
        """MaxSim of late interaction (ColBERT): for each document the sum over the query's token
        vectors of the largest dot product with a token vector of the document.

        Args:
            query: [n_tokens, dim], as ``encode_multi(text, ["colbert"])["colbert"]``.
            documents: a list of [n_tokens, dim].
        """
        return max_sim(self._library, query, documents)

    def similarity(self, a: Any, b: Any) -> Floats:
        """Cosine similarity of each row of ``a`` with each row of ``b``: [len(a), len(b)]."""
        one, other = arguments.units(a, b)
        result: Floats = one @ other.T
        return result

    def similarity_pairwise(self, a: Any, b: Any) -> Floats:
        """Cosine similarity of row i of ``a`` with row i of ``b``."""
        one, other = arguments.units(a, b)
        if len(one) != len(other):
            raise InvalidError(f"{len(one)} vectors and {len(other)}: each is compared with one")
        result: Floats = np.einsum("ij,ij->i", one, other)
        return result

    # -------------------------------------------------------------------------- classification

    def predict_proba(self, inputs: Union[str, Iterable[str]],
                      pairs: Union[str, Iterable[str], None] = None, *, score: str = "default",
                      truncation: str = "default", batch_size: Optional[int] = None,
                      show_progress_bar: Optional[bool] = None, client: int = 0,
                      return_items: bool = False, return_result: bool = False,
                      heads: Optional[Sequence[str]] = None) -> Any:
        """Scores of every label, [n, len(labels)]: probabilities unless the model is a regression.

        With ``heads``: a dict of such arrays by the head's name, all from one pass.

        Args:
            pairs: second texts, for a text pair model.
            heads: names of heads of the model; default the first, as an array.
            score: ``"raw"``, ``"softmax"``, ``"sigmoid"``; default the model's setting.
            client, return_items, return_result: as for :meth:`encode`.
        """
        view = self._view
        if not view.labels:
            raise UnsupportedError("this model has no labels: it only embeds",
                                   "open it with head=FILE, as `gpuserve fit` makes them")
        chosen = heads_of(view, heads)
        columns = chosen.columns if chosen else len(view.labels)
        fields = {"score": arguments.named(arguments.SCORES, score, "score"),
                  "client": number(client, "client", 64),
                  "truncation": arguments.named(arguments.TRUNCATIONS, truncation, "truncation"),
                  **(chosen.field if chosen else {})}
        made = self._rows(view, inputs, abi.TASK_CLASSIFY, columns, fields, pairs=pairs,
                          batch_size=batch_size, progress=show_progress_bar,
                          want_items=return_items, want_result=return_result)
        scores = made.output[0] if made.alone else made.output
        return made.with_more(chosen.split(scores) if chosen else scores)

    # A text is an iterable of texts to a type checker: the first that fits counts.
    @overload
    def classify(self, inputs: str, pairs: Optional[str] = ..., *,  # pyright: ignore[reportOverlappingOverload]
                 top_k: Literal[1] = ..., **options: Any) -> Dict[str, Any]: ...

    @overload
    def classify(self, inputs: str, pairs: Optional[str] = ..., *,  # pyright: ignore[reportOverlappingOverload]
                 top_k: Optional[int], **options: Any) -> Union[Dict[str, Any], List[Dict[str, Any]]]: ...

    @overload
    def classify(self, inputs: Iterable[str], pairs: Optional[Iterable[str]] = ..., *, top_k: Literal[1] = ...,
                 **options: Any) -> List[Dict[str, Any]]: ...

    @overload
    def classify(self, inputs: Iterable[str], pairs: Optional[Iterable[str]] = ..., *, top_k: Optional[int],
                 **options: Any) -> List[Any]: ...

    def classify(self, inputs: Union[str, Iterable[str]],
                 pairs: Union[str, Iterable[str], None] = None, *, top_k: Optional[int] = 1,
                 candidate_labels: Optional[Sequence[str]] = None,
                 hypothesis_template: str = "This example is {}.", multi_label: bool = False,
                 heads: Optional[Sequence[str]] = None, **options: Any) -> Any:
        """Labels with their scores, best first, as in a ``transformers`` pipeline.

        With ``candidate_labels``: zero-shot classification by a model of natural language inference (NLI),
        as in the pipeline of that name. ``hypothesis_template`` has ``{}`` for the label; ``multi_label``
        scores each label by itself. With ``heads``, names of heads of the model, each text has a dict of
        results by the head's name; one pass computes all.

        Returns:
            ``{"label", "score"}`` for one text and ``top_k=1``; a list of them for more labels
            (``top_k=None``: all); a list of either for many texts.
        """
        if heads is not None:
            if candidate_labels is not None:
                raise InvalidError("heads and candidate_labels exclude each other")
            return labelled_by_head(self.heads, self.predict_proba(inputs, pairs, heads=heads, **options), top_k)
        labels = self.labels if candidate_labels is None else list(candidate_labels)
        if candidate_labels is None:
            scores = self.predict_proba(inputs, pairs, **options)
        elif pairs is not None:
            raise InvalidError("pairs and candidate_labels exclude each other")
        else:
            scores = zero_shot(self, inputs, candidate_labels, hypothesis_template, multi_label, options)
        if scores.ndim == 1:
            return arguments.labelled(labels, scores, top_k)
        return [arguments.labelled(labels, row, top_k) for row in scores]

    def label_tokens(self, inputs: Union[str, Iterable[str]], *, score: str = "default",
                     truncation: str = "default",
                     client: int = 0) -> Union[TokenLabels, List[TokenLabels]]:
        """Scores of every label for each token, of a token classifier: :class:`TokenLabels`.

        ``client`` as for :meth:`encode`.
        """
        alone = _texts.is_text(inputs)
        texts = [cast(str, inputs)] if alone else arguments.sequence(inputs)
        found = label_tokens(self, texts, arguments.named(arguments.SCORES, score, "score"),
                             arguments.named(arguments.TRUNCATIONS, truncation, "truncation"),
                             number(client, "client", 64))
        return found[0] if alone else found

    def entities(self, inputs: Union[str, Iterable[str]], *, aggregation_strategy: str = "simple",
                 ignore_labels: Sequence[str] = ("O",), labels: Optional[Labels] = None,
                 threshold: Optional[float] = None, nested: bool = False, multi_label: bool = False,
                 truncation: str = "default", client: int = 0) -> Union[List[Entity], List[List[Entity]]]:
        """Entities of each text from a token classifier, as in a ``transformers`` pipeline, or from a
        GLiNER model, which takes ``labels``.

        Args:
            aggregation_strategy: ``"simple"``: adjacent tokens of one kind form one entity; ``"none"``:
                every token with its label; ``"first"``, ``"average"``, ``"max"``: as simple, of whole
                words, each with the scores of its first token, the mean, or those of its best token.
            ignore_labels: labels that are not entities.
            labels: of a GLiNER model, required: the labels of all texts, or a list for each text. The next
                three arguments belong to it.
            threshold: minimum score of an entity (default 0.5).
            nested: an entity may lie inside another one.
            multi_label: a span may have several labels.
            client: as for :meth:`encode`.

        Returns:
            For each text a list of ``{"entity_group", "score", "word", "start", "end"}``, with offsets
            in characters; with ``"none"`` ``"entity"`` and ``"index"`` instead of the group.
        """
        alone = _texts.is_text(inputs)
        texts = [cast(str, inputs)] if alone else arguments.sequence(inputs)
        if labels is not None:
            given = label_entities(self, texts, labels, threshold, nested, multi_label,
                                   arguments.named(arguments.TRUNCATIONS, truncation, "truncation"),
                                   number(client, "client", 64))
            return given[0] if alone else given
        labelled = cast(List[TokenLabels], self.label_tokens(texts, truncation=truncation, client=client))
        found = [entities(self, text, one, aggregation_strategy, ignore_labels)
                 for text, one in zip(texts, labelled)]
        return found[0] if alone else found

    def predict(self, inputs: Sequence[Any], *, activation: str = "default", **options: Any) -> Floats:
        """Scores of pairs, as ``CrossEncoder.predict``: [n] for one label, else [n, labels]."""
        alone = len(inputs) == 2 and all(isinstance(text, str) for text in inputs)
        pairs = [inputs] if alone else list(inputs)
        for i, pair in enumerate(pairs):
            if isinstance(pair, str) or len(pair) != 2:
                raise InvalidError(f"input {i} is not a pair of texts")
        scores = self.predict_proba([pair[0] for pair in pairs], [pair[1] for pair in pairs],
                                    score=activation, **options)
        flat = scores[:, 0] if scores.shape[1] == 1 else scores
        return cast(Floats, flat[0] if alone else flat)

    def rank(self, query: str, documents: Sequence[str], top_k: Optional[int] = None,
             return_documents: bool = False, *, prompt: Optional[str] = None,
             method: str = "default", client: int = 0) -> List[Dict[str, Any]]:
        """Documents sorted by relevance, as ``CrossEncoder.rank``.

        Uses the model's score of the pair if it is a cross-encoder, else the cosine similarity of the
        embeddings, or of a multi-vector model the MaxSim of its token vectors divided by the number of
        the query's vectors. ``prompt`` is the query's prompt, or the instruction of a reranker that is a
        language model; default the model's own. ``method`` is one of these that the model has,
        ``"cross-encoder"``, ``"cosine"`` or ``"max-sim"``. ``client`` as for :meth:`encode`.
        """
        if _texts.is_text(documents):
            raise TypeError("documents is one str, not a list of them")
        scores = np.empty(len(documents), dtype=np.float32)
        caller = number(client, "client", 64)
        chosen = arguments.named(arguments.RERANK_METHODS, method, "method")
        for i in range(0, len(documents), arguments.CHUNK_TEXTS):
            part = slice(i, i + arguments.CHUNK_TEXTS)
            patiently(self, lambda: self._guarded(
                lambda: rerank(self, query, documents[part], scores[part], i, caller, prompt, chosen)))
        order = np.argsort(-scores, kind="stable")[:top_k]
        return [{"corpus_id": int(i), "score": float(scores[i]),
                 **({"text": documents[i]} if return_documents else {})} for i in order]

    # ------------------------------------------------------------------------------------ text

    def tokenize(self, inputs: Union[str, Iterable[str]], *, add_special_tokens: bool = True,
                 max_tokens: int = 0) -> Union[Tokens, List[Tokens]]:
        """Token ids and their spans, equal to Hugging Face ``tokenizers``."""
        if _texts.is_text(inputs):
            return self._guarded(lambda: tokenize(self, cast(str, inputs), add_special_tokens,
                                                  max_tokens))
        return self._guarded(lambda: [tokenize(self, text, add_special_tokens, max_tokens)
                                      for text in inputs])

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of token ids."""
        return self._guarded(lambda: decode(self, ids, skip_special_tokens))

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> List[str]:
        """Each token as written in the vocabulary, with its markers: ``##ing``, ``\u0120dog``."""
        return self._guarded(lambda: [token_text(self, int(one)) for one in ids])

    # ---------------------------------------------------------------------------- asynchronous

    def submit(self, inputs: Union[str, Sequence[str]], *, prompt_name: Optional[str] = None,
               prompt: Optional[str] = None, normalize_embeddings: bool = False,
               truncate_dim: Optional[int] = None, precision: str = "float32",
               ranges: Optional[Any] = None, deadline: Optional[float] = None,
               priority: str = "normal", client: int = 0,
               return_result: bool = False) -> "Future[Any]":
        """Start to embed and return at once; the future gets the result of :meth:`encode`.

        Cancelling the future cancels the work if it has not begun. A full queue raises
        :class:`~gpuserve.errors.BusyError` with the delay before a retry.

        Args:
            deadline: seconds from now; a request that has not begun by then raises
                :class:`~gpuserve.errors.ExpiredError`.
            priority: ``"high"``, ``"normal"`` or ``"low"``.
            precision, ranges, client, return_result: as for :meth:`encode`. The first call for int8 or
                uint8 without ranges waits for those of the calibration texts.
        """
        alone = _texts.is_text(inputs)
        texts = [cast(str, inputs)] if alone else list(inputs)
        view = self._view
        shape = arguments.vector_fields(truncate_dim, view.dim, normalize_embeddings)
        form = self._form(view, precision, ranges, shape)
        output = arguments.output(None, len(texts), form.columns, arguments.row_type(form.fields))

        def done(call: Call) -> Any:
            rows = form.vectors(call.output)
            vectors = rows[0] if alone else rows
            return (vectors, result_of([call.result])) if call.result is not None else vectors

        def start() -> "Future[Any]":
            started = Call(texts, output, task=abi.TASK_EMBED, want_result=return_result,
                           deadline_us=0 if deadline is None else int(deadline * 1e6) or -1,
                           priority=arguments.named(arguments.PRIORITIES, priority, "priority"),
                           client=number(client, "client", 64),
                           **shape, **form.fields, **arguments.prompt_fields(prompt_name, prompt))
            return self._futures().start(self, started, done)
        return self._guarded(start, view)

    async def encode_async(self, inputs: Union[str, Sequence[str]], **options: Any) -> Any:
        """:meth:`encode` without blocking the event loop; options as for :meth:`submit`."""
        if options.get("precision") in ("int8", "uint8") and options.get("ranges") is None:
            shape = arguments.vector_fields(options.get("truncate_dim"), self._view.dim,
                                            options.get("normalize_embeddings", False))
            options["ranges"] = await asyncio.get_running_loop().run_in_executor(
                None, lambda: self._default_ranges(self._view, shape))
        while True:
            try:
                return await asyncio.wrap_future(self.submit(inputs, **options))
            except BusyError as error:
                await asyncio.sleep(error.retry_after or 0.001)

    # ------------------------------------------------------------------------- before it is open

    def get_embedding_dimension(self) -> int:
        """As in sentence-transformers; the same as ``dim``."""
        return self.dim

    #: Name in sentence-transformers before 6.
    get_sentence_embedding_dimension = get_embedding_dimension

    def __repr__(self) -> str:
        if not self._handle:
            return "<gpuserve.Model, closed>"
        return f"<gpuserve.Model {self._view.facts.get('path')} on {self.device}, dim {self.dim}>"

    # -------------------------------------------------------------------------------- internal

    def _rows(self, view: View, inputs: Union[str, Iterable[str], None], task: int, columns: int,
              fields: Dict[str, Any], *, pairs: Union[str, Iterable[str], None] = None,
              batch_size: Optional[int] = None, progress: Optional[bool] = None,
              out: Optional[Floats] = None, want_items: bool = False,
              want_result: bool = False) -> "Made":
        """The rows of all inputs, and their outcome."""
        alone = _texts.is_text(inputs)
        texts = [cast(str, inputs)] if alone else arguments.sequence(cast(Iterable[str], inputs))
        seconds = None if pairs is None else (
            [cast(str, pairs)] if _texts.is_text(pairs) else arguments.sequence(pairs))
        if seconds is not None and len(seconds) != len(texts):
            raise InvalidError(f"{len(texts)} texts but {len(seconds)} second texts")
        size = arguments.batch_size(batch_size)
        output = arguments.output(out, len(texts), columns, arguments.row_type(fields))
        calls: List[Call] = []
        if not texts:
            nothing = result_of([abi.new(abi.Result)])._replace(
                dtype=view.facts["dtype"], device=self.device, fingerprint=view.fingerprint)
            return Made(output, items_of(np.zeros((0, 8), np.uint32)) if want_items else None,
                         nothing if want_result else None, alone)
        if len(texts) <= size and not progress:
            one = Call(texts, output, pairs=seconds, task=task, want_items=want_items,
                       want_result=want_result, **fields)
            patiently(self, lambda: self._guarded(lambda: run(self, one), view))
            calls.append(one)
        else:
            parts = ((texts[i:i + size], seconds[i:i + size] if seconds else None)
                     for i in range(0, len(texts), size))
            bar = Progress(len(texts), bool(progress))
            # Closed explicitly: a traceback would keep the stream alive, and the library would go on writing.
            stream = self._stream(view, parts, task, columns, {**fields, "want_result": want_result}, output)
            try:
                for one in stream:
                    bar.advance(one.job.n_items)
                    calls.append(one)
            finally:
                try:
                    stream.close()
                finally:
                    stream.close()
            bar.close()
        return Made(
            output, items_of(np.concatenate([cast(Any, one.items) for one in calls])) if want_items else None,
            result_of([cast(Any, one.result) for one in calls]) if want_result else None, alone)

    def _stream(self, view: View, parts: Iterable[Tuple[Sequence[str], Optional[Sequence[str]]]], task: int,
                columns: int, fields: Dict[str, Any],
                output: Optional[Floats] = None) -> "Generator[Call, None, None]":
        """Calls in order, a few of them in flight; into `output`, or each into an array of its own."""
        waiting: List[Tuple[int, Call, Request]] = []
        first = 0
        try:
            for texts, pairs in parts:
                rows = (output[first:first + len(texts)] if output is not None
                        else arguments.output(None, len(texts), columns, arguments.row_type(fields)))
                started = Call(texts, rows, first=first, pairs=pairs, task=task, **fields)
                waiting.append((first, started, Request(self, started)))
                patiently(self, lambda: self._guarded(lambda: waiting[-1][2].submit(self), view))
                first += len(texts)
                if len(waiting) >= IN_FLIGHT:
                    yield self._finished(waiting)
            while waiting:
                yield self._finished(waiting)
        finally:
            # Twice: the handler of a second signal raises where the first call of a function begins.
            try:
                free_all([request for _, _, request in waiting])
            finally:
                free_all([request for _, _, request in waiting])

    def _finished(self, waiting: "List[Tuple[int, Call, Request]]") -> Call:
        """The first call in flight, once it is complete; removed from the list after it is freed."""
        first, started, request = waiting[0]
        finish(self, request, first)
        request.free()
        del waiting[0]
        return started

    def _token_embeddings(self, view: View, inputs: Union[str, Iterable[str], None], fields: Dict[str, Any]) -> Any:
        """The token vectors of each text."""
        alone = _texts.is_text(inputs)
        texts = [cast(str, inputs)] if alone else arguments.sequence(cast(Iterable[str], inputs))
        width = view.token_dim
        found: List[Floats] = []
        options = {name: fields[name] for name in fields if name not in ("dimensions", "normalize")}
        for item in texts:
            output = np.empty((view.max_seq_length, width), dtype=np.float32)
            offsets = np.zeros(2, dtype=np.uint64)
            one = Call([item], output, task=abi.TASK_TOKEN_VECTORS,
                       token_offsets=_texts.address(offsets), **options)
            patiently(self, lambda: self._guarded(lambda: run(self, one), view))
            found.append(output[: int(offsets[1])].copy())
        return found[0] if alone else found
