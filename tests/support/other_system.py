"""Simulates a system without the Linux-only names of the standard library.

Import this module first in a new process, and call `simulate`. This function loads the standard modules, then removes
what macOS or Windows lacks.
"""

import ctypes
import importlib
import mmap
import os
import platform
import signal
import sys
import sysconfig

import numpy as np  # noqa: F401  # NumPy must be imported on the real system

__all__ = ["simulate"]

_LINUX_NAMES = {
    os: ("O_DIRECT", "memfd_create", "posix_fadvise", "posix_fallocate", "sched_getaffinity", "sched_setaffinity"),
    mmap: ("MADV_HUGEPAGE", "MAP_NORESERVE", "MAP_POPULATE"),
}
_UNIX_NAMES = {
    os: (
        *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "fork", "geteuid", "getuid", "getpgid", "killpg"),
        *("pread", "preadv", "register_at_fork", "statvfs", "sysconf", "uname"),
    ),
    mmap: tuple(name for name in vars(mmap) if name.startswith(("MAP_", "MADV_", "PROT_"))),
    signal: ("SIGALRM", "SIGBUS", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "pthread_sigmask", "setitimer"),
}
_UNIX_MODULES = ("fcntl", "grp", "pwd", "resource", "termios")
# The real system needs its own versions of these modules, so load them before the names disappear.
_LOADED_FIRST = (
    *("asyncio", "concurrent.futures.process", "ctypes.util", "logging.handlers", "multiprocessing.context", "random"),
    *("multiprocessing.popen_spawn_posix", "multiprocessing.shared_memory", "multiprocessing.synchronize", "pathlib"),
    *("shutil", "subprocess", "tempfile", "urllib.request", "zipfile", "http.server", "tarfile", "webbrowser"),
)


class _WindowsMmap(mmap.mmap):
    """`mmap.mmap` with the parameters that it has on Windows."""

    def __new__(cls, fileno, length, tagname=None, access=mmap.ACCESS_WRITE, offset=0):
        return super().__new__(cls, fileno, length, access=access, offset=offset)


def _load_named_library(name, *args, real=ctypes.CDLL, **options):
    """Stand in for `ctypes.CDLL`. On Windows, `CDLL(None)` raises this TypeError."""
    if name is None:
        raise TypeError("LoadLibrary() argument 1 must be str, not None")
    return real(name, *args, **options)


def simulate(system):
    """Remove the names that "darwin" or "win32" lacks."""
    for name in _LOADED_FIRST:
        importlib.import_module(name)
    platform.uname(), sysconfig.get_config_vars()  # both cache the real values
    _remove(_LINUX_NAMES)
    if system == "win32":
        _remove(_UNIX_NAMES)
        sys.modules.update(dict.fromkeys(_UNIX_MODULES))  # None makes the import fail
        mmap.mmap, ctypes.CDLL = _WindowsMmap, _load_named_library
    sys.platform = system


def _remove(names):
    for module, attributes in names.items():
        for name in attributes:
            if hasattr(module, name):
                delattr(module, name)
