"""A guard that detects what a reader must never do.

A reader must not run code, use files outside of its folder, or connect to other machines.

An audit hook sees calls that go through Python. For calls inside C libraries, a folder that only a payload creates and
the content of a canary file show the harm.
"""

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fuzz.attacks import CANARY, CANARY_TEXT, EXECUTED

__all__ = ["Guard"]

_CODE_EVENTS = {
    *("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn"),
    *("subprocess.Popen", "pickle.find_class"),
}
_CHANGE_EVENTS = {"os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.truncate"}
# Folders that a case may read, besides its own folder and this project.
_LIBRARIES = ("/proc", "/sys", "/dev", "/etc", "/usr", sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"))
_PROJECT = str(Path(__file__).parents[2])
_GHOSTSCRIPT = f"#!/bin/sh\nmkdir {EXECUTED}\n"  # Pillow looks for this program on PATH


class Guard:
    """Watches one folder: `base/case` belongs to the case, everything else is outside."""

    def __init__(self, base: Path) -> None:
        self._base, self.folder = base.resolve(), base.resolve() / "case"
        self._is_active, self._found = False, [""]
        self._allowed_reads = (str(self.folder), _PROJECT, *_LIBRARIES)
        self._make_surroundings()
        sys.addaudithook(self._hook)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Watch the calls inside the `with` block."""
        self._found, self._is_active = [], True
        try:
            yield
        finally:
            self._is_active = False

    def find_harm(self) -> str:
        """Return the harm during the last `watch`, or an empty text."""
        executed = self._base / "executed"
        if executed.exists():
            executed.rmdir()
            return "code executed: a payload created its folder"
        if (self._base / "canary").read_bytes() != CANARY_TEXT:
            self._make_surroundings()
            return "file outside touched: the canary was changed"
        return self._found[0] if self._found else ""

    def clear(self) -> None:
        """Make the folder of the case empty, and enter it."""
        while self.folder.exists():  # a thread of the last case may still write to its cache
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        os.chdir(self.folder)

    def _make_surroundings(self) -> None:
        self.clear()
        (self.folder / CANARY).write_bytes(CANARY_TEXT)
        _write_canary_h5(self._base / "canary.h5")
        program = self._base / "bin" / "gs"
        program.parent.mkdir(exist_ok=True)
        program.write_text(_GHOSTSCRIPT)
        program.chmod(0o755)
        os.environ["PATH"] = f"{program.parent}{os.pathsep}{os.environ['PATH']}"

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_active:
            return
        if event in _CODE_EVENTS:
            self._found.append(f"code executed: {event}{arguments[:2]!r}"[:200])
        elif event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            self._check_open(os.fsdecode(arguments[0]), arguments[2])
        elif event in _CHANGE_EVENTS and not self._is_inside(arguments[0]):
            self._found.append(f"file outside touched: {event} {arguments[0]}"[:200])
        elif event == "socket.connect" and arguments[1][0] not in ("127.0.0.1", "::1", "localhost"):
            self._found.append(f"file outside touched: connects to {arguments[1]!r}"[:200])

    def _check_open(self, name: str, flags: int) -> None:
        path = os.path.abspath(name)  # noqa: PTH100 - `Path.resolve` would itself raise audit events
        is_write = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        allowed = (str(self.folder), "/dev", "/proc") if is_write else self._allowed_reads
        if not path.startswith(allowed):
            self._found.append(f"file outside touched: {'write' if is_write else 'read'} {path}"[:200])

    def _is_inside(self, name: str | bytes | int) -> bool:
        if isinstance(name, int):  # an open file; `_check_open` has seen its path
            return True
        return os.path.abspath(os.fsdecode(name)).startswith(str(self.folder))  # noqa: PTH100


def _write_canary_h5(path: Path) -> None:
    import h5py
    import numpy as np

    with h5py.File(path, "w") as file:
        file["x"] = np.frombuffer(CANARY_TEXT[:16], "f4")
