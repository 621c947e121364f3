"""Slots (reusable buffers for groups) and leases (which show when a slot can be reused)."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from forebay.core.engine import Engine, SlotMemory
from forebay.core.ragged import Ragged, slot_arrays
from forebay.core.rows import Rows, row_views, select_rows
from forebay.core.skipped_rows import SkippedRow
from forebay.core.spec import Array, Layout, align
from forebay.order.schedule import Group, Schedule
from forebay.transforms.batch_context import BatchContext

__all__ = ["Lease", "Slot"]


class Slot:
    """A reusable buffer for one group of batches.

    A slot creates its roots (the arrays that it hands off) and other views of its memory once for each layout, and uses
    them for every group.
    """

    def __init__(self, engine: Engine, layout: Layout, *, shared_nbytes: int = 0) -> None:
        self._engine = engine
        self._is_shared = shared_nbytes > 0
        self.input_offset = align(layout.nbytes, engine.alignment)  # bytes; the input of worker processes begins here
        self._nbytes = self.input_offset + shared_nbytes
        self.memory: SlotMemory = engine.open_slot(self._nbytes, shared=self._is_shared)
        self.group: Group | None = None
        self.filled_by_device = False  # True if the device pulled or decoded the rows, so that `send` copies nothing
        self.partial_failure: BaseException | None = None  # the error, if only the first batches could be filled
        self.skipped_rows: list[SkippedRow] = []  # rows of the group that a map or the source skipped
        self.row_ids: Rows | None = None  # of the group; set only if device transforms draw random numbers for rows
        self._set_layout(layout)

    def _set_layout(self, layout: Layout) -> None:
        self.layout = layout
        leaves = range(len(layout.specs))
        self.batches = [[self.memory.root(layout, leaf, batch) for leaf in leaves] for batch in range(layout.batches)]
        self.lease = Lease(self.memory.lease_object(root) for batch in self.batches for root in batch)
        self._row_views: list[list[Array]] | None = None
        self._is_packed = [layout.batches == 1 or layout.is_packed(leaf) for leaf in leaves]
        # Created on first use, because a slot that the device fills needs no host memory.
        self._batch_views: list[Array | None] | None = None

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def shared_block(self) -> Any:
        """The shared memory that worker processes map; None if they do not share the slot."""
        return self.memory.block

    def gather_arrays(self, rows: int) -> list[Array]:
        """Return one array for each leaf, as the target of a gather.

        Most arrays are views of the slot. If the layout has gaps between the batches of a leaf, its array is new, and
        `scatter_batches` copies it into the slot.
        """
        specs = self.layout.specs
        return [
            self.layout.view(self.memory.host, leaf, rows=rows) if packed else specs[leaf].empty(rows)
            for leaf, packed in enumerate(self._is_packed)
        ]

    def row_views(self) -> list[list[Array]]:
        """Return a view of each row of each leaf, to write rows one by one. The slot must have one batch."""
        if self._row_views is None:
            self._row_views = [row_views(array) for array in self.gather_arrays(self.layout.batch_rows)]
        return self._row_views

    def scatter_batches(self, arrays: Sequence[Array]) -> None:
        """Copy the new arrays of `gather_arrays` into the slot, batch by batch."""
        if self._batch_views is None:
            self._batch_views = [
                None if packed else self._batch_view(leaf) for leaf, packed in enumerate(self._is_packed)
            ]
        for array, view in zip(arrays, self._batch_views, strict=True):
            if view is None:
                continue
            batch_rows = self.layout.batch_rows
            full_batches = len(array) // batch_rows
            view[:full_batches] = array[: full_batches * batch_rows].reshape(full_batches, *view.shape[1:])
            if len(array) > full_batches * batch_rows:
                view[full_batches, : len(array) - full_batches * batch_rows] = array[full_batches * batch_rows :]

    def write_variable_size(self, leaves: Sequence[Array | Ragged]) -> None:
        """Copy a batch of any size into the slot.

        Ragged rows become two arrays: values and offsets. If the batch does not fit, replace the memory of the slot by
        larger memory.
        """
        arrays = slot_arrays(leaves)
        layout = Layout.of_arrays(arrays, batch_rows=len(leaves[0]), alignment=self._engine.alignment)
        if layout.nbytes > self._nbytes:
            larger = self._engine.open_slot(layout.nbytes, shared=self._is_shared)
            self.close()
            self.memory, self._nbytes = larger, layout.nbytes
            self._set_layout(layout)
        elif layout != self.layout:
            self._set_layout(layout)
        for leaf, array in enumerate(arrays):
            layout.view(self.memory.host, leaf)[...] = array

    def batch_context(self, batch: int, schedule: Schedule) -> BatchContext:
        """Return the context of a batch for device transforms.

        With it, a transform draws the same random numbers on the device as on the host.
        """
        assert self.group is not None
        cursor, start = schedule.advance(self.group.cursor, batch), batch * self.layout.batch_rows
        ids = slice(0, self.group.rows) if self.row_ids is None else self.row_ids
        row_ids = select_rows(ids, start, start + self.layout.batch_rows)
        return BatchContext(cursor.epoch, cursor.passes, cursor.position + schedule.shard_index, row_ids)

    def send(self) -> None:
        """Start the copy to the device, unless the device has filled the slot itself."""
        assert self.group is not None
        if not self.filled_by_device:
            self._engine.send(self.memory, self.layout.parts(self.group.rows))

    def close(self) -> None:
        """Close the memory. The engine frees it when the consumer holds no batch."""
        self._engine.close_slot(self.memory)

    def _batch_view(self, leaf: int) -> Array:
        """Return a view of all batches of a leaf. Its first axis counts batches."""
        spec, layout = self.layout.specs[leaf], self.layout
        first = layout.view(self.memory.host, leaf)
        return np.ndarray(
            (layout.batches, *spec.batch_shape(layout.batch_rows)),
            spec.dtype,
            buffer=self.memory.host,
            offset=layout.offsets[leaf],
            strides=(layout.strides[leaf], *first.strides),
        )


class Lease:
    """Shows whether the consumer still holds a batch of a slot, by counting references.

    Each leaf of a batch has one root array. Every view, DLPack tensor or buffer that the user derives from a batch
    refers to its root, directly or through other objects. (NumPy lets a view of a view refer to the first array of the
    chain. This is the root, because the base of the root is a buffer and not an array.) So the consumer holds no batch
    exactly when the reference counts of all roots have their initial values again.

    Reference counts have advantages over finalizers. Roots live as long as the slot, so Forebay creates and destroys no
    object for each batch. No callback runs on another thread. If the consumer keeps a batch forever, the ring drops the
    slot, and Python frees the memory with the last view.

    Create a lease before the hand-off of the roots. Pass the roots as an iterator, because a list would add references
    to them.
    """

    __slots__ = ("_initial_count", "_roots")

    def __init__(self, roots: Iterator[Any]) -> None:
        self._roots = tuple(roots)
        self._initial_count = self._count_references()

    @property
    def is_released(self) -> bool:
        """True if the consumer holds no batch of the slot."""
        return self._count_references() == self._initial_count

    def _count_references(self) -> int:
        return sum(map(sys.getrefcount, self._roots))
