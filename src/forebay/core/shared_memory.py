"""One block of memory that a process and its workers both see.

On Linux the block has no name: it is an anonymous file in memory, which a worker opens through the `/proc` entry of
its owner's descriptor. The kernel frees it with its last mapping, however the processes end, and neither names left
behind nor the 64 MB that containers give to `/dev/shm` concern it. Elsewhere the standard library's named shared
memory does the same, cleaned up by its resource tracker.
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

__all__ = ["Handle", "SharedBlock"]

Memory: TypeAlias = mmap.mmap | ctypes.Array[ctypes.c_char]

_SERIALS = itertools.count()


@dataclass(frozen=True, slots=True)
class Handle:
    """What a worker needs to find a block; `serial` tells blocks apart whose descriptor has the same number."""

    name: str
    nbytes: int
    serial: int


class SharedBlock:
    """A page-aligned block of shared memory; arrays over its `memory` keep that alive, whoever closes the block.

    >>> import numpy as np
    >>> with SharedBlock(4096) as block:
    ...     array = np.ndarray((8,), "float32", buffer=block.memory)
    >>> array[:] = 1.5  # the block is closed, the array's memory is not
    >>> float(array.sum())
    12.0
    """

    def __init__(self, nbytes: int) -> None:
        if nbytes < 1:
            raise SpecError(f"a shared block holds at least one byte, not {nbytes}: ask for the bytes of a batch.")
        name, memory, release = _create(nbytes)
        self._memory: Memory | None = memory
        self._handle = Handle(name, nbytes, next(_SERIALS))
        # Gives back the descriptor or the name, never the mapping: that goes with the last array over it.
        self._release = weakref.finalize(self, release)

    @classmethod
    def attach(cls, handle: Handle) -> Self:
        """Another process's block, seen from this one."""
        block = cls.__new__(cls)
        block._memory = _attach(handle)
        block._handle = handle
        block._release = weakref.finalize(block, _nothing)
        return block

    @property
    def memory(self) -> Memory:
        """The bytes, as a writable buffer to build arrays on."""
        if self._memory is None:
            raise FeedClosedError(f"{self} is closed: build arrays on its memory before that, they then keep it.")
        return self._memory

    @property
    def handle(self) -> Handle:
        return self._handle

    @property
    def nbytes(self) -> int:
        return self._handle.nbytes

    @property
    def closed(self) -> bool:
        return self._memory is None

    def close(self) -> None:
        """Let go of the memory: it goes at once if no array uses it, with the last such array otherwise."""
        # Dropped, not unmapped: mmap.close() would pull it away from under a living array, or raise BufferError.
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


def _create_unnamed(nbytes: int) -> tuple[str, Memory, Callable[[], None]]:
    descriptor = os.memfd_create("forebay")
    try:
        os.ftruncate(descriptor, nbytes)
        memory = _map(descriptor, nbytes)
    except BaseException:
        os.close(descriptor)
        raise
    return f"/proc/{os.getpid()}/fd/{descriptor}", memory, lambda: os.close(descriptor)


def _attach_unnamed(handle: Handle) -> Memory:
    try:
        descriptor = os.open(handle.name, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise WorkerError(
            f"could not open shared memory of {format_nbytes(handle.nbytes)} at {handle.name}: {error.strerror}. Its "
            'owner closed it or ended, or this system hides /proc from its own processes; then use where="thread".'
        ) from error
    try:
        return _map(descriptor, handle.nbytes)
    finally:
        os.close(descriptor)


def _map(descriptor: int, nbytes: int) -> Memory:
    """Map a descriptor without keeping it.

    `mmap.mmap(descriptor)` keeps a duplicate for as long as the mapping lives (before Python 3.13 always), and users
    who keep a thousand batches would run out of descriptors. So it reserves the addresses and owns them, and the
    shared pages are laid over them.
    """
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    mapped = _libc_mmap(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0)
    if mapped != address:
        code = ctypes.get_errno()
        raise OSError(code, f"could not map {format_nbytes(nbytes)} of shared memory: {os.strerror(code)}")
    return memory


def _create_named(nbytes: int) -> tuple[str, Memory, Callable[[], None]]:
    shared = SharedMemory(create=True, size=nbytes)
    return shared.name, _memory_of(shared), shared.unlink


def _attach_named(handle: Handle) -> Memory:
    return _memory_of(SharedMemory(handle.name))


def _memory_of(shared: SharedMemory) -> Memory:
    """A buffer that takes its mapping along when it goes.

    Not `shared.buf`: NumPy looks through a memoryview to what is under it, and closing that pulls the memory away
    from under a living array.
    """
    assert shared.buf is not None
    address = ctypes.addressof(ctypes.c_char.from_buffer(shared.buf))
    memory = (ctypes.c_char * shared.size).from_address(address)
    weakref.finalize(memory, shared.close).atexit = False
    return memory


def _nothing() -> None:
    """What an attached block has to give back besides its mapping."""


if sys.platform == "linux":
    _MAP_FIXED = 0x10
    _libc_mmap = ctypes.CDLL(None, use_errno=True).mmap
    _libc_mmap.restype = ctypes.c_void_p
    _libc_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    _create, _attach = _create_unnamed, _attach_unnamed
else:
    _create, _attach = _create_named, _attach_named
