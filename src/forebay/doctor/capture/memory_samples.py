"""How full memory is at the edges of the window: the host's, page-locked and the devices'.

Only frameworks that are loaded are asked, and only of devices that the script has begun to use: asking starts none.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["MemoryReadings", "limits_of_tensorflow", "read_memory"]

_STATUS = Path("/proc/self/status")
_HOST = {"host_nbytes": ("RssAnon", "RssShmem"), "mapped_nbytes": ("RssFile",), "host_peak_nbytes": ("VmHWM",)}


class MemoryReadings:
    """Readings, each with how many steps had been done; plain values that go into a capture."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []

    def take(self, when: str, steps: int = 0) -> None:
        """Never the script's trouble: what cannot be read is left out."""
        with suppress(Exception):
            self.taken.append({"when": when, "steps": steps, **read_memory()})


def read_memory() -> dict[str, Any]:
    """Bytes now, and at most so far; what nobody tells is left out."""
    found: dict[str, Any] = {**_host(), "devices": []}
    for name, ask in _DEVICES.items():
        module = sys.modules.get(name)
        if module is not None:
            with suppress(Exception):  # half imported, or another version: the rest is still worth having
                found["devices"] += [{"framework": name, **told} for told in ask(module)]
    with suppress(Exception):
        found |= _page_locked(sys.modules["torch"])
    return found


def _host() -> dict[str, int]:
    """What is mapped from files is not the process's own: the system takes it back when it needs room."""
    if not _STATUS.is_file():
        return {}
    lines = (line.partition(":") for line in _STATUS.read_text().splitlines())
    sizes = {name: int(told.split()[0]) * 1024 for name, _, told in lines if told.endswith("kB")}
    return {name: sum(sizes[part] for part in parts) for name, parts in _HOST.items() if sizes.keys() >= {*parts}}


def _page_locked(torch: Any) -> dict[str, int]:
    """What PyTorch has page-locked; nobody else tells."""
    if not torch.cuda.is_initialized():
        return {}
    told = torch.cuda.host_memory_stats()
    return {"pinned_nbytes": told["allocated_bytes.current"], "pinned_peak_nbytes": told["allocated_bytes.peak"]}


def _torch(torch: Any) -> Iterator[dict[str, Any]]:
    if not torch.cuda.is_initialized():
        return
    for number in range(torch.cuda.device_count()):
        told = torch.cuda.memory_stats(number)
        if told.get("reserved_bytes.all.peak"):
            yield {
                "device": f"cuda:{number}",
                "used_nbytes": told["allocated_bytes.all.current"],
                "reserved_nbytes": told["reserved_bytes.all.current"],
                "peak_nbytes": told["allocated_bytes.all.peak"],
                "total_nbytes": torch.cuda.get_device_properties(number).total_memory,
            }


def _tensorflow(tf: Any) -> Iterator[dict[str, Any]]:
    if _context_of_tensorflow() is None:
        return
    limits = limits_of_tensorflow()
    for device in tf.config.list_logical_devices("GPU"):
        name = device.name.rpartition("device:")[2]
        told, total = tf.config.experimental.get_memory_info(name), limits.get(name)
        yield {"device": name, "used_nbytes": told["current"], "peak_nbytes": told["peak"], "total_nbytes": total}


def limits_of_tensorflow() -> dict[str, int]:
    """What TensorFlow may take of each device's memory, taken or not; nothing where it does not tell."""
    with suppress(Exception):  # it is not public
        from tensorflow.python.client import pywrap_tf_session as told

        devices = sys.modules["tensorflow.python.pywrap_tfe"].TFE_ContextListDevices(_context_of_tensorflow()._handle)
        names = [told.TF_DeviceListName(devices, number) for number in range(told.TF_DeviceListCount(devices))]
        return {
            name.rpartition("device:")[2]: told.TF_DeviceListMemoryBytes(devices, number)
            for number, name in enumerate(names)
        }
    return {}


def _context_of_tensorflow() -> Any:
    """None before it has begun to use devices."""
    context = sys.modules["tensorflow.python.eager.context"].context_safe()
    return context if context is not None and context._initialized else None


def _jax(jax: Any) -> Iterator[dict[str, Any]]:
    if not sys.modules["jax._src.xla_bridge"].backends_are_initialized():
        return
    for device in jax.local_devices():
        told = device.memory_stats()
        if told:
            yield {
                "device": f"{device.platform}:{device.id}",
                "used_nbytes": told["bytes_in_use"],
                "reserved_nbytes": told.get("bytes_reserved") or told.get("pool_bytes"),
                "peak_nbytes": told.get("peak_bytes_in_use"),
                "total_nbytes": told.get("bytes_limit"),
            }


def _cupy(cupy: Any) -> Iterator[dict[str, Any]]:
    """Its pool has no peak: what it holds is the most it ever held, unless somebody emptied it."""
    pool = cupy.get_default_memory_pool()
    if pool.total_bytes():
        held = pool.total_bytes()
        number = cupy.cuda.runtime.getDevice()
        yield {"device": f"cuda:{number}", "used_nbytes": pool.used_bytes(), "reserved_nbytes": held}


_DEVICES: dict[str, Callable[[Any], Iterator[dict[str, Any]]]] = {
    "torch": _torch,
    "tensorflow": _tensorflow,
    "jax": _jax,
    "cupy": _cupy,
}
