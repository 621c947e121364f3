"""Rows read and transformed on a Ray worker: what it is sent once, what it is asked, and what it answers.

A worker has the rows by their numbers, from files it opens itself or from Ray's object store; or it is sent them. It
answers with one array a leaf for all batches of a task, or their bytes in pieces, which the trainer copies once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from ray import cloudpickle

from forebay.core.source import Rows, Source, row_count
from forebay.core.spec import Array, ArraySpec, Structure
from forebay.sources.arrays import ArraySource
from forebay.sources.files.reopen import Opening
from forebay.transforms.ops import Transform, apply_all, transformed, write_leaves
from forebay.transforms.workers.pickling import Failure
from forebay.transforms.workers.ray_inline import cut, join

__all__ = ["Answer", "FarRows", "FarTask"]


@dataclass(frozen=True, slots=True)
class FarTask:
    """A few batches' worth of work: the numbers of their rows, or the rows."""

    keys: list[tuple[int, ...]]  # what random numbers are drawn from, for each batch
    rows: Rows | None
    leaves: list[Array] | None = None
    cut_leaves: list[tuple[tuple[int, ...], np.dtype[Any]]] | None = (
        None  # shape and dtype of those in pieces beside it
    )
    answers: int = 1  # in so many pieces


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a task: all of its batches, or those before the first that failed."""

    batches: int
    rows: int
    leaves: list[Array]
    failure: Failure | None = None
    piece: bytes = b""  # the first of them, where leaves come in pieces


@dataclass(frozen=True, slots=True)
class FarRows:
    """What every worker is sent once."""

    transforms: tuple[Transform, ...]
    first: int  # the number of the first of them in the pipeline
    structure: Structure  # what they are given
    opening: Opening | None
    source_rows: int
    source_specs: tuple[ArraySpec, ...]
    batch_rows: int
    output_specs: tuple[ArraySpec, ...] | None  # None: batches differ in size, and a task is one of them
    output_names: tuple[str, ...]

    @property
    def name(self) -> str:
        """What errors about workers call it: the user's own maps."""
        return transformed(self.transforms)

    def open(self) -> "OpenedRows":
        if self.opening is None:
            return OpenedRows(self, None, "")
        try:
            return OpenedRows(self, self.opening.open(self.source_rows, self.source_specs), "")
        except (OSError, ValueError, ImportError) as error:
            return OpenedRows(self, None, f"{type(error).__name__}: {error}")


class OpenedRows:
    """The same on a worker, with the source open."""

    def __init__(self, told: FarRows, source: Source | None, lacks: str) -> None:
        self._told, self._source, self.lacks = told, source, lacks

    def __call__(self, task: FarTask, stored: list[Array] | None, pieces: Sequence[bytes]) -> Any:
        """An answer, and the pieces after the first where there are several."""
        answer = self._answer(task, stored, pieces)
        if task.answers == 1:
            return answer
        first, *others = cut(answer.leaves, task.answers)
        return [replace(answer, leaves=[], piece=first), *others]

    def _answer(self, task: FarTask, stored: list[Array] | None, pieces: Sequence[bytes]) -> Answer:
        try:
            leaves = self._leaves(task, stored, pieces)
            if self._told.output_specs is None:
                return Answer(1, len(leaves[0]), self._mapped(leaves, task.keys[0]))
            return self._map(leaves, task)
        except BaseException as error:  # the user's: it must not end the worker
            return Answer(0, 0, [], Failure.of(error, cloudpickle.dumps))

    def _leaves(self, task: FarTask, stored: list[Array] | None, pieces: Sequence[bytes]) -> list[Array]:
        """The rows in memory that a map may write to and keep, as it may anywhere."""
        if task.leaves is not None:
            return [leaf.copy() for leaf in task.leaves]
        if task.cut_leaves is not None:
            joined = [np.empty(shape, dtype) for shape, dtype in task.cut_leaves]
            join(pieces, joined)
            return joined
        source = self._source if stored is None else ArraySource(self._told.structure.unflatten(stored))
        assert source is not None
        assert task.rows is not None
        out = [spec.empty(row_count(task.rows)) for spec in self._told.source_specs]
        source.gather(task.rows, out)
        return out

    def _mapped(self, leaves: list[Array], key: tuple[int, ...]) -> list[Array]:
        """A batch of whatever size it comes out in."""
        told = self._told
        results, _ = apply_all(told.transforms, leaves, told.structure, key, first=told.first)
        return [np.asarray(leaf) for leaf in results]

    def _map(self, leaves: Sequence[Array], task: FarTask) -> Answer:
        told = self._told
        assert told.output_specs is not None
        out = [spec.empty(len(leaves[0])) for spec in told.output_specs]
        for batch, key in enumerate(task.keys):
            part = slice(batch * told.batch_rows, (batch + 1) * told.batch_rows)
            try:
                results = self._mapped([leaf[part] for leaf in leaves], key)
                write_leaves(results, [target[part] for target in out], told.output_names, told.name)
            except BaseException as error:
                whole = batch * told.batch_rows
                return Answer(batch, whole, [target[:whole] for target in out], Failure.of(error, cloudpickle.dumps))
        return Answer(len(task.keys), len(leaves[0]), out)
