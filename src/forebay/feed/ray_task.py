"""The job of a Ray worker, its tasks, and their results.

A task contains row numbers if the worker can read these rows from files or from Ray's object store. Otherwise the task
contains the rows. The result contains one array for each leaf, with the rows of all batches of the task.

Ray sends small objects inside its messages, and larger ones through the object store, which takes more CPU time. So
Forebay splits some inputs and results into pieces (parts of their bytes) that are small enough for messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from ray import cloudpickle

from forebay.core.ragged import Ragged
from forebay.core.rows import Rows, row_count
from forebay.core.skipped_rows import SkippedRow
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, ArraySpec, Structure
from forebay.sources.arrays import ArraySource
from forebay.sources.file_recipe import FileSourceRecipe
from forebay.transforms.batch_context import BatchContext, collect_skipped
from forebay.transforms.ops import Transform, apply_all
from forebay.transforms.outputs import describe_transforms, write_leaves
from forebay.transforms.workers.pickling import Failure
from forebay.transforms.workers.ray_inline import join_bytes, split_bytes

__all__ = ["RayJob", "RayResult", "RayTask"]


@dataclass(frozen=True, slots=True)
class RayTask:
    """Batches that a Ray worker transforms in one call.

    Exactly one of `rows`, `leaves` and `split_leaf_specs` is set.
    """

    contexts: list[BatchContext]  # one for each batch; seeds its random numbers
    rows: Rows | None  # row numbers, if the worker reads the rows
    leaves: list[Array] | None = None  # the rows themselves, as one array for each leaf
    # Shape and dtype of each leaf, if the arrays arrive in pieces beside the task.
    split_leaf_specs: list[tuple[tuple[int, ...], np.dtype[Any]]] | None = None
    num_returns: int = 1  # number of pieces of the result; 1 if it is not split


@dataclass(frozen=True, slots=True)
class RayResult:
    """The transformed batches of a task, up to the first failure."""

    batches: int  # number of transformed batches
    rows: int  # number of rows of these batches
    leaves: list[Array]  # one array for each leaf; empty if the worker returns them in pieces
    failure: Failure | None = None  # the error of the next batch; None if all batches succeeded
    skipped: list[SkippedRow] = field(default_factory=list)  # `row` counts from the first row of the task
    piece: bytes = b""  # the first piece; the other pieces are further return values of the worker


@dataclass(frozen=True, slots=True)
class RayJob:
    """What a worker needs for every task of a feed. Each worker receives it once."""

    transforms: tuple[Transform, ...]
    first: int  # index of the first of these transforms in the pipeline
    structure: Structure  # how the leaves of the input are nested
    recipe: FileSourceRecipe | None  # opens the files; None if the worker reads no files
    source_rows: int  # number of rows of the source; 0 for a stream
    source_specs: tuple[ArraySpec, ...]
    batch_rows: int
    output_specs: tuple[ArraySpec, ...] | None  # None for batches of variable size; a task then has one batch
    output_names: tuple[str, ...]  # of the leaves, for error messages

    @property
    def name(self) -> str:
        """A description of the transforms, for error messages about workers."""
        return describe_transforms(self.transforms)

    def open(self) -> "RayJobOnWorker":
        """Open the job's files on a worker, and return the job with its source.

        If the worker cannot open the files, the returned job has the reason instead of the source.
        """
        if self.recipe is None:
            return RayJobOnWorker(self, None, "")
        try:
            return RayJobOnWorker(self, self.recipe.open(self.source_rows, self.source_specs), "")
        except (OSError, ValueError, ImportError) as error:
            return RayJobOnWorker(self, None, f"{type(error).__name__}: {error}")


class RayJobOnWorker:
    """A job on a worker, which calls it for each task."""

    def __init__(self, job: RayJob, source: AbstractSource | None, missing_reason: str) -> None:
        """`missing_reason` says why the worker cannot open the files; it is empty without an error."""
        self._job, self._source, self.missing_reason = job, source, missing_reason

    def __call__(self, task: RayTask, stored: list[Array] | None, pieces: Sequence[bytes]) -> Any:
        """Return the result of a task.

        `stored` has the arrays from Ray's object store, if the worker reads rows from there. `pieces` has the input if
        it is split. If the task requests several pieces, return a list: the result with the first piece, then the other
        pieces.
        """
        result = self._run(task, stored, pieces)
        if task.num_returns == 1:
            return result
        first, *others = split_bytes(result.leaves, task.num_returns)
        return [replace(result, leaves=[], piece=first), *others]

    def _run(self, task: RayTask, stored: list[Array] | None, pieces: Sequence[bytes]) -> RayResult:
        try:
            leaves = self._read_input(task, stored, pieces)
            if self._job.output_specs is None:
                results, skipped = self._transform(leaves, task.contexts[0]), task.contexts[0].skipped
                return RayResult(1, len(leaves[0]), results, skipped=skipped)
            return self._transform_batches(leaves, task, self._job.output_specs)
        except BaseException as error:  # an error of the user's code must not end the worker
            return RayResult(0, 0, [], Failure.of(error, cloudpickle.dumps))

    def _read_input(self, task: RayTask, stored: list[Array] | None, pieces: Sequence[bytes]) -> list[Array]:
        """Return the rows of a task in new memory, as one array for each leaf.

        A map may change or keep its input, so the arrays must not use memory of Ray or of the user.
        """
        if task.leaves is not None:
            return [leaf.copy() for leaf in task.leaves]
        if task.split_leaf_specs is not None:
            joined = [np.empty(shape, dtype) for shape, dtype in task.split_leaf_specs]
            join_bytes(pieces, joined)
            return joined
        source = self._source if stored is None else ArraySource(self._job.structure.unflatten(stored))
        assert source is not None
        assert task.rows is not None
        out = [spec.empty(row_count(task.rows)) for spec in self._job.source_specs]
        source.gather(task.rows, out)
        return out

    def _transform_batches(
        self, leaves: Sequence[Array], task: RayTask, output_specs: tuple[ArraySpec, ...]
    ) -> RayResult:
        job = self._job
        out = [spec.empty(len(leaves[0])) for spec in output_specs]
        for batch, context in enumerate(task.contexts):
            row_range = slice(batch * job.batch_rows, (batch + 1) * job.batch_rows)
            try:
                results = self._transform([leaf[row_range] for leaf in leaves], context)
                write_leaves(results, [array[row_range] for array in out], job.output_names, job.name)
            except BaseException as error:
                rows, skipped = batch * job.batch_rows, collect_skipped(task.contexts[:batch], job.batch_rows)
                failure = Failure.of(error, cloudpickle.dumps)
                return RayResult(batch, rows, [array[:rows] for array in out], failure, skipped)
        skipped = collect_skipped(task.contexts, job.batch_rows)
        return RayResult(len(task.contexts), len(leaves[0]), out, skipped=skipped)

    def _transform(self, leaves: list[Any], context: BatchContext) -> list[Any]:
        job = self._job
        results, _ = apply_all(job.transforms, leaves, job.structure, context, first=job.first)
        return [leaf if isinstance(leaf, Ragged) else np.asarray(leaf) for leaf in results]
