"""Applies the transforms of the host on Ray workers, and copies the results to slots."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import ray

from forebay.core.recorder import Recorder
from forebay.core.rows import Rows, row_count
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, ArraySpec, Structure
from forebay.feed.ray_task import RayJob, RayResult, RayTask
from forebay.feed.slot import Slot
from forebay.feed.transform_stage import GroupOrigin, PartialGroupError, TransformStage
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.plan import Plan
from forebay.sources.arrays import ArraySource
from forebay.transforms.batch_context import BatchContext
from forebay.transforms.ops import apply_all
from forebay.transforms.workers.ray_actor import RayRequest, WorkerInfo
from forebay.transforms.workers.ray_inline import are_bytes_equal, count_pieces, join_bytes, split_bytes
from forebay.transforms.workers.ray_pool import RayPool

__all__ = ["RayTransformStage"]


class RayTransformStage(TransformStage):
    """A transform stage on Ray workers.

    If the workers read the rows themselves, from files or from Ray's object store, the feed calls `fill`. Otherwise it
    gathers the rows and calls `transform_into`, which sends them to a worker.
    """

    def __init__(
        self, plan: Plan, pipeline: Pipeline, worker_input: tuple[Sequence[ArraySpec], Structure], recorder: Recorder
    ) -> None:
        super().__init__(plan, pipeline.structure, worker_input, schedule=pipeline.schedule)
        cluster = plan.input.cluster
        assert cluster is not None
        self._source: Any = pipeline.source
        self._uses_object_store = cluster.row_delivery == "stored"
        # At most one reference, to the list of arrays in Ray's object store. Empty if nothing is stored there.
        self._stored_references: list[Any] = []
        self._recorder, self._task_nbytes = recorder, plan.task_nbytes
        self._row_nbytes = sum(spec.nbytes for spec in plan.input.specs) if plan.input.fixed_size else 0
        self._node_id = ray.get_runtime_context().get_node_id()
        job = _make_job(plan, pipeline, worker_input[1], reads_files=cluster.row_delivery == "read")
        self._workers = RayPool(job, cluster.workers)
        recorder.register_counters("ray", self._workers.counts)

    def begin_pass(self) -> None:
        """Put the user's arrays into Ray's object store, unless the store has equal arrays.

        Do nothing if the workers do not read from the store.
        """
        if self._uses_object_store and not self._stored_arrays_are_current():
            self._stored_references = [ray.put(list(self._source.arrays))]

    def fill(self, slot: Slot, origin: GroupOrigin) -> None:
        """Let a worker read and transform rows, and write the results to the slot.

        If the worker cannot read the rows, send it the rows.
        """
        rows, contexts, references = origin.row_numbers, self._batch_contexts(origin), self._stored_references

        def make_request(worker: WorkerInfo) -> RayRequest:
            num_returns = self._count_result_pieces(worker, row_count(rows))
            if worker.missing_reason:
                reason = f"it cannot read them: {worker.missing_reason}"
                self._recorder.note(f"rows for {worker.node}", "sent", reason)
                return self._request_with_rows(worker, contexts, self._gather_rows(rows), num_returns)
            return RayRequest(RayTask(contexts, rows, num_returns=num_returns), references, num_returns=num_returns)

        self._run_on_worker(slot, make_request, origin)

    def transform_into(self, slot: Slot, leaves: list[Array], origin: GroupOrigin, worker: int) -> None:
        """Apply `Plan.thread_transforms`, send the rows to a worker, and write its results to the slot."""
        fixed_size = self._plan.input.fixed_size
        contexts = self._batch_contexts(origin) if fixed_size else [self._batch_context(origin)]
        leaves = self._transform_in_thread(leaves, contexts)

        def make_request(worker: WorkerInfo) -> RayRequest:
            return self._request_with_rows(worker, contexts, leaves, self._count_result_pieces(worker, len(leaves[0])))

        self._run_on_worker(slot, make_request, origin)

    def close(self) -> None:
        self._workers.close()
        self._stored_references = []

    def _stored_arrays_are_current(self) -> bool:
        """Return whether the object store has the current values of the arrays.

        Compare the values if the user may have changed them: this takes less time than to store the arrays again.
        """
        assert isinstance(self._source, ArraySource)
        if not self._stored_references:
            return False
        return self._source.immutable or are_bytes_equal(self._source.arrays, ray.get(self._stored_references[0]))

    def _run_on_worker(self, slot: Slot, make_request: Callable[[WorkerInfo], RayRequest], origin: GroupOrigin) -> None:
        (result, *pieces), worker = self._workers.run(make_request, nbytes=self._task_nbytes)
        if result.failure is not None and result.batches == 0:
            raise result.failure.rebuild(str(worker))
        self._write_result(slot, result, pieces)
        slot.skipped_rows = origin.name_rows(result.skipped)
        if result.failure is not None:
            raise PartialGroupError(result.batches, result.failure.rebuild(str(worker)))

    def _write_result(self, slot: Slot, result: RayResult, pieces: list[bytes]) -> None:
        if self._plan.input.fixed_size:
            join_bytes([*result.leaves, result.piece, *pieces], self._result_arrays(slot, result))
        else:
            slot.write_variable_size(self._check_specs(result.leaves))

    def _result_arrays(self, slot: Slot, result: RayResult) -> Iterator[Array]:
        """Yield the slot's arrays in the order of the result's bytes that they receive."""
        layout, batch_rows = slot.layout, self._plan.input.batch_rows
        for leaf in range(len(layout.specs)):
            for batch in range(result.batches):
                rows = min(batch_rows, result.rows - batch * batch_rows)
                yield layout.view(slot.memory.host, leaf, batch=batch, rows=rows)

    def _request_with_rows(
        self, worker: WorkerInfo, contexts: list[BatchContext], leaves: list[Array], num_returns: int
    ) -> RayRequest:
        pieces = self._count_pieces(worker, sum(leaf.nbytes for leaf in leaves))
        if pieces == 1 or not all(isinstance(leaf, np.ndarray) for leaf in leaves):
            return RayRequest(RayTask(contexts, None, leaves, num_returns=num_returns), num_returns=num_returns)
        specs = [(leaf.shape, leaf.dtype) for leaf in leaves]
        contiguous = [np.ascontiguousarray(leaf) for leaf in leaves]
        task = RayTask(contexts, None, split_leaf_specs=specs, num_returns=num_returns)
        return RayRequest(task, pieces=split_bytes(contiguous, pieces), num_returns=num_returns)

    def _count_result_pieces(self, worker: WorkerInfo, rows: int) -> int:
        return self._count_pieces(worker, rows * self._row_nbytes)

    def _count_pieces(self, worker: WorkerInfo, nbytes: int) -> int:
        return count_pieces(nbytes, one_node=worker.node_id == self._node_id)

    def _transform_in_thread(self, leaves: list[Array], contexts: list[BatchContext]) -> list[Array]:
        """Apply `Plan.thread_transforms` to each batch, and return one array for each leaf."""
        transforms = self._plan.thread_transforms
        if not transforms:
            return leaves
        if len(contexts) == 1:
            return apply_all(transforms, leaves, self._source_structure, contexts[0])[0]
        batch_rows = self._plan.input.batch_rows
        batches = [
            apply_all(
                transforms, [leaf[start : start + batch_rows] for leaf in leaves], self._source_structure, context
            )[0]
            for start, context in zip(range(0, len(leaves[0]), batch_rows), contexts, strict=True)
        ]
        return [np.concatenate(parts) for parts in zip(*batches, strict=True)]

    def _gather_rows(self, rows: Rows) -> list[Array]:
        out = [spec.empty(row_count(rows)) for spec in self._plan.input.source_specs]
        self._source.gather(rows, out)
        return out


def _make_job(plan: Plan, pipeline: Pipeline, structure: Structure, *, reads_files: bool) -> RayJob:
    plan_input, recipe = plan.input, pipeline.file_recipe
    return RayJob(
        transforms=plan.worker_transforms,
        first=len(plan.thread_transforms),
        structure=structure,
        recipe=recipe.with_absolute_paths() if reads_files and recipe is not None else None,
        source_rows=len(pipeline.source) if isinstance(pipeline.source, AbstractSource) else 0,
        source_specs=plan_input.source_specs,
        batch_rows=plan_input.batch_rows,
        output_specs=plan_input.specs if plan_input.fixed_size else None,
        output_names=plan_input.structure.paths,
    )
