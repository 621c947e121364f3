"""Where the members of a tar archive lie, and which of them are one sample: those of one name up to its first dot."""

import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from forebay.errors import SourceError
from forebay.sources.gunzip import AnyFile, GunzippedFile
from forebay.sources.tar_headers import scan_plain

__all__ = ["Sample", "TarMember", "list_samples"]

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
