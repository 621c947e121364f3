"""`OpenFiles`: open files for positioned reads, with direct I/O if possible."""

import mmap
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from forebay.core.shared_memory import private_memory
from forebay.core.spec import Array
from forebay.errors import SourceChangedError, SourceError
from forebay.sources.direct.address_space import AddressSpace, Integers
from forebay.sources.files.mapped import ChangeCheck, Stamp, make_stamp

__all__ = ["OpenFiles", "aligned_memory", "direct_alignment"]

_O_DIRECT = getattr(os, "O_DIRECT", 0)
_ALIGNMENTS = (512, 4096)  # bytes; the alignments that file systems require for direct reads


class OpenFiles:
    """The open files of an address space."""

    def __init__(self, space: AddressSpace, *, alignment: int) -> None:
        """Open the files, with direct I/O if the alignment is larger than 1."""
        self._paths = space.paths
        self._open_descriptors: list[int] = []
        self.alignment = alignment
        try:
            for path, stamp in zip(space.paths, space.stamps, strict=True):
                self._open_descriptors.append(_open_file(path, _O_DIRECT if alignment > 1 else 0))
                _check_stamp(path, stamp, self._open_descriptors[-1])
        except BaseException:
            self.close()
            raise
        self.descriptors: Array = np.array(self._open_descriptors, np.int32)
        self.nbytes: Array = np.array([stamp[1] for stamp in space.stamps], np.int64)
        files = zip(space.paths, space.stamps, self._open_descriptors, strict=True)
        self._change_checks = [ChangeCheck(path, stamp, descriptor) for path, stamp, descriptor in files]

    def path(self, file: int) -> Path:
        """Return the path of a file."""
        return self._paths[file]

    def current_nbytes(self, file: int) -> int:
        """Return the current length of a file in bytes."""
        return os.fstat(self._open_descriptors[file]).st_size

    def check_unchanged(self, files: Integers) -> None:
        """Raise SourceChangedError if a file was changed in place after it was opened.

        `ChangeCheck` checks each file at most once per `CHECK_SECONDS`.
        """
        now = time.monotonic()
        for file in np.unique(files).tolist():
            if now >= self._change_checks[file].due_at:
                self._change_checks[file]()

    def close(self) -> None:
        """Close the files. No thread may read after this call."""
        descriptors, self._open_descriptors = self._open_descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)


def direct_alignment(paths: Sequence[Path]) -> int | None:
    """Return the alignment of direct reads in bytes; None if a file refuses direct reads.

    Offsets, lengths and memory addresses of direct reads must be multiples of the alignment. Some file systems refuse
    direct I/O on open and others on read, so this function opens each file and reads its first bytes.
    """
    if not _O_DIRECT:
        return None
    alignments = [_file_alignment(path) for path in paths]
    return None if None in alignments else max((alignment for alignment in alignments if alignment), default=None)


def aligned_memory(nbytes: int) -> Array:
    """Return new memory that begins at a page boundary.

    The memory uses huge pages if the kernel provides them. For a direct read, the kernel passes the address of every
    page to the disk. With pages of 4 KiB, this makes the read a third slower.
    """
    memory = private_memory(max(nbytes, 1))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def _file_alignment(path: Path) -> int | None:
    try:
        file = _open_file(path, _O_DIRECT)
    except SourceError:
        return None
    try:
        return next((alignment for alignment in _ALIGNMENTS if _can_read_directly(file, alignment)), None)
    finally:
        os.close(file)


def _can_read_directly(file: int, alignment: int) -> bool:
    memory = aligned_memory(2 * max(_ALIGNMENTS)).data
    try:
        os.preadv(file, [memory[alignment : 2 * alignment]], 0)
    except OSError:
        return False
    return True


def _open_file(path: Path, flags: int) -> int:
    try:
        return os.open(path, os.O_RDONLY | flags)
    except FileNotFoundError as error:
        raise SourceChangedError(f"{path} was deleted after it was opened. Create the pipeline again.") from error
    except OSError as error:
        raise SourceError(f"could not open {path}: {error.strerror}. Remove this cause and try again.") from error


def _check_stamp(path: Path, stamp: Stamp, file: int) -> None:
    current = make_stamp(os.fstat(file))
    if current != stamp:
        raise SourceChangedError(
            f"{path} was changed or replaced after it was opened: it had {stamp[1]} bytes and has {current[1]} now, or "
            "its bytes were written again. Create the pipeline again."
        )
