"""Rows -> slot: which rows a group has, gathered straight into the slot, transforms applied on the way."""

import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from forebay.core.recorder import Recorder
from forebay.core.source import Rows, Source, row_count
from forebay.core.spec import Layout
from forebay.feed.row_numbers import GroupRows, RowNumbers
from forebay.feed.slot import Slot
from forebay.feed.transform_stage import CutShortError, Finisher
from forebay.order.schedule import Cursor, Group
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.plan import Plan
from forebay.sources.direct.reader import Reader, ReadingPass
from forebay.transforms.ops import Map
from forebay.transforms.padding import pad_rows

__all__ = ["Fetches", "IndexedWork"]

AHEAD_ROWS = 1 << 16  # row numbers computed at a time for whoever reads ahead


class Fetches(Protocol):
    """Fills slots without the CPU: rows that a device fetches by itself."""

    def begin_pass(self) -> None: ...
    def queues_only(self, memory: Any) -> bool: ...
    @property
    def keeps_all(self) -> bool: ...
    def fill(self, memory: Any, layout: Layout, rows: GroupRows) -> None: ...
    def close(self) -> None: ...


class Elsewhere(Protocol):
    """Fills slots by way of other machines, which have the rows or read them."""

    def begin_pass(self) -> None: ...
    def fill(self, slot: Slot, rows: Rows, cursor: Cursor) -> None: ...


class Closable(Protocol):
    """Something that goes on until it is closed."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Task:
    """A group to fill, and the walk of the reader it belongs to, where rows are read from files."""

    group: Group
    reading: ReadingPass | None

    @property
    def name(self) -> Hashable:
        """What the reader knows the group by."""
        return _name(self.group)


class IndexedWork:
    """Fills slots from a source that can be indexed; any number of threads at once, in any order."""

    in_order = False

    def __init__(
        self,
        pipeline: Pipeline,
        plan: Plan,
        finisher: Finisher,
        recorder: Recorder,
        fetcher: Fetches | None = None,
        reader: Reader | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        assert isinstance(pipeline.source, Source)
        self._fetcher, self._reader, self._elsewhere, self._pipeline = fetcher, reader, elsewhere, pipeline
        self._foresight: Closable | None = None  # of a source that reads ahead
        self._source: Source = pipeline.source
        self._schedule = pipeline.schedule
        self._pad = pipeline.batching.pad if pipeline.batching else None
        self._plan, self._finisher, self._recorder = plan, finisher, recorder
        mapped = any(isinstance(made, Map) for made in plan.demand.transforms)
        reads = plan.demand.reading is not None and plan.demand.reading.reads
        self.quick = bool(self._source.memory()) and not mapped and not reads and plan.demand.device is None
        # Somebody's array, dataset or map may be different in the next epoch; what lies in a file is not.
        self.goes_on = getattr(self._source, "fixed", False) and not mapped
        group_rows = plan.group_batches * plan.demand.batch_rows
        self._numbers = RowNumbers(pipeline, group_rows=group_rows, chunk_rows=plan.index_rows)

    def tasks(self, cursor: Cursor) -> Iterator[Task]:
        """The cursor's epoch; and those after it, begun before they are asked for, where nothing can change between."""
        self._begin_pass()
        self._foresee(cursor)
        reading = None if self._reader is None else self._reader.begin(self._coming(cursor))
        for group in self._groups(cursor):
            yield Task(group, reading)

    def _groups(self, cursor: Cursor) -> Iterator[Group]:
        at_once = self._fetcher is not None and self._fetcher.keeps_all  # then a group comes as fast as a batch
        first = None if at_once else 1
        yield from self._checked(self._schedule.groups(cursor, self._plan.group_batches, first_batches=first))
        while self.goes_on:
            cursor = Cursor(epoch=cursor.epoch + 1)
            yield from self._schedule.groups(cursor, self._plan.group_batches)

    def _foresee(self, cursor: Cursor) -> None:
        """Tell a source that reads ahead which rows it will be asked for, group by group."""
        self._end_foresight()
        if self._fetcher is None and self._elsewhere is None and hasattr(self._source, "foresee"):
            self._foresight = self._source.foresee(rows for _, rows in self._coming(cursor))

    def _coming(self, cursor: Cursor) -> Iterator[tuple[Hashable, Rows]]:
        """The rows of the groups that `tasks` gives, computed anew: they are looked at long before."""
        plan, schedule = self._plan, self._schedule
        group_rows = plan.group_batches * plan.demand.batch_rows
        numbers = RowNumbers(self._pipeline, group_rows=group_rows, chunk_rows=min(plan.index_rows, AHEAD_ROWS))
        first: int | None = 1
        while True:
            for group in schedule.groups(cursor, plan.group_batches, first_batches=first):
                yield _name(group), numbers.of(group)
            if not self.goes_on:
                return
            cursor, first = Cursor(epoch=cursor.epoch + 1), None

    def _end_foresight(self) -> None:
        if self._foresight is not None:
            self._foresight.close()
            self._foresight = None

    def _checked(self, groups: Iterator[Group]) -> Iterator[Group]:
        """Whoever keeps copies of rows is told when a pass over them begins, before any of it is filled."""
        for number, group in enumerate(groups):
            if number and group.start == 0:
                self._begin_pass()
            yield group

    def _begin_pass(self) -> None:
        if self._fetcher is not None:
            self._fetcher.begin_pass()
        if self._elsewhere is not None:
            self._elsewhere.begin_pass()

    def queues_only(self, slot: Slot) -> bool:
        return self._fetcher is not None and self._numbers.instant and self._fetcher.queues_only(slot.memory)

    def read(self, slot: Slot, task: Task, worker: int) -> Task:
        """Nothing to do in turn: rows can be asked for in any order."""
        return task

    def finish(self, slot: Slot, task: Task, worker: int) -> Group:
        """Put the group's rows into the slot."""
        group = task.group
        rows = GroupRows(self._numbers, group)
        try:
            if self._fetcher is not None:
                slot.fetched = True
                self._fetcher.fill(slot.memory, slot.layout, rows)
            else:
                self._gather(slot, task, rows, worker)
        except CutShortError as cut:
            slot.failure = cut.error
            return self._cut_short(group, rows.numbers(), cut)
        except Exception as error:
            error.add_note(f"while filling {describe_rows(rows.numbers(), group.cursor)}")
            raise
        return group

    def prepare(self, group: Group) -> None:
        self._numbers.prepare(group)

    def _gather(self, slot: Slot, task: Task, rows: GroupRows, worker: int) -> None:
        began = time.perf_counter()
        numbers = rows.numbers()
        self._recorder.add("order", time.perf_counter() - began)
        if self._elsewhere is not None:
            self._fill_elsewhere(self._elsewhere, slot, task, numbers)
        elif self._plan.demand.transforms or not self._plan.demand.sized:
            self._fill_transformed(slot, task, numbers, worker)
        else:
            self._fill_plain(slot, task, numbers)

    def _cut_short(self, group: Group, rows: Rows, cut: CutShortError) -> Group:
        """The part of the group that could be filled; the error is told which rows it was about."""
        filled, batch_rows = cut.batches * self._schedule.batch_rows, self._schedule.batch_rows
        at = self._schedule.advanced(group.cursor, cut.batches)
        cut.error.add_note(f"while filling {describe_rows(part_of(rows, filled, filled + batch_rows), at)}")
        return replace(group, rows=filled, batches=cut.batches, pass_ends=False, epoch_ends=False)

    def _fill_plain(self, slot: Slot, task: Task, rows: Rows) -> None:
        began = time.perf_counter()
        targets = slot.targets(task.group.rows)
        self._gather_into(task, rows, targets)
        slot.commit(targets)
        self._recorder.add("gather", time.perf_counter() - began, nbytes=sum(target.nbytes for target in targets))

    def _fill_elsewhere(self, elsewhere: Elsewhere, slot: Slot, task: Task, rows: Rows) -> None:
        began = time.perf_counter()
        elsewhere.fill(slot, rows, task.group.cursor)
        self._recorder.add("transform", time.perf_counter() - began)

    def _fill_transformed(self, slot: Slot, task: Task, rows: Rows, worker: int) -> None:
        began = time.perf_counter()
        leaves = self._gather_raw(slot, task, rows)
        gathered = time.perf_counter()
        self._recorder.add("gather", gathered - began, nbytes=sum(leaf.nbytes for leaf in leaves))
        self._finisher.finish(slot, leaves, task.group.cursor, worker)
        self._recorder.add("transform", time.perf_counter() - gathered)

    def _gather_raw(self, slot: Slot, task: Task, rows: Rows) -> list[Any]:
        """The rows before transforms: where a worker process reads them, or in fresh arrays."""
        if self._pad is not None:
            return pad_rows(gather_rows(self._source, rows), self._source.structure.paths, self._pad)
        targets = self._finisher.input_targets(slot, task.group.rows)
        self._gather_into(task, rows, targets)
        return targets

    def _gather_into(self, task: Task, rows: Rows, targets: Sequence[Any]) -> None:
        if task.reading is None:
            self._source.gather(rows, targets)
        else:
            task.reading.gather(task.name, rows, targets)

    def stop(self) -> None:
        self._end_foresight()
        self._finisher.close()
        if self._reader is not None:
            self._reader.stop()

    def close(self) -> None:
        """The source is the pipeline's, and other feeds may be reading it."""
        if self._fetcher is not None:
            self._fetcher.close()
        if self._reader is not None:
            self._reader.close()


def _name(group: Group) -> Hashable:
    return group.cursor.epoch, group.cursor.passes, group.cursor.position


def gather_rows(source: Any, rows: Rows) -> list[list[Any]]:
    """Rows one by one, whatever their shapes; sources of arrays have rows of one shape only."""
    if hasattr(source, "gather_rows"):
        return source.gather_rows(rows)  # type: ignore[no-any-return]  # a source of the user's may bring its own
    count = row_count(rows)
    out = [spec.empty(count) for spec in source.specs]
    source.gather(rows, out)
    return [list(row) for row in zip(*out, strict=True)]


def part_of(rows: Rows, start: int, stop: int) -> Rows:
    """Some of a group's rows."""
    if not isinstance(rows, slice):
        return rows[start:stop]
    return slice(rows.start + start, min(rows.start + stop, rows.stop))


def describe_rows(rows: Rows, cursor: Cursor) -> str:
    """Rows in words, for notes on errors."""
    shown = (
        f"rows {rows.start} to {rows.stop - 1}"
        if isinstance(rows, slice)
        else f"{len(rows)} rows ({', '.join(map(str, rows[:8]))}, ...)"
    )
    return f"{shown} at position {cursor.position} of epoch {cursor.epoch}"
