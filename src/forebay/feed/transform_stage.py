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
    """Raised if only the first batches of a group could be filled.

    The consumer gets these batches, and then `error`.
    """

    def __init__(self, batches: int, error: Exception) -> None:
        super().__init__(str(error))
        self.batches, self.error = batches, error


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

    def transform_into(self, slot: Slot, leaves: list[Array], cursor: Cursor, worker: int) -> None:
        """Transform a group, and write the results to the slot.

        If a map runs in threads, the planner makes groups of one batch, so the map receives single batches. `worker`
        is the number of the calling thread.
        """
        if self._pool is not None:
            try:
                self._transform_in_process(self._pool, slot, leaves, cursor, worker)
            except WorkerError:
                self._pool.restart(worker)  # so that the feed can continue; the error reports the lost batches
                raise
            return
        transforms = self._plan.thread_transforms
        results, _ = apply_all(transforms, leaves, self._source_structure, self._seed_key(cursor))
        if self._plan.input.fixed_size:
            arrays = slot.gather_arrays(len(results[0]))
            write_leaves(results, arrays, self._names, describe_transforms(transforms))
            slot.scatter_batches(arrays)
        else:
            slot.write_variable_size(self._check_specs(results))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def _seed_key(self, cursor: Cursor) -> tuple[int, ...]:
        """Return the key that seeds random numbers for a batch.

        It contains the global position of the first row, so it differs between shards.
        """
        return (cursor.epoch, cursor.passes, cursor.position + self._schedule.shard_index)

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
        self, pool: ProcessPool, slot: Slot, leaves: list[Array], cursor: Cursor, worker: int
    ) -> None:
        if not self._input_is_in_slot:
            key = self._seed_key(cursor)
            leaves, _ = apply_all(self._plan.thread_transforms, leaves, self._source_structure, key)
            results = pool.run(worker, slot.shared_block, ProcessTask([key], pickled=leaves))
            slot.write_variable_size(self._check_specs(results))
            return
        rows = len(leaves[0])
        starts = range(0, rows, self._plan.input.batch_rows)
        keys = [self._seed_key(self._schedule.advance(cursor, batch)) for batch in range(len(starts))]
        if self._plan.thread_transforms:
            for start, key in zip(starts, keys, strict=True):
                self._apply_thread_transforms(slot, leaves, start, key)
        answer = pool.run(worker, slot.shared_block, ProcessTask(keys, rows, slot.input_offset))
        if isinstance(answer, PartialFailure):
            raise PartialGroupError(answer.batches, answer.failure.rebuild("a worker process"))

    def _apply_thread_transforms(self, slot: Slot, leaves: list[Array], start: int, key: tuple[int, ...]) -> None:
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
