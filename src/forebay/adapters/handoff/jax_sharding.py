"""The hand-off to JAX for several devices: each batch becomes global arrays of a sharding.

Every process feeds its own rows. The rows of all processes together are the global batch.

The hand-off passes views of the slot to a private function of JAX, which creates all parts of an array in one call. On
the CPU, JAX uses the memory of aligned parts without a copy. If the private function is missing or has changed, the
hand-off falls back to `device_put` for each part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from forebay.adapters.handoff.jax import JaxDeviceHandOff, JaxHandOff, find_batched_put
from forebay.core.handoff import BatchSplit
from forebay.core.spec import ArraySpec
from forebay.errors import PipelineError

__all__ = ["GlobalShape", "JaxShardedDeviceHandOff", "JaxShardedHandOff", "ShardedBatches", "place"]


def place(device: Any) -> "JaxShardedHandOff | None":
    """Return the hand-off for a sharding of JAX.

    Return None for other objects. Raise PipelineError for a mesh, a PartitionSpec or an unsupported kind of sharding.
    """
    if isinstance(device, jax.sharding.Sharding | jax.sharding.Mesh | PartitionSpec):
        return JaxShardedHandOff(ShardedBatches(device))
    return None


@dataclass(frozen=True, slots=True)
class GlobalShape:
    """The shape of a global array, and the part of each device of this process."""

    shape: tuple[int, ...]
    devices: tuple[Any, ...]  # of this process
    indices: tuple[tuple[slice, ...], ...]  # for each device, the index of its part in this process's rows


class ShardedBatches:
    """Computes the parts of batches for the devices of a sharding."""

    def __init__(self, sharding: Any) -> None:
        self.sharding = _check_sharding(sharding)
        self._spec_axes = len(sharding.spec) if isinstance(sharding, NamedSharding) else 0
        parts = _row_parts(sharding)
        self._part_count = 1 + max(parts.values())
        own = jax.process_index()
        self._device_parts = {device: part for device, part in parts.items() if device.process_index == own}
        if not self._device_parts:
            raise PipelineError(
                f"device={sharding} has no device of process {own}. Make a mesh that has devices of every process."
            )
        self._own_parts = sorted({*self._device_parts.values()})  # parts of a batch that this process has
        self.split = self._split_over_processes(parts)
        self.locate = lru_cache(maxsize=256)(self._locate)  # cached, because padded batches have many shapes

    @property
    def local_devices(self) -> list[Any]:
        """The devices of this process."""
        return list(self._device_parts)

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        """Raise PipelineError if the sharding cannot split a leaf, whatever its number of rows."""
        for spec, name in zip(specs, names, strict=True):
            if not spec.ragged:
                self._check_shape((self._part_count, *spec.batch_shape(1)[1:]), f"{name!r}")

    def _split_over_processes(self, parts: dict[Any, int]) -> BatchSplit:
        """Return which rows of the global batch this process feeds."""
        sets: dict[int, set[int]] = {}
        for device, part in parts.items():
            sets.setdefault(device.process_index, set()).add(part)
        different = sorted({tuple(sorted(numbers)) for numbers in sets.values()})
        if sum(map(len, different)) != self._part_count or len({*map(len, different)}) > 1:
            raise PipelineError(
                f"device={self.sharding} divides rows unevenly among {len(sets)} processes, or lets two processes "
                "share some rows. Order the devices of the mesh by process: jax.make_mesh() does that."
            )
        return BatchSplit(
            parts=len(self._own_parts),
            index=different.index(tuple(self._own_parts)),
            count=len(different),
            processes=len(sets),
        )

    def _locate(self, shape: tuple[int, ...]) -> GlobalShape:
        """Return the `GlobalShape` of an array. `shape` is the shape of this process's rows."""
        rows, own_parts = shape[0], len(self._own_parts)
        if rows % own_parts:
            raise PipelineError(
                f"a batch of {rows} rows cannot be divided into {own_parts} equal parts for the devices of this "
                f"process. Use batch(n, drop_remainder=True), with n divisible by {own_parts}."
            )
        part_rows = rows // own_parts
        global_shape = (part_rows * self._part_count, *shape[1:])
        self._check_shape(global_shape, f"a batch of shape {shape}")
        starts = {part: number * part_rows for number, part in enumerate(self._own_parts)}
        indices = self.sharding.addressable_devices_indices_map(global_shape)
        own_rows = {device: starts[self._device_parts[device]] for device in indices}
        return GlobalShape(
            global_shape,
            tuple(indices),
            tuple(
                (slice(own_rows[device], own_rows[device] + part_rows), *index[1:]) for device, index in indices.items()
            ),
        )

    def _check_shape(self, shape: tuple[int, ...], name: str) -> None:
        try:
            if len(shape) < self._spec_axes:
                raise ValueError(f"it has {len(shape)} axes, and the sharding has {self._spec_axes}")
            self.sharding.shard_shape(shape)
        except ValueError as error:
            raise PipelineError(
                f"{name} cannot be placed with device={self.sharding}: {error}. Use a sharding that splits only the "
                "first axis, such as PartitionSpec('data')."
            ) from error


class JaxShardedHandOff:
    """Hands off global arrays from host memory.

    JAX copies the parts to the devices, unless the devices are CPUs.
    """

    name = "jax"

    def __init__(self, batches: ShardedBatches) -> None:
        self._batches, self._single = batches, JaxHandOff()
        self.split = batches.split
        self._put = _private_put(batches) or _public_put(batches)

    @property
    def gpu_index(self) -> int | None:
        """Index of the GPU whose memory the slots use; None if they use host memory."""
        devices = self._batches.local_devices
        is_gpu = len(devices) == 1 and devices[0].platform in ("gpu", "cuda")
        return int(getattr(devices[0], "local_hardware_id", None) or 0) if is_gpu else None

    @property
    def description(self) -> tuple[str, str]:
        """Choice and reason of a decision: the devices, and how they get rows."""
        devices, split = self._batches.local_devices, self.split
        platform, plural = devices[0].platform, "s" if len(devices) > 1 else ""
        how = "JAX uses the memory of the slots" if platform == "cpu" else "JAX copies the rows from the host"
        if self.gpu_index is not None:
            how = "the arrays use the device memory of the slots"
        rows = "all rows" if split.parts == 1 else f"one of {split.parts} parts of the rows"
        whole = f"; the global batch has the rows of {split.count} processes" if split.count > 1 else ""
        return f"{len(devices)} {platform} device{plural}", f"each gets {rows}; {how}{whole}"

    def framework_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return self._single.framework_dtype(dtype)

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        self._single.check(specs, names)
        self._batches.check(specs, names)

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return list(map(self._put, roots))

    def refuse_tracing(self) -> None:
        self._single.refuse_tracing()

    def for_device(self, index: int | None) -> "JaxShardedDeviceHandOff":
        return JaxShardedDeviceHandOff(index, self._batches)


class JaxShardedDeviceHandOff(JaxDeviceHandOff):
    """Hands off arrays on the only GPU of this process, as parts of global arrays.

    Device transforms change the rows of this process. After them, `finish` makes the global arrays.
    """

    def __init__(self, index: int | None, batches: ShardedBatches) -> None:
        super().__init__(index)
        self._batches = batches

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        super().check(specs, names)
        self._batches.check(specs, names)

    def finish(self, leaves: Sequence[Any]) -> list[Any]:
        """Return a global array for each array of this process's rows."""
        return list(map(self._to_global, leaves))

    def _to_global(self, leaf: Any) -> Any:
        place = self._batches.locate(leaf.shape)
        (index,) = place.indices
        own = leaf if all(part in (slice(None), slice(0, leaf.shape[0])) for part in index) else leaf[index]
        return jax.make_array_from_single_device_arrays(place.shape, self._batches.sharding, [own])


def _check_sharding(sharding: Any) -> Any:
    if isinstance(sharding, SingleDeviceSharding):
        return sharding
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, jax.sharding.Mesh):
        raise PipelineError(
            f"device={sharding!r} does not name the devices of a batch. Pass a NamedSharding of a mesh of devices, "
            "such as NamedSharding(jax.make_mesh((8,), ('data',)), PartitionSpec('data'))."
        )
    return sharding


def _row_parts(sharding: Any) -> dict[Any, int]:
    """Return, for each device of all processes, the number of its part of the rows."""
    if isinstance(sharding, SingleDeviceSharding):
        return dict.fromkeys(sharding.device_set, 0)
    rows_spec = sharding.spec[0] if len(sharding.spec) else None
    if rows_spec is PartitionSpec.UNCONSTRAINED:
        raise PipelineError(f"device={sharding} leaves the first axis open. Name its mesh axis, or use None.")
    axes = () if rows_spec is None else (rows_spec,) if isinstance(rows_spec, str) else tuple(rows_spec)
    count = int(np.prod([sharding.mesh.shape[axis] for axis in axes], dtype=np.int64))
    indices = NamedSharding(sharding.mesh, PartitionSpec(rows_spec)).devices_indices_map((count,))
    return {device: index[0].start or 0 for device, index in indices.items()}


def _private_put(batches: ShardedBatches) -> Callable[[Any], Any] | None:
    """Return a function that makes a global array of a root by a private API.

    Return None if this version of JAX lacks the API.
    """
    batched_put = find_batched_put()
    if batched_put is None:
        return None
    put_parts, sharding, locate = batched_put, batches.sharding, batches.locate

    def put(root: Any) -> Any:
        place = locate(root.shape)
        parts = [root[index] for index in place.indices]
        return put_parts(place.shape, root.dtype, sharding, parts, place.devices, True)

    return put


def _public_put(batches: ShardedBatches) -> Callable[[Any], Any]:
    """Return a function that makes a global array of a root by public functions."""
    sharding, locate = batches.sharding, batches.locate

    def put(root: Any) -> Any:
        place = locate(root.shape)
        located = zip(place.indices, place.devices, strict=True)
        parts = [jax.device_put(root[index], device) for index, device in located]
        return jax.make_array_from_single_device_arrays(place.shape, sharding, parts)

    return put
