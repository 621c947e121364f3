"""An index of the members of a zip archive, built without reading their data."""

import io
import struct
import zipfile
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from forebay.errors import SourceError

__all__ = ["ArchiveFile", "ZipMember", "list_members"]

_LOCAL_HEADER = struct.Struct("<4s5H3L2H")  # ends with the lengths of the name and of the extra field
_MAX_DIRECTORY_NBYTES = 16 * 2**20  # bytes; 280,000 members, whose `ZipInfo` objects take 160 MiB of memory
_UNSUPPORTED_METHODS = {12: "bzip2", 14: "lzma", 93: "zstandard", 95: "xz"}  # number -> name


class ArchiveFile(Protocol):
    """An archive that can be read at any offset."""

    path: Any  # path or URL, for error messages
    nbytes: int

    def read(self, start: int, nbytes: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ZipMember:
    """One member of an archive."""

    name: str  # without the suffix ".npy"
    offset: int  # of the first byte of data, after the local header
    is_deflated: bool
    stored_nbytes: int  # size in the archive
    nbytes: int  # decompressed size
    crc: int  # CRC-32 of the decompressed data


def list_members(file: ArchiveFile) -> list[ZipMember]:
    """Return all members in the order of the archive.

    Raise an error for a member that Forebay cannot read.
    """
    try:
        with zipfile.ZipFile(_DirectoryStream(file)) as archive:
            infos, directory_offset = [info for info in archive.infolist() if not info.is_dir()], archive.start_dir
    except SourceError:
        raise
    except Exception as error:  # for a damaged directory, zipfile raises anything from struct.error to KeyError
        raise SourceError(f"{file.path} cannot be read as .npz: {error}. Write or download it again.") from error
    members = [_locate_member(file, info) for info in infos]
    _validate_no_overlap(file, infos, members, directory_offset)
    for name, count in Counter(member.name for member in members).items():
        if count > 1:
            raise SourceError(f"{file.path} has {count} members named {name!r}. Write it with one member of that name.")
    return members


class _DirectoryStream(io.BufferedIOBase):
    """The stream from which `zipfile` reads the directory.

    It refuses long reads. Otherwise `zipfile` would make objects for any number of members.
    """

    def __init__(self, file: ArchiveFile) -> None:
        self._file, self._position = file, 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        position = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.nbytes}[whence] + offset
        if position < 0:
            raise OSError("the file is too short")  # zipfile expects OSError
        self._position = position
        return position

    def read(self, nbytes: int | None = -1, /) -> bytes:
        rest = max(0, self._file.nbytes - self._position)
        nbytes = rest if nbytes is None or nbytes < 0 else nbytes
        if nbytes > _MAX_DIRECTORY_NBYTES:
            raise ValueError(f"its directory claims to have {nbytes} bytes, and {_MAX_DIRECTORY_NBYTES} are allowed")
        data = self._file.read(self._position, nbytes)
        self._position += len(data)
        return data


def _locate_member(file: ArchiveFile, info: zipfile.ZipInfo) -> ZipMember:
    _validate_method(file, info)
    head = file.read(info.header_offset, _LOCAL_HEADER.size) if info.header_offset >= 0 else b""
    fields = _LOCAL_HEADER.unpack(head) if len(head) == _LOCAL_HEADER.size else (b"",)
    if fields[0] != b"PK\x03\x04":
        raise SourceError(
            f"{file.path} is damaged: {info.filename!r} does not begin at byte {info.header_offset}. "
            "Write or download it again."
        )
    offset = info.header_offset + _LOCAL_HEADER.size + fields[-2] + fields[-1]
    return ZipMember(
        name=info.filename.removesuffix(".npy"),
        offset=offset,
        is_deflated=info.compress_type == zipfile.ZIP_DEFLATED,
        stored_nbytes=info.compress_size,
        nbytes=info.file_size,
        crc=info.CRC,
    )


def _validate_no_overlap(
    file: ArchiveFile, infos: list[zipfile.ZipInfo], members: list[ZipMember], directory_offset: int
) -> None:
    """Raise SourceError if members share bytes.

    By sharing, a small archive could claim members of any total size.
    """
    parts = sorted(
        (info.header_offset, member.offset + member.stored_nbytes, member.name)
        for info, member in zip(infos, members, strict=True)
    )
    for (_, end, name), (next_start, _, next_name) in pairwise([*parts, (directory_offset, 0, "the directory")]):
        if end > next_start:
            raise SourceError(
                f"{file.path} is damaged: {name!r} ends at byte {end}, after the start of {next_name!r} at byte "
                f"{next_start}. Write or download it again."
            )


def _validate_method(file: ArchiveFile, info: zipfile.ZipInfo) -> None:
    if info.flag_bits & 1:
        raise SourceError(f"{info.filename!r} in {file.path} is encrypted. Write it again without a password.")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        method = _UNSUPPORTED_METHODS.get(info.compress_type, f"method {info.compress_type}")
        raise SourceError(
            f"{info.filename!r} in {file.path} is compressed with {method}. Write it again with numpy.savez or "
            "numpy.savez_compressed: only stored and deflated members can be read."
        )
    if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
        raise SourceError(
            f"{file.path} is damaged: {info.filename!r} is not compressed, but has {info.compress_size} bytes in the "
            f"archive instead of {info.file_size}. Write or download it again."
        )
