"""What the three classes share: the constructor, devices, pools, the tokenizer and the refused methods."""

from __future__ import annotations

import copy
import functools
import inspect
import json
import os
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar, Union, cast

import numpy as np

from .._ffi.arguments import DTYPES, prompt_name_for
from .._ffi.calls import Floats
from .._ffi.values import whole
from ..context import Context
from ..devices import devices as usable_devices
from ..errors import InvalidError, UnsupportedError
from ..model import Model
from . import _tensors as tensors
from ._names import OWN_NAMES
from ._tokenizer import TokenizerProxy

Function = TypeVar("Function", bound=Callable[..., Any])
Self = TypeVar("Self", bound="BaseModel")

#: Workers on a machine without a GPU, as in sentence-transformers.
CPU_WORKERS = 4
#: Most texts of a chunk, as in sentence-transformers.
MAX_CHUNK = 5000
#: Options of model_kwargs that choose an implementation, not a result.
IMPLEMENTATIONS = ("attn_implementation", "low_cpu_mem_usage", "use_safetensors")


def accepts(dropped: Sequence[str] = (), **renames: str) -> Callable[[Function], Function]:
    """Accept the older names of arguments, ignore the dropped ones, and refuse unknown ones by name."""
    def decorate(function: Function) -> Function:
        parameters = inspect.signature(function).parameters
        open_ended = any(one.kind is one.VAR_KEYWORD for one in parameters.values())

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            for name in [one for one in given if one in renames]:
                value = given.pop(name)
                given.setdefault(renames[name], value)
            for name in [one for one in given if one in dropped]:
                del given[name]
            for name in given:
                if name not in parameters and not open_ended:
                    raise InvalidError(f'{function.__qualname__} has no argument "{name}"',
                                       "known are " + ", ".join(list(parameters)[1:]))
            return function(*args, **given)
        return cast(Function, call)
    return decorate


def refuse(given: Dict[str, Any], owner: str, hint: str) -> None:
    """Refuse arguments that have a value, by name."""
    for name, value in given.items():
        if value not in (None, False) and value != {}:
            raise InvalidError(f'{owner} does not take {name}', hint)


def _dtype(value: Any) -> Optional[str]:
    """The library's name of a dtype, or of one of torch's; "auto" is the default of the device."""
    name = str(value).rsplit(".", maxsplit=1)[-1]
    if value is None or name == "auto":
        return None
    if name not in DTYPES:
        raise InvalidError(f'model_kwargs["dtype"] {name!r} is unknown', "known are " + ", ".join(DTYPES))
    return name


def _model_options(model_kwargs: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """The dtype and the library's own options, such as n_threads and pooling."""
    options: Dict[str, Any] = {}
    known = inspect.signature(Model.__init__).parameters
    for name, value in (model_kwargs or {}).items():
        if name in ("dtype", "torch_dtype"):
            options["dtype"] = _dtype(value)
        elif name in known and name not in ("self", "model_name_or_path", "device", "context"):
            options[name] = value
        elif name not in IMPLEMENTATIONS and value is not None:
            raise InvalidError(f'model_kwargs["{name}"] is not an option of a model',
                               "known are dtype, torch_dtype and the arguments of gpuserve.Model")
    return options


def _token_limit(processor_kwargs: Optional[Dict[str, Any]]) -> int:
    for name, value in (processor_kwargs or {}).items():
        if name != "model_max_length" and value is not None:
            raise InvalidError(f'processor_kwargs["{name}"] is not taken',
                               "known is model_max_length; the other settings are those of the model's files")
    return whole((processor_kwargs or {}).get("model_max_length") or 0, "model_max_length")


class BaseModel:
    """A model on one device or several."""

    #: Organization of the hub that names without one belong to.
    default_huggingface_organization: Optional[str] = None
    #: Prompts that every model has. With an empty prompt for documents, a prompt "passage" of the model is not used
    #: by encode_document, as in sentence-transformers.
    _default_prompts: Dict[str, str] = {}

    def _start(self, name: Union[None, str, "os.PathLike[str]", Model], *, modules: Any, device: Any,
               prompts: Optional[Dict[str, str]], default_prompt_name: Optional[str], cache_folder: Optional[str],
               trust_remote_code: bool, revision: Optional[str], local_files_only: bool, token: Any,
               model_kwargs: Optional[Dict[str, Any]], processor_kwargs: Optional[Dict[str, Any]],
               config_kwargs: Optional[Dict[str, Any]], model_card_data: Any, backend: str,
               max_tokens: Optional[int] = None) -> None:
        """Check the arguments of a constructor, and open the model."""
        refuse({"modules": modules}, type(self).__name__, "give the directory or the name of a saved model")
        refuse(config_kwargs or {}, "config_kwargs", "the configuration is that of the model's files")
        if isinstance(token, str):
            raise InvalidError(f"{type(self).__name__} does not take token", "set the variable HF_TOKEN")
        if backend != "torch":
            raise InvalidError(f"backend {backend!r} is not available",
                               'leave it at "torch": the library has kernels of its own and reads safetensors')
        #: Kept for callers; the library does not read it.
        self.model_card_data = SimpleNamespace() if model_card_data is None else model_card_data
        #: Kept for callers: the library never runs code of a model.
        self.trust_remote_code = trust_remote_code
        self._replicas: Dict[str, Model] = {}
        self._context: Optional[Context] = None
        if isinstance(name, Model):
            self._model = name
            self._path: Any = None
        else:
            self._open(name, device, cache_folder, revision, local_files_only,
                       {**_model_options(model_kwargs), "max_tokens": max_tokens or _token_limit(processor_kwargs)})
        given = {**self._default_prompts, **(prompts or {})}
        #: Prompts by name: those given, and the model's own.
        self.prompts: Dict[str, str] = {**given, **{one: value for one, value in self._model.prompts.items()
                                                    if one not in (prompts or {})}}
        own = self._model.info()["default_prompt"]
        if default_prompt_name is not None and default_prompt_name not in self.prompts:
            raise InvalidError(f'default_prompt_name "{default_prompt_name}" is not a prompt',
                               "known are " + ", ".join(self.prompts))
        #: The prompt of calls that name none.
        self.default_prompt_name: Optional[str] = default_prompt_name if default_prompt_name is not None else own

    def _open(self, name: Any, device: Any, cache_folder: Optional[str], revision: Optional[str],
              local_files_only: bool, options: Dict[str, Any]) -> None:
        if name is None:
            raise InvalidError(f"{type(self).__name__} needs model_name_or_path")
        path = cast(str, os.fspath(name))
        if not os.path.exists(path):
            if "/" not in path and path.lower() not in OWN_NAMES and self.default_huggingface_organization:
                path = f"{self.default_huggingface_organization}/{path}"
            path += f"@{revision}" if revision else ""
        self._path, self._options = path, options
        self._load(None if device is None else str(device), cache_folder, local_files_only)

    def _load(self, device: Optional[str], cache_folder: Optional[str], local_files_only: bool = False) -> None:
        """Open the model of `_path`."""
        self._context = Context(cache_dir=cache_folder)
        try:
            if local_files_only:
                Model.inspect(self._path, context=self._context)  # raises NotFoundError; Model() would fetch it
            self._model = Model(self._path, device=device, context=self._context, **self._options)
        except BaseException:
            self._context.close()
            raise
        self._replicas[self._model.device] = self._model

    # ----------------------------------------------------------------------------------- facts

    @property
    def device(self) -> Any:
        """The device: a torch.device, or its name without torch."""
        return tensors.device(self._model.device)

    @property
    def max_seq_length(self) -> int:
        """Max tokens of a text; longer texts are cut. A new value loads the model again."""
        return self._model.max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: Optional[int]) -> None:
        limit = whole(value or 0, "max_seq_length")
        for model in self._replicas.values() or [self._model]:
            model.swap(max_tokens=limit)
        if self._path is not None:
            self._options["max_tokens"] = limit

    def get_max_seq_length(self) -> int:
        """Max tokens of a text."""
        return self.max_seq_length

    @property
    def tokenizer(self) -> TokenizerProxy:
        """The tokenizer, with the usual calls of transformers."""
        return TokenizerProxy(self._model, int(self._config("config.json").get("pad_token_id") or 0))

    def tokenize(self, texts: Any, **kwargs: Any) -> Dict[str, Any]:
        """``input_ids`` and ``attention_mask`` of texts, padded, as tensors."""
        refuse(kwargs, "tokenize", "it takes texts only")
        made = self.tokenizer(list(texts), padding=True, truncation=True, return_tensors="np")
        return {name: tensors.tensor(one) for name, one in made.items()}

    def preprocess(self, inputs: Any, prompt: Optional[str] = None, **kwargs: Any) -> Dict[str, Any]:
        """:meth:`tokenize` of texts with a prompt."""
        return self.tokenize([(prompt or "") + one for one in inputs], **kwargs)

    def get_backend(self) -> str:
        """Always ``"torch"``, the name of the backend without an export."""
        return "torch"

    def get_model_kwargs(self) -> List[str]:
        """Names of additional keyword arguments of ``encode``: none."""
        return []

    @property
    def modalities(self) -> List[str]:
        """Inputs: texts."""
        return ["text"]

    def supports(self, modality: Any) -> bool:
        """True for ``"text"``."""
        return bool(modality == "text")

    def is_singular_input(self, inputs: Any) -> bool:
        """True for one text."""
        return isinstance(inputs, str)

    def evaluate(self, evaluator: Callable[..., Any], output_path: Optional[str] = None) -> Any:
        """The result of an evaluator of sentence-transformers."""
        if output_path is not None:
            os.makedirs(output_path, exist_ok=True)
        return evaluator(self, output_path)

    def _config(self, file: str) -> Dict[str, Any]:
        """A configuration file of the model; empty without it."""
        path = os.path.join(str(self._model.info()["path"]), file)
        if not os.path.isfile(path):
            return {}
        with open(path, encoding="utf-8") as opened:
            found: Dict[str, Any] = json.load(opened)
        return found

    # ------------------------------------------------------------------------------ placement

    def _on(self, device: Any) -> Model:
        """The model on a device; opened there at first use."""
        if device is None:
            return self._model
        name = str(device)
        for known, model in [(self._model.device, self._model), *self._replicas.items()]:
            if name in (known, known.split(":")[0]):
                return model
        if self._path is None:
            raise InvalidError(f"this model is on {self._model.device}, not on {name}", "open it there")
        opened = Model(self._path, device=name, context=self._context, **self._options)
        self._replicas[opened.device] = opened
        return opened

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """Use the model on another device, or with another dtype."""
        for value in (*args, *kwargs.values()):
            if str(value).startswith("torch.") or str(value) in DTYPES:
                self._model.swap(dtype=_dtype(value))
            elif not isinstance(value, bool) and value is not None:
                self._model = self._on(value)
        return self

    def cpu(self: Self) -> Self:
        """:meth:`to` the CPU."""
        return self.to("cpu")

    def cuda(self: Self, device: Any = None) -> Self:
        """:meth:`to` a GPU."""
        return self.to(f"cuda:{device}" if isinstance(device, int) else device or "cuda")

    def float(self: Self) -> Self:
        """:meth:`to` float32."""
        return self.to("float32")

    def half(self: Self) -> Self:
        """:meth:`to` float16."""
        return self.to("float16")

    def bfloat16(self: Self) -> Self:
        """:meth:`to` bfloat16."""
        return self.to("bfloat16")

    def eval(self: Self) -> Self:
        """No effect: a model only infers."""
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """No effect: the kernels are compiled."""

    def start_multi_process_pool(self, target_devices: Optional[List[str]] = None) -> Dict[str, Any]:
        """Open the model on devices; default all GPUs, or four workers on the CPU. Workers are threads."""
        if target_devices is None:
            names = [one.name for one in usable_devices() if one.name.startswith("cuda")] or ["cpu"] * CPU_WORKERS
        else:
            names = [str(one) for one in target_devices]
        workers: "SimpleQueue[Model]" = SimpleQueue()
        for name in names:
            workers.put(self._on(name))
        return {"input": workers, "output": None, "processes": names}

    @staticmethod
    def stop_multi_process_pool(pool: Dict[str, Any]) -> None:
        """End a pool; its models stay open for the next one."""
        pool["processes"] = []

    def _distributed(self, inputs: Sequence[Any], device: Any, pool: Optional[Dict[str, Any]],
                     chunk_size: Optional[int], work: Callable[[Model, Sequence[Any]], Any]) -> List[Any]:
        """Results of parts of the inputs, in order: one part, or chunks by the workers of a pool."""
        if chunk_size is not None and whole(chunk_size, "chunk_size") <= 0:
            raise InvalidError(f"chunk_size is {chunk_size}, it must be 1 at least")
        devices: List[Any] = list(cast(Any, device)) if isinstance(device, (list, tuple)) else []
        if pool is None and devices:
            pool = self.start_multi_process_pool(devices)
        if pool is None or not len(inputs):
            return [work(self._on(None if isinstance(device, (list, tuple)) else device), inputs)]
        n = len(pool["processes"])
        if not n:
            raise InvalidError("the pool was stopped")
        size = chunk_size or max(1, min(-(-len(inputs) // n // 10), MAX_CHUNK))
        workers: "SimpleQueue[Model]" = pool["input"]

        def run(first: int) -> Any:
            model = workers.get()
            try:
                return work(model, inputs[first:first + size])
            finally:
                workers.put(model)
        with ThreadPoolExecutor(n) as threads:
            return list(threads.map(run, range(0, len(inputs), size)))

    # -------------------------------------------------------------------------------- prompts

    def _prompt(self, prompt: Optional[str], prompt_name: Optional[str]) -> Dict[str, Optional[str]]:
        """The arguments of a call: by name where the prompt is the model's, for its route or adapter."""
        if prompt is not None:
            return {"prompt": prompt}
        name = prompt_name if prompt_name is not None else self.default_prompt_name
        if name is None:
            return {"prompt": ""} if self._model.info()["default_prompt"] is not None else {}
        if name not in self.prompts:
            raise InvalidError(f"Prompt name '{name}' not found in the configured prompts dictionary with keys "
                               f"{list(self.prompts)!r}.")
        own: Any = {**dict.fromkeys(self._model.info()["routes"], ""), **self._model.prompts}
        if own.get(name) == self.prompts[name]:
            return {"prompt_name": name}
        return {"prompt": self.prompts[name]}

    def _prompt_name_for(self, kind: str) -> Optional[str]:
        """The prompt for "query" or "document"; of a model with adapters the one that chooses its adapter."""
        return prompt_name_for(self._model.prompts if self._model.info()["adapters"] else self.prompts, kind)

    # ------------------------------------------------------------------------------------ end

    def close(self) -> None:
        """Release the model on all devices; a model that was given open stays open."""
        for model in self._replicas.values():
            model.close()
        if self._context is not None:
            self._context.close()

    def __deepcopy__(self: Self, memo: Any) -> Self:
        """The same model, opened again, with copies of the settings."""
        if self._context is None:
            raise UnsupportedError("a model that was given open has no copy", "open it by its path")
        other = type(self).__new__(type(self))
        memo[id(self)] = other
        own = ("_model", "_replicas", "_context")
        other.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()
                               if name not in own})
        other._replicas = {}
        other._load(self._model.device, self._context.cache_dir)
        return other

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<gpuserve {type(self).__name__} of {self._model!r}>"


def texts_of(inputs: Any) -> Tuple[List[str], bool]:
    """The texts of a call, and whether it is a single one."""
    name = type(inputs).__name__
    if isinstance(inputs, str):
        return [inputs], True
    if inputs is None or isinstance(inputs, (bytes, dict, int)) or hasattr(inputs, "size") and callable(inputs.size):
        raise InvalidError(f"inputs is {name}, not a str or a list of them")
    found = inputs.tolist() if isinstance(inputs, np.ndarray) else list(inputs)
    for i, one in enumerate(found):
        if not isinstance(one, str):
            raise InvalidError(f"input {i} is {type(one).__name__}, not str", "images, pairs and dicts are not taken")
    return found, False


def check_call(batch_size: int, kwargs: Dict[str, Any], owner: str) -> None:
    """Check what does not change the result: the library forms its batches itself."""
    if whole(batch_size, "batch_size") <= 0:
        raise InvalidError(f"batch_size must be a positive integer, got {batch_size}.")
    unknown = sorted(set(kwargs) - {"task"})
    if unknown:
        raise InvalidError(f"{owner} has been called with additional keyword arguments that this model does not use: "
                           f"{unknown}")


def joined(parts: List[Floats]) -> Floats:
    """The rows of all parts."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


#: Methods that train, save or change a model.
REFUSED = (
    "active_adapter", "active_adapters", "add_adapter", "check_peft_compatible_model", "clear_placement_cache",
    "delete_adapter", "disable_adapters", "enable_adapters", "fit", "forward", "get_adapter_state_dict",
    "get_sentence_features", "gradient_checkpointing_enable", "has_peft_compatible_model", "load_adapter", "merge",
    "old_fit", "push_to_hub", "save", "save_pretrained", "save_to_hub", "set_adapter", "set_keep_in_fp32_modules",
    "set_pooling_include_prompt", "smart_batching_collate", "smart_batching_collate_text_only", "train",
)


def _refused(name: str) -> Callable[..., Any]:
    def method(*_args: Any, **_options: Any) -> Any:
        raise UnsupportedError(f"{name} is not available: a gpuserve model only infers",
                               "use sentence-transformers for it, and open the saved directory here")
    method.__name__ = name
    method.__doc__ = f"Refused: ``{name}`` trains, saves or changes a model."
    return method


for _name in REFUSED:
    setattr(BaseModel, _name, _refused(_name))
