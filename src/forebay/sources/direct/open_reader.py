"""`plan_reads` plans how to read the files of a source; `open_reader` opens the reader."""

import os

from forebay.core.source import AbstractSource
from forebay.sources.direct.address_space import AddressSpace
from forebay.sources.direct.block_reader import BlockReader
from forebay.sources.direct.io_uring import IoUring
from forebay.sources.direct.open_files import OpenFiles, direct_alignment
from forebay.sources.direct.page_cache import PageCacheWarmer, available_nbytes, uncached_nbytes
from forebay.sources.direct.page_cache_reader import MappedReader, PageCacheReader
from forebay.sources.direct.reader import FileReader
from forebay.sources.direct.row_reader import DirectRowReader
from forebay.sources.direct.strategy import FileFacts, ReadPlan, ReadRequest, choose_strategy

__all__ = ["open_reader", "plan_reads"]

_IS_SUPPORTED = hasattr(os, "preadv") and hasattr(os, "posix_fadvise")  # true on Linux


def plan_reads(source: AbstractSource, request: ReadRequest) -> ReadPlan | None:
    """Return the plan to read a source.

    Return None if the source has no file extents, if a leaf has rows of 0 bytes, or if this is not Linux.
    """
    space = _address_space(source) if _IS_SUPPORTED else None
    return None if space is None else choose_strategy(_file_facts(space), request, space)


def open_reader(source: AbstractSource, plan: ReadPlan) -> FileReader | None:
    """Return the reader of a plan, or None if the feed needs no reader.

    It needs no reader if the files are in the page cache, because the source itself reads rows from there fast.
    """
    space = _address_space(source)
    if space is None or plan.strategy == "page cache":
        return None
    if plan.strategy == "warming":
        return MappedReader(source, PageCacheWarmer(space.paths))
    reader = _open_direct_reader(source, plan, space)
    return PageCacheReader(reader, source, PageCacheWarmer(space.paths)) if plan.use_page_cache_later else reader


def _open_direct_reader(source: AbstractSource, plan: ReadPlan, space: AddressSpace) -> FileReader:
    files = OpenFiles(space, alignment=plan.alignment)
    if plan.strategy == "rows":
        buffer_nbytes = plan.buffers_nbytes // plan.row_buffers
        return DirectRowReader(
            space, files, buffer_nbytes=buffer_nbytes, buffers=plan.row_buffers, use_io_uring=plan.use_io_uring
        )
    return BlockReader(
        space,
        files,
        rows=len(source),
        block_rows=plan.block_rows,
        buffers=plan.block_buffers,
        use_io_uring=plan.use_io_uring,
    )


def _address_space(source: AbstractSource) -> AddressSpace | None:
    extents = source.file_extents()
    row_nbytes = [spec.nbytes for spec in source.specs]
    return AddressSpace(extents, row_nbytes) if extents and all(row_nbytes) else None


def _file_facts(space: AddressSpace) -> FileFacts:
    """Return the facts about the files and this machine.

    If all files are in the page cache, set only the sizes, because `choose_strategy` does not use the other facts.
    """
    nbytes = sum(stamp[1] for stamp in space.stamps)
    uncached = sum(map(uncached_nbytes, space.paths))
    if not uncached:
        return FileFacts(nbytes, 0, 0, None, "")
    return FileFacts(nbytes, uncached, available_nbytes(), direct_alignment(space.paths), _why_no_io_uring())


def _why_no_io_uring() -> str:
    try:
        IoUring().close()
    except OSError as error:
        return error.strerror or str(error)
    return ""
