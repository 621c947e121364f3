"""Orders that combine the orders of several pipelines.

    Concatenated   all positions of the first part, then those of the second part, and so on
    Interleaved    positions of all parts, mixed in fixed proportions

Each part keeps its own order. The rows of a part begin at `OrderPart.first_row` of the combined source. Like all orders
(`order/orders.py`), these orders find the row at any position without the earlier positions. This module is pure: it
uses no thread, no clock and no device.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from forebay.core.rows import find_parts, split_by_part, split_runs
from forebay.core.spec import Array
from forebay.order.device_steps import Add, DeviceSteps, add_after, branch_steps, join_steps
from forebay.order.mix_pattern import MixPattern, even_pattern, mix_steps, shuffled_pattern
from forebay.order.orders import Order, Repeated, Windows, order_chain
from forebay.order.packing import Packed
from forebay.order.permutation import Positions, derive_key
from forebay.order.schedule import ENDLESS

__all__ = ["Concatenated", "Interleaved", "OrderPart", "Stop", "all_orders", "contains_order", "has_windows"]

Stop: TypeAlias = Literal["first", "all"] | int  # when an interleaved epoch ends; see `Interleaved`

_STEP_ROWS = 1 << 17  # positions per step; larger steps need more temporary memory, smaller steps need more calls
_PATTERN_KEY = 1  # part of the derived key of a pattern, so that a shuffle with the same seed has another key


@dataclass(frozen=True, slots=True)
class OrderPart:
    """The order of one pipeline, and where its rows begin in the combined source."""

    order: Order
    first_row: int  # row number in the combined source of the pipeline's first row

    def rows(self, epoch: int, positions: Positions) -> Positions:
        """Return the row numbers in the combined source."""
        rows = self.order.rows(epoch, positions)
        return rows + self.first_row if self.first_row else rows

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        """Return the steps with which a device computes `rows`; None if it cannot."""
        steps = self.order.device_steps(epoch)
        return steps if steps is None or not self.first_row else add_after(steps, self.first_row)

    def describe(self) -> tuple[Any, ...]:
        return self.first_row, *self.order.describe()


@dataclass(frozen=True, slots=True)
class Concatenated:
    """The positions of several orders, one order after the other.

    Only the last order may be endless.
    """

    inner: ClassVar[None] = None
    parts: tuple[OrderPart, ...]
    starts: tuple[int, ...]  # position at which each part begins
    length: int | None
    is_sequential: bool

    @classmethod
    def of(cls, parts: Sequence[OrderPart]) -> "Concatenated":
        lengths = [part.order.length for part in parts]
        starts = tuple(accumulate((length or 0 for length in lengths[:-1]), initial=0))
        length = None if lengths[-1] is None else starts[-1] + lengths[-1]
        sequential = all(
            part.order.is_sequential and part.first_row == start for part, start in zip(parts, starts, strict=True)
        )
        return cls(tuple(parts), starts, length, sequential)

    @property
    def is_fixed(self) -> bool:
        return all(part.order.is_fixed for part in self.parts)

    @property
    def is_ascending(self) -> bool:
        first_rows = [part.first_row for part in self.parts]
        return all(part.order.is_ascending for part in self.parts) and first_rows == sorted(set(first_rows))

    @property
    def repeats_rows(self) -> bool:
        return _any_row_repeats(self.parts)

    @property
    def epoch_nbytes(self) -> int:
        return sum(part.order.epoch_nbytes for part in self.parts)

    def rows(self, epoch: int, positions: Positions) -> Positions:
        if self.is_sequential:
            return positions
        starts = np.asarray(self.starts)
        numbers = find_parts(positions, starts)
        rows = np.empty_like(positions)
        for number, selection in _runs_or_parts(numbers, len(self.parts)):
            rows[selection] = self.parts[number].rows(epoch, positions[selection] - self.starts[number])
        return rows

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        if self.is_sequential:
            return ()
        stops = [*self.starts[1:], ENDLESS if self.length is None else self.length]
        return branch_steps(self.starts, stops, [part.device_steps(epoch) for part in self.parts])

    def describe(self) -> tuple[Any, ...]:
        return ("concatenated", [part.describe() for part in self.parts])


@dataclass(frozen=True, slots=True)
class Interleaved:
    """The positions of several orders, mixed in the proportions of the weights.

    With `stop="first"`, the epoch ends when any part has no position left for its next turn. With `stop="all"`, the
    epoch ends when it has had all positions of every part, and shorter parts start again. If `stop` is a number, it is
    the length of the epoch, and parts start again where necessary. A part that starts again makes another pass of
    `Repeated`, so it is shuffled differently.

    The pattern says which part comes at each position (`order/mix_pattern.py`). It is a sequence of periods. Without a
    seed, the pattern is even. With a seed, every complete period has a random order. The incomplete period at the end
    always has the even pattern, so that every epoch takes the same number of positions of each part.
    """

    inner: ClassVar[None] = None
    parts: tuple[OrderPart, ...]  # parts that start again are `Repeated`
    weights: tuple[int, ...]  # whole numbers from `integer_weights`
    stop: Stop
    seed: int | None
    length: int | None
    is_sequential: bool = False
    is_ascending: bool = False

    @classmethod
    def of(cls, parts: Sequence[OrderPart], weights: tuple[int, ...], stop: Stop, seed: int | None) -> "Interleaved":
        pattern = even_pattern(weights)
        length = _interleaved_length(pattern, [part.order.length for part in parts], stop)
        repeated = [_repeat_for(part, number, pattern, length) for number, part in enumerate(parts)]
        return cls(tuple(repeated), weights, stop, seed, length)

    @property
    def is_fixed(self) -> bool:
        return self.seed is None and all(part.order.is_fixed for part in self.parts)

    @property
    def repeats_rows(self) -> bool:
        return _any_row_repeats(self.parts)

    @property
    def epoch_nbytes(self) -> int:
        return sum(part.order.epoch_nbytes for part in self.parts)

    def rows(self, epoch: int, positions: Positions) -> Positions:
        rows = np.empty_like(positions)
        for start in range(0, len(positions), _STEP_ROWS):
            step = slice(start, start + _STEP_ROWS)
            self._write_rows(rows[step], epoch, positions[step])
        return rows

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        parts = [part.device_steps(epoch) for part in self.parts]
        even = mix_steps(even_pattern(self.weights), parts)
        if self.seed is None:
            return even
        rotation = self._rotation(epoch)
        rotated = [
            join_steps([Add(-rotation * weight)], part) for weight, part in zip(self.weights, parts, strict=True)
        ]
        shuffled = mix_steps(self._shuffled_pattern, rotated)
        # A branch subtracts the start of its part. The negative start moves the position forward by `rotation` periods.
        # Each part of `rotated` subtracts its number of positions in these periods.
        return branch_steps([-rotation * self._period, 0], [self._last_period, ENDLESS], [shuffled, even])

    def describe(self) -> tuple[Any, ...]:
        parts = [part.describe() for part in self.parts]
        return ("interleaved", self.weights, self.stop, self.seed, self.length, parts)

    def _write_rows(self, rows: Positions, epoch: int, positions: Positions) -> None:
        """Write the row numbers at these positions to `rows`."""
        if self.seed is None:
            self._write_pattern(rows, even_pattern(self.weights), epoch, positions)
            return
        shuffled, rotation = self._shuffled_pattern, self._rotation(epoch)
        if positions.max() < self._last_period:
            self._write_pattern(rows, shuffled, epoch, positions, rotation)
            return
        is_last = positions >= self._last_period
        complete, last = np.empty_like(positions[~is_last]), np.empty_like(positions[is_last])
        self._write_pattern(complete, shuffled, epoch, positions[~is_last], rotation)
        self._write_pattern(last, even_pattern(self.weights), epoch, positions[is_last])
        rows[~is_last], rows[is_last] = complete, last

    def _write_pattern(
        self, rows: Positions, pattern: MixPattern, epoch: int, positions: Positions, rotation: int = 0
    ) -> None:
        for number, selection, inner in pattern.split(positions, skipped=rotation * self._period):
            rows[selection] = self.parts[number].rows(epoch, inner)

    @property
    def _shuffled_pattern(self) -> MixPattern:
        assert self.seed is not None
        return shuffled_pattern(self.weights, derive_key(self.seed, _PATTERN_KEY))

    def _rotation(self, epoch: int) -> int:
        """Return the index of the period with which this epoch begins.

        All epochs use one table of periods. `MixPattern.split` skips the periods before the first one of the epoch.
        """
        assert self.seed is not None
        return derive_key(self.seed, epoch, _PATTERN_KEY) % (len(self._shuffled_pattern) // self._period)

    @property
    def _period(self) -> int:
        return sum(self.weights)

    @property
    def _last_period(self) -> int:
        """The position at which the incomplete last period begins."""
        return (ENDLESS if self.length is None else self.length) // self._period * self._period


def has_windows(order: Order) -> bool:
    """Return whether an order or a part of it consists of windows or packed rows."""
    return contains_order(order, (Windows, Packed))


def contains_order(order: Order, kinds: tuple[type, ...]) -> bool:
    """Return whether an order, an inner order or a part is of one of these classes."""
    return any(isinstance(link, kinds) for link in all_orders(order))


def all_orders(order: Order) -> Iterator[Order]:
    """Yield an order, its inner orders, their parts, and all orders inside of these."""
    for link in order_chain(order):
        yield link
        for part in link.parts if isinstance(link, Concatenated | Interleaved) else ():
            yield from all_orders(part.order)


def _any_row_repeats(parts: Sequence[OrderPart]) -> bool:
    """Return whether a row may occur several times.

    A row may occur twice in one part, or in two parts with the same source.
    """
    return any(part.order.repeats_rows for part in parts) or len({part.first_row for part in parts}) < len(parts)


def _interleaved_length(pattern: MixPattern, lengths: Sequence[int | None], stop: Stop) -> int | None:
    """Return the length of the epoch; None if it never ends."""
    if not isinstance(stop, str):
        return stop
    finite = [(part, length) for part, length in enumerate(lengths) if length is not None]
    if stop == "first":
        return min((pattern.position_of(part, length) for part, length in finite), default=None)
    if len(finite) < len(lengths):
        return None
    return max(pattern.position_of(part, length - 1) + 1 for part, length in finite)


def _repeat_for(part: OrderPart, number: int, pattern: MixPattern, length: int | None) -> OrderPart:
    """Return the part with as many passes as an epoch of this length needs."""
    if length is None or part.order.length is None:
        return part
    passes = -(-pattern.count_before(number, length) // part.order.length)
    return part if passes <= 1 else OrderPart(Repeated(part.order, passes), part.first_row)


def _runs_or_parts(numbers: Array, part_count: int) -> Iterator[tuple[int, Any]]:
    """Yield (part, indices at which the part occurs in `numbers`).

    The indices are a slice if `numbers` is sorted, else an array.
    """
    if (numbers[1:] >= numbers[:-1]).all():
        return split_runs(numbers)
    return split_by_part(numbers, part_count)
