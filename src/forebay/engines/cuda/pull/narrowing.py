"""Narrowing: conversion of 64-bit numbers to 32 bits on the device.

A framework may hold 64-bit numbers in 32 bits, as JAX does unless x64 is enabled. In that case the device pulls the
64-bit rows into an additional device buffer, and a kernel converts them into the slot. If the device has no memory for
the buffer, Forebay stages the rows and converts them on the host.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from forebay.core.spec import DEVICE_ALIGNMENT, ArraySpec, Layout, align
from forebay.engines.cuda.copy_plan import Destination
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.memory import CudaMemory
from forebay.engines.cuda.row_mover import RowMover
from forebay.errors import DeviceMemoryError

__all__ = ["Narrowing"]


@dataclass(frozen=True, slots=True)
class _NarrowedLeaf:
    number: int  # index of the leaf in a row
    spec: ArraySpec  # spec before the conversion

    @property
    def is_float(self) -> bool:
        """Whether the numbers are floats. The kernel treats a complex number as two floats."""
        return self.spec.dtype.kind in "fc"


class Narrowing:
    """Converts the leaves of a feed that the framework holds in 32 bits.

    Most feeds have no such leaf.
    """

    def __init__(
        self,
        engine: CudaEngine,
        specs: Sequence[ArraySpec],
        output_specs: Sequence[ArraySpec],
        *,
        report: Callable[[str, str, str], None],
    ) -> None:
        self._engine, self._report = engine, report
        pairs = enumerate(zip(specs, output_specs, strict=True))
        self._leaves = [
            _NarrowedLeaf(number, spec)
            for number, (spec, output) in pairs
            if spec.dtype != output.dtype and spec.nbytes
        ]
        self._is_out_of_memory = False

    def is_ready(self, memory: CudaMemory) -> bool:
        """Return whether the slot has its 64-bit buffers, or needs none."""
        return not self._leaves or bool(memory.narrowing_buffers)

    def allocate_buffers(self, memory: CudaMemory, layout: Layout) -> bool:
        """Allocate the 64-bit buffers of a slot, unless it has them or needs none.

        The allocation may block. Return False if the device has no memory for the buffers. Report the first failure as
        a fallback, and then allocate no more buffers for any slot.
        """
        if self.is_ready(memory) or self._is_out_of_memory:
            return self.is_ready(memory)
        rows = layout.batch_rows * layout.batches
        starts = [0, *accumulate(align(rows * leaf.spec.nbytes, DEVICE_ALIGNMENT) for leaf in self._leaves)]
        try:
            pointer, owner = self._engine.allocate(starts[-1])
        except DeviceMemoryError as error:
            self._is_out_of_memory = True
            why = f"the device has no memory for the 64-bit rows, so the CPU stages them: {error}"
            self._report("narrowed", "on the host", why)
            return False
        memory.narrowing_buffers = {
            leaf.number: (pointer + start, owner) for leaf, start in zip(self._leaves, starts, strict=False)
        }
        return True

    def arrival_destination(
        self, memory: CudaMemory, layout: Layout, number: int, spec: ArraySpec
    ) -> Destination | None:
        """Return the 64-bit buffer of a leaf, or None if the leaf is not narrowed."""
        if number not in memory.narrowing_buffers:
            return None
        pointer, _ = memory.narrowing_buffers[number]
        return Destination(pointer, layout.batch_rows, layout.batch_rows * spec.nbytes, spec.nbytes)

    def queue_conversion(self, mover: RowMover, memory: CudaMemory, layout: Layout, count: int) -> None:
        """Queue the kernels that convert `count` rows from the buffers into the slot."""
        for leaf in self._leaves:
            buffer = self.arrival_destination(memory, layout, leaf.number, leaf.spec)
            assert buffer is not None
            target = memory.destination(layout, leaf.number)
            mover.narrow_rows(memory.stream, buffer, target, count=count, is_float=leaf.is_float)
