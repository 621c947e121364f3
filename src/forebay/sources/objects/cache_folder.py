"""A folder of cached files, with one budget that all processes share.

To store a file, a process takes a lock, creates a temporary file of the full length, and adds this length to the number
in the file `used`. This reserves the bytes. The process then releases the lock, writes the bytes and
renames the file. A temporary file has a random name, and its writer holds a lock on it. If no process holds this
lock, the writer has died, and the next process that opens the folder deletes the file.

Another user may have put anything into the folder. Forebay therefore follows no symbolic link in it, and reads and
writes only regular files of the current user or of root. It creates files that only their owner can read.
"""

import errno
import logging
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from forebay.sources.objects.locked_files import (
    open_folder,
    open_safely,
    release_and_close,
    release_lock,
    try_lock,
    wait_for_lock,
)

__all__ = ["CacheFolder", "UnpublishedFile"]

_TEMPORARY_NAME = re.compile(r"[0-9a-f]{32}\.part")
_TEMPORARY_NAME_OF_0_1 = re.compile(r".+\.[0-9]+\.part", re.DOTALL)  # Forebay 0.1 did not lock its temporary files
# Names of the files that count against the budget: blocks, whole objects, temporary files. `used`, locks and checksums
# do not count.
_COUNTED = re.compile(
    rf"[0-9a-f]{{40}}(?:\.block|\.whole\..*)|{_TEMPORARY_NAME.pattern}|.+\.block\.[0-9]+\.[0-9]+\.part", re.DOTALL
)
_FOLDER_OF_0_1 = "whole"  # Forebay 0.1 stored whole objects in folders below this folder, without checksums
_FOLDER_NAME_OF_0_1 = re.compile(r"[0-9a-f]{40}")
_STALE_SECONDS = 3600  # Forebay assumes that the writer of a file has died after an hour without a change
_USED_WIDTH = 20  # characters of the number in `used`, so that one write replaces it
_LOCK_POLL_SECONDS = 0.1  # between two attempts to take the lock of an object

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnpublishedFile:
    """A temporary file that its writer fills. `CacheFolder.publish` then renames it.

    It has its full length from the start. The writer holds a lock on it, which shows that the writer is alive.
    """

    path: Path
    file: BinaryIO  # without a buffer
    nbytes: int

    def write(self, data: bytes) -> None:
        """Append bytes."""
        remaining = memoryview(data)
        while remaining:  # on a nearly full disk, a system call may write only some of the bytes
            remaining = remaining[self.file.write(remaining) :]


class CacheFolder:
    """Opens, reserves, publishes and deletes the files of one cache folder. Thread-safe.

    If the folder cannot be written, `problem` says why. The files in the folder can still be read.
    """

    def __init__(self, folder: str | os.PathLike[str], budget_nbytes: int) -> None:
        self.path, self.budget_nbytes = Path(folder).expanduser(), budget_nbytes
        self.problem = ""  # why the folder cannot be written; "" if it can
        self.used_nbytes = 0  # bytes of all processes, as this process last read or wrote them in the file `used`
        self._lock = threading.Lock()
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._hold_locks():
                self._delete_abandoned_files()
                self._write_used_nbytes(sum(self._counted_sizes().values()))
        except OSError as error:
            self.stop_storing(error)

    @property
    def free_nbytes(self) -> int:
        """Bytes that can still be stored."""
        return 0 if self.problem else max(0, self.budget_nbytes - self.used_nbytes)

    def names(self) -> set[str]:
        """Return the names of all files that count against the budget."""
        with suppress(OSError):
            return set(self._counted_sizes())
        return set()

    def open(self, name: str) -> BinaryIO | None:
        """Open a file for reading. Return None if it is missing or cannot be trusted."""
        try:
            return os.fdopen(open_safely(self.path / name, os.O_RDONLY), "rb")
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.warning("Forebay does not use %s: %s", self.path / name, error.strerror)
            return None

    def reserve(self, nbytes: int) -> UnpublishedFile | None:
        """Create and return a temporary file of `nbytes`.

        Return None if the file does not fit in the budget.
        """
        with self._hold_locks():
            used_nbytes = self._read_used_nbytes()
            if used_nbytes + nbytes > self.budget_nbytes:
                self.used_nbytes = used_nbytes
                return None
            unpublished = self._create_unpublished(nbytes)
            self._write_used_nbytes(used_nbytes + nbytes)
        return unpublished

    def publish(self, unpublished: UnpublishedFile, name: str, *, replace: bool) -> bool:
        """Give a complete file its name, release its lock, and return True.

        If `replace` is False and another process, such as another rank on this host, has stored a file of this name and
        length, delete the file instead and return False.
        """
        path = self.path / name
        with self._hold_locks():
            is_published = replace or _regular_nbytes(path) != unpublished.nbytes
            freed_nbytes = _counted_nbytes(path) if is_published else unpublished.nbytes
            if is_published:
                unpublished.path.rename(path)
            else:
                unpublished.path.unlink()
            self._write_used_nbytes(max(0, self._read_used_nbytes() - freed_nbytes))
        release_lock(unpublished.file.fileno())
        return is_published

    def discard(self, unpublished: UnpublishedFile) -> None:
        """Delete a temporary file."""
        unpublished.file.close()
        self.delete(unpublished.path.name)

    def delete(self, name: str) -> None:
        """Delete a file and free its bytes in the budget."""
        path = self.path / name
        with suppress(OSError), self._hold_locks():
            nbytes = _counted_nbytes(path)
            path.unlink()
            self._write_used_nbytes(max(0, self._read_used_nbytes() - nbytes))

    def delete_copy_of_version_0_1(self, digest: str) -> None:
        """Delete the copy of an object that Forebay 0.1 stored, because it has no checksum."""
        with suppress(OSError), self._hold_locks():
            for _, folder in _folders_of_0_1(self.path, [digest]):
                for entry in _files(folder):
                    if not entry.name.endswith(".part"):
                        _log.info("Forebay 0.1 stored %r without a checksum; Forebay downloads it again", entry.name)
                        nbytes = _entry_nbytes(entry)
                        os.unlink(entry.name, dir_fd=folder)
                        self._write_used_nbytes(max(0, self._read_used_nbytes() - nbytes))
        with suppress(OSError):
            (self.path / _FOLDER_OF_0_1 / digest).rmdir()

    @contextmanager
    def hold_object_lock(self, digest: str, on_wait: Callable[[], None]) -> Iterator[None]:
        """Lock out other threads and processes that download the same object.

        Call `on_wait` repeatedly while another thread or process holds the lock. The digest of the object selects one
        of 256 lock files. If the file system has no locks, two processes may both download the object.
        """
        descriptor = -1
        with suppress(OSError):
            descriptor = open_safely(self.path / f"{digest[:2]}.lock", os.O_RDWR | os.O_CREAT)
        try:
            while descriptor >= 0 and try_lock(descriptor) is False:
                on_wait()
                time.sleep(_LOCK_POLL_SECONDS)
            yield
        finally:
            if descriptor >= 0:
                release_and_close(descriptor)

    def stop_storing(self, error: OSError | ValueError) -> None:
        """Record why the folder cannot be written, and log it once."""
        if not self.problem:
            self.problem = f"{self.path}: {getattr(error, 'strerror', None) or error}"
            _log.warning("the disk cache stores nothing more; reading continues: %s", self.problem)

    def _create_unpublished(self, nbytes: int) -> UnpublishedFile:
        path = self.path / f"{secrets.token_hex(16)}.part"
        file = os.fdopen(open_safely(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), "r+b", buffering=0)
        try:
            try_lock(file.fileno())
            file.truncate(nbytes)
        except OSError:
            file.close()
            path.unlink()
            raise
        return UnpublishedFile(path, file, nbytes)

    def _read_used_nbytes(self) -> int:
        """Return the number in `used`; if it is not valid, the bytes of all files."""
        with suppress(OSError, ValueError):
            descriptor = open_safely(self.path / "used", os.O_RDONLY)
            with os.fdopen(descriptor, "rb") as file:
                used_nbytes = int(file.read(_USED_WIDTH + 1) or b"0")
            if 0 <= used_nbytes < 1 << 62:
                return used_nbytes
        return sum(self._counted_sizes().values())

    def _write_used_nbytes(self, nbytes: int) -> None:
        descriptor = open_safely(self.path / "used", os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(descriptor).st_nlink != 1:
                raise OSError(errno.EMLINK, "the file 'used' has other names outside the folder. Delete it")
            os.pwrite(descriptor, f"{nbytes:<{_USED_WIDTH}}".encode(), 0)
            os.ftruncate(descriptor, _USED_WIDTH)
        finally:
            os.close(descriptor)
        self.used_nbytes = nbytes

    def _counted_sizes(self) -> dict[str, int]:
        """Return path -> bytes of the files that count against the budget."""
        sizes = {entry.name: _entry_nbytes(entry) for entry in _files(self.path) if _COUNTED.fullmatch(entry.name)}
        for name, folder in _folders_of_0_1(self.path):
            sizes |= {f"{_FOLDER_OF_0_1}/{name}/{entry.name}": _entry_nbytes(entry) for entry in _files(folder)}
        return sizes

    def _delete_abandoned_files(self) -> None:
        for entry in _files(self.path):
            if _COUNTED.fullmatch(entry.name):
                _delete_if_abandoned(entry)
        for _, folder in _folders_of_0_1(self.path):
            for entry in _files(folder):
                _delete_if_abandoned(entry, folder)

    @contextmanager
    def _hold_locks(self) -> Iterator[None]:
        """Lock out other threads, and other processes by a file lock."""
        with self._lock:
            descriptor = open_safely(self.path / "lock", os.O_RDWR | os.O_CREAT)
            try:
                wait_for_lock(descriptor)
                yield
            finally:
                release_and_close(descriptor)


def _delete_if_abandoned(entry: os.DirEntry[str], folder: int | None = None) -> None:
    """Delete a temporary file whose writer has died.

    `folder` is the descriptor of an open folder to which the path is relative, or None.
    """
    with suppress(OSError):
        if _is_abandoned(Path(entry.path), folder):
            os.unlink(entry.path, dir_fd=folder)


def _is_abandoned(path: Path, folder: int | None) -> bool:
    if not (_TEMPORARY_NAME.fullmatch(path.name) or _TEMPORARY_NAME_OF_0_1.fullmatch(path.name)):
        return False
    descriptor = open_safely(path, os.O_RDONLY, folder)
    try:
        is_old = time.time() - os.fstat(descriptor).st_mtime > _STALE_SECONDS
        got_lock = try_lock(descriptor)  # True: no writer holds the lock; None: the file system has no locks
        has_no_writer = got_lock is True and _TEMPORARY_NAME.fullmatch(path.name) is not None
        return has_no_writer or (is_old and got_lock is not False)
    finally:
        release_and_close(descriptor)


def _files(folder: str | os.PathLike[str] | int) -> list[os.DirEntry[str]]:
    """Return the regular files of a folder.

    If `folder` is the descriptor of an open folder, the paths of the files are relative to it.
    """
    with os.scandir(folder) as entries:
        return [entry for entry in entries if entry.is_file(follow_symlinks=False)]


def _folders_of_0_1(cache: Path, names: Sequence[str] | None = None) -> Iterator[tuple[str, int]]:
    """Yield name and descriptor of each folder in which Forebay 0.1 stored a whole object.

    If `names` is given, yield only the folders with these names. The folders are open, because another user could
    replace a path by a symbolic link at any time, but not an open folder.
    """
    with suppress(OSError), _opened(cache / _FOLDER_OF_0_1) as parent:
        all_names = os.listdir(parent) if names is None else names  # noqa: PTH208  an open folder has no path
        for name in filter(_FOLDER_NAME_OF_0_1.fullmatch, all_names):
            with suppress(OSError), _opened(name, parent) as folder:
                yield name, folder


@contextmanager
def _opened(path: str | os.PathLike[str], parent: int | None = None) -> Iterator[int]:
    descriptor = open_folder(path, parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _entry_nbytes(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:  # deleted in the meantime
        return 0


def _regular_nbytes(path: Path) -> int | None:
    """Return the length of a file, or None if no regular file has this path."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _counted_nbytes(path: Path) -> int:
    """Return a file's length, or 0 if it does not count against the budget."""
    return (_regular_nbytes(path) or 0) if _COUNTED.fullmatch(path.name) else 0
