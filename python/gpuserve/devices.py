"""Devices of this machine: listing and selection."""

from __future__ import annotations

from ctypes import Array, byref, c_size_t, create_string_buffer, sizeof
from dataclasses import dataclass
from typing import Callable, List, Optional

from ._ffi import abi
from ._ffi.library import call
from ._ffi.values import text
from .context import Context, private_or


@dataclass(frozen=True)
class Device:
    """A device; ``selector`` is its name for :class:`Model`.

    Fields reported by the driver are None or empty without a driver.
    """

    selector: str
    name: str
    uuid: str
    isa: str
    memory_bytes: int
    memory_free_bytes: int
    n_cores: int
    #: Part of its memory reserved by the models of the context.
    held_bytes: int
    #: The index in nvidia-smi.
    driver_index: Optional[int]
    load_percent: Optional[int]
    temperature_celsius: Optional[int]
    power_milliwatts: Optional[int]
    n_processes: Optional[int]
    bus_id: str
    #: Limit of its memory other than its size: "MIG", "vGPU", "MPS: ...".
    limit: str
    is_mig: bool
    is_virtual: bool
    #: Reason for the choice of ``auto``; empty for a listed or named device.
    reason: str = ""


def devices(context: Optional[Context] = None) -> List[Device]:
    """The devices that are usable now, including the CPU, with their free memory."""
    with private_or(context) as used:
        return _listed(lambda *rest: call(used._library.gpuserve_device_list,
                                          used._open_handle(), *rest))


def select(selector: str = "auto", context: Optional[Context] = None) -> Device:
    """The device of a selector: ``"auto"``, ``"cuda:1"``, a UUID, ``"auto:order=load,..."``.

    An unavailable device raises DeviceError; no other device replaces it.
    """
    info = abi.new(abi.DeviceInfo)
    reason = create_string_buffer(1024)
    with private_or(context) as used:
        call(used._library.gpuserve_device_select, used._open_handle(),
             text(selector, "selector"), byref(info), 1, None, reason, len(reason))
    return _device(info, reason.value.decode("utf-8", "replace"))


def select_all(selector: str, context: Optional[Context] = None) -> List[Device]:
    """All devices that match a selector, best first: ``"cuda:*"``, ``"auto:limit=3"``."""
    with private_or(context) as used:
        return _listed(lambda *rest: call(used._library.gpuserve_device_select, used._open_handle(),
                                          text(selector, "selector"), *rest, None, 0))


def refresh(device: Device, context: Optional[Context] = None) -> Device:
    """The device with current values: free memory, load, temperature, reserved bytes."""
    info = abi.new(abi.DeviceInfo, selector=device.selector.encode())
    with private_or(context) as used:
        call(used._library.gpuserve_device_refresh, used._open_handle(), byref(info))
    return _device(info, device.reason)


def _listed(fill: Callable[..., None]) -> List[Device]:
    n = c_size_t()
    capacity = 16
    while True:
        infos: Array[abi.DeviceInfo] = (abi.DeviceInfo * capacity)()
        infos[0].struct_size = sizeof(abi.DeviceInfo)
        fill(infos, capacity, byref(n))
        if n.value <= capacity:
            return [_device(info) for info in infos[: n.value]]
        capacity = n.value


def _told(value: int) -> Optional[int]:
    return None if value < 0 else value


def _device(info: abi.DeviceInfo, reason: str = "") -> Device:
    return Device(
        selector=info.selector.decode(), name=info.name.decode("utf-8", "replace"),
        uuid=info.uuid.decode(), isa=info.isa.decode(), memory_bytes=info.memory_bytes,
        memory_free_bytes=info.memory_free_bytes, n_cores=info.n_cores, held_bytes=info.held_bytes,
        driver_index=_told(info.driver_index), load_percent=_told(info.load_percent),
        temperature_celsius=_told(info.temperature_celsius),
        power_milliwatts=_told(info.power_milliwatts), n_processes=_told(info.n_processes),
        bus_id=info.bus_id.decode(), limit=info.limit.decode("utf-8", "replace"),
        is_mig=bool(info.flags & abi.DEVICE_MIG),
        is_virtual=bool(info.flags & abi.DEVICE_VIRTUAL), reason=reason)
