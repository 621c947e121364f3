"""The tasks of worker processes, which read and write the memory of a slot.

    slot memory:   [ results of the transforms | input of the transforms ]

The feed shares the slot with the process, so a task contains only a few numbers. Batches of variable size have no
fixed offset in a slot. The feed and the process pickle them instead; `explain()` reports this.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.spec import Array, Layout, Structure
from forebay.transforms.ops import Transform, apply_all, describe_transforms, write_leaves
from forebay.transforms.random_keys import BatchKey
from forebay.transforms.workers.pickling import Failure

__all__ = ["PartialFailure", "ProcessTask", "ProcessTransforms", "layout_views"]


@dataclass(frozen=True, slots=True)
class ProcessTask:
    """Batches that one worker process transforms in one call."""

    keys: list[BatchKey]  # one for each batch; seeds its random numbers
    rows: int = 0  # of all batches; unused if the input is pickled
    input_offset: int = 0  # bytes from the start of the slot memory
    pickled: list[Array] | None = None  # the input, if its batches have variable size


@dataclass(frozen=True, slots=True)
class PartialFailure:
    """The answer of a worker process if a transform fails after some batches."""

    batches: int  # number of batches that the process transformed before the failure
    failure: Failure


@dataclass(frozen=True, slots=True)
class ProcessTransforms:
    """The function that a worker process calls for each task."""

    transforms: tuple[Transform, ...]
    first: int  # index of the first transform in the pipeline
    structure: Structure  # of the input
    input_layout: Layout
    output_layout: Layout
    output_names: tuple[str, ...]  # of the leaves, for error messages

    @property
    def name(self) -> str:
        """A description of the transforms, for error messages about worker processes."""
        return describe_transforms(self.transforms)

    def __call__(self, memory: Any, task: ProcessTask) -> list[Array] | PartialFailure | None:
        """Transform the batches of a task.

        Return the results if they have variable size, a `PartialFailure` if a batch after the first fails, else None.
        """
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

    def _transform_batch(self, memory: Any, batch: int, leaves: Sequence[Array], key: BatchKey) -> None:
        # Pass copies to the transforms: a map may keep or return its input, and Forebay reuses the slot.
        copies, rows = [leaf.copy() for leaf in leaves], len(leaves[0])
        results, _ = apply_all(self.transforms, copies, self.structure, key, first=self.first)
        layout = self.output_layout
        out = [layout.view(memory, leaf, batch=batch, rows=rows) for leaf in range(len(layout.specs))]
        write_leaves(results, out, self.output_names, describe_transforms(self.transforms))


def layout_views(layout: Layout, memory: Any, rows: int, *, offset: int = 0) -> list[Array]:
    """Return views of the first `rows` rows of all leaves.

    The layout begins `offset` bytes after the start of the memory.
    """
    return [
        np.ndarray(spec.batch_shape(rows), spec.dtype, buffer=memory, offset=offset + start)
        for spec, start in zip(layout.specs, layout.offsets, strict=True)
    ]
