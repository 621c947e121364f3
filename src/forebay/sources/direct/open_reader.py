"""From a source to how its files are read, and to the reader that does it."""

import os
from collections.abc import Sequence

from forebay.core.source import Source, Stored
from forebay.sources.direct.address_space import Space
from forebay.sources.direct.block_reader import BlockReader
from forebay.sources.direct.io_uring import Ring
from forebay.sources.direct.open_files import OpenFiles, direct_alignment
from forebay.sources.direct.page_cache import Warmer, available_nbytes, uncached_nbytes
from forebay.sources.direct.page_cache_reader import KeepingReader, MappedReader
from forebay.sources.direct.reader import Reader
from forebay.sources.direct.row_reader import RowReader
from forebay.sources.direct.strategy import Facts, Need, Reading, choose_reading

__all__ = ["open_reader", "plan_reading"]

_SUPPORTED = hasattr(os, "preadv") and hasattr(os, "posix_fadvise")  # Linux


def plan_reading(source: Source, need: Need) -> Reading | None:
    """How rows of a source are best read; None where it does not say in which files they lie."""
    space = _space(source) if _SUPPORTED else None
    return None if space is None else choose_reading(_look(space), need, space)


def open_reader(source: Source, reading: Reading) -> Reader | None:
    """A reader for the way chosen; None where rows are gathered from their mappings."""
    space = _space(source)
    if space is None or reading.way == "page cache":
        return None
    if reading.way == "warming":
        return MappedReader(source, Warmer(space.paths))
    reader = _positioned(source, reading, space)
    return KeepingReader(reader, source, Warmer(space.paths)) if reading.kept else reader


def _positioned(source: Source, reading: Reading, space: Space) -> Reader:
    """One that reads by position, into memory of its own."""
    files = OpenFiles(space, alignment=reading.alignment)
    if reading.way == "rows":
        trays = {"tray_nbytes": reading.held_nbytes // reading.trays, "trays": reading.trays}
        return RowReader(space, files, **trays, ring=reading.ring)
    blocks = {"block_rows": reading.block_rows, "places": reading.places}
    return BlockReader(space, files, rows=len(source), **blocks, ring=reading.ring)


def _space(source: Source) -> Space | None:
    stored: Sequence[Sequence[Stored]] = getattr(source, "stored", list)()
    row_nbytes = [spec.nbytes for spec in source.specs]
    return Space(stored, row_nbytes) if stored and all(row_nbytes) else None


def _look(space: Space) -> Facts:
    """Facts of these files; what only matters to files that must be read is not asked of the others."""
    nbytes = sum(stamp[1] for stamp in space.stamps)
    uncached = sum(map(uncached_nbytes, space.paths))
    if not uncached:
        return Facts(nbytes, 0, 0, None, "")
    return Facts(nbytes, uncached, available_nbytes(), direct_alignment(space.paths), _why_no_ring())


def _why_no_ring() -> str:
    try:
        Ring().close()
    except OSError as error:
        return error.strerror or str(error)
    return ""
