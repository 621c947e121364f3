"""From gathered rows to a full slot: transforms in this thread, or in a worker process, then the slot is written."""

from collections.abc import Sequence

from forebay.core.spec import Array, ArraySpec, Layout, Structure
from forebay.errors import SpecError, WorkerError
from forebay.feed.process_task import RemoteTransforms, Stopped, Task, views
from forebay.feed.slot import Slot
from forebay.order.schedule import Cursor, Schedule
from forebay.pipeline.plan import Plan
from forebay.transforms.ops import apply_all, transformed, write_leaves
from forebay.transforms.workers.process_pool import ProcessPool

__all__ = ["CutShortError", "Finisher"]


class CutShortError(Exception):
    """Only the first batches of a group could be filled: they are delivered, and then the error."""

    def __init__(self, batches: int, error: Exception) -> None:
        super().__init__(str(error))
        self.batches, self.error = batches, error


class Finisher:
    """Applies the plan's transforms; threads call it with their own worker number."""

    def __init__(
        self,
        plan: Plan,
        source_structure: Structure,
        between: tuple[Sequence[ArraySpec], Structure],
        *,
        schedule: Schedule,
    ) -> None:
        self._plan, self._source_structure, self._schedule = plan, source_structure, schedule
        self._names = plan.demand.structure.paths
        specs, structure = between  # what the transforms in threads leave for the worker processes
        group_rows = plan.group_batches * plan.demand.batch_rows  # one after the other: they are gathered together
        self._input_layout = Layout.of(specs, batch_rows=group_rows, alignment=plan.demand.alignment)
        self._pool: ProcessPool | None = None
        if plan.processes:
            remote = RemoteTransforms(
                plan.tail, len(plan.head), structure, self._input_layout, plan.layout, self._names
            )
            self._pool = ProcessPool(remote, plan.processes)

    @property
    def input_nbytes(self) -> int:
        """What a slot needs beside its results for worker processes to read from."""
        return self._input_layout.nbytes if self._pool is not None else 0

    def input_targets(self, slot: Slot, rows: int) -> list[Array]:
        """Where to gather rows: straight to where a worker process reads them, where that comes first."""
        if self._in_slot and not self._plan.head:
            return views(self._input_layout, slot.memory.host, rows, offset=slot.input_offset)
        # Fresh each time: a map may keep or return what it was given. malloc hands the same pages out again.
        specs = self._plan.demand.source_specs
        return [spec.empty(rows) for spec in specs]

    def finish(self, slot: Slot, leaves: list[Array], cursor: Cursor, worker: int) -> None:
        """Transform a batch and write it into the slot; or a group, where no map in threads is the user's."""
        if self._pool is not None:
            try:
                self._finish_remotely(self._pool, slot, leaves, cursor, worker)
            except WorkerError:
                self._pool.restart(worker)  # the batches are lost, and told so; the feed is not
                raise
            return
        results, _ = apply_all(self._plan.head, leaves, self._source_structure, self._key(cursor))
        if self._plan.demand.sized:
            targets = slot.targets(len(results[0]))
            write_leaves(results, targets, self._names, transformed(self._plan.head))
            slot.commit(targets)
        else:
            slot.hold(self._alike(results))

    def _key(self, cursor: Cursor) -> tuple[int, ...]:
        """The batch's first row in the global order, which is another one for every shard."""
        return (cursor.epoch, cursor.passes, cursor.position + self._schedule.shard_index)

    def _alike(self, leaves: list[Array]) -> list[Array]:
        """Batches may differ in size, but not in what they are made of."""
        for leaf, spec, name in zip(leaves, self._plan.demand.specs, self._names, strict=True):
            if leaf.dtype != spec.dtype or leaf.ndim != len(spec.shape) + 1:
                got = ArraySpec(leaf.shape[1:], leaf.dtype)
                raise SpecError(f"{name!r} has rows of {got} here, but {spec} at first: make them of one dtype.")
        return leaves

    def _finish_remotely(self, pool: ProcessPool, slot: Slot, leaves: list[Array], cursor: Cursor, worker: int) -> None:
        rows, batch_rows = len(leaves[0]), self._plan.demand.batch_rows
        if not self._in_slot:
            key = self._key(cursor)
            leaves, _ = apply_all(self._plan.head, leaves, self._source_structure, key)
            slot.hold(self._alike(pool.run(worker, slot.block, Task([key], pickled=leaves))))
            return
        starts = range(0, rows, batch_rows)
        keys = [self._key(self._schedule.advanced(cursor, batch)) for batch in range(len(starts))]
        if self._plan.head:
            for start, key in zip(starts, keys, strict=True):
                self._apply_head(slot, leaves, start, key)
        answer = pool.run(worker, slot.block, Task(keys, rows, slot.input_offset))
        if isinstance(answer, Stopped):
            raise CutShortError(answer.batches, answer.failure.rebuild("a worker process"))

    def _apply_head(self, slot: Slot, leaves: list[Array], start: int, key: tuple[int, ...]) -> None:
        """The transforms of this thread on one batch of several, written to where a worker process reads it."""
        stop = min(start + self._plan.demand.batch_rows, len(leaves[0]))
        own = [leaf[start:stop] for leaf in leaves]
        results, _ = apply_all(self._plan.head, own, self._source_structure, key)
        targets = views(self._input_layout, slot.memory.host, stop, offset=slot.input_offset)
        write_leaves(results, [target[start:] for target in targets], [""] * len(results), transformed(self._plan.head))

    @property
    def _in_slot(self) -> bool:
        return self._pool is not None and self._plan.demand.sized

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
