"""A block of memory shared between a process and its worker processes.

On Linux the block is an anonymous memory file (memfd). A worker process opens the block through the `/proc` entry of
the owner's file descriptor. The kernel frees the block when no process maps it any more, even after a crash. The usual
64 MB limit of `/dev/shm` in containers does not apply. On other systems the block is a `SharedMemory` of the standard
library, whose resource tracker frees the block after a crash.
"""

import ctypes
import itertools
import mmap
import os
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from types import TracebackType
from typing import Self, TypeAlias

from forebay.core.spec import format_nbytes
from forebay.errors import FeedClosedError, SpecError, WorkerError

__all__ = ["BlockHandle", "SharedBlock", "private_memory"]

Memory: TypeAlias = mmap.mmap | ctypes.Array[ctypes.c_char]

_serial_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class BlockHandle:
    """The data that a worker process needs to open a block."""

    name: str  # path of the file descriptor in /proc, or name of the `SharedMemory`
    nbytes: int
    serial: int  # differs for every block, whereas a new block may reuse the `name` of a closed block


class SharedBlock:
    """A page-aligned block of shared memory. Arrays that use `memory` stay valid after `close`.

    >>> import numpy as np
    >>> with SharedBlock(4096) as block:
    ...     array = np.ndarray((8,), "float32", buffer=block.memory)
    >>> array[:] = 1.5  # the block is closed, but the memory of the array is still mapped
    >>> float(array.sum())
    12.0
    """

    def __init__(self, nbytes: int) -> None:
        if nbytes < 1:
            raise SpecError(f"a shared block needs at least 1 byte, not {nbytes}. Pass the size of a batch in bytes.")
        name, memory, release = _create(nbytes)
        self._memory: Memory | None = memory
        self._handle = BlockHandle(name, nbytes, next(_serial_numbers))
        # `release` closes the descriptor or removes the name. It does not unmap the memory, which arrays may still use.
        self._release = weakref.finalize(self, release)

    @classmethod
    def attach(cls, handle: BlockHandle) -> Self:
        """Return a block that maps the memory of another process's block into this process."""
        block = cls.__new__(cls)
        block._memory = _attach(handle)
        block._handle = handle
        block._release = weakref.finalize(block, _release_nothing)
        return block

    @property
    def memory(self) -> Memory:
        """The writable buffer of the block, for `np.ndarray(..., buffer=)`."""
        if self._memory is None:
            raise FeedClosedError(f"{self} is closed. Make arrays of its memory before close(); they stay valid.")
        return self._memory

    @property
    def handle(self) -> BlockHandle:
        return self._handle

    @property
    def nbytes(self) -> int:
        return self._handle.nbytes

    @property
    def closed(self) -> bool:
        return self._memory is None

    def close(self) -> None:
        """Release the memory. The system frees it when no array uses it any more."""
        # Only drop the reference: mmap.close() would unmap memory that an array still uses, or raise BufferError.
        self._memory = None
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SharedBlock({self._handle.name}, {format_nbytes(self.nbytes)})"


def private_memory(nbytes: int) -> mmap.mmap:
    """Return new page-aligned memory that only this process can use."""
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows, where anonymous memory is always private
        return mmap.mmap(-1, nbytes)
    return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _create_unnamed(nbytes: int) -> tuple[str, Memory, Callable[[], None]]:
    """Create a memfd; return (its /proc path, its memory, a function that closes it)."""
    descriptor = os.memfd_create("forebay")
    try:
        os.ftruncate(descriptor, nbytes)
        memory = _map(descriptor, nbytes)
    except BaseException:
        os.close(descriptor)
        raise
    return f"/proc/{os.getpid()}/fd/{descriptor}", memory, lambda: os.close(descriptor)


def _attach_unnamed(handle: BlockHandle) -> Memory:
    try:
        descriptor = os.open(handle.name, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise WorkerError(
            f"could not open shared memory of {format_nbytes(handle.nbytes)} at {handle.name}: {error.strerror}. The "
            "owner closed it or exited, or this system hides /proc between processes. In the latter case use "
            'where="thread".'
        ) from error
    try:
        return _map(descriptor, handle.nbytes)
    finally:
        os.close(descriptor)


def _map(descriptor: int, nbytes: int) -> Memory:
    """Return the memory of a file descriptor, mapped so that the descriptor can be closed.

    `mmap.mmap(descriptor)` keeps a duplicate of the descriptor until the memory is unmapped; only Python 3.13 and later
    can turn this off. A user who keeps a thousand batches would run out of descriptors. Therefore an anonymous `mmap`
    object reserves the address range and unmaps it at the end, and C's `mmap` maps the shared pages into that range.
    """
    memory = private_memory(nbytes)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    mapped = _libc_mmap(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0)
    if mapped != address:
        code = ctypes.get_errno()
        raise OSError(code, f"could not map {format_nbytes(nbytes)} of shared memory: {os.strerror(code)}")
    return memory


def _create_named(nbytes: int) -> tuple[str, Memory, Callable[[], None]]:
    shared = SharedMemory(create=True, size=nbytes)
    return shared.name, _memory_of(shared), shared.unlink


def _attach_named(handle: BlockHandle) -> Memory:
    return _memory_of(SharedMemory(handle.name))


def _memory_of(shared: SharedMemory) -> Memory:
    """Return a buffer that unmaps the memory when the buffer is garbage-collected.

    `shared.buf` is not safe: NumPy keeps a reference to the mmap object, not to the memoryview, so closing the block
    would unmap memory that an array still uses.
    """
    assert shared.buf is not None
    address = ctypes.addressof(ctypes.c_char.from_buffer(shared.buf))
    memory = (ctypes.c_char * shared.size).from_address(address)
    weakref.finalize(memory, shared.close).atexit = False
    return memory


def _release_nothing() -> None:
    """Do nothing. An attached block owns no descriptor and no name."""


if sys.platform == "linux":
    _MAP_FIXED = 0x10  # from <sys/mman.h>: map at exactly this address
    _libc_mmap = ctypes.CDLL(None, use_errno=True).mmap
    _libc_mmap.restype = ctypes.c_void_p
    _libc_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    _create, _attach = _create_unnamed, _attach_unnamed
else:
    _create, _attach = _create_named, _attach_named
