"""Functions that open files safely where other users may write, and file locks."""

import errno
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["open_folder", "open_safely", "release_lock", "try_lock", "release_and_close", "wait_for_lock"]

# O_NONBLOCK, because opening a named pipe would otherwise wait for its other end.
_SAFE_FLAGS = 0 if sys.platform == "win32" else os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
# Errors of file systems without file locks, such as Lustre without the mount option "flock".
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL)


def open_folder(path: str | os.PathLike[str], folder: int | None = None) -> int:
    """Open a folder and return its descriptor. Do not follow a symbolic link.

    The path may be relative to `folder`, the descriptor of an open folder.
    """
    _check_system()
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


def open_safely(path: Path, flags: int, folder: int | None = None) -> int:
    """Open a regular file of the current user or of root, and return its descriptor.

    Do not follow a symbolic link. The path may be relative to `folder`, the descriptor of an open folder.
    """
    _check_system()
    try:
        descriptor = os.open(path, flags | _SAFE_FLAGS, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, f"{path.name!r} is a symbolic link. Delete it, or pass another cache=") from None
        raise
    status = os.fstat(descriptor)
    problem = ""
    if not stat.S_ISREG(status.st_mode):
        problem = "is not a regular file"
    elif status.st_uid not in (os.geteuid(), 0):
        problem = f"belongs to another user (uid {status.st_uid})"
    if problem:
        os.close(descriptor)
        raise PermissionError(errno.EPERM, f"{path.name!r} {problem}. Delete it, or pass another cache=")
    return descriptor


def _check_system() -> None:
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, "a cache folder needs the file locks of Linux or macOS. Cache the rows in memory")


def release_lock(descriptor: int) -> None:
    """Release a lock.

    Closing the file is not enough, because a forked process may have it open too.
    """
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def release_and_close(descriptor: int) -> None:
    """Release a lock and close its file."""
    release_lock(descriptor)
    os.close(descriptor)


def wait_for_lock(descriptor: int) -> None:
    """Lock a file. Wait while another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        # On a file system without locks, continue without a lock. Several processes may then exceed the cache budget.
        if error.errno not in _NO_LOCKS:
            raise


def try_lock(descriptor: int) -> bool | None:
    """Lock a file without waiting, and return True.

    Return False if another process or thread holds the lock, and None if the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return None
    return True
