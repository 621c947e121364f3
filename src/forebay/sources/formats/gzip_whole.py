"""Files that were compressed as a whole: unpacked into memory when they are opened, since nothing less can be found.

What comes out reads as a mapped file does. Memory is bounded by what may be held, whatever the file unpacks to.
"""

import gzip
import zlib
from pathlib import Path
from typing import TypeAlias

from forebay.core.spec import format_nbytes
from forebay.errors import SourceError
from forebay.sources.files.mapped import MappedFile, PathName

__all__ = ["AnyFile", "GunzippedFile", "open_any"]

_MAGIC = b"\x1f\x8b\x08"


class GunzippedFile:
    """A whole gzip file in memory."""

    def __init__(self, file: MappedFile, max_nbytes: int) -> None:
        self.path, self.stamp = file.path, file.stamp
        self._data = _unpack(file.path, max_nbytes)
        self.nbytes = self.held_nbytes = len(self._data)

    def read(self, start: int, nbytes: int) -> bytes:
        """A copy of some bytes; fewer where the file ends."""
        return self._data[start : start + nbytes]

    def view(self) -> bytes:
        """The whole file."""
        return self._data


AnyFile: TypeAlias = MappedFile | GunzippedFile


def open_any(path: PathName, max_held_nbytes: int) -> AnyFile:
    """A file mapped, or unpacked where it begins as gzip does."""
    file = MappedFile(path)
    return GunzippedFile(file, max_held_nbytes) if file.read(0, 3) == _MAGIC else file


def _unpack(path: Path, max_nbytes: int) -> bytes:
    try:
        with gzip.open(path) as packed:
            data = packed.read(max_nbytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path} cannot be gunzipped: {error}. Write or download it again.") from error
    if len(data) > max_nbytes:
        raise SourceError(
            f"{path} unpacks to more than the {format_nbytes(max_nbytes)} that may be held, and only a whole gzip file "
            "can be read: pass a larger max_held_bytes=, or gunzip it once."
        )
    return data
