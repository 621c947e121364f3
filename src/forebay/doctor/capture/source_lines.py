"""Which line of the user's is responsible: the innermost frame that is neither a library's nor ours."""

import linecache
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType

from forebay.doctor.model.events import Line

__all__ = ["Lines"]

_OURS = str(Path(__file__).parent.parent)
# Code that nobody wrote: begins so, or lies in a file named so.
_GENERATED = ("<frozen", "<__array_function__", "<string>", "<attrs", "<decorator", "<eval_with_key>")
_GENERATED_FILES = ("__autograph_generated_file", "torchinductor_")


class Lines:
    """Numbers for lines, so that an event holds one; asked with every event, so files are judged once."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int, str]] = []
        self._numbers: dict[tuple[str, int], int] = {}
        self.users: dict[str, bool] = {}  # of files that were met, whether they are the user's
        # To ask a frame for the number of its line takes the longer the farther down that is.
        self._places: dict[tuple[int, int], int] = {}  # by address of the code, and the instruction in it
        self._met: dict[int, CodeType] = {}  # which keeps addresses from being given away again
        self._libraries, self._targets = _library_folders(), _target_folders()

    def here(self, depth: int = 1) -> int:
        """The line that is responsible for the call `depth` frames above; -1 where all frames are of libraries."""
        frame: FrameType | None = sys._getframe(depth + 1)
        users = self.users
        while frame is not None:
            code = frame.f_code
            own = users.get(code.co_filename)
            if own is None:
                own = users[code.co_filename] = self._is_users(code.co_filename)
            if own:
                number = self._places.get((id(code), frame.f_lasti))
                return self._meet(frame) if number is None else number
            frame = frame.f_back
        return -1

    def of_code(self, function: object) -> int:
        """The line where a function of the user's is defined; -1 for anybody else's."""
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if code is None or not self._is_users(code.co_filename):
            return -1
        return self._number(code.co_filename, code.co_firstlineno, code.co_qualname)

    def of_frames(self, frames: Iterable[tuple[str, int, str]]) -> int:
        """The first that is the user's, of frames kept by a framework: file, number and function, innermost first."""
        for file, number, function in frames:
            if self._is_users(file):
                return self._number(file, number, function)
        return -1

    def read(self, *, text: bool = True) -> list[Line]:
        """All lines met, with what stands there."""
        return [
            Line(file, number, function, linecache.getline(file, number).strip() if text else "")
            for file, number, function in self.found
        ]

    def _meet(self, frame: FrameType) -> int:
        """A place of the user's that was not seen before."""
        code = frame.f_code
        number = self._number(code.co_filename, frame.f_lineno, code.co_qualname)
        self._met[id(code)] = code
        self._places[id(code), frame.f_lasti] = number
        return number

    def _number(self, file: str, number: int, function: str) -> int:
        key = file, number
        if key not in self._numbers:
            self._numbers[key] = len(self.found)
            self.found.append((*key, function))
        return self._numbers[key]

    def _is_users(self, file: str) -> bool:
        if file.startswith((_OURS, *_GENERATED)) or any(mark in file for mark in _GENERATED_FILES):
            return False
        if file.startswith(self._libraries):
            return False
        # A folder that things were installed into by `pip install --target`: packages in it are theirs.
        return not any(file.startswith(folder) and "/" in file[len(folder) :] for folder in self._targets)


def _library_folders() -> tuple[str, ...]:
    """Where libraries lie: the standard one, and everything that was installed."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names}
    folders |= {path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")}
    return tuple(sorted({folder + "/" for folder in folders if folder} | {str(Path(_OURS).parent) + "/"}))


def _target_folders() -> tuple[str, ...]:
    """Other folders of the path that hold what a package index gave."""
    return tuple(f"{path}/" for path in sys.path if path and any(Path(path).glob("*.dist-info")))
