"""How rows of files are read: from their mappings, through the page cache, or past it. Pure: facts in, choice out.

    page cache   nearly all is in memory already: gathered from the mapping, which is the fastest
    warming      short scattered rows that fit into memory: the same, while the files are read from front to back
    blocks       the order stays inside blocks: each is read once, before it is needed
    rows         everything else: each row is read by itself, many at once

The last two read past the page cache where the file system allows it: twice as fast as through it, where measured. What
fits into memory is kept in the page cache from the second epoch on.
"""

from dataclasses import dataclass
from typing import Literal

from forebay.core.decision import Reason
from forebay.core.spec import format_nbytes
from forebay.order.orders import BlockShuffled, First, Order, Repeated
from forebay.sources.direct.address_space import Space
from forebay.sources.direct.block_reader import place_nbytes

__all__ = ["Facts", "Need", "Reading", "choose_reading"]

COLD_SHARE = 0.05  # of the bytes: with less than that missing, page faults cost less than reading all by position
KEPT_SHARE = 0.5  # of the memory that is free: files up to this stay in the page cache until the next epoch
SHORT_ROW_NBYTES = 2 << 10  # several on a page
LONG_ROW_NBYTES = 64 << 10  # read by itself as quickly as with its neighbours
TRAY_NBYTES = 11 << 19  # memory that scattered rows are read to: a group of them, and what lies around each
TRAYS = 12  # at most: most of them are being read to, some are being copied from, the rest are next
TRAYS_SHARE = 1 / 3  # of the host's budget at most
PLACES_SHARE = 2 / 3  # of the host's budget at most: the rest is for slots


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the files and of this machine."""

    nbytes: int
    uncached_nbytes: int
    available_nbytes: int
    alignment: int | None  # of direct reads; None where they are refused
    no_ring: str  # why io_uring cannot be had, or nothing


@dataclass(frozen=True, slots=True)
class Need:
    """What the pipeline asks for."""

    order: Order
    rows: int
    group_rows: int  # of the global order that a group may span
    host_nbytes: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The choice, with its numbers."""

    way: Literal["page cache", "warming", "blocks", "rows"]
    reason: Reason
    alignment: int = 1  # 1: through the page cache
    ring: bool = False
    kept: bool = False  # in the page cache, from the second epoch on
    held_nbytes: int = 0  # memory that is read to
    block_rows: int = 0
    places: int = 0  # for blocks
    trays: int = 0  # for groups of rows

    @property
    def reads(self) -> bool:
        """Whether rows are read by position, and not gathered from a mapping."""
        return self.way in ("blocks", "rows")

    def given_up(self, host_nbytes: int) -> "Reading":
        """The way that needs no memory, where there is none to be had."""
        why = f"page by page from the mapping: host_bytes={format_nbytes(host_nbytes)} leaves no memory to read into"
        return Reading("page cache", Reason("reading", "page cache", why))


def choose_reading(facts: Facts, need: Need, space: Space) -> Reading:
    """The way that suits the order, the rows and what is in memory."""
    if facts.uncached_nbytes <= facts.nbytes * COLD_SHARE:
        return Reading("page cache", Reason("reading", "page cache", "the files are in memory already"))
    blocks = _blocks(facts, need, space)
    if blocks is not None:
        return blocks
    scattered = not need.order.natural
    short = sum(space.row_nbytes) < SHORT_ROW_NBYTES
    if scattered and short and _fits(facts):
        why = f"{_cold(facts)}: read from front to back meanwhile, since a page holds many rows and all fit into memory"
        return Reading("warming", Reason("reading", "page cache", why))
    return _rows(facts, need, space)


def _blocks(facts: Facts, need: Need, space: Space) -> Reading | None:
    """By blocks, where the order has them, rows are short enough to gain by it, and twice what a group needs fits."""
    order = _block_order(need.order)
    if order is None or sum(space.row_nbytes) >= LONG_ROW_NBYTES:
        return None
    alignment = facts.alignment or 1
    block_rows = min(order.block_rows, need.rows)
    least = order.blocks_within(need.group_rows, passes=1 if order is need.order else 2)
    room = int(need.host_nbytes * PLACES_SHARE) // place_nbytes(space, block_rows, alignment)
    if room < least:
        return None
    places = min(room, 2 * least)
    what = f"blocks of {format_nbytes(block_rows * sum(space.row_nbytes))}, each read once, before it is needed"
    return Reading(
        "blocks",
        Reason("reading", _past(facts, "blocks"), f"{_cold(facts)}: {what}{_how(facts)}"),
        alignment=alignment,
        ring=not facts.no_ring,
        kept=_fits(facts),
        held_nbytes=places * place_nbytes(space, block_rows, alignment),
        block_rows=block_rows,
        places=places,
    )


def _rows(facts: Facts, need: Need, space: Space) -> Reading:
    alignment = facts.alignment or 1
    row_nbytes = sum(nbytes + 2 * alignment for nbytes in space.row_nbytes)
    room_nbytes = int(need.host_nbytes * TRAYS_SHARE)
    trays = max(2, min(TRAYS, room_nbytes // row_nbytes))
    tray_nbytes = max(row_nbytes, min(TRAY_NBYTES, room_nbytes // trays))
    return Reading(
        "rows",
        Reason("reading", _past(facts, "rows"), f"{_cold(facts)}: many at once{_how(facts)}"),
        alignment=alignment,
        ring=not facts.no_ring,
        kept=_fits(facts),
        held_nbytes=trays * tray_nbytes,
        trays=trays,
    )


def _block_order(order: Order) -> BlockShuffled | None:
    """The order's blocks, where they are stretches of rows as those lie in the files."""
    while isinstance(order, First | Repeated):
        order = order.below
    return order if isinstance(order, BlockShuffled) and order.below.natural else None


def _fits(facts: Facts) -> bool:
    return facts.nbytes <= facts.available_nbytes * KEPT_SHARE


def _cold(facts: Facts) -> str:
    return f"{format_nbytes(facts.uncached_nbytes)} of {format_nbytes(facts.nbytes)} are not in memory"


def _past(facts: Facts, what: str) -> str:
    return f"{what}, direct" if facts.alignment else what


def _how(facts: Facts) -> str:
    """The kernel's part in it, and what it refused."""
    by = f"threads, since io_uring is not to be had ({facts.no_ring})" if facts.no_ring else "io_uring"
    cached = "" if facts.alignment else "; through the page cache, since the file system refuses direct reads"
    kept = "; kept in the page cache from the second epoch on, since all fit" if _fits(facts) else ""
    return f", by {by}{cached}{kept}"
