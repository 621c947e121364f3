"""Hand-off to JAX. JAX arrays use aligned host memory without a copy.

Forebay calls a private function of JAX, which takes a tenth of the 40 us of the public `device_put`. If that function
is missing, Forebay falls back to `device_put`.
"""

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from forebay.core.handoff import StreamMarker, refuse_dtypes
from forebay.core.spec import ArraySpec
from forebay.errors import DeviceError, DeviceMemoryError

__all__ = ["JaxDeviceHandOff", "JaxHandOff"]

DLPACK_CUDA = 2  # kDLCUDA
_WIDE_NBYTES = 8  # item size of the types that JAX may narrow


class JaxHandOff:
    """Arrays that use the slot's memory. JAX releases a root at its next call after the array is gone."""

    name = "jax"

    def __init__(self) -> None:
        self._put = _fast_put() or _plain_put()

    def framework_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype that JAX holds. JAX narrows 64-bit types unless x64 is enabled.

        Forebay narrows rows before the hand-off, and `explain()` reports it.
        """
        narrow: np.dtype[Any] = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
        return narrow

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        refuse_dtypes("JAX", specs, names, "biufc")

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return list(map(self._put, roots))

    def for_device(self, index: int | None) -> "JaxDeviceHandOff":
        return JaxDeviceHandOff(index)


class JaxDeviceHandOff(JaxHandOff):
    """Arrays on a GPU. JAX reports its stream only when it imports arrays, so a marker shows its progress.

    The marker is a counter in device memory. JAX increments it after all work that is queued so far. Forebay donates
    the counter's buffer, so that it keeps its address.
    """

    syncs_on_import = True

    def __init__(self, index: int | None) -> None:
        self._device = _device(index)
        self.index = int(getattr(self._device, "local_hardware_id", None) or 0)
        self._lock = threading.Lock()
        self._import_root = _fast_import(self._device) or jax.dlpack.from_dlpack
        self._add_one = jax.jit(lambda counter: counter + np.uint32(1), donate_argnums=0)
        self._counter: Any = None
        self._pointer = 0  # address of the counter
        self._retired: list[Any] = []  # old counters whose address changed; earlier markers still point to them
        self._value = 0

    def allocate(self, nbytes: int) -> tuple[int, Any]:
        try:
            owner = jax.device_put(jax.numpy.zeros(nbytes, np.uint8, device=self._device), self._device)
            owner.block_until_ready()
        except Exception as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise DeviceMemoryError(f"JAX could not allocate {nbytes} bytes on cuda:{self.index}: {error}") from error
        return int(owner.unsafe_buffer_pointer()), owner

    def available(self, free: int, total: int) -> int:
        stats = self._device.memory_stats() or {}
        return int(stats.get("bytes_limit", free) - stats.get("bytes_in_use", 0))

    def stream(self) -> None:
        return None

    def record_stream(self, owner: Any) -> None:
        """Do nothing; the engine does not call this, because `stream` returns None."""

    def mark(self) -> StreamMarker:
        with self._lock:
            if self._counter is None:
                self._counter = jax.device_put(np.zeros((), np.uint32), self._device)
                self._pointer = int(self._counter.unsafe_buffer_pointer())
            before, self._counter = self._counter, self._add_one(self._counter)
            self._value += 1
            if not before.is_deleted():  # JAX did not add in place, for example under jax_debug_nans
                self._retired.append(before)
                self._pointer = int(self._counter.unsafe_buffer_pointer())  # may block until the increment is done
            return StreamMarker(self._pointer, self._value)

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        return array.astype(jax.dtypes.canonicalize_dtype(dtype))

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return list(map(self._import_root, roots))


def _device(index: int | None) -> Any:
    """Return the GPU of this index, or the first one."""
    try:
        found = jax.local_devices(backend="cuda")
    except RuntimeError as error:
        raise DeviceError(f"JAX finds no GPU: {error}. Install jax[cuda13], or pass device='cpu'.") from error
    for position, device in enumerate(found):
        if index is None or getattr(device, "local_hardware_id", position) == index:
            return device
    raise DeviceError(f"JAX finds no device cuda:{index}. This process has {len(found)} GPUs. Pass one of them.")


def _fast_import(device: Any) -> Callable[[Any], Any] | None:
    """Return a function that imports a root, or None if JAX has no such private function.

    It takes half the time of the public `from_dlpack`, and a fifth if JAX narrows 64-bit types.
    """
    try:
        from jax._src.lib import _jax

        import_capsule, stream_of = _jax.dlpack_managed_tensor_to_buffer, device.get_stream_for_external_ready_events
    except (ImportError, AttributeError):
        return None
    has_known_signature, narrow = True, _make_narrow()

    def import_root(root: Any) -> Any:
        nonlocal has_known_signature
        if has_known_signature:
            stream = stream_of()
            capsule = root.__dlpack__(stream=stream)
            try:
                # With a stream, JAX records an event on it, which doubles the time.
                imported = import_capsule(capsule, device, None if root.has_arrived else stream, None, DLPACK_CUDA)
            except TypeError:  # this version of JAX has another signature
                has_known_signature = False
            else:
                return imported if _keeps_dtype(root.shadow.dtype) else narrow(imported)
        return jax.dlpack.from_dlpack(root)

    return import_root


def _make_narrow() -> Callable[[Any], Any]:
    """Return a compiled conversion of 64-bit arrays. JAX allows such arrays only under `enable_x64`."""
    try:
        from jax import enable_x64
    except ImportError:  # older versions of JAX
        from jax.experimental import enable_x64
    narrow_dtype = lru_cache(lambda dtype: np.dtype(jax.dtypes.canonicalize_dtype(dtype)))
    convert = jax.jit(jax.numpy.astype, static_argnums=1)

    def narrow(array: Any) -> Any:
        dtype = narrow_dtype(array.dtype)  # compute this outside enable_x64, under which JAX narrows nothing
        with enable_x64(True):
            return convert(array, dtype)

    return narrow


def _keeps_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether JAX holds this dtype without narrowing. JAX's own check is slow, so only 64-bit types need it."""
    return dtype.itemsize < _WIDE_NBYTES or bool(jax.dtypes.canonicalize_dtype(dtype) == dtype)


def _fast_put() -> Callable[[Any], Any] | None:
    try:
        from jax._src import core
        from jax._src.lib import xla_client
    except ImportError:
        return None
    batched_device_put = getattr(xla_client, "batched_device_put", None)
    if batched_device_put is None:
        return None
    device = jax.local_devices(backend="cpu")[0]
    sharding = jax.sharding.SingleDeviceSharding(device)
    abstract = lru_cache(maxsize=64)(core.ShapedArray)

    def put(root: Any) -> Any:
        # False: do not commit the array to the CPU, so that a jit on another device may move it.
        return batched_device_put(abstract(root.shape, root.dtype), sharding, [root], [device], False)

    try:
        put(np.zeros(1, np.float32))
    except TypeError:  # this version of JAX has another signature
        return None
    return put


def _plain_put() -> Callable[[Any], Any]:
    device = jax.local_devices(backend="cpu")[0]
    return lambda root: jax.device_put(root, device)
