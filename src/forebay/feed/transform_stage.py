"""Applies the transforms of the host, in worker threads or worker processes."""

from collections.abc import Sequence

from forebay.core.spec import Array, ArraySpec, Layout, Structure
from forebay.errors import SpecError, WorkerError
from forebay.feed.process_task import PartialFailure, ProcessTask, ProcessTransforms, layout_views
from forebay.feed.slot import Slot
from forebay.order.schedule import Cursor, Schedule
from forebay.pipeline.plan import Plan
from forebay.transforms.ops import apply_all, describe_transforms, write_leaves
from forebay.transforms.workers.process_pool import ProcessPool

__all__ = ["PartialGroupError", "TransformStage"]


class PartialGroupError(Exception):
    """Only the first batches of a group could be filled.

    The consumer gets them, and then the error.
    """

    def __init__(self, batches: int, error: Exception) -> None:
        super().__init__(str(error))
        self.batches, self.error = batches, error


class TransformStage:
    """Applies the transforms of a plan. Each thread passes its own worker number."""

    def __init__(
        self,
        plan: Plan,
        source_structure: Structure,
        worker_input: tuple[Sequence[ArraySpec], Structure],
        *,
        schedule: Schedule,
    ) -> None:
        """`worker_input` is what the thread transforms leave for the worker processes."""
        self._plan, self._source_structure, self._schedule = plan, source_structure, schedule
        self._names = plan.input.structure.paths
        specs, structure = worker_input
        group_rows = plan.group_batches * plan.input.batch_rows  # contiguous, because a group is gathered at once
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
        """Bytes that a slot needs for the input of worker processes, after its results."""
        return self._input_layout.nbytes if self._pool is not None else 0

    def input_arrays(self, slot: Slot, rows: int) -> list[Array]:
        """Return arrays to gather rows into.

        They are the input of a worker process if no thread transform comes first.
        """
        if self._input_is_in_slot and not self._plan.thread_transforms:
            return layout_views(self._input_layout, slot.memory.host, rows, offset=slot.input_offset)
        # New arrays each time: a map may keep or return its input. malloc reuses the same pages.
        return [spec.empty(rows) for spec in self._plan.input.source_specs]

    def transform_into(self, slot: Slot, leaves: list[Array], cursor: Cursor, worker: int) -> None:
        """Transform a batch or a group, and write it to the slot.

        If a map runs in threads, the planner makes groups of one batch, so the map receives single batches.
        """
        if self._pool is not None:
            try:
                self._transform_in_process(self._pool, slot, leaves, cursor, worker)
            except WorkerError:
                self._pool.restart(worker)  # the batches are lost and the error says so, but the feed continues
                raise
            return
        transforms = self._plan.thread_transforms
        results, _ = apply_all(transforms, leaves, self._source_structure, self._key(cursor))
        if self._plan.input.fixed_size:
            arrays = slot.gather_arrays(len(results[0]))
            write_leaves(results, arrays, self._names, describe_transforms(transforms))
            slot.scatter_batches(arrays)
        else:
            slot.write_variable_size(self._checked(results))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def _key(self, cursor: Cursor) -> tuple[int, ...]:
        """Return the seed key of a batch, which differs between shards.

        It contains the global position of the first row.
        """
        return (cursor.epoch, cursor.passes, cursor.position + self._schedule.shard_index)

    def _checked(self, leaves: list[Array]) -> list[Array]:
        """Check that a batch has the dtypes and dimensions of the first batch."""
        for leaf, spec, name in zip(leaves, self._plan.input.specs, self._names, strict=True):
            if leaf.dtype != spec.dtype or leaf.ndim != len(spec.shape) + 1:
                got = ArraySpec(leaf.shape[1:], leaf.dtype)
                raise SpecError(
                    f"{name!r} has rows of {got} here, but the first batch had {spec}. Use one dtype and one number "
                    "of dimensions."
                )
        return leaves

    def _transform_in_process(
        self, pool: ProcessPool, slot: Slot, leaves: list[Array], cursor: Cursor, worker: int
    ) -> None:
        if not self._input_is_in_slot:
            key = self._key(cursor)
            leaves, _ = apply_all(self._plan.thread_transforms, leaves, self._source_structure, key)
            results = pool.run(worker, slot.shared_block, ProcessTask([key], pickled=leaves))
            slot.write_variable_size(self._checked(results))
            return
        rows = len(leaves[0])
        starts = range(0, rows, self._plan.input.batch_rows)
        keys = [self._key(self._schedule.advance(cursor, batch)) for batch in range(len(starts))]
        if self._plan.thread_transforms:
            for start, key in zip(starts, keys, strict=True):
                self._apply_thread_transforms(slot, leaves, start, key)
        answer = pool.run(worker, slot.shared_block, ProcessTask(keys, rows, slot.input_offset))
        if isinstance(answer, PartialFailure):
            raise PartialGroupError(answer.batches, answer.failure.rebuild("a worker process"))

    def _apply_thread_transforms(self, slot: Slot, leaves: list[Array], start: int, key: tuple[int, ...]) -> None:
        """Transform a batch in this thread, and write it for the worker process."""
        transforms = self._plan.thread_transforms
        stop = min(start + self._plan.input.batch_rows, len(leaves[0]))
        results, _ = apply_all(transforms, [leaf[start:stop] for leaf in leaves], self._source_structure, key)
        arrays = layout_views(self._input_layout, slot.memory.host, stop, offset=slot.input_offset)
        out = [array[start:] for array in arrays]
        write_leaves(results, out, [""] * len(results), describe_transforms(transforms))

    @property
    def _input_is_in_slot(self) -> bool:
        return self._pool is not None and self._plan.input.fixed_size
