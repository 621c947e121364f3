"""The job of a Ray worker, its tasks, and their results.

A worker finds rows by number, in files that it opens or in Ray's object store; otherwise the rows are part of the task.
It returns one array per leaf for all batches of a task, or their bytes in pieces. The feed copies them once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from ray import cloudpickle

from forebay.core.rows import Rows, row_count
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, ArraySpec, Structure
from forebay.sources.arrays import ArraySource
from forebay.sources.files.recipe import FileSourceRecipe
from forebay.transforms.ops import Transform, apply_all, describe_transforms, write_leaves
from forebay.transforms.workers.pickling import Failure
from forebay.transforms.workers.ray_inline import join_bytes, split_bytes

__all__ = ["RayJob", "RayResult", "RayTask"]


@dataclass(frozen=True, slots=True)
class RayTask:
    """Batches that a Ray worker transforms in one call: row numbers, or rows."""

    keys: list[tuple[int, ...]]  # per batch; seeds its random numbers
    rows: Rows | None
    leaves: list[Array] | None = None
    split_leaves: list[tuple[tuple[int, ...], np.dtype[Any]]] | None = None  # shapes and dtypes of leaves in pieces
    num_returns: int = 1  # pieces of the result


@dataclass(frozen=True, slots=True)
class RayResult:
    """The result of a task: all of its batches, or those before the first failure."""

    batches: int
    rows: int
    leaves: list[Array]
    failure: Failure | None = None
    piece: bytes = b""  # the first piece, if the leaves are returned in pieces


@dataclass(frozen=True, slots=True)
class RayJob:
    """What every worker receives once."""

    transforms: tuple[Transform, ...]
    first: int  # number of the first transform within the pipeline
    structure: Structure  # of the input
    recipe: FileSourceRecipe | None  # opens the files, if the worker reads them
    source_rows: int
    source_specs: tuple[ArraySpec, ...]
    batch_rows: int
    output_specs: tuple[ArraySpec, ...] | None  # None if batches differ in size; then a task is one batch
    output_names: tuple[str, ...]

    @property
    def name(self) -> str:
        """The user's maps, for error messages about workers."""
        return describe_transforms(self.transforms)

    def open(self) -> "RayJobOnWorker":
        """Open the source on the worker."""
        if self.recipe is None:
            return RayJobOnWorker(self, None, "")
        try:
            return RayJobOnWorker(self, self.recipe.open(self.source_rows, self.source_specs), "")
        except (OSError, ValueError, ImportError) as error:
            return RayJobOnWorker(self, None, f"{type(error).__name__}: {error}")


class RayJobOnWorker:
    """A job on a worker, with its source open."""

    def __init__(self, job: RayJob, source: AbstractSource | None, missing_reason: str) -> None:
        """`missing_reason` tells why the worker cannot read the rows, or is empty."""
        self._job, self._source, self.missing_reason = job, source, missing_reason

    def __call__(self, task: RayTask, stored: list[Array] | None, pieces: Sequence[bytes]) -> Any:
        """Return the result of a task, followed by its further pieces if any."""
        result = self._run(task, stored, pieces)
        if task.num_returns == 1:
            return result
        first, *others = split_bytes(result.leaves, task.num_returns)
        return [replace(result, leaves=[], piece=first), *others]

    def _run(self, task: RayTask, stored: list[Array] | None, pieces: Sequence[bytes]) -> RayResult:
        try:
            leaves = self._input(task, stored, pieces)
            if self._job.output_specs is None:
                return RayResult(1, len(leaves[0]), self._transform(leaves, task.keys[0]))
            return self._transform_batches(leaves, task, self._job.output_specs)
        except BaseException as error:  # an error of the user's code must not end the worker
            return RayResult(0, 0, [], Failure.of(error, cloudpickle.dumps))

    def _input(self, task: RayTask, stored: list[Array] | None, pieces: Sequence[bytes]) -> list[Array]:
        """Return the rows in new memory.

        A map may write to its input and keep it.
        """
        if task.leaves is not None:
            return [leaf.copy() for leaf in task.leaves]
        if task.split_leaves is not None:
            joined = [np.empty(shape, dtype) for shape, dtype in task.split_leaves]
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
        for batch, key in enumerate(task.keys):
            part = slice(batch * job.batch_rows, (batch + 1) * job.batch_rows)
            try:
                results = self._transform([leaf[part] for leaf in leaves], key)
                write_leaves(results, [array[part] for array in out], job.output_names, job.name)
            except BaseException as error:
                done = batch * job.batch_rows
                return RayResult(batch, done, [array[:done] for array in out], Failure.of(error, cloudpickle.dumps))
        return RayResult(len(task.keys), len(leaves[0]), out)

    def _transform(self, leaves: list[Array], key: tuple[int, ...]) -> list[Array]:
        job = self._job
        results, _ = apply_all(job.transforms, leaves, job.structure, key, first=job.first)
        return [np.asarray(leaf) for leaf in results]
