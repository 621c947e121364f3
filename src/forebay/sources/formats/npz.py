"""`.npz` files as a source.

A zip archive contains a member as it is ("stored") or compressed ("deflated"). Rows of stored members are gathered from
the mapped file. A deflated member is inflated completely when one of its rows is first needed. If an archive has
several deflated members, a feed inflates them in parallel, in advance.

A stored member may begin at any byte of the archive, so its values are rarely aligned. Gathers copy bytes, so alignment
does not matter. Checksums of stored members are not verified, because that would read all data.
"""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import TypeAlias

import numpy as np

from forebay.core.chunk_policy import ChunkPolicy
from forebay.core.decision import Decision
from forebay.core.rows import Rows, row_count
from forebay.core.source import AbstractSource, FileExtent, MemoryRegion
from forebay.core.spec import Array, Tree, as_specs
from forebay.errors import SourceError
from forebay.sources.arrays import GatherFunction, locate_extents, make_gather, memory_region
from forebay.sources.files.columns import common_length, dict_structure, validate_names
from forebay.sources.files.decompress_ahead import DecompressAhead
from forebay.sources.files.held_budget import HeldBudget
from forebay.sources.files.mapped import MappedFile, PathName, closed_error
from forebay.sources.files.match_spec import match_spec
from forebay.sources.formats.inflate import DeflatedData, describe_codec
from forebay.sources.formats.npy import MAX_HEADER_NBYTES, NpyHeader, parse_header
from forebay.sources.formats.zip_index import ZipMember, list_members

__all__ = ["NpzSource", "open_npz", "validate_member_size"]


def open_npz(
    path: PathName,
    *,
    spec: Tree | None = None,
    members: Sequence[str] | None = None,
    max_held_nbytes: int | None = None,
) -> "NpzSource":
    """Open one `.npz` file as a source, without reading its data.

    A row is a dict with one array per member. `members=["x", "y"]` selects members. With `spec=`, the names of its
    leaves select members, which must match the spec. Members written by `numpy.savez` are mapped and use no memory.
    Members written by `savez_compressed` are inflated when a row is first needed. They stay in memory until the source
    is closed. A source of many files may close a file earlier, to limit memory and open files.

    A file is refused if its compressed members inflate to more than the limit, which `HeldBudget.of` computes from
    `max_held_nbytes`. For None, the limit is half of the memory of this machine, but at least 1 GiB.
    """
    file = MappedFile(path)
    zip_members = {member.name: member for member in list_members(file)}
    if members is None:
        members = list(zip_members) if spec is None else as_specs(spec)[1].paths
    validate_names(path, "member", members, list(zip_members))
    held_nbytes = sum(zip_members[name].nbytes for name in members if zip_members[name].is_deflated)
    HeldBudget.of(max_held_nbytes).validate(f"{path} claims members that inflate to {held_nbytes} bytes", held_nbytes)
    return NpzSource(file, [_open_member(file, zip_members[name]) for name in members], list(members), spec)


class NpzSource(AbstractSource):
    """A source whose leaves are the members of one archive."""

    immutable = True
    can_prefetch = True

    def __init__(self, file: MappedFile, members: Sequence["_Member"], names: Sequence[str], spec: Tree | None) -> None:
        self._length = common_length(file.path, [member.length for member in members], names)
        self.specs = tuple(member.spec for member in members)
        self.structure = match_spec(file.path, self.specs, dict_structure(names), spec)
        self._file = file
        self._members = list(members)
        self._deflated_members = [member for member in members if isinstance(member, _DeflatedMember)]
        self.decompressed_nbytes = sum(member.decompressed_nbytes for member in self._deflated_members)
        self.chunk_policy, self.read_decision = self._describe_reads()

    def __len__(self) -> int:
        return self._length

    @property
    def held_nbytes(self) -> int:
        return sum(member.held_nbytes for member in self._members)

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        members = self._members
        if not members:
            raise closed_error(self._file.path)
        self._file.check_unchanged()
        for member, leaf in zip(members, out, strict=True):
            member.gather(rows, leaf)

    def gather_leaves(self, leaves: Sequence[int], rows: Rows) -> list[Array]:
        members = self._members
        if not members:
            raise closed_error(self._file.path)
        self._file.check_unchanged()
        out = [self.specs[leaf].empty(row_count(rows)) for leaf in leaves]
        for leaf, array in zip(leaves, out, strict=True):
            members[leaf].gather(rows, array)
        return out

    def decompress(self) -> None:
        # Several threads may call this. Each thread first inflates the members that no other thread has begun, and then
        # waits for the others.
        for member in self._deflated_members:
            member.decompress(wait=False)
        for member in self._deflated_members:
            member.decompress()

    def prefetch(self, upcoming: Iterator[Rows]) -> DecompressAhead | None:
        """Inflate all deflated members in the background, several at a time.

        A single deflated member is not prefetched. The first gather inflates it.
        """
        sizes = [member.decompressed_nbytes for member in self._deflated_members]
        if len(sizes) < 2:
            return None
        all_members = dict.fromkeys(range(len(sizes)), 1)  # every group needs all members
        return DecompressAhead(
            upcoming,
            lambda rows: all_members,
            lambda number: nullcontext(self._deflated_members[number]),
            nbytes=sizes,
            budget_nbytes=sum(sizes),
        )

    def memory(self) -> list[MemoryRegion]:
        """Return the memory of the members, or [] if a member is deflated."""
        regions = [member.memory() for member in self._members]
        return list(chain(*regions)) if all(regions) else []

    def file_extents(self) -> list[list[FileExtent]]:
        """Return the file extents of the members, or [] if a member is deflated."""
        arrays = [member.array for member in self._members if isinstance(member, _StoredMember)]
        return self._file.file_extents(locate_extents(arrays)) if len(arrays) == len(self._members) else []

    def close(self) -> None:
        """Drop the members. Their memory is freed when no gather uses it."""
        self._members, self._deflated_members = [], []

    def _describe_reads(self) -> tuple[ChunkPolicy, Decision | None]:
        if not self._deflated_members:
            return ChunkPolicy(), None
        row_nbytes = sum(member.spec.nbytes for member in self._deflated_members)
        method = f"members are inflated completely, {describe_codec()}, at most one per core"
        counts = f"{len(self._deflated_members)} of {len(self._members)} members of {self._file.path.name} are deflated"
        return ChunkPolicy(self._length, row_nbytes, (method,)), Decision("reads", "inflated", f"{counts}; {method}")


class _StoredMember:
    """A stored member. Rows are gathered from the mapped file."""

    held_nbytes = 0

    def __init__(self, file: MappedFile, name: str, zip_member: ZipMember) -> None:
        header = parse_header(file.read(zip_member.offset, min(zip_member.nbytes, MAX_HEADER_NBYTES)), name)
        validate_member_size(header, name, zip_member)
        self.array = file.array(
            header.shape, header.dtype, offset=zip_member.offset + header.nbytes, order=header.order
        )
        self.length, self.spec = header.shape[0], header.row_spec
        self.gather = make_gather(self.array)

    def memory(self) -> list[MemoryRegion]:
        return [memory_region(self.array)]


class _DeflatedMember:
    """A deflated member. The first thread that needs a row inflates it."""

    def __init__(self, file: MappedFile, name: str, zip_member: ZipMember) -> None:
        self._data = DeflatedData(
            file, name, zip_member.offset, zip_member.stored_nbytes, zip_member.nbytes, zip_member.crc
        )
        self._data.validate()
        self._header = parse_header(self._data.inflate_head(min(zip_member.nbytes, MAX_HEADER_NBYTES)), name)
        validate_member_size(self._header, name, zip_member)
        self.length, self.spec = self._header.shape[0], self._header.row_spec
        self.held_nbytes, self.decompressed_nbytes = 0, zip_member.nbytes
        self._lock = threading.Lock()
        self._gather: GatherFunction | None = None

    def gather(self, rows: Rows, out: Array) -> None:
        gather = self._gather or self._inflate()
        gather(rows, out)

    def memory(self) -> list[MemoryRegion]:
        return []

    def decompress(self, *, wait: bool = True) -> None:
        """Inflate the member if it is not inflated yet.

        With `wait=False`, return at once if another thread is inflating it.
        """
        if self._gather is None and (wait or not self._lock.locked()):
            self._inflate()

    def _inflate(self) -> GatherFunction:
        with self._lock:
            if self._gather is None:
                data, header = self._data.inflate(), self._header
                array = np.ndarray(header.shape, header.dtype, data, header.nbytes, order=header.order)
                self._gather, self.held_nbytes = make_gather(array), data.nbytes
            return self._gather


_Member: TypeAlias = _StoredMember | _DeflatedMember


def _open_member(file: MappedFile, zip_member: ZipMember) -> _Member:
    name = f"{zip_member.name!r} in {file.path}"
    return (_DeflatedMember if zip_member.is_deflated else _StoredMember)(file, name, zip_member)


def validate_member_size(header: NpyHeader, name: str, zip_member: ZipMember) -> None:
    """Raise SourceError unless header and array have exactly the bytes of the member.

    Otherwise a damaged header could claim an array of any size.
    """
    claimed_nbytes = header.nbytes + math.prod(header.shape) * header.dtype.itemsize
    if claimed_nbytes != zip_member.nbytes:
        raise SourceError(
            f"{name} is damaged: its header claims {claimed_nbytes} bytes (shape {header.shape}, {header.dtype}), "
            f"the archive claims {zip_member.nbytes}. Write or download the file again."
        )
