"""From row numbers, or rows, to a full slot by way of Ray workers: one copy, out of what Ray received."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import ray

from forebay.core.recorder import Recorder
from forebay.core.source import Rows, Source, row_count
from forebay.core.spec import Array, ArraySpec, Structure
from forebay.feed.ray_task import Answer, FarRows, FarTask
from forebay.feed.slot import Slot
from forebay.feed.transform_stage import CutShortError, Finisher
from forebay.order.schedule import Cursor
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.plan import Plan
from forebay.sources.arrays import ArraySource
from forebay.transforms.ops import apply_all
from forebay.transforms.workers.ray_actor import Hello, Question
from forebay.transforms.workers.ray_inline import count_pieces, cut, join, same_bytes
from forebay.transforms.workers.ray_pool import RayPool

__all__ = ["RayFinisher"]


class RayFinisher(Finisher):
    """A finisher whose transforms run on Ray workers, which read the rows themselves where they can."""

    def __init__(
        self, plan: Plan, pipeline: Pipeline, between: tuple[Sequence[ArraySpec], Structure], recorder: Recorder
    ) -> None:
        super().__init__(plan, pipeline.structure, between, schedule=pipeline.schedule)
        cluster = plan.demand.cluster
        assert cluster is not None
        self._source: Any = pipeline.source
        self._stored = cluster.rows == "stored"
        self._references: list[Any] = []  # of the arrays in Ray's object store, where they are there
        self._recorder, self._task_nbytes = recorder, plan.task_nbytes
        self._row_nbytes = sum(spec.nbytes for spec in plan.demand.specs) if plan.demand.sized else 0
        self._node_id = ray.get_runtime_context().get_node_id()
        self._workers = RayPool(_work(plan, pipeline, between[1], read=cluster.rows == "read"), cluster.workers)
        recorder.watch("ray", self._workers.counts)

    def begin_pass(self) -> None:
        """Somebody's arrays may have changed since the last epoch: then the workers are given them anew."""
        if self._stored and not self._unchanged():
            self._references = [ray.put(list(self._source.arrays))]

    def _unchanged(self) -> bool:
        """Whether what is in the object store is what the arrays hold. To look takes a part of what putting takes, and
        every node keeps its copy."""
        assert isinstance(self._source, ArraySource)
        if not self._references:
            return False
        return self._source.fixed or same_bytes(self._source.arrays, ray.get(self._references[0]))

    def fill(self, slot: Slot, rows: Rows, cursor: Cursor) -> None:
        """Have a worker read these rows and transform them."""
        keys, references = self._keys(cursor, row_count(rows)), self._references

        def make(worker: Hello) -> Question:
            answers = self._answers(worker, row_count(rows))
            if worker.lacks:
                self._recorder.note(f"rows for {worker.node}", "sent", f"it cannot read them: {worker.lacks}")
                return self._sent(worker, keys, self._gathered(rows), answers)
            return Question(FarTask(keys, rows, answers=answers), references, answers=answers)

        self._run(slot, make)

    def finish(self, slot: Slot, leaves: list[Array], cursor: Cursor, worker: int) -> None:
        """Send rows that were gathered here to a worker, after the transforms of this thread."""
        keys = self._keys(cursor, len(leaves[0])) if self._plan.demand.sized else [self._key(cursor)]
        headed = self._headed(leaves, keys)
        self._run(slot, lambda worker: self._sent(worker, keys, headed, self._answers(worker, len(headed[0]))))

    def close(self) -> None:
        self._workers.close()
        self._references = []

    def _answers(self, worker: Hello, rows: int) -> int:
        return self._pieces(worker, rows * self._row_nbytes)

    def _pieces(self, worker: Hello, nbytes: int) -> int:
        """In how many pieces so many bytes go there or come back."""
        return count_pieces(nbytes, one_node=worker.node_id == self._node_id)

    def _sent(self, worker: Hello, keys: list[tuple[int, ...]], leaves: list[Array], answers: int) -> Question:
        pieces = self._pieces(worker, sum(leaf.nbytes for leaf in leaves))
        if pieces == 1:
            return Question(FarTask(keys, None, leaves, answers=answers), answers=answers)
        alike = [(leaf.shape, leaf.dtype) for leaf in leaves]
        contiguous = [np.ascontiguousarray(leaf) for leaf in leaves]
        task = FarTask(keys, None, cut_leaves=alike, answers=answers)
        return Question(task, pieces=cut(contiguous, pieces), answers=answers)

    def _run(self, slot: Slot, make: Callable[[Hello], Question]) -> None:
        (answer, *others), worker = self._workers.run(make, nbytes=self._task_nbytes)
        if answer.failure is not None and answer.batches == 0:
            raise answer.failure.rebuild(str(worker))
        self._write(slot, answer, others)
        if answer.failure is not None:
            raise CutShortError(answer.batches, answer.failure.rebuild(str(worker)))

    def _write(self, slot: Slot, answer: Answer, others: list[bytes]) -> None:
        if not self._plan.demand.sized:
            slot.hold(self._alike(answer.leaves))
            return
        join([*answer.leaves, answer.piece, *others], self._targets(slot, answer))

    def _targets(self, slot: Slot, answer: Answer) -> Iterator[Array]:
        """Where the bytes of an answer go, in the order in which they come: leaf by leaf, batch by batch."""
        layout, batch_rows = slot.layout, self._plan.demand.batch_rows
        for leaf in range(len(layout.specs)):
            for batch in range(answer.batches):
                rows = min(batch_rows, answer.rows - batch * batch_rows)
                yield layout.view(slot.memory.host, leaf, batch=batch, rows=rows)

    def _keys(self, cursor: Cursor, rows: int) -> list[tuple[int, ...]]:
        batches = -(-rows // self._plan.demand.batch_rows)
        return [self._key(self._schedule.advanced(cursor, batch)) for batch in range(batches)]

    def _headed(self, leaves: list[Array], keys: list[tuple[int, ...]]) -> list[Array]:
        """The rows after the transforms of this thread, batch by batch."""
        if not self._plan.head:
            return leaves
        step = self._plan.demand.batch_rows if len(keys) > 1 else len(leaves[0])
        pieces = [
            apply_all(self._plan.head, [leaf[start : start + step] for leaf in leaves], self._source_structure, key)[0]
            for start, key in zip(range(0, len(leaves[0]), step), keys, strict=True)
        ]
        return pieces[0] if len(pieces) == 1 else [np.concatenate(piece) for piece in zip(*pieces, strict=True)]

    def _gathered(self, rows: Rows) -> list[Array]:
        out = [spec.empty(row_count(rows)) for spec in self._plan.demand.source_specs]
        self._source.gather(rows, out)
        return out


def _work(plan: Plan, pipeline: Pipeline, structure: Structure, *, read: bool) -> FarRows:
    demand = plan.demand
    return FarRows(
        transforms=plan.tail,
        first=len(plan.head),
        structure=structure,
        opening=pipeline.opening.everywhere() if read and pipeline.opening is not None else None,
        source_rows=len(pipeline.source) if isinstance(pipeline.source, Source) else 0,
        source_specs=demand.source_specs,
        batch_rows=demand.batch_rows,
        output_specs=demand.specs if demand.sized else None,
        output_names=demand.structure.paths,
    )
