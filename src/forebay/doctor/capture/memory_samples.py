"""Samples of host, page-locked and device memory.

The session takes samples at its start, before and after the recorded steps, after the timed steps, and when it makes
the capture. A query may initialise a device. So the sampler queries only loaded frameworks that have initialised their
devices.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["MemorySampler", "read_memory", "tensorflow_context", "tensorflow_memory_limits"]

_STATUS = Path("/proc/self/status")
# Key of a sample -> fields of /proc/self/status. Mapped files are separate, because the system can reclaim them.
_HOST_FIELDS = {"host_nbytes": ("RssAnon", "RssShmem"), "mapped_nbytes": ("RssFile",), "host_peak_nbytes": ("VmHWM",)}


class MemorySampler:
    """Collects samples in the format of captures."""

    def __init__(self) -> None:
        self.samples: list[dict[str, Any]] = []

    def sample(self, when: str, steps: int = 0) -> None:
        """Add a sample.

        `when` is a label of the time, for example "traced". `steps` is the number of steps so far.
        """
        with suppress(Exception):  # a failed sample must not raise in the script
            self.samples.append({"when": when, "steps": steps, **read_memory()})


def read_memory() -> dict[str, Any]:
    """Return memory sizes in bytes, now and at the peak.

    Unknown sizes are missing or None.
    """
    memory: dict[str, Any] = {**_read_host(), "devices": []}
    for name, read_devices in _DEVICE_READERS.items():
        module = sys.modules.get(name)
        if module is not None:
            with suppress(Exception):  # a half-imported framework, or an unsupported version
                memory["devices"] += [{"framework": name, **device} for device in read_devices(module)]
    with suppress(Exception):
        memory |= _read_page_locked(sys.modules["torch"])
    return memory


def _read_host() -> dict[str, int]:
    """Return the host memory of this process in bytes; empty if unknown."""
    if not _STATUS.is_file():
        return {}
    lines = (line.partition(":") for line in _STATUS.read_text().splitlines())
    sizes = {name: int(value.split()[0]) * 1024 for name, _, value in lines if value.endswith("kB")}
    return {
        name: sum(sizes[part] for part in parts) for name, parts in _HOST_FIELDS.items() if sizes.keys() >= {*parts}
    }


def _read_page_locked(torch: Any) -> dict[str, int]:
    """Return the bytes of PyTorch's page-locked memory; other frameworks do not report theirs."""
    if not torch.cuda.is_initialized():
        return {}
    stats = torch.cuda.host_memory_stats()
    return {"pinned_nbytes": stats["allocated_bytes.current"], "pinned_peak_nbytes": stats["allocated_bytes.peak"]}


def _read_torch(torch: Any) -> Iterator[dict[str, Any]]:
    if not torch.cuda.is_initialized():
        return
    for number in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats(number)
        if stats.get("reserved_bytes.all.peak"):  # otherwise PyTorch has not used this device
            yield {
                "device": f"cuda:{number}",
                "used_nbytes": stats["allocated_bytes.all.current"],
                "reserved_nbytes": stats["reserved_bytes.all.current"],
                "peak_nbytes": stats["allocated_bytes.all.peak"],
                "total_nbytes": torch.cuda.get_device_properties(number).total_memory,
                "retries": stats.get("num_alloc_retries"),
                "inactive_nbytes": stats.get("inactive_split_bytes.all.current"),
            }


def _read_tensorflow(tf: Any) -> Iterator[dict[str, Any]]:
    if tensorflow_context() is None:
        return
    limits = tensorflow_memory_limits()
    for device in tf.config.list_logical_devices("GPU"):
        name = device.name.rpartition("device:")[2]
        stats, total = tf.config.experimental.get_memory_info(name), limits.get(name)
        yield {"device": name, "used_nbytes": stats["current"], "peak_nbytes": stats["peak"], "total_nbytes": total}


def tensorflow_memory_limits() -> dict[str, int]:
    """Return a dict: device -> bytes that TensorFlow may use; empty if unknown."""
    with suppress(Exception):  # not a public interface
        from tensorflow.python.client import pywrap_tf_session as session

        devices = sys.modules["tensorflow.python.pywrap_tfe"].TFE_ContextListDevices(tensorflow_context()._handle)
        names = [session.TF_DeviceListName(devices, number) for number in range(session.TF_DeviceListCount(devices))]
        return {
            name.rpartition("device:")[2]: session.TF_DeviceListMemoryBytes(devices, number)
            for number, name in enumerate(names)
        }
    return {}


def tensorflow_context() -> Any:
    """Return TensorFlow's eager context; None before TensorFlow has initialised its devices."""
    context = sys.modules["tensorflow.python.eager.context"].context_safe()
    return context if context is not None and context._initialized else None


def _read_jax(jax: Any) -> Iterator[dict[str, Any]]:
    if not sys.modules["jax._src.xla_bridge"].backends_are_initialized():
        return
    for device in jax.local_devices():
        stats = device.memory_stats()
        if stats:
            yield {
                "device": f"{device.platform}:{device.id}",
                "used_nbytes": stats["bytes_in_use"],
                "reserved_nbytes": stats.get("bytes_reserved") or stats.get("pool_bytes"),
                "peak_nbytes": stats.get("peak_bytes_in_use"),
                "total_nbytes": stats.get("bytes_limit"),
            }


def _read_cupy(cupy: Any) -> Iterator[dict[str, Any]]:
    """Yield the memory pool of the current device, unless the pool is empty.

    CuPy reports no peak. The analysis uses `reserved_nbytes` instead, which is the peak unless the script emptied the
    pool.
    """
    pool = cupy.get_default_memory_pool()
    if pool.total_bytes():
        reserved = pool.total_bytes()
        number = cupy.cuda.runtime.getDevice()
        yield {"device": f"cuda:{number}", "used_nbytes": pool.used_bytes(), "reserved_nbytes": reserved}


_DEVICE_READERS: dict[str, Callable[[Any], Iterator[dict[str, Any]]]] = {
    "torch": _read_torch,
    "tensorflow": _read_tensorflow,
    "jax": _read_jax,
    "cupy": _read_cupy,
}
