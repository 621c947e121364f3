"""Finds the line of user code that caused a call: the innermost frame outside of libraries and Forebay."""

import linecache
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType

from forebay.doctor.model.events import Line

__all__ = ["SourceLines"]

_OURS = str(Path(__file__).parent.parent)
# Generated code: its file name starts with one of these, or contains one of those.
_GENERATED = ("<frozen", "<__array_function__", "<string>", "<attrs", "<decorator", "<eval_with_key>")
_GENERATED_FILES = ("__autograph_generated_file", "torchinductor_")


class SourceLines:
    """Numbers the lines of user code, so that an event stores one integer.

    Every event looks up its line, so the result for each file and each instruction is cached.
    """

    def __init__(self) -> None:
        self.locations: list[tuple[str, int, str]] = []  # file, line number, function
        self.is_user_file: dict[str, bool] = {}
        self._indices: dict[tuple[str, int], int] = {}
        # Asking a frame for its line number takes the longer the further down the line is in its function.
        self._index_by_instruction: dict[tuple[int, int], int] = {}  # by address of the code and instruction offset
        self._known_code: dict[int, CodeType] = {}  # references, so that no address is reused
        self._libraries, self._targets = _library_folders(), _target_folders()

    def current_line(self, depth: int = 1) -> int:
        """Return the index of the user line behind the call `depth` frames above; -1 if there is none."""
        frame: FrameType | None = sys._getframe(depth + 1)
        is_user_file = self.is_user_file
        while frame is not None:
            code = frame.f_code
            own = is_user_file.get(code.co_filename)
            if own is None:
                own = is_user_file[code.co_filename] = self._is_users(code.co_filename)
            if own:
                index = self._index_by_instruction.get((id(code), frame.f_lasti))
                return self._add_frame(frame) if index is None else index
            frame = frame.f_back
        return -1

    def line_of_function(self, function: object) -> int:
        """Return the index of the line that defines a user function; -1 for other functions."""
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if code is None or not self._is_users(code.co_filename):
            return -1
        return self._index_of(code.co_filename, code.co_firstlineno, code.co_qualname)

    def first_user_line(self, frames: Iterable[tuple[str, int, str]]) -> int:
        """Return the index of the first user frame, of frames (file, line number, function), innermost first."""
        for file, number, function in frames:
            if self._is_users(file):
                return self._index_of(file, number, function)
        return -1

    def read(self, *, text: bool = True) -> list[Line]:
        """Return all numbered lines, with their source text unless `text` is False."""
        return [
            Line(file, number, function, linecache.getline(file, number).strip() if text else "")
            for file, number, function in self.locations
        ]

    def _add_frame(self, frame: FrameType) -> int:
        code = frame.f_code
        index = self._index_of(code.co_filename, frame.f_lineno, code.co_qualname)
        self._known_code[id(code)] = code
        self._index_by_instruction[id(code), frame.f_lasti] = index
        return index

    def _index_of(self, file: str, number: int, function: str) -> int:
        key = file, number
        if key not in self._indices:
            self._indices[key] = len(self.locations)
            self.locations.append((*key, function))
        return self._indices[key]

    def _is_users(self, file: str) -> bool:
        if file.startswith((_OURS, *_GENERATED)) or any(mark in file for mark in _GENERATED_FILES):
            return False
        if file.startswith(self._libraries):
            return False
        # In a folder of `pip install --target`, files are the user's and packages are not.
        return not any(file.startswith(folder) and "/" in file[len(folder) :] for folder in self._targets)


def _library_folders() -> tuple[str, ...]:
    """Return the folders of the standard library, of installed packages and of Forebay."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names}
    folders |= {path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")}
    return tuple(sorted({folder + "/" for folder in folders if folder} | {str(Path(_OURS).parent) + "/"}))


def _target_folders() -> tuple[str, ...]:
    """Return the other folders of the path that pip has installed packages into."""
    return tuple(f"{path}/" for path in sys.path if path and any(Path(path).glob("*.dist-info")))
