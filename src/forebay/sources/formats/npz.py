"""`.npz` files: stored members are mapped where they lie in the archive, deflated ones are inflated when first needed.

A stored member starts wherever the archive happens to have got to, so it is rarely aligned; rows are gathered as bytes,
which does not mind. Its checksum is not verified, since that would read all of it; a deflated member's is. Members are
inflated several at once, ahead of need where it is known which rows come next.
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
from forebay.core.rows import Rows
from forebay.core.source import AbstractSource, FileExtent, MemoryRegion
from forebay.core.spec import Array, Tree, as_specs, flatten
from forebay.errors import SourceError, SpecError
from forebay.sources.arrays import GatherLeaf, extents_of, gather_leaf, memory_region
from forebay.sources.files.decompress_ahead import DecompressAhead
from forebay.sources.files.mapped import MappedFile, PathName
from forebay.sources.files.match_spec import fit_spec
from forebay.sources.formats.inflate import Deflated, codec_told
from forebay.sources.formats.npy import HEAD_NBYTES, NpyHeader, parse_header
from forebay.sources.formats.zip_index import ZipMember, list_members

__all__ = ["NpzSource", "check_nbytes", "check_present", "common_length", "open_npz"]


def open_npz(path: PathName, *, spec: Tree | None = None, members: Sequence[str] | None = None) -> "NpzSource":
    """Open one `.npz` file as a dict of its members, without reading their data.

    `members=["x", "y"]` takes only those. With `spec=`, members are found by the names of its leaves and checked
    against it. Members written by `numpy.savez` are mapped and take no memory; those of `savez_compressed` are inflated
    whole when a row is first asked for, or ahead of that in a feed, and held until the source is closed (among many
    files: until it is no longer one of the open ones).
    """
    file = MappedFile(path)
    found = {member.name: member for member in list_members(file)}
    if members is None:
        members = list(found) if spec is None else as_specs(spec)[1].paths
    check_present(path, members, list(found))
    return NpzSource(file, [_open_member(file, found[name]) for name in members], list(members), spec)


class NpzSource(AbstractSource):
    """The members of one archive, row by row."""

    immutable = True  # what lies in a file stays as it is

    def __init__(self, file: MappedFile, members: Sequence["_Member"], names: Sequence[str], spec: Tree | None) -> None:
        self._length = common_length(file.path, [member.length for member in members], names)
        self.specs = tuple(member.spec for member in members)
        self.structure = fit_spec(file.path, self.specs, flatten(dict.fromkeys(names, 0))[1], spec)
        self._file = file
        self._members = list(members)
        self._deflated = [member for member in members if isinstance(member, _Inflated)]
        self.decompressed_nbytes = sum(member.decompressed_nbytes for member in self._deflated)
        self.chunk_policy, self.read_decision = self._told(file)

    def __len__(self) -> int:
        return self._length

    @property
    def held_nbytes(self) -> int:
        """Memory that inflated members take now."""
        return sum(member.held_nbytes for member in self._members)

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        members = self._members
        if not members:
            raise SourceError(f"{self._file.path} was closed: open it again to read from it.")
        self._file.check()
        for member, leaf in zip(members, out, strict=True):
            member.gather(rows, leaf)

    def decompress(self) -> None:
        """Inflate whatever is deflated; beside others who do so, each takes members that nobody has begun."""
        for member in self._deflated:
            member.decompress(wait=False)
        for member in self._deflated:
            member.decompress()

    def prefetch(self, upcoming: Iterator[Rows]) -> DecompressAhead | None:
        """Inflate all members ahead of need, several at once, until what is returned is closed."""
        sizes = [member.decompressed_nbytes for member in self._deflated]
        if len(sizes) < 2:
            return None
        all_members = dict.fromkeys(range(len(sizes)), 1)
        return DecompressAhead(
            upcoming,
            lambda rows: all_members,
            lambda number: nullcontext(self._deflated[number]),
            nbytes=sizes,
            budget_nbytes=sum(sizes),
        )

    def memory(self) -> list[MemoryRegion]:
        """The mapped members, where all of them are."""
        regions = [member.memory() for member in self._members]
        return list(chain(*regions)) if all(regions) else []

    def file_extents(self) -> list[list[FileExtent]]:
        """Where members lie in the archive, where all of them are stored."""
        arrays = [member.array for member in self._members if isinstance(member, _Mapped)]
        return self._file.file_extents(extents_of(arrays)) if len(arrays) == len(self._members) else []

    def close(self) -> None:
        """Let go of the file and of what was inflated, once the last gather under way is done."""
        self._members, self._deflated = [], []

    def _told(self, file: MappedFile) -> tuple[ChunkPolicy, Decision | None]:
        """What a shuffle of many such files makes of it, and what `explain()` says of one."""
        if not self._deflated:
            return ChunkPolicy(), None
        row_nbytes = sum(member.spec.nbytes for member in self._deflated)
        how = f"members are inflated {codec_told()}, as many at once as there are cores, and none in parts"
        of = f"{len(self._deflated)} of {len(self._members)} members of {file.path.name} are deflated"
        return ChunkPolicy(self._length, row_nbytes, (how,)), Decision("reads", "inflated", f"{of}; {how}")


class _Mapped:
    """A stored member: rows come straight from the file."""

    held_nbytes = 0

    def __init__(self, file: MappedFile, name: str, zipped: ZipMember) -> None:
        header = parse_header(file.read(zipped.offset, min(zipped.nbytes, HEAD_NBYTES)), name)
        check_nbytes(header, name, zipped)
        self.array = file.array(header.shape, header.dtype, offset=zipped.offset + header.nbytes, order=header.order)
        self.length, self.spec = header.shape[0], header.row_spec
        self.gather = gather_leaf(self.array)

    def memory(self) -> list[MemoryRegion]:
        return [memory_region(self.array)]


class _Inflated:
    """A deflated member: inflated once, by the first thread that needs a row of it."""

    def __init__(self, file: MappedFile, name: str, zipped: ZipMember) -> None:
        self._deflated = Deflated(file, name, zipped.offset, zipped.packed_nbytes, zipped.nbytes, zipped.crc)
        self._deflated.check()
        self._header = parse_header(self._deflated.head(min(zipped.nbytes, HEAD_NBYTES)), name)
        check_nbytes(self._header, name, zipped)
        self.length, self.spec = self._header.shape[0], self._header.row_spec
        self.held_nbytes, self.decompressed_nbytes = 0, zipped.nbytes
        self._lock = threading.Lock()
        self._gather: GatherLeaf | None = None

    def gather(self, rows: Rows, out: Array) -> None:
        gather = self._gather or self._inflate()
        gather(rows, out)

    def memory(self) -> list[MemoryRegion]:
        return []

    def decompress(self, *, wait: bool = True) -> None:
        """Inflate it now, if nobody did; unless told to wait, leave it to who has begun."""
        if self._gather is None and (wait or not self._lock.locked()):
            self._inflate()

    def _inflate(self) -> GatherLeaf:
        with self._lock:
            if self._gather is None:
                data, header = self._deflated.inflate(), self._header
                array = np.ndarray(header.shape, header.dtype, data, header.nbytes, order=header.order)
                self._gather, self.held_nbytes = gather_leaf(array), data.nbytes
            return self._gather


_Member: TypeAlias = _Mapped | _Inflated


def _open_member(file: MappedFile, zipped: ZipMember) -> _Member:
    name = f"{zipped.name!r} in {file.path}"
    return (_Inflated if zipped.deflated else _Mapped)(file, name, zipped)


def check_present(path: PathName, members: Sequence[str], found: Sequence[str]) -> None:
    """Refuse to go on without members that were asked for."""
    held = ", ".join(map(repr, found)) or "no members at all"
    if not members:
        raise SourceError(f"no members of {path} were asked for: it has {held}.")
    for name in members:
        if name not in found:
            raise SourceError(f"{path} has no member {name!r}: it has {held}.")


def check_nbytes(header: NpyHeader, name: str, zipped: ZipMember) -> None:
    """The array must fill its member exactly: only then is the archive's size a bound for the header's claim."""
    claimed = header.nbytes + math.prod(header.shape) * header.dtype.itemsize
    if claimed != zipped.nbytes:
        raise SourceError(
            f"{name} is damaged: its header speaks of {claimed} bytes (shape {header.shape}, {header.dtype}), "
            f"the archive of {zipped.nbytes}."
        )


def common_length(path: PathName, lengths: Sequence[int], names: Sequence[str]) -> int:
    """How many rows all members have; to be called with what each of them has."""
    if len(set(lengths)) != 1:
        told = ", ".join(f"{name!r} has {length}" for name, length in zip(names, lengths, strict=True))
        raise SpecError(
            f"every member of {path} must have the same number of rows, but {told}. "
            "Choose those that go together with members=[...]."
        )
    return lengths[0]
