"""The cursor (position of the consumer in an epoch) and the schedule (batches that remain).

Shard i of n takes the positions base+i, base+i+n, base+i+2n, ... of the global order. `base` is 0, or the position at
which a resumed run continues. A cursor stores a global position and no shard, so a run can resume on any number of
shards.

A step is one batch of every shard. All shards should take the same number of steps. If the last step has fewer rows
than there are shards, every shard moves one row from its previous batch to the last step. That is impossible if batches
have one row, or if no full step comes before. Then some shards have no row in the last step, and `starved_shards`
counts them.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from forebay.errors import StateError

__all__ = ["ENDLESS", "Cursor", "Group", "Schedule"]

STATE_VERSION = 1
MAX_PASSES = 1 << 32  # pass numbers that `order_epoch` reserves for each endless epoch
ENDLESS = 1 << 62  # value of `pass_rows` if the length is unknown: the pass ends when its stream ends, if ever


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of the consumer: it received everything before this point and nothing after it."""

    epoch: int = 0
    passes: int = 0  # complete passes in this epoch; only repeat() after batch() makes more than one pass
    position: int = 0  # rows that all shards together received in this pass
    batches: int = 0  # batches that this shard received in this epoch
    stream: dict[str, Any] | None = None  # state dict of the stream at `stream_position`, if it has one
    stream_position: int = 0

    def state_dict(self, fingerprint: str) -> dict[str, Any]:
        """Return the cursor as JSON values, with the fingerprint of its pipeline."""
        state: dict[str, Any] = {"version": STATE_VERSION, "pipeline": fingerprint}
        state |= {"epoch": self.epoch, "passes": self.passes, "position": self.position, "batches": self.batches}
        if self.stream is not None:
            state |= {"stream": self.stream, "stream_position": self.stream_position}
        return state

    @classmethod
    def from_state(cls, state: Any, fingerprint: str) -> "Cursor":
        """Read a state dict; raise StateError if it is damaged or belongs to another pipeline."""
        if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
            raise StateError(
                f"{str(state)[:120]!r} is not a state of this version of Forebay. Pass a value from state_dict()."
            )
        if state.get("pipeline") != fingerprint:
            raise StateError(
                f"the state belongs to another pipeline ({state.get('pipeline')!r}, not {fingerprint!r}): its rows, "
                "shuffle, take or repeat differ. Build the same pipeline; only shard, batch and maps may change."
            )
        numbers = {name: state.get(name, 0) for name in ("epoch", "passes", "position", "batches", "stream_position")}
        for name, number in numbers.items():
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise StateError(f"the state is damaged: {name}={number!r} is not a count. Load another state.")
        return cls(**numbers, stream=state.get("stream"))


@dataclass(frozen=True, slots=True)
class Group:
    """Batches that are filled together: consecutive rows of one shard in one pass."""

    cursor: Cursor  # at the start of the group
    start: int  # number of rows of this shard after `base` and before the group
    rows: int
    batches: int
    base: int  # global position from which the rows are dealt to the shards in turn
    ends_pass: bool  # whether the group contains the last batch of its pass
    ends_epoch: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """The batches of an epoch for one shard: their number and their rows."""

    pass_rows: int
    batch_rows: int
    drop_remainder: bool = False
    shard_index: int = 0
    shard_count: int = 1
    passes: int | None = 1
    batch_limit: int | None = None

    @property
    def batches(self) -> int | None:
        """Batches of this shard in a complete epoch; None if unknown or endless."""
        if self._pass_batches(0) == 0:
            return 0
        if self.pass_rows >= ENDLESS or self.passes is None:
            return self.batch_limit
        whole = self._pass_batches(0) * self.passes
        return whole if self.batch_limit is None else min(whole, self.batch_limit)

    @property
    def pass_batches(self) -> int | None:
        """Batches of this shard in a pass, at most `batch_limit`; None if unknown."""
        if self.pass_rows >= ENDLESS:
            return self.batch_limit
        whole = self._pass_batches(0)
        return whole if self.batch_limit is None else min(whole, self.batch_limit)

    def groups(self, cursor: Cursor, group_batches: int, *, first_batches: int | None = None) -> Iterator[Group]:
        """Yield the remaining groups of the cursor's epoch.

        A group never crosses the end of a pass. With `first_batches`, groups start at that size and double up to
        `group_batches`, so that the first batch is ready early.
        """
        number, base, done = cursor.passes, cursor.position, cursor.batches
        sizes = _doubling(first_batches or group_batches, group_batches)
        while self.passes is None or number < self.passes:
            start = dataclasses.replace(cursor, passes=number, position=base, batches=done)
            yield from self._pass_groups(start, sizes)
            done += self._pass_batches(base)
            number, base = number + 1, 0
            if self._limit_left(done) == 0 or self._pass_batches(0) == 0:  # empty passes would repeat forever
                return

    def is_over(self, cursor: Cursor) -> bool:
        """Return whether no batch of the cursor's epoch remains."""
        return next(self.groups(cursor, 1), None) is None

    def _pass_groups(self, cursor: Cursor, sizes: Iterator[int]) -> Iterator[Group]:
        """Yield the groups from the cursor to the end of its pass or to `batch_limit`."""
        base = cursor.position
        whole = self._pass_batches(base)  # batches to the end of the pass
        wanted = min(whole, self._limit_left(cursor.batches, whole))  # batches to the end of the pass or to the limit
        first, start = 0, 0  # batches and rows of this shard before the group
        while first < wanted:
            batches = min(next(sizes), wanted - first)
            if self._evens_out_last_step(base) and first < whole - 1:
                # The batch before the last one is short, and a short batch must be the last of its group.
                batches = min(batches, whole - 1 - first)
            ends = first + batches == whole
            stop = self._rows_before(base, first + batches)
            yield Group(
                cursor=self.advance(cursor, first),
                start=start,
                rows=stop - start,
                batches=batches,
                base=base,
                ends_pass=ends,
                ends_epoch=first + batches == wanted and (wanted < whole or self._is_last_pass(cursor, whole)),
            )
            first, start = first + batches, stop

    def order_epoch(self, cursor: Cursor) -> int:
        """Return the number from which the order of the current pass is computed.

        It counts passes over all epochs, so that each pass has its own order.
        """
        return cursor.epoch * (self.passes or MAX_PASSES) + cursor.passes

    def advance(self, cursor: Cursor, batches: int) -> Cursor:
        """Return the cursor after `batches` more batches of its pass."""
        position = cursor.position + batches * self._step_rows
        if batches and self._evens_out_last_step(cursor.position) and 0 < self.pass_rows - position < self.shard_count:
            position -= self.shard_count  # each shard keeps one row for the last step
        position = min(position, self.pass_rows)
        done = cursor.batches + batches
        return Cursor(cursor.epoch, cursor.passes, position, done, cursor.stream, cursor.stream_position)

    def starved_shards(self, position: int) -> int:
        """Return how many shards have no row in the last step of the pass.

        The shards take their rows from `position` on.
        """
        rest = self._last_step_rows(position)
        all_have_rows = self.drop_remainder or rest == 0 or self._evens_out_last_step(position)
        return 0 if all_have_rows else max(0, self.shard_count - rest)

    def _is_last_pass(self, cursor: Cursor, whole: int) -> bool:
        """Return whether the epoch ends with this pass, which has `whole` more batches."""
        ended = self._limit_left(cursor.batches + whole) == 0
        return ended or (self.passes is not None and cursor.passes + 1 >= self.passes)

    def _limit_left(self, done: int, if_unlimited: int = 1) -> int:
        """Return how many batches `batch_limit` allows after `done` batches."""
        return if_unlimited if self.batch_limit is None else max(0, self.batch_limit - done)

    @property
    def _step_rows(self) -> int:
        """Rows of a full step, which is one full batch of every shard."""
        return self.batch_rows * self.shard_count

    def _last_step_rows(self, base: int) -> int:
        """Return the rows of the last step if it is not full, else 0."""
        return max(0, self.pass_rows - base) % self._step_rows

    def _evens_out_last_step(self, base: int) -> bool:
        """Return whether each shard moves one row to the last step.

        The row comes from its last full batch. Otherwise the last step would have fewer rows than there are shards.
        """
        few = 0 < self._last_step_rows(base) < self.shard_count
        return few and not self.drop_remainder and self.batch_rows > 1 and self.pass_rows - base > self._step_rows

    def _shard_rows(self, base: int) -> int:
        """Return how many rows this shard has from `base` to the pass end."""
        left = max(0, self.pass_rows - base)
        return max(0, -(-(left - self.shard_index) // self.shard_count))

    def _rows_before(self, base: int, batches: int) -> int:
        """Return how many rows the next `batches` batches of this shard have.

        They begin at the global position `base`.
        """
        moved = 1 if self._evens_out_last_step(base) and batches == self._pass_batches(base) - 1 else 0
        return min(batches * self.batch_rows - moved, self._shard_rows(base))

    def _pass_batches(self, base: int) -> int:
        """Return how many batches this shard has from `base` to the end of the pass."""
        if self.drop_remainder or self._evens_out_last_step(base):
            whole = max(0, self.pass_rows - base) // self._step_rows
            return whole if self.drop_remainder else whole + 1
        return -(-self._shard_rows(base) // self.batch_rows)


def _doubling(first: int, most: int) -> Iterator[int]:
    """Yield `first`, 2 * `first`, 4 * `first`, ... and then `most` forever."""
    while True:
        yield min(first, most)
        first = min(first * 2, most)
