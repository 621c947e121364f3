"""The choice of a strategy to read rows of files. This module does no I/O.

    page cache   if nearly all bytes are in the page cache: gather rows from the mapped files, which is the fastest way
    warming      for short scattered rows, if the files fit in memory: gather rows from the mapped files, while a thread
                 reads the files sequentially into the page cache
    blocks       for a block shuffle: read each block once, before groups need it
    rows         in all other cases: merge the rows of a group into ranges, and read many ranges at the same time

"blocks" and "rows" use direct I/O if the file system supports it. Direct I/O was twice as fast as reads through the
page cache (docs/measurements.md). If the files fit in memory, a thread reads them into the page cache later
(`page_cache_reader.py`). Files fit in memory if they take at most half of the available memory (`PAGE_CACHE_SHARE`).
"""

from dataclasses import dataclass
from typing import Literal

from forebay.core.decision import Decision
from forebay.core.spec import format_nbytes
from forebay.order.choices import Span, consecutive_start
from forebay.order.orders import BlockShuffled, Order, Repeated, Take
from forebay.sources.direct.address_space import AddressSpace
from forebay.sources.direct.block_reader import block_buffer_nbytes

__all__ = ["FileFacts", "ReadPlan", "ReadRequest", "choose_strategy"]

MAX_UNCACHED_SHARE = 0.05  # of all bytes; up to this share, page faults take less time than separate reads of all rows
PAGE_CACHE_SHARE = 0.5  # of the available memory; files up to this size are likely to stay in the page cache
SHORT_ROW_NBYTES = 2 << 10  # bytes; a page (4 KiB) holds several rows of less than this size
LONG_ROW_NBYTES = 64 << 10  # bytes; reading rows of this size one by one is as fast as reading whole blocks
ROW_BUFFER_NBYTES = 11 << 19  # bytes (5.5 MiB); a group has up to 4 MiB, and alignment extends each scattered row
MAX_ROW_BUFFERS = 12  # enough to prefetch into some buffers while threads copy from other buffers
ROW_BUFFERS_SHARE = 1 / 3  # of the host budget; the slots use the rest
BLOCK_BUFFERS_SHARE = 2 / 3  # of the host budget; the slots need the other third


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Facts about the files and this machine."""

    nbytes: int  # of all files
    uncached_nbytes: int  # estimated bytes that are not in the page cache
    available_nbytes: int  # memory that is available without swapping
    alignment: int | None  # bytes, of direct reads; None if the file system does not support them
    why_no_io_uring: str  # "" if io_uring is available


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The order of the rows and the memory budget of a feed."""

    order: Order
    rows: int
    group_rows: int  # most positions that one group spans in the order of all shards
    host_nbytes: int  # budget for host memory


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The chosen strategy with its settings."""

    strategy: Literal["page cache", "warming", "blocks", "rows"]
    decision: Decision
    alignment: int = 1  # bytes, of direct reads; 1 for reads through the page cache
    use_io_uring: bool = False
    use_page_cache_later: bool = False  # fill the page cache after the feed has read as many rows as the files have
    buffers_nbytes: int = 0  # memory of all read buffers
    block_rows: int = 0
    block_buffers: int = 0
    row_buffers: int = 0

    @property
    def uses_read_buffers(self) -> bool:
        """Whether threads read rows into buffers instead of gathering from mapped files."""
        return self.strategy in ("blocks", "rows")

    def mapped_fallback(self, host_nbytes: int) -> "ReadPlan":
        """Return a plan without read buffers, for a budget that is too small for them."""
        why = f"from the mapped files: host_bytes={format_nbytes(host_nbytes)} leaves no memory for read buffers"
        return ReadPlan("page cache", Decision("reading", "page cache", why))


def choose_strategy(facts: FileFacts, request: ReadRequest, space: AddressSpace) -> ReadPlan:
    """Return the read plan for this order, row size and state of the page cache."""
    if facts.uncached_nbytes <= facts.nbytes * MAX_UNCACHED_SHARE:
        cached_percent = 100 * (1 - MAX_UNCACHED_SHARE)
        why = f"at least {cached_percent:.0f} % of the bytes of the files are in memory already"
        return ReadPlan("page cache", Decision("reading", "page cache", why))
    blocks = _plan_blocks(facts, request, space)
    if blocks is not None:
        return blocks
    is_scattered = consecutive_start(request.order) is None
    has_short_rows = sum(space.row_nbytes) < SHORT_ROW_NBYTES
    if is_scattered and has_short_rows and _fits_in_memory(facts):
        why = f"{_describe_uncached(facts)}: a thread reads all files in sequence, because they fit in memory and a "
        return ReadPlan("warming", Decision("reading", "page cache", f"{why}page holds several rows"))
    return _plan_rows(facts, request, space)


def _plan_blocks(facts: FileFacts, request: ReadRequest, space: AddressSpace) -> ReadPlan | None:
    """Return a plan that reads whole blocks, or None.

    Block reads need a block shuffle, rows shorter than `LONG_ROW_NBYTES`, and buffers for all blocks of a group. If the
    budget allows, the plan has twice as many buffers, so that threads read the next group while this one is in use.
    """
    order = _find_block_shuffle(request.order)
    if order is None or sum(space.row_nbytes) >= LONG_ROW_NBYTES:
        return None
    alignment = facts.alignment or 1
    block_rows = min(order.block_rows, request.rows)
    buffer_nbytes = block_buffer_nbytes(space, block_rows, alignment)
    needed = order.blocks_within(request.group_rows, passes=1 if order is request.order else 2)
    affordable = int(request.host_nbytes * BLOCK_BUFFERS_SHARE) // buffer_nbytes
    if affordable < needed:
        return None
    buffers = min(affordable, 2 * needed)
    block_size = format_nbytes(block_rows * sum(space.row_nbytes))
    why = f"{_describe_uncached(facts)}: each block of {block_size} is read once, before it is needed"
    return ReadPlan(
        "blocks",
        Decision("reading", _describe_choice(facts, "blocks"), f"{why}{_describe_method(facts)}"),
        alignment=alignment,
        use_io_uring=not facts.why_no_io_uring,
        use_page_cache_later=_fits_in_memory(facts),
        buffers_nbytes=buffers * buffer_nbytes,
        block_rows=block_rows,
        block_buffers=buffers,
    )


def _plan_rows(facts: FileFacts, request: ReadRequest, space: AddressSpace) -> ReadPlan:
    """Return a plan that reads the rows of each group."""
    alignment = facts.alignment or 1
    row_nbytes = sum(nbytes + 2 * alignment for nbytes in space.row_nbytes)  # alignment extends rows at both ends
    budget_nbytes = int(request.host_nbytes * ROW_BUFFERS_SHARE)
    buffers = max(2, min(MAX_ROW_BUFFERS, budget_nbytes // row_nbytes))
    buffer_nbytes = max(row_nbytes, min(ROW_BUFFER_NBYTES, budget_nbytes // buffers))
    why = f"{_describe_uncached(facts)}: many rows are read at the same time{_describe_method(facts)}"
    return ReadPlan(
        "rows",
        Decision("reading", _describe_choice(facts, "rows"), why),
        alignment=alignment,
        use_io_uring=not facts.why_no_io_uring,
        use_page_cache_later=_fits_in_memory(facts),
        buffers_nbytes=buffers * buffer_nbytes,
        row_buffers=buffers,
    )


def _find_block_shuffle(order: Order) -> BlockShuffled | None:
    """Return the block shuffle of an order.

    Return None if the order has no block shuffle, or if its blocks are not consecutive rows of the files.
    """
    while isinstance(order, Take | Repeated | Span):
        order = order.inner
    return order if isinstance(order, BlockShuffled) and order.inner.is_sequential else None


def _fits_in_memory(facts: FileFacts) -> bool:
    return facts.nbytes <= facts.available_nbytes * PAGE_CACHE_SHARE


def _describe_uncached(facts: FileFacts) -> str:
    return f"{format_nbytes(facts.uncached_nbytes)} of {format_nbytes(facts.nbytes)} are not in memory"


def _describe_choice(facts: FileFacts, unit: str) -> str:
    return f"{unit}, direct" if facts.alignment else unit


def _describe_method(facts: FileFacts) -> str:
    method = f"threads, because io_uring is not available ({facts.why_no_io_uring})" if facts.why_no_io_uring else ""
    cached = "" if facts.alignment else "; through the page cache, because the file system refuses direct reads"
    later = "; from the page cache after the feed has read as many rows as the files have, because they fit in memory"
    return f", by {method or 'io_uring'}{cached}{later if _fits_in_memory(facts) else ''}"
