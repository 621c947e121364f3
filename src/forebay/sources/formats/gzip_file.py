"""Files that are compressed with gzip as a whole.

Forebay decompresses such a file into memory when it opens the file. A gzip stream must be decompressed from its
beginning, so random reads are impossible. A `GunzippedFile` has the methods `read` and `view` of a `MappedFile`. The
option `max_held_bytes` limits its memory.
"""

import gzip
import zlib
from pathlib import Path
from typing import TypeAlias

from forebay.core.progress_line import ProgressLine
from forebay.core.spec import format_nbytes
from forebay.errors import SourceError
from forebay.sources.files.mapped import MappedFile, PathName

__all__ = ["GunzippedFile", "ReadableFile", "open_maybe_gzip"]

_MAGIC = b"\x1f\x8b\x08"


class GunzippedFile:
    """A gzip file, decompressed in memory."""

    def __init__(self, file: MappedFile, max_nbytes: int) -> None:
        self.path, self.stamp = file.path, file.stamp
        self._data = _gunzip(file.path, max_nbytes)
        self.nbytes = self.held_nbytes = len(self._data)

    def read(self, start: int, nbytes: int) -> bytes:
        """Return `nbytes` bytes from `start`, or fewer at the end of the file."""
        return self._data[start : start + nbytes]

    def view(self) -> bytes:
        """Return all bytes."""
        return self._data


ReadableFile: TypeAlias = MappedFile | GunzippedFile


def open_maybe_gzip(path: PathName, max_held_nbytes: int) -> ReadableFile:
    """Map a file, or decompress it if it begins with the magic bytes of gzip."""
    file = MappedFile(path)
    return GunzippedFile(file, max_held_nbytes) if file.read(0, 3) == _MAGIC else file


def _gunzip(path: Path, max_nbytes: int) -> bytes:
    try:
        with ProgressLine(f"decompressing {path}"), gzip.open(path) as stream:
            data = stream.read(max_nbytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path} cannot be gunzipped: {error}. Write or download it again.") from error
    if len(data) > max_nbytes:
        raise SourceError(
            f"{path} decompresses to more than the limit of {format_nbytes(max_nbytes)}, and a gzip file must be "
            "decompressed completely. Pass a larger max_held_bytes=, or gunzip the file."
        )
    return data
