"""An index of the values in an LMDB file, read without the LMDB library.

The LMDB library trusts its files: a damaged page crashes the process. This parser checks every number of the mapped
file. To find all values, it reads the two meta pages, branch pages, leaf pages and overflow pages of a B+ tree.
`docs/measurements.md#lmdb-files` compares its speed with the package `lmdb`.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from forebay.core.progress_line import ProgressLine
from forebay.errors import SourceError
from forebay.sources.files.mapped import MappedFile

__all__ = ["LmdbValue", "scan_values"]

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_PAGE_HEADER = struct.Struct("<QHHHH")  # page number, padding, flags, end of the pointers, start of the nodes
_META = struct.Struct("<IIQQ")  # magic number, version, address, size of the map
_DATABASE = struct.Struct("<IHHQQQQQ")  # page size or padding, flags, depth, pages of 3 kinds, entries, root page
_NODE = struct.Struct("<HHHH")  # low and high half of a size, flags, length of the key
_HEADER_NBYTES, _NODE_NBYTES = _PAGE_HEADER.size, _NODE.size
_BRANCH, _LEAF, _OVERFLOW, _META_PAGE = 0x01, 0x02, 0x04, 0x08  # flags of a page
_BIG_DATA, _SUB_DATABASE, _DUPLICATES = 0x01, 0x02, 0x04  # flags of a node
_DUPLICATE_KEYS = 0x04  # flag of a database
_NO_PAGE = 2**64 - 1
_MAX_DEPTH = 32  # the limit of the library
_PAGE_SIZES = tuple(1 << bits for bits in range(8, 17))


class LmdbValue(NamedTuple):
    """Key and position of one value.

    A file has many values, and making a named tuple takes less time than making a dataclass.
    """

    key: bytes
    offset: int  # of the first byte in the file
    nbytes: int


def scan_values(file: MappedFile) -> list[LmdbValue]:
    """Return all values of the main database in the order of their keys."""
    try:
        tree = _Tree(file, _find_root(file))
        values: list[LmdbValue] = []
        with ProgressLine(f"indexing {file.path}", tree.root.entries) as progress:
            for progress.done, value in enumerate(tree.scan(tree.root.page, tree.root.depth)):
                # LMDB sorts keys, and each key occurs once. So a small file cannot claim many values.
                if values and value.key <= values[-1].key:
                    raise ValueError(f"the key {value.key[:40]!r} is not in order")
                values.append(value)
    except (struct.error, ValueError) as error:
        raise SourceError(f"{file.path} cannot be read as LMDB: {error}. Write or download it again.") from error
    if len(values) != tree.root.entries:
        raise SourceError(
            f"{file.path} is damaged: it has {len(values)} values instead of {tree.root.entries}. Write or download it "
            "again."
        )
    return values


@dataclass(frozen=True, slots=True)
class _Root:
    """The B+ tree of the newest transaction."""

    page: int  # number of the root page
    depth: int  # levels of pages
    entries: int  # number of values
    page_nbytes: int


def _find_root(file: MappedFile) -> _Root:
    """Return the tree of the meta page with the higher transaction number."""
    first = file.read(0, _PAGE_SIZES[-1] * 2)
    page_nbytes = _DATABASE.unpack_from(first, _HEADER_NBYTES + _META.size)[0]
    if page_nbytes not in _PAGE_SIZES:
        raise ValueError(f"its pages have {page_nbytes} bytes")
    metas = [_parse_meta(first, start, page_nbytes) for start in (0, page_nbytes)]
    return max(metas, key=lambda meta: meta[0])[1]


def _parse_meta(data: bytes, start: int, page_nbytes: int) -> tuple[int, _Root]:
    """Return the transaction number of the meta page at byte `start`, and its tree."""
    flags = _PAGE_HEADER.unpack_from(data, start)[2]
    magic, version, _, _ = _META.unpack_from(data, start + _HEADER_NBYTES)
    if magic != _MAGIC or not flags & _META_PAGE:
        raise ValueError("it does not begin with the meta pages of LMDB, or was written on another kind of machine")
    if version != _VERSION:
        raise ValueError(f"it has version {version} of the format instead of {_VERSION}")
    position = start + _HEADER_NBYTES + _META.size + _DATABASE.size  # after the database of free pages
    _, database_flags, depth, _, _, _, entries, page = _DATABASE.unpack_from(data, position)
    (transaction,) = struct.unpack_from("<Q", data, position + _DATABASE.size + 8)  # after the number of the last page
    if database_flags & _DUPLICATE_KEYS:
        raise ValueError("keys have several values (MDB_DUPSORT)")
    if depth > _MAX_DEPTH:
        raise ValueError(f"its tree claims a depth of {depth}")
    return transaction, _Root(page, depth, entries, page_nbytes)


class _Tree:
    """Visits the pages of a tree. Raises ValueError at a page that it has visited."""

    def __init__(self, file: MappedFile, root: _Root) -> None:
        self._path, self._memory, self._nbytes = file.path, file.view(), file.nbytes
        self.root, self._visited = root, set[int]()
        self._last_page = file.nbytes // root.page_nbytes - 1

    def scan(self, page: int, depth: int) -> Iterator[LmdbValue]:
        """Yield the values below a page, which has `depth` levels including its own."""
        if page == _NO_PAGE and not self._visited:  # an empty tree
            return
        data, flags, nodes = self._read_page(page)
        if flags & _BRANCH and depth > 1:
            for position in nodes:
                low, high, top, _ = _NODE.unpack_from(data, position)
                yield from self.scan(low | high << 16 | top << 32, depth - 1)
        elif flags & _LEAF and depth == 1:
            for position in nodes:
                yield self._parse_leaf(data, position, page * self.root.page_nbytes)
        else:
            raise ValueError(f"page {page} has the flags {flags:#x} at level {depth} of the tree")

    def _read_page(self, page: int) -> tuple[bytes, int, list[int]]:
        """Return the bytes of a page, its flags and the positions of its nodes."""
        if page in self._visited or not 2 <= page <= self._last_page:
            raise ValueError(f"its tree refers to page {page}, which cannot be a part of it")
        self._visited.add(page)
        data = self._memory[page * self.root.page_nbytes : (page + 1) * self.root.page_nbytes]
        number, _, flags, lower, _ = _PAGE_HEADER.unpack_from(data)
        count = (lower - _HEADER_NBYTES) // 2
        if number != page or not 0 <= count <= (len(data) - _HEADER_NBYTES) // 2:
            raise ValueError(f"page {page} has the number {number} and {count} entries")
        nodes = list(struct.unpack_from(f"<{count}H", data, _HEADER_NBYTES))
        if min(nodes, default=lower) < lower:
            raise ValueError(f"an entry of page {page} is at byte {min(nodes)}, inside the list of entries")
        return data, flags, nodes

    def _parse_leaf(self, data: bytes, position: int, page_start: int) -> LmdbValue:
        low, high, flags, key_nbytes = _NODE.unpack_from(data, position)
        nbytes, start = low | high << 16, position + _NODE_NBYTES + key_nbytes
        key = data[position + _NODE_NBYTES : start]
        if flags & (_SUB_DATABASE | _DUPLICATES):
            raise SourceError(
                f"the key {key[:40]!r} in {self._path} is a named database, or has several values. Copy the images to "
                "the main database of a new file, with one value for each key."
            )
        if not flags & _BIG_DATA:
            offset, end = page_start + start, start + nbytes
            is_inside = end <= len(data)
        else:
            (page,) = struct.unpack_from("<Q", data, start)
            offset = page * self.root.page_nbytes + _HEADER_NBYTES
            is_inside = page <= self._last_page and offset + nbytes <= self._nbytes and self._is_overflow(page)
        if not is_inside:
            raise ValueError(f"the value of the key {key[:40]!r} has {nbytes} bytes, which are not all in the file")
        return LmdbValue(key, offset, nbytes)

    def _is_overflow(self, page: int) -> bool:
        number, _, flags, _, _ = _PAGE_HEADER.unpack_from(self._memory, page * self.root.page_nbytes)
        return bool(number == page and flags & _OVERFLOW)
