"""Transforms in a worker process, which reads and writes the memory of a slot.

    slot memory:   [ results, as they are handed off | rows before the transforms ]

Only a few numbers go through the pipe. Batches of variable size have no fixed place in a slot, so they are pickled and
sent through the pipe; `explain()` reports this.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.spec import Array, Layout, Structure
from forebay.transforms.ops import Transform, apply_all, describe_transforms, write_leaves
from forebay.transforms.workers.pickling import Failure

__all__ = ["PartialFailure", "ProcessTask", "ProcessTransforms", "layout_views"]


@dataclass(frozen=True, slots=True)
class ProcessTask:
    """Batches that one worker process transforms in one call."""

    keys: list[tuple[int, ...]]  # per batch; seeds its random numbers
    rows: int = 0
    input_offset: int = 0
    pickled: list[Array] | None = None  # the rows, if they have no place in the slot


@dataclass(frozen=True, slots=True)
class PartialFailure:
    """The answer of a worker if a map fails after some batches."""

    batches: int  # number of batches that were transformed
    failure: Failure


@dataclass(frozen=True, slots=True)
class ProcessTransforms:
    """The function of a worker process: transforms batches in a slot's memory."""

    transforms: tuple[Transform, ...]
    first: int  # number of the first transform within the pipeline
    structure: Structure  # of the input
    input_layout: Layout
    output_layout: Layout
    output_names: tuple[str, ...]

    @property
    def name(self) -> str:
        """The user's maps, for error messages about worker processes."""
        return describe_transforms(self.transforms)

    def __call__(self, memory: Any, task: ProcessTask) -> list[Array] | PartialFailure | None:
        if task.pickled is not None:
            return apply_all(self.transforms, task.pickled, self.structure, task.keys[0], first=self.first)[0]
        leaves = layout_views(self.input_layout, memory, task.rows, offset=task.input_offset)
        for batch, key in enumerate(task.keys):
            start = batch * self.output_layout.batch_rows
            stop = min(start + self.output_layout.batch_rows, task.rows)
            try:
                self._transform_batch(memory, batch, [leaf[start:stop] for leaf in leaves], key)
            except Exception as error:
                if batch == 0:
                    raise
                return PartialFailure(batch, Failure.of(error))
        return None

    def _transform_batch(self, memory: Any, batch: int, leaves: Sequence[Array], key: tuple[int, ...]) -> None:
        # A map may keep or return its input, and the slot is reused, so the map gets copies.
        copies, rows = [leaf.copy() for leaf in leaves], len(leaves[0])
        results, _ = apply_all(self.transforms, copies, self.structure, key, first=self.first)
        layout = self.output_layout
        out = [layout.view(memory, leaf, batch=batch, rows=rows) for leaf in range(len(layout.specs))]
        write_leaves(results, out, self.output_names, describe_transforms(self.transforms))


def layout_views(layout: Layout, memory: Any, rows: int, *, offset: int = 0) -> list[Array]:
    """Return an array per leaf over the first rows of a layout at `offset`."""
    return [
        np.ndarray(spec.batch_shape(rows), spec.dtype, buffer=memory, offset=offset + start)
        for spec, start in zip(layout.specs, layout.offsets, strict=True)
    ]
