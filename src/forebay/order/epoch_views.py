"""`EpochViews`: the order of a source whose rows look different in each epoch, such as randomly cropped images."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from forebay.order.combined import Concatenated, Interleaved
from forebay.order.device_steps import Add, DeviceSteps
from forebay.order.orders import Order, order_chain
from forebay.order.permutation import Positions, derive_key

__all__ = ["EpochViews", "find_source_row"]

_VIEW_KEY = int.from_bytes(b"view", "big")  # part of the derived key; a shuffle with the same seed has another key


@dataclass(frozen=True, slots=True)
class EpochViews:
    """The rows of a source in their order, and in each epoch another view of all rows.

    A source with views has `length * views` rows: row number `r + v * length` is view v of row r. The seed and the
    epoch select the view. So a row number identifies a row and its view, and a reader of the row needs no epoch.
    """

    inner: ClassVar[None] = None
    epoch_nbytes: ClassVar[int] = 0
    length: int
    views: int
    seed: int
    is_sequential: bool = False
    is_fixed: bool = True  # the view changes, but not the row of the source
    is_ascending: bool = True
    repeats_rows: bool = False

    def rows(self, epoch: int, positions: Positions) -> Positions:
        return positions + self._first_row(epoch)

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        return (Add(self._first_row(epoch)),)

    def describe(self) -> tuple[Any, ...]:
        return ("views", self.length, self.views, self.seed)

    def _first_row(self, epoch: int) -> int:
        """Return the number of row 0 in the view of an epoch."""
        return derive_key(self.seed, epoch, _VIEW_KEY) % self.views * self.length


def find_source_row(order: Order | None, row_number: int) -> int:
    """Return the number that a row would have if each source had only one view.

    >>> find_source_row(EpochViews(5, views=100, seed=0), 12)
    2
    """
    innermost = None if order is None else list(order_chain(order))[-1]
    if isinstance(innermost, EpochViews):
        return row_number % innermost.length
    if not isinstance(innermost, Concatenated | Interleaved):
        return row_number
    orders = {part.first_row: part.order for part in innermost.parts}
    starts = sorted(start for start in orders if start <= row_number)
    earlier = sum(find_source_row(orders[start], stop - start - 1) + 1 for start, stop in pairwise(starts))
    return earlier + find_source_row(orders[starts[-1]], row_number - starts[-1])
