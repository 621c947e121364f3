"""A file of an index folder: a checksum, then the bytes of one array.

A reader knows the dtype and the shape, so the file has no header, and Forebay parses nothing in it. The checksum also
covers the name of the file. A writer renames a temporary file when it is complete, so a reader never finds a part of a
file. `open_safely` refuses symbolic links and files of other users.
"""

import hashlib
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from forebay.core.spec import Array, format_nbytes
from forebay.sources.objects.locked_files import open_safely

__all__ = ["DamagedArrayError", "check_folder", "read_array", "write_array"]

_CHECKSUM_NBYTES = 32  # of SHA-256


class DamagedArrayError(Exception):
    """Raised if a file has another size or checksum than the bytes that were written. The message says which."""


def check_folder(folder: Path) -> None:
    """Create a folder that only this user can read, unless it exists.

    Raise OSError if this process cannot write files there.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(open_safely(folder / "lock", os.O_RDWR | os.O_CREAT))


def read_array(path: Path, dtype: np.dtype[Any], shape: Sequence[int]) -> Array | None:
    """Return the array of a file, or None if there is no file.

    Raise DamagedArrayError if the file is damaged.
    """
    array = np.empty(shape, dtype.newbyteorder("<"))
    try:
        descriptor = open_safely(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        expected, found = _CHECKSUM_NBYTES + array.nbytes, os.fstat(descriptor).st_size
        if found != expected:
            raise DamagedArrayError(f"it has {format_nbytes(found)} instead of {format_nbytes(expected)}")
        checksum, remaining = file.read(_CHECKSUM_NBYTES), _bytes_of(array)
        while remaining and (count := file.readinto(remaining)):
            remaining = remaining[count:]
    if remaining or checksum != _checksum(path, array):
        raise DamagedArrayError("its checksum differs")
    return array.astype(dtype, copy=False)


def write_array(path: Path, array: Array) -> None:
    """Write an array to a file, or replace the file.

    If this raises OSError, an old file remains.
    """
    stored = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    # Other threads, and processes of other hosts with the same process id, may write the same file now.
    temporary = path.with_suffix(f".part-{os.getpid()}-{secrets.token_hex(8)}")
    try:
        with os.fdopen(open_safely(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(_checksum(path, stored))
            file.write(_bytes_of(stored))
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _checksum(path: Path, array: Array) -> bytes:
    checksum = hashlib.sha256(path.name.encode())
    checksum.update(_bytes_of(array))
    return checksum.digest()


def _bytes_of(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
