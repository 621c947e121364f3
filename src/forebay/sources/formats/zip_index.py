"""Where the members of a zip archive lie, without reading them."""

import struct
import zipfile
from collections import Counter
from dataclasses import dataclass
from typing import Any, Protocol

from forebay.errors import SourceError

__all__ = ["Archive", "ZipMember", "list_members"]

_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_METHODS = {12: "bzip2", 14: "lzma", 93: "zstandard", 95: "xz"}


class Archive(Protocol):
    """What is known of an archive: a path or an open file, and its bytes from anywhere."""

    path: Any

    def read(self, start: int, nbytes: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ZipMember:
    """One member: its data begins at `offset`, after a local header whose length only the header itself tells."""

    name: str
    offset: int
    deflated: bool
    packed_nbytes: int
    nbytes: int
    crc: int


def list_members(file: Archive) -> list[ZipMember]:
    """Every member in the archive's own order; what cannot be read in place or inflated is refused."""
    try:
        with zipfile.ZipFile(file.path) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
    except Exception as error:  # a damaged directory makes zipfile raise anything from struct.error to KeyError
        raise SourceError(f"{file.path} cannot be read as .npz: {error}. Write or download it again.") from error
    members = [_locate(file, info) for info in infos]
    for name, count in Counter(member.name for member in members).items():
        if count > 1:
            raise SourceError(f"{file.path} has {count} members called {name!r}: nothing tells which one is meant.")
    return members


def _locate(file: Archive, info: zipfile.ZipInfo) -> ZipMember:
    _check_readable(file, info)
    head = file.read(info.header_offset, _LOCAL_HEADER.size) if info.header_offset >= 0 else b""
    fields = _LOCAL_HEADER.unpack(head) if len(head) == _LOCAL_HEADER.size else (b"",)
    if fields[0] != b"PK\x03\x04":
        raise SourceError(f"{file.path} is damaged: {info.filename!r} does not begin at byte {info.header_offset}.")
    offset = info.header_offset + _LOCAL_HEADER.size + fields[-2] + fields[-1]
    return ZipMember(
        name=info.filename.removesuffix(".npy"),
        offset=offset,
        deflated=info.compress_type == zipfile.ZIP_DEFLATED,
        packed_nbytes=info.compress_size,
        nbytes=info.file_size,
        crc=info.CRC,
    )


def _check_readable(file: Archive, info: zipfile.ZipInfo) -> None:
    if info.flag_bits & 1:
        raise SourceError(f"{info.filename!r} in {file.path} is encrypted: write it again without a password.")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        method = _METHODS.get(info.compress_type, f"method {info.compress_type}")
        raise SourceError(
            f"{info.filename!r} in {file.path} is compressed with {method}: only stored and deflated members can be "
            "read, as numpy.savez and savez_compressed write them."
        )
    if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
        raise SourceError(f"{file.path} is damaged: {info.filename!r} is stored, and yet has two different sizes.")
