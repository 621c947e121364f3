"""Where the members of a tar archive lie, and which of them are one sample: those of one name up to its first dot."""

import io
import mmap
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from forebay.errors import SourceError
from forebay.sources.formats.gzip_whole import AnyFile, GunzippedFile

__all__ = ["Sample", "TarMember", "list_samples", "scan_plain"]

_BLOCK = 512


@dataclass(frozen=True, slots=True)
class TarMember:
    """One member: its data lies in the archive as it is."""

    name: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What belongs together, by the part of its names behind the first dot: `jpg`, `cls`, `seg.png`."""

    key: str
    members: dict[str, TarMember]


def list_samples(file: AnyFile) -> list[Sample]:
    """Every sample in the archive's own order; reads the headers, which lie all over the archive."""
    samples: list[Sample] = []
    for member in _list_members(file):
        folder, _, base = member.name.rpartition("/")
        stem, _, part = base.partition(".")
        key, part = f"{folder}/{stem}", part.lower()
        if base.startswith((".", "__")) or not part:
            continue  # what a file system or a tool left behind
        if not samples or samples[-1].key != key:
            samples.append(Sample(key, {}))
        if part in samples[-1].members:
            raise SourceError(f"{file.path} has two members called {member.name!r}: nothing tells which one is meant.")
        samples[-1].members[part] = member
    return samples


def _list_members(file: AnyFile) -> Sequence[TarMember]:
    plain = scan_plain(file.view(), file.nbytes)
    return _list_slowly(file) if plain is None else [TarMember(*member) for member in plain]


def _list_slowly(file: AnyFile) -> Sequence[TarMember]:
    try:
        with _seekable(file) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            found = [TarMember(info.name, info.offset_data, info.size) for info in archive if _is_data(file.path, info)]
            end = archive.offset
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        raise SourceError(f"{file.path} cannot be read as tar: {error}. Write or download it again.") from error
    if file.read(end, _BLOCK).strip(b"\0"):  # where tarfile stops without a word
        raise SourceError(f"{file.path} cannot be read as tar from byte {end} on: it is damaged there.")
    if found and found[-1].offset + found[-1].nbytes > file.nbytes:
        raise SourceError(f"{file.path} is cut short: {found[-1].name!r} should end past its {file.nbytes} bytes.")
    return found


def _seekable(file: AnyFile) -> IO[bytes]:
    return io.BytesIO(file.view()) if isinstance(file, GunzippedFile) else file.path.open("rb")


def _is_data(path: Path, info: tarfile.TarInfo) -> bool:
    if info.isfile() and info.issparse():
        raise SourceError(f"{info.name!r} in {path} is stored with holes: write it again without --sparse.")
    return info.isfile()


_PLAIN, _FOLDER, _EXTENDED = b"0\0", b"5", b"x"
_CHANGES = (b" path=", b" size=", b" GNU.")  # what an extended header may say that matters here
_POSIX = b"ustar\0"


def scan_plain(memory: mmap.mmap | bytes, nbytes: int) -> list[tuple[str, int, int]] | None:
    """Name, offset and size of each file; None where the archive is not plain, or is damaged."""
    found: list[tuple[str, int, int]] = []
    heads: list[bytes] = []
    place = 0
    while place + _BLOCK <= nbytes:
        head = memory[place : place + _BLOCK]
        if head[0] == 0:  # the end is marked by empty blocks
            break
        size, kind, start = _octal(head[124:136]), head[156], place + _BLOCK
        if size is None or start + size > nbytes:
            return None
        if kind in _PLAIN:
            found.append((_name(head), start, size))
        elif not (kind in _FOLDER or (kind in _EXTENDED and _changes_nothing(memory[start : start + size]))):
            return None
        heads.append(head)
        place = start + -(-size // _BLOCK) * _BLOCK
    return found if _are_whole(heads) and place + _BLOCK <= nbytes else None


def _octal(field: bytes) -> int | None:
    digits = field.strip(b" \0")
    return int(digits, 8) if digits.isdigit() and not digits.strip(b"01234567") else None


def _name(head: bytes) -> str:
    name = head[:100].partition(b"\0")[0]
    prefix = head[345:500].partition(b"\0")[0] if head[257:263] == _POSIX else b""
    return (prefix + b"/" + name if prefix else name).decode("utf-8", "surrogateescape")


def _changes_nothing(extended: bytes) -> bool:
    return not any(change in extended for change in _CHANGES)


def _are_whole(heads: Sequence[bytes]) -> bool:
    """Whether every header has the sum of bytes that it claims, its own field counted as spaces."""
    if not heads:
        return False
    table = np.frombuffer(b"".join(heads), np.uint8).reshape(-1, _BLOCK)
    sums = table.sum(axis=1, dtype=np.int64) - table[:, 148:156].sum(axis=1, dtype=np.int64) + 8 * ord(" ")
    claimed = [_octal(head[148:156]) for head in heads]
    return bool(claimed == sums.tolist())
