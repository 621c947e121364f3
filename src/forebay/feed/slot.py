"""One reusable staging place: memory, the roots it is handed off through, and the views it is filled through."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.core.engine import Engine, SlotMemory
from forebay.core.source import row_views
from forebay.core.spec import Array, ArraySpec, Layout, align
from forebay.feed.lease import Lease
from forebay.order.schedule import Group

__all__ = ["Slot"]


class Slot:
    """A place for one group of batches; its views are made once and used again for every group."""

    def __init__(self, engine: Engine, layout: Layout, *, shared_nbytes: int = 0) -> None:
        self._engine = engine
        self._shared = shared_nbytes > 0
        self.input_offset = align(layout.nbytes, engine.alignment)
        self._nbytes = self.input_offset + shared_nbytes
        self.memory: SlotMemory = engine.open_slot(self._nbytes, shared=self._shared)
        self.group: Group | None = None
        self.fetched = False  # whether the device filled it by itself, so that there is nothing to send
        self.failure: BaseException | None = None  # what kept the rest of the group from being filled
        self._lay_out(layout)

    def _lay_out(self, layout: Layout) -> None:
        self.layout = layout
        leaves = range(len(layout.specs))
        self.batches = [[self.memory.root(layout, leaf, batch) for leaf in leaves] for batch in range(layout.batches)]
        self.lease = Lease(self.memory.counted(root) for batch in self.batches for root in batch)
        self._row_targets: list[list[Array]] | None = None
        self._packed = [layout.batches == 1 or layout.packed(leaf) for leaf in leaves]
        self._spread: list[Array | None] | None = None  # made when first needed, since it asks for the host side

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def block(self) -> Any:
        """The memory as worker processes find it."""
        return self.memory.block

    def targets(self, rows: int) -> list[Array]:
        """Where to gather so many rows, a leaf each; leaves with gaps between batches are gathered beside the slot."""
        specs = self.layout.specs
        return [
            self.layout.view(self.memory.host, leaf, rows=rows) if packed else specs[leaf].empty(rows)
            for leaf, packed in enumerate(self._packed)
        ]

    def row_targets(self) -> list[list[Array]]:
        """Where to put rows one by one: a view of each row of each leaf, made once."""
        if self._row_targets is None:
            self._row_targets = [row_views(target) for target in self.targets(self.layout.batch_rows)]
        return self._row_targets

    def commit(self, targets: Sequence[Array]) -> None:
        """Put what was gathered beside the slot into it, a batch at a time."""
        if self._spread is None:
            self._spread = [None if packed else self._strided(leaf) for leaf, packed in enumerate(self._packed)]
        for target, spread in zip(targets, self._spread, strict=True):
            if spread is None:
                continue
            batch_rows = self.layout.batch_rows
            whole = len(target) // batch_rows
            spread[:whole] = target[: whole * batch_rows].reshape(whole, *spread.shape[1:])
            if len(target) > whole * batch_rows:
                spread[whole, : len(target) - whole * batch_rows] = target[whole * batch_rows :]

    def hold(self, leaves: Sequence[Array]) -> None:
        """Copy a batch of any size into the slot, which takes larger memory where it must."""
        specs = tuple(ArraySpec(leaf.shape[1:], leaf.dtype) for leaf in leaves)
        layout = Layout.of(specs, batch_rows=len(leaves[0]), alignment=self._engine.alignment)
        if layout.nbytes > self._nbytes:
            larger = self._engine.open_slot(layout.nbytes, shared=self._shared)
            self.close()
            self.memory, self._nbytes = larger, layout.nbytes
            self._lay_out(layout)
        elif layout != self.layout:
            self._lay_out(layout)
        for target, leaf in zip(self.targets(len(leaves[0])), leaves, strict=True):
            target[...] = leaf

    def send(self) -> None:
        """Start the copy of what was filled on the host."""
        assert self.group is not None
        if not self.fetched:
            self._engine.send(self.memory, self.layout.parts(self.group.rows))

    def close(self) -> None:
        """Give the memory back; what is still seen of it lives on with whoever sees it."""
        self._engine.close_slot(self.memory)

    def _strided(self, leaf: int) -> Array:
        spec, layout = self.layout.specs[leaf], self.layout
        first = layout.view(self.memory.host, leaf)
        return np.ndarray(
            (layout.batches, *spec.batch_shape(layout.batch_rows)),
            spec.dtype,
            buffer=self.memory.host,
            offset=layout.offsets[leaf],
            strides=(layout.strides[leaf], *first.strides),
        )
