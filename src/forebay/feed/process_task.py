"""The tasks of worker processes, which read and write the memory of a slot.

    slot memory:   [ results of the transforms | input of the transforms ]

The feed and the worker process share the memory of the slot, so a task contains only a few numbers. Batches of variable
size have no fixed offset in a slot. The feed and the process send these batches as pickled arrays instead; `explain()`
reports this.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.skipped_rows import SkippedRow
from forebay.core.spec import Array, Layout, Structure
from forebay.transforms.batch_context import BatchContext, collect_skipped
from forebay.transforms.ops import Transform, apply_all
from forebay.transforms.outputs import describe_transforms, write_leaves
from forebay.transforms.workers.pickling import Failure

__all__ = ["ProcessResult", "ProcessTask", "ProcessTransforms", "layout_views"]


@dataclass(frozen=True, slots=True)
class ProcessTask:
    """Batches that one worker process transforms in one call."""

    contexts: list[BatchContext]  # one for each batch; seeds its random numbers
    rows: int = 0  # of all batches together; unused if the task contains the input
    input_offset: int = 0  # bytes from the start of the slot memory to the input
    pickled: list[Array] | None = None  # the input of one batch of variable size; None if the input is in the slot


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """What a worker process returns for a task."""

    batches: int  # number of batches that the process transformed, up to the first failure
    skipped: list[SkippedRow]  # in these batches; `row` counts from the first row of the task
    leaves: list[Array] | None = None  # the results if they have variable size; None if they are in the slot
    failure: Failure | None = None  # the error of the next batch; None if all batches succeeded


@dataclass(frozen=True, slots=True)
class ProcessTransforms:
    """The function that a worker process calls for each task."""

    transforms: tuple[Transform, ...]
    first: int  # index of the first of these transforms in the pipeline
    structure: Structure  # how the leaves of the input are nested
    input_layout: Layout
    output_layout: Layout
    output_names: tuple[str, ...]  # of the leaves, for error messages

    @property
    def name(self) -> str:
        """A description of the transforms, for error messages about worker processes."""
        return describe_transforms(self.transforms)

    def __call__(self, memory: Any, task: ProcessTask) -> ProcessResult:
        """Transform the batches of a task, up to the first failure.

        If the first batch fails, raise its error. If a later batch fails, the result contains the error.
        """
        contexts, batch_rows = task.contexts, self.output_layout.batch_rows
        if task.pickled is not None:
            results, _ = apply_all(self.transforms, task.pickled, self.structure, contexts[0], first=self.first)
            return ProcessResult(1, contexts[0].skipped, results)
        leaves = layout_views(self.input_layout, memory, task.rows, offset=task.input_offset)
        for batch, context in enumerate(contexts):
            start, stop = batch * batch_rows, min((batch + 1) * batch_rows, task.rows)
            try:
                self._transform_batch(memory, batch, [leaf[start:stop] for leaf in leaves], context)
            except Exception as error:
                if batch == 0:
                    raise
                return ProcessResult(batch, collect_skipped(contexts[:batch], batch_rows), failure=Failure.of(error))
        return ProcessResult(len(contexts), collect_skipped(contexts, batch_rows))

    def _transform_batch(self, memory: Any, batch: int, leaves: Sequence[Array], context: BatchContext) -> None:
        # Pass copies to the transforms: a map may keep or return its input, but Forebay overwrites the slot later.
        copies, rows = [leaf.copy() for leaf in leaves], len(leaves[0])
        results, _ = apply_all(self.transforms, copies, self.structure, context, first=self.first)
        layout = self.output_layout
        out = [layout.view(memory, leaf, batch=batch, rows=rows) for leaf in range(len(layout.specs))]
        write_leaves(results, out, self.output_names, describe_transforms(self.transforms))


def layout_views(layout: Layout, memory: Any, rows: int, *, offset: int = 0) -> list[Array]:
    """Return a view of the first `rows` rows of each leaf of a layout.

    The layout begins `offset` bytes after the start of the memory.
    """
    return [
        np.ndarray(spec.batch_shape(rows), spec.dtype, buffer=memory, offset=offset + start)
        for spec, start in zip(layout.specs, layout.offsets, strict=True)
    ]
