"""A fake device in the memory of this process, for tests of single classes."""

import ctypes
from types import SimpleNamespace

import numpy as np

from forebay.engines.cuda.kernel_workspace import KernelWorkspace


class Kernel:
    """A kernel that only records its launches."""

    def __init__(self, name, launched):
        self.name, self._launched = name, launched

    def launch(self, stream, job, *, blocks, threads):
        self._launched.append(SimpleNamespace(name=self.name, job=job, blocks=blocks, threads=threads))


class Device:
    """A device with memory of this process. Its kernels do nothing."""

    capability = (9, 0)

    def __init__(self):
        self.launched, self.locked = [], {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def kernel(self, name):
        return Kernel(name, self.launched)

    def page_lock(self, address, nbytes):
        self.locked[address] = nbytes

    def page_unlock(self, address):
        del self.locked[address]


class Copies:
    """Runs each copy immediately and records it."""

    def __init__(self):
        self.copied = []

    def upload(self, stream, targets, sources, lengths):
        assert targets.dtype == sources.dtype == lengths.dtype == np.uint64
        copies = list(zip(targets.tolist(), sources.tolist(), lengths.tolist(), strict=True))
        self.copied += copies
        for copy in copies:
            ctypes.memmove(*copy)


class Stream:
    """A stream that runs each copy immediately."""

    def __init__(self):
        self.uploads = []

    def upload(self, target, source, nbytes):
        self.uploads.append((target, nbytes))
        ctypes.memmove(target, source, nbytes)

    def clear(self, pointer, nbytes):
        ctypes.memset(pointer, 0, nbytes)


class Event:
    """An event that records its calls."""

    def __init__(self, device):
        self.calls = []

    def record(self, stream):
        self.calls.append(("record", stream))

    def wait(self):
        self.calls.append(("wait",))

    def close(self):
        self.calls.append(("close",))


def workspace(device, *, rows=100, tables=(3, 20), needs_int64=False):
    """Make a KernelWorkspace in memory of this process."""
    owner = np.zeros(KernelWorkspace.nbytes(rows, tables), np.uint8)
    return KernelWorkspace(device, owner.ctypes.data, owner, rows=rows, extents=tables, needs_int64=needs_int64)
