"""Where an epoch stands, and which batches are still to come: all the state that resuming needs.

Shard i of n takes positions i, i+n, i+2n, ... of the global order, counted from where the epoch (or the resumed part
of it) begins. So a cursor holds a global position and nothing about shards, and continues on any number of them.

A step is one batch of every shard, and all shards take the same number of steps: where the last would have rows for
some of them only, every shard keeps one row of the batch before it for the last. That cannot be done for batches of
one row, nor where fewer rows are left than there are shards: `idle_shards` tells.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from forebay.errors import StateError

__all__ = ["ENDLESS", "Cursor", "Group", "Schedule"]

STATE_VERSION = 1
MOST_PASSES = 1 << 32  # passes of an endless epoch before their orders could meet those of the next
ENDLESS = 1 << 62  # rows of a pass that ends only when its stream does, or never


@dataclass(frozen=True, slots=True)
class Cursor:
    """What a consumer has received: everything before this point, and nothing after it."""

    epoch: int = 0
    passes: int = 0  # whole passes done inside this epoch: repeat() after batch()
    position: int = 0  # global rows received in this pass, all shards together
    batches: int = 0  # batches received in this epoch by this shard
    stream: dict[str, Any] | None = None  # the stream's own state at `stream_position`, where it has one
    stream_position: int = 0

    def state_dict(self, fingerprint: str) -> dict[str, Any]:
        state: dict[str, Any] = {"version": STATE_VERSION, "pipeline": fingerprint}
        state |= {"epoch": self.epoch, "passes": self.passes, "position": self.position, "batches": self.batches}
        if self.stream is not None:
            state |= {"stream": self.stream, "stream_position": self.stream_position}
        return state

    @classmethod
    def from_state(cls, state: Any, fingerprint: str) -> "Cursor":
        if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
            raise StateError(
                f"not a state of this version of Forebay: {str(state)[:120]!r}. Pass what state_dict() returned."
            )
        if state.get("pipeline") != fingerprint:
            raise StateError(
                f"the state belongs to another pipeline ({state.get('pipeline')!r}, this is {fingerprint!r}): rows, "
                "shuffle, take or repeat differ. Build the pipeline as it was; shard, batch and maps may change."
            )
        numbers = {name: state.get(name, 0) for name in ("epoch", "passes", "position", "batches", "stream_position")}
        for name, number in numbers.items():
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise StateError(f"the state is damaged: {name}={number!r} is not a count.")
        return cls(**numbers, stream=state.get("stream"))


@dataclass(frozen=True, slots=True)
class Group:
    """Batches that are filled together: consecutive rows of one shard in one pass."""

    cursor: Cursor  # where it begins
    start: int  # this shard's rows before it, counted from `base`
    rows: int
    batches: int
    base: int  # global position where the shards' strides begin
    pass_ends: bool  # whether it holds the last batch of its pass
    epoch_ends: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """The arithmetic of an epoch: how many batches of how many rows, for one shard of several."""

    pass_rows: int
    batch_rows: int
    drop_remainder: bool = False
    shard_index: int = 0
    shard_count: int = 1
    passes: int | None = 1
    batch_limit: int | None = None

    @property
    def batches(self) -> int | None:
        """Batches this shard gets in a whole epoch; None when that is unknown or without end."""
        if self._pass_batches(0) == 0:
            return 0
        if self.pass_rows >= ENDLESS or self.passes is None:
            return self.batch_limit
        whole = self._pass_batches(0) * self.passes
        return whole if self.batch_limit is None else min(whole, self.batch_limit)

    @property
    def pass_batches(self) -> int | None:
        """Batches this shard gets in a whole pass, or in all where they are fewer; None where a pass has no end."""
        if self.pass_rows >= ENDLESS:
            return self.batch_limit
        whole = self._pass_batches(0)
        return whole if self.batch_limit is None else min(whole, self.batch_limit)

    def groups(self, cursor: Cursor, group_batches: int, *, first_batches: int | None = None) -> Iterator[Group]:
        """The rest of the cursor's epoch, in groups of at most so many batches that never cross a pass.

        With `first_batches`, groups begin at that size and double, so that the first batch need not wait for many.
        """
        number, base, done = cursor.passes, cursor.position, cursor.batches
        sizes = _doubling(first_batches or group_batches, group_batches)
        while self.passes is None or number < self.passes:
            start = dataclasses.replace(cursor, passes=number, position=base, batches=done)
            yield from self._pass_groups(start, sizes)
            done += self._pass_batches(base)
            number, base = number + 1, 0
            if self._limit_left(done) == 0 or self._pass_batches(0) == 0:
                return

    def is_over(self, cursor: Cursor) -> bool:
        """Whether nothing of the cursor's epoch is left."""
        return next(self.groups(cursor, 1), None) is None

    def _pass_groups(self, cursor: Cursor, sizes: Iterator[int]) -> Iterator[Group]:
        base = cursor.position
        whole = self._pass_batches(base)
        wanted = min(whole, self._limit_left(cursor.batches, whole))
        first, start = 0, 0
        while first < wanted:
            batches = min(next(sizes), wanted - first)
            if self._keeps_back(base) and first < whole - 1:
                batches = min(batches, whole - 1 - first)  # only the last batch of a group may be short
            ends = first + batches == whole
            stop = self._rows_before(base, first + batches)
            yield Group(
                cursor=self.advanced(cursor, first),
                start=start,
                rows=stop - start,
                batches=batches,
                base=base,
                pass_ends=ends,
                epoch_ends=first + batches == wanted and (wanted < whole or self._last_pass(cursor, whole)),
            )
            first, start = first + batches, stop

    def order_epoch(self, cursor: Cursor) -> int:
        """Which epoch of the order a cursor is in: each pass of repeat() after batch() is one of its own."""
        return cursor.epoch * (self.passes or MOST_PASSES) + cursor.passes

    def advanced(self, cursor: Cursor, batches: int) -> Cursor:
        """The cursor after so many more batches of its pass."""
        position = cursor.position + batches * self._step_rows
        if batches and self._keeps_back(cursor.position) and 0 < self.pass_rows - position < self.shard_count:
            position -= self.shard_count
        position = min(position, self.pass_rows)
        done = cursor.batches + batches
        return Cursor(cursor.epoch, cursor.passes, position, done, cursor.stream, cursor.stream_position)

    def idle_shards(self, position: int) -> int:
        """Shards that have no row in the last step, if the pass goes on from here: they take a step less."""
        rest = self._last_rows(position)
        spread = self.drop_remainder or rest == 0 or self._keeps_back(position)
        return 0 if spread else max(0, self.shard_count - rest)

    def _last_pass(self, cursor: Cursor, whole: int) -> bool:
        ended = self._limit_left(cursor.batches + whole) == 0
        return ended or (self.passes is not None and cursor.passes + 1 >= self.passes)

    def _limit_left(self, done: int, otherwise: int = 1) -> int:
        return otherwise if self.batch_limit is None else max(0, self.batch_limit - done)

    @property
    def _step_rows(self) -> int:
        """Rows of a step: a batch of every shard."""
        return self.batch_rows * self.shard_count

    def _last_rows(self, base: int) -> int:
        """Rows of the last step, where it is not a whole one; 0 where it is."""
        return max(0, self.pass_rows - base) % self._step_rows

    def _keeps_back(self, base: int) -> bool:
        """Whether each shard keeps a row of its last full batch for the last step, which has too few for all."""
        few = 0 < self._last_rows(base) < self.shard_count
        return few and not self.drop_remainder and self.batch_rows > 1 and self.pass_rows - base > self._step_rows

    def _shard_rows(self, base: int) -> int:
        """Rows this shard has from a global position to the end of the pass."""
        left = max(0, self.pass_rows - base)
        return max(0, -(-(left - self.shard_index) // self.shard_count))

    def _rows_before(self, base: int, batches: int) -> int:
        """Rows of this shard in the first so many batches from a global position on."""
        kept = 1 if self._keeps_back(base) and batches == self._pass_batches(base) - 1 else 0
        return min(batches * self.batch_rows - kept, self._shard_rows(base))

    def _pass_batches(self, base: int) -> int:
        if self.drop_remainder or self._keeps_back(base):
            whole = max(0, self.pass_rows - base) // self._step_rows
            return whole if self.drop_remainder else whole + 1
        return -(-self._shard_rows(base) // self.batch_rows)


def _doubling(first: int, most: int) -> Iterator[int]:
    """first, twice that, and so on up to the most, for ever."""
    while True:
        yield min(first, most)
        first = min(first * 2, most)
