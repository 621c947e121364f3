"""Applies the transforms of the host, in worker threads or worker processes."""

from collections.abc import Sequence
from dataclasses import dataclass

from forebay.core.rows import Rows, row_count, select_rows
from forebay.core.spec import Array, ArraySpec, Layout, Structure
from forebay.errors import SpecError, WorkerError
from forebay.feed.process_task import PartialFailure, ProcessTask, ProcessTransforms, layout_views
from forebay.feed.slot import Slot
from forebay.order.schedule import Cursor, Schedule
from forebay.pipeline.plan import Plan
from forebay.transforms.ops import Map, apply_all, describe_transforms, write_leaves
from forebay.transforms.random_keys import BatchKey
from forebay.transforms.workers.process_pool import ProcessPool

__all__ = ["GroupOrigin", "PartialGroupError", "TransformStage"]


class PartialGroupError(Exception):
    """Raised if only the first batches of a group could be filled.

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
    row_ids: Rows  # see `BatchKey.row_ids`


class TransformStage:
    """Applies the transforms of the host in worker threads, in worker processes, or in both."""

    def __init__(
        self,
        plan: Plan,
        source_structure: Structure,
        worker_input: tuple[Sequence[ArraySpec], Structure],
        *,
        schedule: Schedule,
    ) -> None:
        """`source_structure` is the structure of the rows before all transforms.

        `worker_input` has specs and structure after the thread transforms, which are the input of worker processes.
        """
        self._plan, self._source_structure, self._schedule = plan, source_structure, schedule
        self._names = plan.input.structure.paths
        self._needs_row_ids = any(isinstance(map_, Map) and map_.draws_by_row for map_ in plan.input.transforms)
        specs, structure = worker_input
        group_rows = plan.group_batches * plan.input.batch_rows  # one layout batch, so that the input is contiguous
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

        The arrays are in the slot if batches have fixed size and a worker process is the first to transform them.
        """
        if self._input_is_in_slot and not self._plan.thread_transforms:
            return layout_views(self._input_layout, slot.memory.host, rows, offset=slot.input_offset)
        # Allocate new arrays each time, because a map may keep or return its input. malloc reuses the same pages.
        return [spec.empty(rows) for spec in self._plan.input.source_specs]

    def transform_into(self, slot: Slot, leaves: list[Array], origin: GroupOrigin, worker: int) -> None:
        """Transform a group, and write the results to the slot.

        If a map runs in threads, the planner makes groups of one batch, so the map receives single batches. `worker`
        is the number of the calling thread.
        """
        if self._pool is not None:
            try:
                self._transform_in_process(self._pool, slot, leaves, origin, worker)
            except WorkerError:
                self._pool.restart(worker)  # so that the feed can continue; the error reports the lost batches
                raise
            return
        transforms = self._plan.thread_transforms
        results, _ = apply_all(transforms, leaves, self._source_structure, self._batch_key(origin))
        if self._plan.input.fixed_size:
            arrays = slot.gather_arrays(len(results[0]))
            write_leaves(results, arrays, self._names, describe_transforms(transforms))
            slot.scatter_batches(arrays)
        else:
            slot.write_variable_size(self._check_specs(results))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def _batch_key(self, origin: GroupOrigin) -> BatchKey:
        """Return the key that seeds the random numbers of a group of one batch."""
        cursor, row_ids = origin.cursor, origin.row_ids
        if not self._needs_row_ids:  # a worker would receive them for nothing
            row_ids = slice(0, row_count(row_ids))
        return BatchKey(cursor.epoch, cursor.passes, cursor.position + self._schedule.shard_index, row_ids)

    def _batch_keys(self, origin: GroupOrigin) -> list[BatchKey]:
        """Return the key of each batch of a group."""
        starts = range(0, row_count(origin.row_ids), self._plan.input.batch_rows)
        return [self._batch_key(self._origin_of_batch(origin, batch)) for batch in range(len(starts))]

    def _origin_of_batch(self, origin: GroupOrigin, batch: int) -> GroupOrigin:
        start, stop = batch * self._plan.input.batch_rows, (batch + 1) * self._plan.input.batch_rows
        cursor = self._schedule.advance(origin.cursor, batch)
        numbers, row_ids = (select_rows(rows, start, stop) for rows in (origin.row_numbers, origin.row_ids))
        return GroupOrigin(cursor, numbers, row_ids)

    def _check_specs(self, leaves: list[Array]) -> list[Array]:
        """Return the leaves, or raise SpecError if a dtype or dimension count changed."""
        for leaf, spec, name in zip(leaves, self._plan.input.specs, self._names, strict=True):
            if leaf.dtype != spec.dtype or leaf.ndim != len(spec.shape) + 1:
                leaf_spec = ArraySpec(leaf.shape[1:], leaf.dtype)
                raise SpecError(
                    f"{name!r} has rows of {leaf_spec} here, but the first batch had {spec}. Use one dtype and one "
                    "number of dimensions."
                )
        return leaves

    def _transform_in_process(
        self, pool: ProcessPool, slot: Slot, leaves: list[Array], origin: GroupOrigin, worker: int
    ) -> None:
        if not self._input_is_in_slot:
            key = self._batch_key(origin)
            leaves, _ = apply_all(self._plan.thread_transforms, leaves, self._source_structure, key)
            results = pool.run(worker, slot.shared_block, ProcessTask([key], pickled=leaves))
            slot.write_variable_size(self._check_specs(results))
            return
        rows = len(leaves[0])
        keys = self._batch_keys(origin)
        if self._plan.thread_transforms:
            for batch, key in enumerate(keys):
                self._apply_thread_transforms(slot, leaves, batch * self._plan.input.batch_rows, key)
        answer = pool.run(worker, slot.shared_block, ProcessTask(keys, rows, slot.input_offset))
        if isinstance(answer, PartialFailure):
            raise PartialGroupError(answer.batches, answer.failure.rebuild("a worker process"))

    def _apply_thread_transforms(self, slot: Slot, leaves: list[Array], start: int, key: BatchKey) -> None:
        """Apply the thread transforms to a batch, and write it as input of the process."""
        transforms = self._plan.thread_transforms
        stop = min(start + self._plan.input.batch_rows, len(leaves[0]))
        results, _ = apply_all(transforms, [leaf[start:stop] for leaf in leaves], self._source_structure, key)
        arrays = layout_views(self._input_layout, slot.memory.host, stop, offset=slot.input_offset)
        out = [array[start:] for array in arrays]
        write_leaves(results, out, [""] * len(results), describe_transforms(transforms))

    @property
    def _input_is_in_slot(self) -> bool:
        return self._pool is not None and self._plan.input.fixed_size
