"""Transforms carried out in a worker process: rows are read from a slot's input part, results written to its front.

    slot memory:   [ results, as they are handed off | rows before the transforms ]

Nothing but a few numbers travels through the pipe. Batches that differ in size have no fixed place in a slot; they
are pickled through the pipe instead, which `explain()` says.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.spec import Array, Layout, Structure
from forebay.transforms import Transform, apply_all, transformed, write_leaves

__all__ = ["RemoteTransforms", "Task", "views"]


@dataclass(frozen=True, slots=True)
class Task:
    """One batch's worth of work."""

    key: tuple[int, ...]  # what random numbers are drawn from
    rows: int = 0
    input_offset: int = 0
    pickled: list[Array] | None = None  # the rows themselves, where they have no place in the slot


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

    def __call__(self, memory: Any, task: Task) -> list[Array] | None:
        if task.pickled is not None:
            return apply_all(self.transforms, task.pickled, self.structure, task.key, first=self.first)[0]
        # Copies: a map may keep or return what it is given, and this memory is used again.
        leaves = [leaf.copy() for leaf in views(self.input_layout, memory, task.rows, offset=task.input_offset)]
        results, _ = apply_all(self.transforms, leaves, self.structure, task.key, first=self.first)
        write_leaves(
            results, views(self.output_layout, memory, task.rows), self.output_names, transformed(self.transforms)
        )
        return None


def views(layout: Layout, memory: Any, rows: int, *, offset: int = 0) -> list[Array]:
    """Arrays over the first rows of each leaf of a layout that begins at `offset`."""
    return [
        np.ndarray(spec.batch_shape(rows), spec.dtype, buffer=memory, offset=offset + start)
        for spec, start in zip(layout.specs, layout.offsets, strict=True)
    ]
