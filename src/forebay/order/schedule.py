"""The cursor (position of the consumer) and the schedule (batches and groups of an epoch).

Shard i of n takes the positions base+i, base+i+n, base+i+2n, ... of the order of all shards. `base` is 0, or the
position at which a resumed run continues. A cursor stores a position in the order of all shards, so a run can resume
with a different number of shards.

A step is one batch of every shard. All shards should take the same number of steps. With `drop_remainder`, every step
is full. Otherwise the last step may have fewer rows than there are shards. Then every shard moves one row from its
previous batch to the last step. Shards cannot do this if batches have one row, or if the pass has no full step. In
these two cases some shards have no row in the last step, and `starved_shards` returns their number.
"""

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.rows import Rows
from forebay.errors import StateError

__all__ = ["ENDLESS", "RANDOM_VERSION", "Cursor", "Group", "Schedule"]

STATE_VERSION = 1
# Version of the random numbers that maps of rows receive. A state of Forebay 0.1 has no such version: it means 1.
RANDOM_VERSION = 2
MAX_PASSES = 1 << 32  # number of passes that `order_epoch` reserves for an endless epoch
ENDLESS = 1 << 62  # value of `pass_rows` if the length of a stream is unknown, or if the stream never ends


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of the consumer, which has received exactly the batches before it."""

    epoch: int = 0
    passes: int = 0  # complete passes in this epoch; only repeat() after batch() makes more than one pass
    position: int = 0  # rows that all shards together received in this pass
    batches: int = 0  # batches that this shard received in this epoch
    stream: dict[str, Any] | None = None  # state of the stream at `stream_position`; None if the stream has no state
    stream_position: int = 0  # the `position` at which the stream had this state

    def state_dict(self, fingerprint: str) -> dict[str, Any]:
        """Return the cursor and the fingerprint of its pipeline as a dict for JSON."""
        state: dict[str, Any] = {"version": STATE_VERSION, "pipeline": fingerprint}
        state |= {"epoch": self.epoch, "passes": self.passes, "position": self.position, "batches": self.batches}
        state["random"] = RANDOM_VERSION
        if self.stream is not None:
            state |= {"stream": self.stream, "stream_position": self.stream_position}
        return state

    @classmethod
    def from_state(cls, state: Any, fingerprint: str) -> "Cursor":
        """Return the cursor of a state dict.

        Raise StateError if the state dict is damaged or belongs to another pipeline.
        """
        if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
            raise StateError(_describe_wrong_state(state))
        if state.get("pipeline") != fingerprint:
            raise StateError(
                f"the state belongs to another pipeline ({state.get('pipeline')!r}, not {fingerprint!r}): its rows, "
                "shuffle, take or repeat differ. Build the same pipeline; only shard, batch and maps may change."
            )
        numbers = {name: state.get(name, 0) for name in ("epoch", "passes", "position", "batches", "stream_position")}
        for name, number in numbers.items():
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise StateError(
                    f"the state is damaged: {name}={number!r} is not an integer of 0 or more. Load another state."
                )
        return cls(**numbers, stream=state.get("stream"))


@dataclass(frozen=True, slots=True)
class Group:
    """Batches that the feed fills together: consecutive rows of one shard in one pass."""

    cursor: Cursor  # the cursor before the group
    start: int  # number of rows of this shard after `base` and before the group
    rows: int
    batches: int
    base: int  # position in the order of all shards from which the shards take rows in turn
    ends_pass: bool  # whether the group contains the last batch of its pass
    ends_epoch: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """The batches of an epoch for one shard: their number and their rows."""

    pass_rows: int  # rows of a pass, of all shards together
    batch_rows: int
    drop_remainder: bool = False
    shard_index: int = 0
    shard_count: int = 1
    passes: int | None = 1  # passes per epoch; None if epochs never end
    batch_limit: int | None = None  # largest number of batches of this shard per epoch

    @property
    def batches(self) -> int | None:
        """Number of batches of this shard in a complete epoch; None if unknown or endless."""
        if self._pass_batches(0) == 0:
            return 0
        if self.pass_rows >= ENDLESS or self.passes is None:
            return self.batch_limit
        batches = self._pass_batches(0) * self.passes
        return batches if self.batch_limit is None else min(batches, self.batch_limit)

    @property
    def pass_batches(self) -> int | None:
        """Number of batches of this shard in a pass, at most `batch_limit`; None if unknown."""
        if self.pass_rows >= ENDLESS:
            return self.batch_limit
        batches = self._pass_batches(0)
        return batches if self.batch_limit is None else min(batches, self.batch_limit)

    def groups(self, cursor: Cursor, group_batches: int, *, first_batches: int | None = None) -> Iterator[Group]:
        """Yield the groups of the cursor's epoch that begin at the cursor or later.

        A group never crosses the end of a pass. With `first_batches`, the first group has this number of batches, and
        the following groups double it up to `group_batches`. So the first batch is ready early.
        """
        pass_number, base, done_batches = cursor.passes, cursor.position, cursor.batches
        sizes = _doubling_sizes(first_batches or group_batches, group_batches)
        while self.passes is None or pass_number < self.passes:
            start = dataclasses.replace(cursor, passes=pass_number, position=base, batches=done_batches)
            yield from self._pass_groups(start, sizes)
            done_batches += self._pass_batches(base)
            pass_number, base = pass_number + 1, 0
            if self._limit_left(done_batches) == 0 or self._pass_batches(0) == 0:  # empty passes would repeat forever
                return

    def is_over(self, cursor: Cursor) -> bool:
        """Return whether the cursor is at the end of its epoch."""
        return next(self.groups(cursor, 1), None) is None

    def is_over_for_all_shards(self, cursor: Cursor) -> bool:
        """Return whether no shard has rows left in the cursor's epoch.

        Return False if epochs have no batches.
        """
        first_shard = dataclasses.replace(self, shard_index=0)  # no other shard has more rows left
        return bool(first_shard.batches) and first_shard.is_over(cursor)

    def _pass_groups(self, cursor: Cursor, sizes: Iterator[int]) -> Iterator[Group]:
        """Yield the groups from the cursor to the end of its pass or to `batch_limit`."""
        base = cursor.position
        pass_batches = self._pass_batches(base)  # batches to the end of the pass
        batch_count = min(pass_batches, self._limit_left(cursor.batches, pass_batches))  # batches to yield
        is_last_pass = batch_count < pass_batches or self._is_last_pass(cursor, pass_batches)
        first, start = 0, 0  # batches and rows of this shard before the group
        while first < batch_count:
            batches = min(next(sizes), batch_count - first)
            if self._evens_out_last_step(base) and first < pass_batches - 1:
                # The batch before the last one is short, and a short batch must be the last of its group.
                batches = min(batches, pass_batches - 1 - first)
            ends_pass = first + batches == pass_batches
            stop = self._count_rows(base, first + batches)
            yield Group(
                cursor=self.advance(cursor, first),
                start=start,
                rows=stop - start,
                batches=batches,
                base=base,
                ends_pass=ends_pass,
                ends_epoch=first + batches == batch_count and is_last_pass,
            )
            first, start = first + batches, stop

    def positions(self, group: Group) -> Rows:
        """Return the positions of a group's rows in the order of all shards."""
        first = group.base + self.shard_index + group.start * self.shard_count
        if self.shard_count == 1:
            return slice(first, first + group.rows)
        return np.arange(first, first + group.rows * self.shard_count, self.shard_count, dtype=np.intp)

    def order_epoch(self, cursor: Cursor) -> int:
        """Return the epoch number that the order uses for the current pass.

        The number counts the passes of all epochs, so that each pass shuffles its rows differently.
        """
        return cursor.epoch * (self.passes or MAX_PASSES) + cursor.passes

    def advance(self, cursor: Cursor, batches: int) -> Cursor:
        """Return the cursor after `batches` more batches of its pass."""
        position = cursor.position + batches * self._step_rows
        if batches and self._evens_out_last_step(cursor.position) and 0 < self.pass_rows - position < self.shard_count:
            position -= self.shard_count  # each shard keeps one row for the last step
        position = min(position, self.pass_rows)
        done_batches = cursor.batches + batches
        return Cursor(cursor.epoch, cursor.passes, position, done_batches, cursor.stream, cursor.stream_position)

    def incomplete_step_rows(self, cursor: Cursor) -> int:
        """Return the number of rows of all shards in an incomplete last step.

        Return 0 if the last step of the cursor's pass is full, or if the epoch ends before it.
        """
        if self.drop_remainder or self.pass_rows >= ENDLESS:
            return 0
        full_steps = max(0, self.pass_rows - cursor.position) // self._step_rows
        if self._limit_left(cursor.batches, full_steps + 1) <= full_steps:
            return 0
        return self._last_step_rows(cursor.position)

    def starved_shards(self, position: int) -> int:
        """Return how many shards have no row in the last step of a pass.

        The shards take the rows of the pass from `position` on.
        """
        if self.pass_rows >= ENDLESS:
            return 0
        last_step_rows = self._last_step_rows(position)
        all_have_rows = self.drop_remainder or last_step_rows == 0 or self._evens_out_last_step(position)
        return 0 if all_have_rows else max(0, self.shard_count - last_step_rows)

    def _is_last_pass(self, cursor: Cursor, pass_batches: int) -> bool:
        """Return whether the epoch ends with this pass, which has `pass_batches` more batches."""
        reaches_limit = self._limit_left(cursor.batches + pass_batches) == 0
        return reaches_limit or (self.passes is not None and cursor.passes + 1 >= self.passes)

    def _limit_left(self, done_batches: int, if_unlimited: int = 1) -> int:
        """Return how many batches `batch_limit` allows after `done_batches` batches.

        Return `if_unlimited` if there is no limit.
        """
        return if_unlimited if self.batch_limit is None else max(0, self.batch_limit - done_batches)

    @property
    def _step_rows(self) -> int:
        """Number of rows of a full step, which is one full batch of every shard."""
        return self.batch_rows * self.shard_count

    def _last_step_rows(self, base: int) -> int:
        """Return the number of rows of an incomplete last step; 0 if it is full."""
        return max(0, self.pass_rows - base) % self._step_rows

    def _evens_out_last_step(self, base: int) -> bool:
        """Return whether each shard moves a row from its previous batch to the last step.

        It does if the last step would have fewer rows than there are shards, and if each shard can move a row.
        """
        has_too_few_rows = 0 < self._last_step_rows(base) < self.shard_count
        return (
            has_too_few_rows
            and not self.drop_remainder
            and self.batch_rows > 1
            and self.pass_rows - base > self._step_rows
        )

    def _shard_rows(self, base: int) -> int:
        """Return how many rows this shard has from `base` to the end of the pass."""
        remaining_rows = max(0, self.pass_rows - base)
        return max(0, -(-(remaining_rows - self.shard_index) // self.shard_count))

    def _count_rows(self, base: int, batches: int) -> int:
        """Return how many rows the first `batches` batches of this shard have, from `base` on."""
        moved_rows = 1 if self._evens_out_last_step(base) and batches == self._pass_batches(base) - 1 else 0
        return min(batches * self.batch_rows - moved_rows, self._shard_rows(base))

    def _pass_batches(self, base: int) -> int:
        """Return how many batches this shard has from `base` to the end of the pass."""
        if self.drop_remainder or self._evens_out_last_step(base):
            full_steps = max(0, self.pass_rows - base) // self._step_rows
            return full_steps if self.drop_remainder else full_steps + 1
        return -(-self._shard_rows(base) // self.batch_rows)


def _describe_wrong_state(state: Any) -> str:
    """Return the error message about a value that is not a valid state dict."""
    if isinstance(state, dict):  # perhaps a checkpoint that contains the state
        inner = (key for key, value in state.items() if isinstance(value, dict) and {"version", "pipeline"} <= {*value})
        key = next(inner, None)
        if key is not None:
            keys = ", ".join(map(repr, state))[:120]
            return f"the state is a dict with the keys {keys}. Pass the state of the feed: checkpoint[{key!r}]."
    if isinstance(state, str | bytes) and state.lstrip()[:1] in ("{", b"{"):
        return f"the state is a {type(state).__name__}, not a dict. Decode it first: json.loads(state)."
    if isinstance(state, str | os.PathLike):
        return f"{str(state)[:120]!r} is not a state. If it is the name of a file, read the file, and pass its dict."
    return f"{str(state)[:120]!r} is not a state of this version of Forebay. Pass a value from state_dict()."


def _doubling_sizes(first: int, largest: int) -> Iterator[int]:
    """Yield `first`, 2 * `first`, 4 * `first`, ... and then `largest` forever."""
    while True:
        yield min(first, largest)
        first = min(first * 2, largest)
