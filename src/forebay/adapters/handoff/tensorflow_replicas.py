"""The hand-off to TensorFlow for a `tf.distribute` strategy: each batch becomes per-replica values.

`strategy.run(step, args=(batch,))` then gives each replica its own part of the rows. The parts are views of the slot.
TensorFlow copies each part to the device of its replica, unless this device is CPU:0.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from forebay.adapters.handoff.tensorflow import TensorflowDeviceHandOff, TensorflowHandOff
from forebay.core.handoff import BatchSplit
from forebay.core.spec import HOST_ALIGNMENT, ArraySpec
from forebay.errors import PipelineError

__all__ = ["ReplicaDeviceHandOff", "ReplicaHandOff", "place"]

# The strategies that run the same step on all replicas and accept values from Python.
_STRATEGIES = (
    tf.distribute.MirroredStrategy,
    tf.distribute.MultiWorkerMirroredStrategy,
    tf.distribute.OneDeviceStrategy,
)
_HOST_DEVICE = "CPU:0"  # the device of tensors that use the memory of a slot


def place(device: Any) -> "ReplicaHandOff | None":
    """Return the hand-off for a `tf.distribute` strategy; None for other objects."""
    return ReplicaHandOff(device) if isinstance(device, tf.distribute.Strategy) else None


class ReplicaHandOff:
    """Hands off per-replica values from host memory."""

    name = "tensorflow"

    def __init__(self, strategy: Any) -> None:
        if not isinstance(strategy, _STRATEGIES):
            names = ", ".join(kind.__name__ for kind in _STRATEGIES)
            raise PipelineError(f"device={type(strategy).__name__} is not supported. Use one of {names}.")
        self._strategy, self._single = strategy, TensorflowHandOff()
        # The part of a device name after "device:": "GPU:0" of "/job:worker/replica:0/task:1/device:GPU:0".
        self._devices = [name.rpartition("device:")[2] for name in strategy.extended.worker_devices]
        self.split = _split_over_workers(strategy, len(self._devices))

    @property
    def gpu_index(self) -> int | None:
        """The index of this process's only GPU; None if the slots use host memory."""
        match = re.fullmatch(r"GPU:(\d+)", self._devices[0])
        return int(match[1]) if match and len(self._devices) == 1 else None

    @property
    def description(self) -> tuple[str, str]:
        """Choice and reason of a decision: the replicas, and how they get rows."""
        count, split = len(self._devices), self.split
        how = "TensorFlow copies the rows from the host"
        if self.gpu_index is not None:
            how = "the tensors use the device memory of the slots"
        elif self._devices == [_HOST_DEVICE]:
            how = "TensorFlow uses the memory of the slots"
        rows = "all rows" if split.parts == 1 else f"one of {split.parts} parts of the rows"
        whole = f"; the global batch has the rows of {split.count} processes" if split.count > 1 else ""
        return f"{count} replica{'s' if count > 1 else ''}", f"each gets {rows}; {how}{whole}"

    def framework_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return self._single.framework_dtype(dtype)

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        self._single.check(specs, names)

    def refuse_tracing(self) -> None:
        self._single.refuse_tracing()

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return [_to_replicas(self._strategy, self._parts(root)) for root in roots]

    def for_device(self, index: int | None) -> "ReplicaDeviceHandOff":
        return ReplicaDeviceHandOff(index, self._strategy)

    def _parts(self, root: Any) -> list[Any]:
        """Return one tensor for each replica of this process, on its device."""
        count = len(self._devices)
        if len(root) % count:
            raise PipelineError(
                f"a batch of {len(root)} rows cannot be divided into {count} equal parts for the replicas of this "
                f"process. Use batch(n, drop_remainder=True), with n divisible by {count}."
            )
        rows = len(root) // count
        arrays = [root[number * rows : (number + 1) * rows] for number in range(count)]
        return [_on_device(self._to_tensor(array), name) for array, name in zip(arrays, self._devices, strict=True)]

    def _to_tensor(self, array: Any) -> Any:
        """Return a tensor that uses the array's memory if it is aligned, else a copy.

        TensorFlow aborts the process if the memory of a tensor is not aligned.
        """
        if array.ctypes.data % HOST_ALIGNMENT:
            return tf.constant(array)
        (tensor,) = self._single.hand_off([array])
        return tensor


class ReplicaDeviceHandOff(TensorflowDeviceHandOff):
    """Hands off tensors on the only GPU of this process, as per-replica values.

    Device transforms change the tensors. After them, `finish` makes the per-replica values.
    """

    def __init__(self, index: int | None, strategy: Any) -> None:
        super().__init__(index)
        self._strategy = strategy

    def finish(self, leaves: Sequence[Any]) -> list[Any]:
        """Return a per-replica value for each tensor."""
        return [_to_replicas(self._strategy, [leaf]) for leaf in leaves]


def _to_replicas(strategy: Any, parts: Sequence[Any]) -> Any:
    """Return a per-replica value with one part for each replica.

    A strategy with one replica may return the tensor itself.
    """
    remaining = iter(parts)
    return strategy.experimental_distribute_values_from_function(lambda context: next(remaining))


def _on_device(tensor: Any, name: str) -> Any:
    if name == _HOST_DEVICE:
        return tensor
    with tf.device(name):
        return tf.identity(tensor)


def _split_over_workers(strategy: Any, parts: int) -> BatchSplit:
    """Return which rows of the global batch this process feeds."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return BatchSplit(parts=parts, index=0, count=1, processes=1)
    resolver = strategy.cluster_resolver
    cluster = resolver.cluster_spec().as_dict()
    workers = max(1, sum(len(cluster.get(kind, ())) for kind in ("chief", "worker")))
    chiefs = len(cluster.get("chief", ())) if resolver.task_type == "worker" else 0
    index = 0 if workers == 1 else chiefs + resolver.task_id
    return BatchSplit(parts=parts, index=index, count=workers, processes=workers)
