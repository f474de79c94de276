"""The devices of this machine."""

from __future__ import annotations

from ctypes import byref, c_size_t, sizeof
from dataclasses import dataclass
from typing import List, Optional

from . import _abi
from ._library import call
from .context import Context


@dataclass(frozen=True)
class Device:
    """A device as the library sees it; ``selector`` is what names it to :class:`Model`."""

    selector: str
    name: str
    uuid: str
    isa: str
    memory_bytes: int
    memory_free_bytes: int
    n_cores: int


def devices(context: Optional[Context] = None) -> List[Device]:
    """The devices that can be used now, the CPU among them."""
    own = context is None
    context = context or Context()
    try:
        return [_device(info) for info in _list(context)]
    finally:
        if own:
            context.close()


def _list(context: Context) -> List[_abi.DeviceInfo]:
    n = c_size_t()
    capacity = 16
    while True:
        infos = (_abi.DeviceInfo * capacity)()
        infos[0].struct_size = sizeof(_abi.DeviceInfo)
        call(context._library.gpuserve_device_list, context._open_handle(), infos, capacity,
             byref(n))
        if n.value <= capacity:
            return list(infos[: n.value])
        capacity = n.value


def _device(info: _abi.DeviceInfo) -> Device:
    return Device(info.selector.decode(), info.name.decode("utf-8", "replace"), info.uuid.decode(),
                  info.isa.decode(), info.memory_bytes, info.memory_free_bytes, info.n_cores)
