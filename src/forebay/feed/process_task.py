"""Transforms carried out in a worker process: rows are read from a slot's input part, results written to its front.

    slot memory:   [ results, as they are handed off | rows before the transforms ]

Nothing but a few numbers travels through the pipe. Batches that differ in size have no fixed place in a slot; they
are pickled through the pipe instead, which `explain()` says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.spec import Array, Layout, Structure
from forebay.transforms.ops import Transform, apply_all, transformed, write_leaves
from forebay.transforms.workers.pickling import Failure

__all__ = ["RemoteTransforms", "Stopped", "Task", "views"]


@dataclass(frozen=True, slots=True)
class Task:
    """A few batches' worth of work."""

    keys: list[tuple[int, ...]]  # what random numbers are drawn from, for each batch
    rows: int = 0
    input_offset: int = 0
    pickled: list[Array] | None = None  # the rows themselves, where they have no place in the slot


@dataclass(frozen=True, slots=True)
class Stopped:
    """What a worker answers when a map fails after so many batches of a task went well."""

    batches: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class RemoteTransforms:
    """What a worker process holds: called with a slot's memory and a task, it does the transforms there."""

    transforms: tuple[Transform, ...]
    first: int  # the number of the first of them in the pipeline
    structure: Structure
    input_layout: Layout
    output_layout: Layout
    output_names: tuple[str, ...]

    @property
    def name(self) -> str:
        """What errors about worker processes call it: the user's own maps."""
        return transformed(self.transforms)

    def __call__(self, memory: Any, task: Task) -> list[Array] | Stopped | None:
        if task.pickled is not None:
            return apply_all(self.transforms, task.pickled, self.structure, task.keys[0], first=self.first)[0]
        leaves = views(self.input_layout, memory, task.rows, offset=task.input_offset)
        for batch, key in enumerate(task.keys):
            start = batch * self.output_layout.batch_rows
            stop = min(start + self.output_layout.batch_rows, task.rows)
            try:
                self._map_batch(memory, batch, [leaf[start:stop] for leaf in leaves], key)
            except Exception as error:
                if batch == 0:
                    raise
                return Stopped(batch, Failure.of(error))
        return None

    def _map_batch(self, memory: Any, batch: int, leaves: Sequence[Array], key: tuple[int, ...]) -> None:
        # Copies: a map may keep or return what it is given, and this memory is used again.
        own, rows = [leaf.copy() for leaf in leaves], len(leaves[0])
        results, _ = apply_all(self.transforms, own, self.structure, key, first=self.first)
        layout = self.output_layout
        targets = [layout.view(memory, leaf, batch=batch, rows=rows) for leaf in range(len(layout.specs))]
        write_leaves(results, targets, self.output_names, transformed(self.transforms))


def views(layout: Layout, memory: Any, rows: int, *, offset: int = 0) -> list[Array]:
    """Arrays over the first rows of each leaf of a layout that begins at `offset`."""
    return [
        np.ndarray(spec.batch_shape(rows), spec.dtype, buffer=memory, offset=offset + start)
        for spec, start in zip(layout.specs, layout.offsets, strict=True)
    ]
