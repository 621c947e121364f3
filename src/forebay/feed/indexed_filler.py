"""Fills slots from a source: gathers the rows of a group and transforms them."""

import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from forebay.core.rows import Rows, row_count, select_rows
from forebay.core.skipped_rows import RowRepair, SkippedRow, gather_readable
from forebay.core.source import AbstractSource, Closeable
from forebay.core.spec import Layout
from forebay.feed.filler import FillerParts
from forebay.feed.row_index import BatchIndex, GroupRows, RowIndex
from forebay.feed.slot import Slot
from forebay.feed.transform_stage import GroupOrigin, PartialGroupError
from forebay.order.epoch_views import find_source_row
from forebay.order.length_buckets import BucketedBatches
from forebay.order.schedule import Cursor, Group
from forebay.sources.direct.reader import FileReader, ReadSession
from forebay.transforms.augmentations import draws_by_row
from forebay.transforms.ops import Map
from forebay.transforms.padding import Unpadded, fill_values, pad_rows, stack_columns

__all__ = ["DeviceFiller", "IndexedFiller", "RemoteFiller"]

# Largest number of row numbers that prefetching computes in one call, unless a group has more rows. With a larger
# number, the first read request would come later.
PREFETCH_INDEX_ROWS = 1 << 16


class DeviceFiller(Protocol):
    """Fills slots with rows that the device pulls or decodes. `RowPuller` documents the methods."""

    def begin_pass(self) -> None: ...
    def only_enqueues(self, memory: Any) -> bool: ...
    @property
    def all_resident(self) -> bool: ...
    def fill(self, memory: Any, layout: Layout, rows: GroupRows) -> list[SkippedRow]: ...
    def close(self) -> None: ...


class RemoteFiller(Protocol):
    """Fills slots through Ray workers, which read files or the object store."""

    def begin_pass(self) -> None: ...
    def fill(self, slot: Slot, origin: GroupOrigin) -> None: ...


@dataclass(frozen=True, slots=True)
class FillTask:
    """A group to fill, and the read session that has its rows."""

    group: Group
    session: ReadSession | None  # the file reads of this iteration over the feed; None without a file reader


class IndexedFiller:
    """Fills slots from a source.

    Any number of threads may fill groups at the same time and in any order.

    If the feed has a device filler, a file reader or a remote filler, that object reads the rows. Otherwise the source
    reads them.
    """

    reads_in_order = False

    def __init__(
        self,
        parts: FillerParts,
        *,
        device_filler: DeviceFiller | None = None,
        reader: FileReader | None = None,
        remote_filler: RemoteFiller | None = None,
    ) -> None:
        pipeline, plan = parts.pipeline, parts.plan
        assert isinstance(pipeline.source, AbstractSource)
        self._pipeline, self._plan = pipeline, plan
        self._transform_stage, self._recorder = parts.transform_stage, parts.recorder
        self._device_filler, self._reader, self._remote_filler = device_filler, reader, remote_filler
        self._source = pipeline.source
        self._schedule = pipeline.schedule
        self._pad = pipeline.row_stacking
        self._fill_values: list[Any] | None = None  # the padding value of each leaf; computed on first use
        self._prefetch: Closeable | None = None
        has_map = any(isinstance(transform, Map) for transform in plan.input.transforms)
        reads_files = plan.input.reading is not None and plan.input.reading.uses_read_buffers
        copies_memory = bool(self._source.memory()) and not reads_files and plan.input.device is None
        self.consumer_may_fill = copies_memory and not has_map
        # Fill groups of the next epoch early only if neither the rows nor the results of a map can change until then.
        self.continues_into_next_epoch = self._source.immutable and not has_map
        self._needs_row_ids = any(map(draws_by_row, plan.input.device_transforms))
        self._row_index = self._make_row_index(plan.index_rows)

    def tasks(self, cursor: Cursor) -> Iterator[FillTask]:
        """Yield one task for each group, starting at the cursor.

        Continue with the following epochs if `continues_into_next_epoch`.
        """
        self._begin_pass()
        self._start_prefetch(cursor)
        session = None if self._reader is None else self._reader.begin(self._upcoming_groups(cursor))
        for group in self._groups(cursor):
            yield FillTask(group, session)

    def only_enqueues(self, slot: Slot) -> bool:
        filler = self._device_filler
        is_cheap = self._row_index.is_fast_on_host if self._needs_row_ids else self._row_index.is_cheap
        return filler is not None and is_cheap and filler.only_enqueues(slot.memory)

    def read(self, slot: Slot, task: FillTask, worker: int) -> FillTask:
        """Return the task unchanged, because `finish` does the whole fill."""
        return task

    def finish(self, slot: Slot, task: FillTask, worker: int) -> Group:
        """Fill the slot with the rows of the group, and return the group.

        If a batch other than the first one fails, return a group of the batches before the failed batch.
        """
        group = task.group
        rows = GroupRows(self._row_index, group)
        slot.row_ids = rows.origin().row_ids if self._needs_row_ids else None
        slot.skipped_rows = []
        try:
            if self._device_filler is not None:
                slot.filled_by_device = True
                failed = self._device_filler.fill(slot.memory, slot.layout, rows)
                if failed:
                    self._report_unreadable(slot, rows.origin(), self._repair(failed, rows.count))
            else:
                self._fill(slot, task, rows, worker)
        except PartialGroupError as partial:
            slot.partial_failure = partial.error
            return self._shorten_group(group, rows.numbers(), partial)
        except Exception as error:
            with suppress(Exception):  # raise `error` even if the row numbers for the note cannot be computed
                error.add_note(f"while filling {self._describe_rows(rows.numbers(), group.cursor)}")
            raise
        return replace(group, rows=row_count(rows.numbers())) if isinstance(self._row_index, BatchIndex) else group

    def prepare_after(self, group: Group) -> None:
        self._row_index.prepare_after(group)

    def stop(self) -> None:
        self._stop_prefetch()
        self._transform_stage.close()
        if self._reader is not None:
            self._reader.stop()

    def close(self) -> None:
        """Close the device filler and the file reader. The source stays open for other feeds."""
        if self._device_filler is not None:
            self._device_filler.close()
        if self._reader is not None:
            self._reader.close()

    # Groups

    def _groups(self, cursor: Cursor) -> Iterator[Group]:
        # Start with a group of one batch, so that the first batch is ready sooner. With resident rows, the device fills
        # a full-size group just as fast.
        all_resident = self._device_filler is not None and self._device_filler.all_resident
        first_batches = None if all_resident else 1
        groups = self._schedule.groups(cursor, self._plan.group_batches, first_batches=first_batches)
        for number, group in enumerate(groups):
            if number and group.start == 0:
                self._begin_pass()
            yield group
        while self.continues_into_next_epoch:
            cursor = Cursor(epoch=cursor.epoch + 1)
            yield from self._schedule.groups(cursor, self._plan.group_batches)

    def _begin_pass(self) -> None:
        """Let fillers that keep copies of rows check whether the rows have changed."""
        if self._device_filler is not None:
            self._device_filler.begin_pass()
        if self._remote_filler is not None:
            self._remote_filler.begin_pass()

    def _start_prefetch(self, cursor: Cursor) -> None:
        self._stop_prefetch()
        if self._device_filler is None and self._remote_filler is None:
            self._prefetch = self._source.prefetch(rows for _, rows in self._upcoming_groups(cursor))

    def _stop_prefetch(self) -> None:
        if self._prefetch is not None:
            self._prefetch.close()
            self._prefetch = None

    def _upcoming_groups(self, cursor: Cursor) -> Iterator[tuple[Hashable, Rows]]:
        """Yield the id and the row numbers of each group, in the order of `tasks`.

        Prefetching and the file reader request these rows long before threads fill their groups. This iterator needs
        its own row index, because an index caches only a few neighbouring chunks of row numbers.
        """
        row_index = self._make_row_index(min(self._plan.index_rows, PREFETCH_INDEX_ROWS))
        first_batches: int | None = 1
        while True:
            for group in self._schedule.groups(cursor, self._plan.group_batches, first_batches=first_batches):
                yield _group_id(group), row_index.rows_of(group)
            if not self.continues_into_next_epoch:
                return
            cursor, first_batches = Cursor(epoch=cursor.epoch + 1), None

    def _make_row_index(self, chunk_rows: int) -> RowIndex | BatchIndex:
        if isinstance(self._pipeline.order, BucketedBatches):
            return BatchIndex(self._pipeline.order, self._schedule)
        group_rows = self._plan.group_batches * self._plan.input.batch_rows
        transport = self._plan.transport
        on_device = transport is not None and transport.computes_row_numbers
        return RowIndex(self._pipeline, group_rows=group_rows, chunk_rows=chunk_rows, on_device=on_device)

    # Filling on the host

    def _fill(self, slot: Slot, task: FillTask, rows: GroupRows, worker: int) -> None:
        started_at = time.perf_counter()
        rows.numbers()
        self._recorder.add_span("order", time.perf_counter() - started_at)
        if self._remote_filler is not None:
            self._fill_remotely(self._remote_filler, slot, rows.origin())
        elif self._plan.input.transforms or not self._plan.input.fixed_size:
            self._fill_transformed(slot, task, rows.origin(), worker)
        else:
            self._fill_untransformed(slot, task, rows)

    def _fill_untransformed(self, slot: Slot, task: FillTask, rows: GroupRows) -> None:
        started_at = time.perf_counter()
        arrays = slot.gather_arrays(task.group.rows)
        repair = self._gather_into(task, rows.numbers(), arrays)
        slot.scatter_batches(arrays)
        nbytes = sum(array.nbytes for array in arrays)
        self._recorder.add_span("gather", time.perf_counter() - started_at, nbytes=nbytes)
        if repair is not None:
            self._report_unreadable(slot, rows.origin(), repair)

    def _fill_remotely(self, filler: RemoteFiller, slot: Slot, origin: GroupOrigin) -> None:
        started_at = time.perf_counter()
        filler.fill(slot, origin)
        self._recorder.add_span("transform", time.perf_counter() - started_at)

    def _fill_transformed(self, slot: Slot, task: FillTask, origin: GroupOrigin, worker: int) -> None:
        started_at = time.perf_counter()
        leaves, repair = self._gather_input(slot, task, origin.row_numbers)
        gathered_at = time.perf_counter()
        self._recorder.add_span("gather", gathered_at - started_at, nbytes=sum(leaf.nbytes for leaf in leaves))
        if repair is None:
            self._transform_stage.transform_into(slot, leaves, origin, worker)
        else:
            self._transform_repaired(slot, leaves, repair, origin, worker)
        self._recorder.add_span("transform", time.perf_counter() - gathered_at)

    def _gather_input(self, slot: Slot, task: FillTask, rows: Rows) -> tuple[list[Any], RowRepair | None]:
        """Gather rows as the input of the transforms: one array for each leaf.

        Also return the `RowRepair` if good rows have replaced unreadable ones, else None. Padded and ragged rows are in
        new arrays. For other rows, `TransformStage.input_arrays` decides whether the arrays are in the slot.
        """
        if self._pad is None:
            arrays = self._transform_stage.input_arrays(slot, task.group.rows)
            return arrays, self._gather_into(task, rows, arrays)
        names = self._source.structure.paths
        if self._source.error_limit is not None:  # `validate_pipeline` has checked that the rows have one shape
            arrays = [spec.empty(row_count(rows)) for spec in self._source.specs]
            repair = self._gather_into(task, rows, arrays)
            return list(pad_rows(list(zip(*arrays, strict=True)), names, self._pad)), repair
        if not isinstance(self._pad, Unpadded):
            if self._fill_values is None:
                self._fill_values = fill_values(self._source.specs, names, self._pad)
            columns = self._source.gather_columns(rows, self._fill_values)
            if columns is not None:
                return list(stack_columns(columns, names, self._pad)), None
        return list(pad_rows(self._source.gather_rows(rows), names, self._pad)), None

    def _gather_into(self, task: FillTask, rows: Rows, arrays: Sequence[Any]) -> RowRepair | None:
        """Gather rows into the arrays, and replace unreadable rows by good ones.

        Return the `RowRepair`, which lists the replaced rows; None if the source could read all rows.
        """
        if task.session is not None:
            task.session.gather(_group_id(task.group), rows, arrays)
            return None
        failed = gather_readable(self._source, rows, arrays)
        if not failed:
            return None
        repair = self._repair(failed, row_count(rows))
        repair.apply(arrays)
        return repair

    # Rows that the source cannot read

    def _repair(self, failed: Sequence[SkippedRow], rows: int) -> RowRepair:
        repair = RowRepair.of(failed, rows, self._plan.input.batch_rows)
        if repair.error is not None and repair.batches == 0:
            raise repair.error
        return repair

    def _transform_repaired(
        self, slot: Slot, leaves: list[Any], repair: RowRepair, origin: GroupOrigin, worker: int
    ) -> None:
        """Transform the batches before the first one that has no readable row."""
        transformed = origin
        if repair.error is not None:
            readable = repair.batches * self._plan.input.batch_rows
            leaves, transformed = [leaf[:readable] for leaf in leaves], origin.first_rows(readable)
        try:
            self._transform_stage.transform_into(slot, leaves, transformed, worker)
        except PartialGroupError as partial:
            skipped = repair.skipped_before(partial.batches * self._plan.input.batch_rows)
            slot.skipped_rows = [*origin.name_rows(skipped), *slot.skipped_rows]
            raise
        self._report_unreadable(slot, origin, repair)

    def _report_unreadable(self, slot: Slot, origin: GroupOrigin, repair: RowRepair) -> None:
        """Record the unreadable rows on the slot.

        Raise PartialGroupError if a batch has no readable row.
        """
        slot.skipped_rows = [*origin.name_rows(repair.skipped), *slot.skipped_rows]
        if repair.error is not None:
            raise PartialGroupError(repair.batches, repair.error)

    def _shorten_group(self, group: Group, rows: Rows, partial: PartialGroupError) -> Group:
        """Return a group of the filled batches, and note the failed rows on the error."""
        batch_rows = self._schedule.batch_rows
        filled_rows = partial.batches * batch_rows
        cursor = self._schedule.advance(group.cursor, partial.batches)
        failed_rows = self._describe_rows(select_rows(rows, filled_rows, filled_rows + batch_rows), cursor)
        partial.error.add_note(f"while filling {failed_rows}")
        return replace(group, rows=filled_rows, batches=partial.batches, ends_pass=False, ends_epoch=False)

    def _describe_rows(self, rows: Rows, cursor: Cursor) -> str:
        """Return row numbers and their position as text, for a note on an error."""
        if isinstance(rows, slice):
            text = f"rows {rows.start} to {rows.stop - 1}"
        else:
            shown = [str(find_source_row(self._pipeline.order, int(row))) for row in rows[:8]]
            text = f"{len(rows)} rows ({', '.join(shown)}{', ...' if len(rows) > 8 else ''})"
        return f"{text} at position {cursor.position} of epoch {cursor.epoch}"


def _group_id(group: Group) -> Hashable:
    """Return the id that a file reader uses for a group."""
    return group.cursor.epoch, group.cursor.passes, group.cursor.position
