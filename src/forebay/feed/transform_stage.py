"""Applies the transforms of the host, in worker threads or worker processes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from forebay.core.ragged import Ragged
from forebay.core.rows import Rows, row_count, row_numbers, select_rows
from forebay.core.skipped_rows import SkippedRow
from forebay.core.spec import Array, ArraySpec, Layout, Structure
from forebay.errors import SpecError, WorkerError
from forebay.feed.process_task import ProcessResult, ProcessTask, ProcessTransforms, layout_views
from forebay.feed.slot import Slot
from forebay.order.schedule import Cursor, Schedule
from forebay.pipeline.plan import Plan
from forebay.transforms.augmentations import draws_by_row
from forebay.transforms.batch_context import BatchContext
from forebay.transforms.ops import apply_all
from forebay.transforms.outputs import describe_transforms, write_leaves
from forebay.transforms.workers.process_pool import ProcessPool

__all__ = ["GroupOrigin", "PartialGroupError", "TransformStage"]


class PartialGroupError(Exception):
    """Raised if only the first `batches` batches of a group could be filled.

    The consumer gets these batches, and then `error`.
    """

    def __init__(self, batches: int, error: Exception) -> None:
        super().__init__(str(error))
        self.batches, self.error = batches, error


@dataclass(frozen=True, slots=True)
class GroupOrigin:
    """Where the rows of a group come from."""

    cursor: Cursor  # at the start of the group
    row_numbers: Rows  # in the source; for a stream, positions in the order of all shards
    row_ids: Rows  # the numbers that seed random numbers for rows; see `BatchContext.row_ids`

    def first_rows(self, rows: int) -> "GroupOrigin":
        """Return the origin of the first rows of the group."""
        return replace(
            self, row_numbers=select_rows(self.row_numbers, 0, rows), row_ids=select_rows(self.row_ids, 0, rows)
        )

    def name_rows(self, skipped: Sequence[SkippedRow]) -> list[SkippedRow]:
        """Return the skipped rows with their row numbers in the source.

        In `skipped`, `row` is the index of a row in the group.
        """
        numbers = row_numbers(self.row_numbers) if skipped else ()
        return [replace(row, row=numbers[row.row]) for row in skipped]


class TransformStage:
    """Applies the transforms of the host in worker threads, in worker processes, or in both.

    Transforms before the first map with where="process" run in threads (`Plan.thread_transforms`), and all others in
    processes (`Plan.worker_transforms`).
    """

    def __init__(
        self,
        plan: Plan,
        source_structure: Structure,
        worker_input: tuple[Sequence[ArraySpec], Structure],
        *,
        schedule: Schedule,
    ) -> None:
        """Start the worker processes, if the plan has any.

        `source_structure` is the structure of the rows before all transforms. `worker_input` has the specs and the
        structure of the rows that worker processes receive: those after `Plan.thread_transforms`.
        """
        self._plan, self._source_structure, self._schedule = plan, source_structure, schedule
        self._names = plan.input.structure.paths
        self._needs_row_ids = any(map(draws_by_row, plan.input.transforms))
        specs, structure = worker_input
        group_rows = plan.group_batches * plan.input.batch_rows  # the group is one batch of the layout, without gaps
        self._input_layout = Layout.of(specs, batch_rows=group_rows, alignment=plan.input.alignment)
        self._pool: ProcessPool | None = None
        if plan.processes:
            transforms = ProcessTransforms(
                plan.worker_transforms,
                len(plan.thread_transforms),
                structure,
                self._input_layout,
                plan.layout,
                self._names,
            )
            self._pool = ProcessPool(transforms, plan.processes)

    @property
    def input_nbytes(self) -> int:
        """Bytes that a slot needs for the input of worker processes, besides the results."""
        return self._input_layout.nbytes if self._pool is not None else 0

    def input_arrays(self, slot: Slot, rows: int) -> list[Array]:
        """Return one array for each leaf, as the target of a gather.

        If batches have a fixed size and worker processes run all transforms, the arrays are in the slot, where the
        processes read them. Otherwise they are new.
        """
        if self._input_is_in_slot and not self._plan.thread_transforms:
            return layout_views(self._input_layout, slot.memory.host, rows, offset=slot.input_offset)
        # Allocate new arrays each time, because a map may keep or return its input. This is fast: malloc reuses memory.
        return [spec.empty(rows) for spec in self._plan.input.source_specs]

    def transform_into(self, slot: Slot, leaves: list[Any], origin: GroupOrigin, worker: int) -> None:
        """Transform a group, and write the results to the slot.

        Without worker processes, the planner gives only one batch to each group with a map or an augmentation. `worker`
        is the number of the calling thread, which has a worker process of its own if the plan has processes.
        """
        if self._pool is not None:
            try:
                self._transform_in_process(self._pool, slot, leaves, origin, worker)
            except WorkerError:
                self._pool.restart(worker)  # so that the feed can continue; the consumer gets the error for this group
                raise
            return
        transforms, context = self._plan.thread_transforms, self._batch_context(origin)
        results, _ = apply_all(transforms, leaves, self._source_structure, context)
        slot.skipped_rows = origin.name_rows(context.skipped)
        if self._plan.input.fixed_size:
            arrays = slot.gather_arrays(len(results[0]))
            write_leaves(results, arrays, self._names, describe_transforms(transforms))
            slot.scatter_batches(arrays)
        else:
            slot.write_variable_size(self._check_specs(results))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def _batch_context(self, origin: GroupOrigin) -> BatchContext:
        """Return the context that seeds the random numbers of a group of one batch."""
        cursor, row_ids = origin.cursor, origin.row_ids
        if not self._needs_row_ids:  # do not send unused row ids to a worker
            row_ids = slice(0, row_count(row_ids))
        return BatchContext(cursor.epoch, cursor.passes, cursor.position + self._schedule.shard_index, row_ids)

    def _batch_contexts(self, origin: GroupOrigin) -> list[BatchContext]:
        """Return the context of each batch of a group."""
        starts = range(0, row_count(origin.row_ids), self._plan.input.batch_rows)
        return [self._batch_context(self._origin_of_batch(origin, batch)) for batch in range(len(starts))]

    def _origin_of_batch(self, origin: GroupOrigin, batch: int) -> GroupOrigin:
        start, stop = batch * self._plan.input.batch_rows, (batch + 1) * self._plan.input.batch_rows
        cursor = self._schedule.advance(origin.cursor, batch)
        numbers, row_ids = (select_rows(rows, start, stop) for rows in (origin.row_numbers, origin.row_ids))
        return GroupOrigin(cursor, numbers, row_ids)

    def _check_specs(self, leaves: list[Any]) -> list[Any]:
        """Return the leaves, with offsets of the framework's dtype.

        Raise SpecError if the dtype or the number of dimensions differs from that of the first batch. If any field is
        ragged, raise it also if the shape of another field differs.
        """
        offsets_dtype = self._plan.input.offsets_dtype
        for leaf, spec, name in zip(leaves, self._plan.input.specs, self._names, strict=True):
            has_shape = leaf.ndim == len(spec.shape) + 1
            if offsets_dtype is not None:
                has_shape = leaf.shape[1:] == spec.shape
            if not has_shape or leaf.dtype != spec.dtype:
                leaf_spec = ArraySpec(leaf.shape[1:], leaf.dtype)
                raise SpecError(
                    f"{name!r} has rows of {leaf_spec} here, but the first batch had {spec}. Use one dtype and one "
                    "number of dimensions, and in batches with ragged rows one shape for all other rows."
                )
        if offsets_dtype is None:
            return leaves
        return [leaf.with_offsets_of(offsets_dtype) if isinstance(leaf, Ragged) else leaf for leaf in leaves]

    def _transform_in_process(
        self, pool: ProcessPool, slot: Slot, leaves: list[Any], origin: GroupOrigin, worker: int
    ) -> None:
        if not self._input_is_in_slot:
            context = self._batch_context(origin)
            leaves, _ = apply_all(self._plan.thread_transforms, leaves, self._source_structure, context)
            result: ProcessResult = pool.run(worker, slot.shared_block, ProcessTask([context], pickled=leaves))
            assert result.leaves is not None
            slot.write_variable_size(self._check_specs(result.leaves))
            slot.skipped_rows = origin.name_rows(result.skipped)
            return
        rows = len(leaves[0])
        contexts = self._batch_contexts(origin)
        if self._plan.thread_transforms:
            for batch, context in enumerate(contexts):
                self._apply_thread_transforms(slot, leaves, batch * self._plan.input.batch_rows, context)
        result = pool.run(worker, slot.shared_block, ProcessTask(contexts, rows, slot.input_offset))
        slot.skipped_rows = origin.name_rows(result.skipped)
        if result.failure is not None:
            raise PartialGroupError(result.batches, result.failure.rebuild("a worker process"))

    def _apply_thread_transforms(self, slot: Slot, leaves: list[Array], start: int, context: BatchContext) -> None:
        """Apply `Plan.thread_transforms` to a batch, and write the process's input to the slot.

        `start` is the index of the first row of the batch in the group.
        """
        transforms = self._plan.thread_transforms
        stop = min(start + self._plan.input.batch_rows, len(leaves[0]))
        results, _ = apply_all(transforms, [leaf[start:stop] for leaf in leaves], self._source_structure, context)
        arrays = layout_views(self._input_layout, slot.memory.host, stop, offset=slot.input_offset)
        out = [array[start:] for array in arrays]
        write_leaves(results, out, [""] * len(results), describe_transforms(transforms))

    @property
    def _input_is_in_slot(self) -> bool:
        return self._pool is not None and self._plan.input.fixed_size
