"""Slots (reusable memory for groups) and leases (which tell when to reuse it)."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from forebay.core.engine import Engine, SlotMemory
from forebay.core.rows import row_views
from forebay.core.spec import Array, ArraySpec, Layout, align
from forebay.order.schedule import Group

__all__ = ["Lease", "Slot"]


class Slot:
    """Memory for one group of batches.

    Its views are made once and reused for every group.
    """

    def __init__(self, engine: Engine, layout: Layout, *, shared_nbytes: int = 0) -> None:
        self._engine = engine
        self._is_shared = shared_nbytes > 0
        self.input_offset = align(layout.nbytes, engine.alignment)  # where the input of worker processes begins
        self._nbytes = self.input_offset + shared_nbytes
        self.memory: SlotMemory = engine.open_slot(self._nbytes, shared=self._is_shared)
        self.group: Group | None = None
        self.filled_by_device = False  # True if the device pulled the rows, so that nothing is sent
        self.partial_failure: BaseException | None = None  # why the rest of the group could not be filled
        self._set_layout(layout)

    def _set_layout(self, layout: Layout) -> None:
        self.layout = layout
        leaves = range(len(layout.specs))
        self.batches = [[self.memory.root(layout, leaf, batch) for leaf in leaves] for batch in range(layout.batches)]
        self.lease = Lease(self.memory.lease_object(root) for batch in self.batches for root in batch)
        self._row_views: list[list[Array]] | None = None
        self._is_packed = [layout.batches == 1 or layout.is_packed(leaf) for leaf in leaves]
        self._strided_views: list[Array | None] | None = None  # made on first use, because they touch host memory

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def shared_block(self) -> Any:
        """The memory as worker processes map it."""
        return self.memory.block

    def gather_arrays(self, rows: int) -> list[Array]:
        """Return an array per leaf to gather rows into.

        Most arrays are views of the slot. A leaf with gaps between its batches gets a new array, which
        `scatter_batches` copies into the slot.
        """
        specs = self.layout.specs
        return [
            self.layout.view(self.memory.host, leaf, rows=rows) if packed else specs[leaf].empty(rows)
            for leaf, packed in enumerate(self._is_packed)
        ]

    def row_views(self) -> list[list[Array]]:
        """Return a view of each row of each leaf, to write rows one by one.

        The views are made once.
        """
        if self._row_views is None:
            self._row_views = [row_views(array) for array in self.gather_arrays(self.layout.batch_rows)]
        return self._row_views

    def scatter_batches(self, arrays: Sequence[Array]) -> None:
        """Copy the arrays that are not views of the slot into it, batch by batch."""
        if self._strided_views is None:
            self._strided_views = [
                None if packed else self._strided_view(leaf) for leaf, packed in enumerate(self._is_packed)
            ]
        for array, view in zip(arrays, self._strided_views, strict=True):
            if view is None:
                continue
            batch_rows = self.layout.batch_rows
            full = len(array) // batch_rows
            view[:full] = array[: full * batch_rows].reshape(full, *view.shape[1:])
            if len(array) > full * batch_rows:
                view[full, : len(array) - full * batch_rows] = array[full * batch_rows :]

    def write_variable_size(self, leaves: Sequence[Array]) -> None:
        """Copy a batch of any size into the slot.

        Allocate larger memory if it does not fit.
        """
        specs = tuple(ArraySpec(leaf.shape[1:], leaf.dtype) for leaf in leaves)
        layout = Layout.of(specs, batch_rows=len(leaves[0]), alignment=self._engine.alignment)
        if layout.nbytes > self._nbytes:
            larger = self._engine.open_slot(layout.nbytes, shared=self._is_shared)
            self.close()
            self.memory, self._nbytes = larger, layout.nbytes
            self._set_layout(layout)
        elif layout != self.layout:
            self._set_layout(layout)
        for array, leaf in zip(self.gather_arrays(len(leaves[0])), leaves, strict=True):
            array[...] = leaf

    def send(self) -> None:
        """Start the copy to the device, unless the device filled the slot."""
        assert self.group is not None
        if not self.filled_by_device:
            self._engine.send(self.memory, self.layout.parts(self.group.rows))

    def close(self) -> None:
        """Free the memory. Batches that the consumer still holds stay valid."""
        self._engine.close_slot(self.memory)

    def _strided_view(self, leaf: int) -> Array:
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
    """Tells whether the consumer still holds a batch of the slot.

    The lease counts the references to the roots of the slot.

    Each leaf of a batch has one root, the only object through which its memory is handed out. All that the user derives
    from it (views, views of views, DLPack tensors, buffers) holds a reference to the root, directly or through a
    chain: a root's base is not an ndarray, and NumPy shortens chains only over ndarrays. So the memory is released
    exactly when the reference counts of the roots are back to their values before the hand-out.

    Counting has advantages over finalizers. Roots live as long as the slot, so no object is created or destroyed per
    batch. No callback runs on another thread. A slot that the consumer keeps forever is simply dropped, and its memory
    is freed with the last view.

    Create a lease before the roots are handed out. The roots come from an iterator, because a list of the
    caller would hold references too.
    """

    __slots__ = ("_idle_count", "_roots")

    def __init__(self, roots: Iterator[Any]) -> None:
        self._roots = tuple(roots)
        self._idle_count = self._count()

    @property
    def released(self) -> bool:
        """True if only the slot refers to the roots."""
        return self._count() == self._idle_count

    def _count(self) -> int:
        return sum(map(sys.getrefcount, self._roots))
