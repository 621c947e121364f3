"""The hand-off to JAX, which can use aligned host memory without a copy.

Forebay calls a private function of JAX, which takes 4 us for each array; the public `device_put` takes 40 us. If the
private function is missing or has changed, Forebay falls back to `device_put`.
"""

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np

from forebay.core.array_ops import NumpyArrayOps
from forebay.core.handoff import StreamMarker, refuse_dtypes
from forebay.core.ragged import Ragged
from forebay.core.spec import ArraySpec
from forebay.errors import DeviceError, DeviceMemoryError, FeedError

__all__ = ["JaxArrayOps", "JaxDeviceHandOff", "JaxHandOff", "find_batched_put"]

# With this registration, jit, grad and device_put accept ragged batches.
jax.tree_util.register_pytree_with_keys(
    Ragged,
    lambda ragged: (
        ((jax.tree_util.GetAttrKey("values"), ragged.values), (jax.tree_util.GetAttrKey("offsets"), ragged.offsets)),
        None,
    ),
    lambda _, children: Ragged(*children),
)

DLPACK_CUDA = 2  # kDLCUDA, the device type of CUDA in DLPack
_WIDE_NBYTES = 8  # smallest item size in bytes of the dtypes that JAX may narrow


class JaxHandOff:
    """Hands off arrays that use the slot's memory.

    After the user drops an array, JAX releases its root at the next call into JAX. Only then can the slot be reused.
    """

    name = "jax"

    def __init__(self) -> None:
        self._put = _private_put() or _public_put()

    def framework_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype in which JAX holds `dtype`.

        JAX narrows 64-bit dtypes unless x64 is enabled. Forebay narrows the rows before the hand-off, and `explain()`
        reports it.
        """
        jax_dtype: np.dtype[Any] = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
        return jax_dtype

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        refuse_dtypes("JAX", specs, names, supported_kinds="biufc")

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return list(map(self._put, roots))

    def refuse_tracing(self) -> None:
        """Raise FeedError while JAX traces a function whose trace it reuses, as `jit` does.

        Such a trace would hold the batch as a constant. JAX also keeps the traces of `checkpoint` and `eval_shape`: a
        later `jit` of the same function reuses them. `grad` and `vmap` without `jit` trace in each call, so they raise
        no error.
        """
        if not _is_untraced() and isinstance(jax.numpy.zeros(()), jax.core.Tracer):
            raise FeedError(
                "a feed was iterated inside a function that JAX traces, such as one of jax.jit, jax.checkpoint or "
                "jax.eval_shape. JAX would reuse the traced batches forever. Iterate the feed outside, and pass "
                "batches to the function."
            )

    def to_sparse(self, values: Any, columns: Any, counts: Any, width: int) -> Any:
        """Return a BCOO matrix of rows that are padded to one length by repeated values.

        The indices of repeated values are outside of the matrix, where JAX ignores them. So all batches with the same
        number of rows have one shape, and a jitted step is compiled once.
        """
        from jax.experimental.sparse import BCOO

        indices = _locate(columns, counts, width)
        return BCOO(
            (values.reshape(-1), indices), shape=(len(values), width), indices_sorted=False, unique_indices=False
        )

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        return array.astype(jax.dtypes.canonicalize_dtype(dtype))

    def array_ops(self) -> "JaxArrayOps":
        return JaxArrayOps(jax.numpy)

    def for_device(self, index: int | None) -> "JaxDeviceHandOff":
        return JaxDeviceHandOff(index)


class JaxDeviceHandOff(JaxHandOff):
    """Hands off arrays on a GPU, and marks JAX's stream with a counter.

    JAX reports its stream only when it imports arrays. At other times, a stream marker shows the progress of the
    stream: JAX increments a counter in device memory after all work that is queued so far. Forebay donates the
    counter's buffer, so that JAX increments the counter in place.
    """

    syncs_on_import = True

    def __init__(self, index: int | None) -> None:
        self._device = _find_device(index)
        self.index = int(getattr(self._device, "local_hardware_id", None) or 0)
        self._lock = threading.Lock()
        self._import_root = _private_import(self._device) or jax.dlpack.from_dlpack
        self._counter: Any = None
        self._pointer = 0  # device address of the counter
        self._replaced_counters: list[Any] = []  # kept, because earlier markers still point to them
        self._value = 0  # value of the counter after all queued increments

    def allocate(self, nbytes: int) -> tuple[int, Any]:
        try:
            owner = jax.device_put(jax.numpy.zeros(nbytes, np.uint8, device=self._device), self._device)
            owner.block_until_ready()
        except Exception as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise DeviceMemoryError(
                f"JAX could not allocate {nbytes} bytes on cuda:{self.index}. Make batches smaller, or free device "
                f"memory. JAX reports: {error}"
            ) from error
        return int(owner.unsafe_buffer_pointer()), owner

    def available(self, free: int, total: int) -> int:
        stats = self._device.memory_stats() or {}
        return int(stats.get("bytes_limit", free) - stats.get("bytes_in_use", 0))

    def stream(self) -> None:
        return None

    def record_stream(self, owner: Any) -> None:
        """Do nothing; the engine does not call this, because `stream` returns None."""

    def mark(self) -> StreamMarker:
        """Queue an increment of the counter, and return the marker."""
        with self._lock:
            if self._counter is None:
                self._counter = jax.device_put(np.zeros((), np.uint32), self._device)
                self._pointer = int(self._counter.unsafe_buffer_pointer())
            old_counter, self._counter = self._counter, _add_one(self._counter)
            self._value += 1
            if not old_counter.is_deleted():  # JAX did not add in place, for example under jax_debug_nans
                self._replaced_counters.append(old_counter)
                self._pointer = int(self._counter.unsafe_buffer_pointer())  # may block until the increment is done
            return StreamMarker(self._pointer, self._value)

    def to_dense(self, values: Any, columns: Any, width: int) -> Any:
        return _scatter(values, columns, width)

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return list(map(self._import_root, roots))


def _find_trace_check() -> Callable[[], bool]:
    """Return a function that returns True only if JAX traces nothing.

    It is a private function of JAX, which takes 0.3 us. If this version of JAX lacks it, return a function that always
    returns False. Then `refuse_tracing` runs an operation of JAX to see whether JAX traces, which takes 20 us.
    """
    try:
        from jax._src import core
    except ImportError:
        return lambda: False
    return getattr(core, "trace_state_clean", lambda: False)


_is_untraced = _find_trace_check()


@partial(jax.jit, donate_argnums=0)
def _add_one(counter: Any) -> Any:
    return counter + np.uint32(1)


@partial(jax.jit, static_argnums=2)
def _scatter(values: Any, columns: Any, width: int) -> Any:
    rows = jax.numpy.arange(values.shape[0])[:, None]
    return jax.numpy.zeros((values.shape[0], width), values.dtype).at[rows, columns].set(values)


@partial(jax.jit, static_argnums=2)
def _locate(columns: Any, counts: Any, width: int) -> Any:
    """Return the row and column of each value, for repeated values outside of the matrix."""
    rows, is_value = jax.numpy.arange(len(columns))[:, None], jax.numpy.arange(columns.shape[1]) < counts[:, None]
    rows, columns = jax.numpy.where(is_value, rows, len(columns)), jax.numpy.where(is_value, columns, width)
    return jax.numpy.stack([rows.reshape(-1), columns.reshape(-1)], axis=-1).astype(np.int32)


class JaxArrayOps(NumpyArrayOps):
    """Array operations of JAX, which has the functions of NumPy.

    JAX compiles a pixel function once for each shape of its arguments.
    """

    def upload(self, array: Any, like: Any) -> Any:
        if isinstance(like, jax.core.Tracer):  # in a compiled function, the array becomes a constant
            return jax.numpy.asarray(array)
        return jax.device_put(array, like.sharding)

    def to_integer(self, array: Any) -> Any:
        return array.astype(np.int32)

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        return array.astype(jax.dtypes.canonicalize_dtype(dtype))

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(function)  # type: ignore[no-any-return]  # JAX is untyped here


def _find_device(index: int | None) -> Any:
    """Return JAX's device for a GPU index; None selects the first GPU."""
    try:
        devices = jax.local_devices(backend="cuda")
    except RuntimeError as error:
        raise DeviceError(f"JAX finds no GPU: {error}. Install jax[cuda13], or pass device='cpu'.") from error
    for position, device in enumerate(devices):
        if index is None or getattr(device, "local_hardware_id", position) == index:
            return device
    raise DeviceError(f"JAX finds no device cuda:{index}. This process has {len(devices)} GPUs. Pass one of them.")


def _private_import(device: Any) -> Callable[[Any], Any] | None:
    """Return a function that imports a root as a JAX array by a private API.

    Return None if this version of JAX lacks the API. The function takes half the time of the public `from_dlpack`. If
    JAX narrows 64-bit dtypes, it takes a fifth of the time.
    """
    try:
        from jax._src.lib import _jax

        import_capsule, get_stream = _jax.dlpack_managed_tensor_to_buffer, device.get_stream_for_external_ready_events
    except (ImportError, AttributeError):
        return None
    has_known_signature, narrow = True, _make_narrowing()

    def import_root(root: Any) -> Any:
        nonlocal has_known_signature
        if has_known_signature:
            stream = get_stream()
            capsule = root.__dlpack__(stream=stream)
            try:
                # Pass no stream if the rows have arrived: JAX would record an event on it, which doubles the time.
                imported = import_capsule(capsule, device, None if root.has_arrived else stream, None, DLPACK_CUDA)
            except TypeError:  # in this version of JAX, the function has another signature
                has_known_signature = False
            else:
                return imported if _keeps_dtype(root.shadow.dtype) else narrow(imported)
        return jax.dlpack.from_dlpack(root)

    return import_root


def _make_narrowing() -> Callable[[Any], Any]:
    """Return a function that narrows 64-bit arrays.

    The function runs under `enable_x64`, because JAX accepts 64-bit arrays only there.
    """
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
    """Return whether JAX holds this dtype without narrowing.

    JAX's own check is slow, so only dtypes of 64 bits and more use it.
    """
    return dtype.itemsize < _WIDE_NBYTES or bool(jax.dtypes.canonicalize_dtype(dtype) == dtype)


def _private_put() -> Callable[[Any], Any] | None:
    """Return a function that wraps a root in a JAX array by a private API.

    Return None if this version of JAX lacks the API.
    """
    batched_put = find_batched_put()
    if batched_put is None:
        return None
    put_parts, device = batched_put, jax.local_devices(backend="cpu")[0]
    devices, sharding = [device], jax.sharding.SingleDeviceSharding(device)

    def put(root: Any) -> Any:
        # Do not commit the array to the CPU, so that a jit on another device may move it.
        return put_parts(root.shape, root.dtype, sharding, [root], devices, False)

    return put


def find_batched_put() -> Callable[..., Any] | None:
    """Return a function that joins parts on several devices into one array.

    The function calls a private API of JAX; return None if this version of JAX lacks that API. The arguments of the
    function are the shape and the dtype of the array, the sharding, the parts, their devices, and whether the array is
    committed to the devices.
    """
    try:
        from jax._src import core
        from jax._src.lib import xla_client
    except ImportError:
        return None
    batched_device_put = getattr(xla_client, "batched_device_put", None)
    if batched_device_put is None:
        return None
    shaped_array = lru_cache(maxsize=256)(core.ShapedArray)

    def put(shape: Any, dtype: Any, sharding: Any, parts: Any, devices: Any, committed: bool) -> Any:
        return batched_device_put(shaped_array(shape, dtype), sharding, parts, devices, committed)

    device, sample = jax.local_devices(backend="cpu")[0], np.zeros(1, np.float32)
    try:
        put(sample.shape, sample.dtype, jax.sharding.SingleDeviceSharding(device), [sample], [device], False)
    except TypeError:  # in this version of JAX, the function has another signature
        return None
    return put


def _public_put() -> Callable[[Any], Any]:
    """Return a function that wraps a root in a JAX array by the public `device_put`."""
    device = jax.local_devices(backend="cpu")[0]
    return lambda root: jax.device_put(root, device)
