"""Which line of the user's is responsible: the innermost frame that is neither a library's nor ours."""

import linecache
import sys
import sysconfig
from pathlib import Path
from types import FrameType

from forebay.doctor.events import Line

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
        self._users: dict[str, bool] = {}
        self._libraries = _library_folders()

    def here(self, depth: int = 1) -> int:
        """The line that is responsible for the call `depth` frames above; -1 where all frames are of libraries."""
        frame: FrameType | None = sys._getframe(depth + 1)
        users = self._users
        while frame is not None:
            file = frame.f_code.co_filename
            own = users.get(file)
            if own is None:
                own = users[file] = self._is_users(file)
            if own:
                number = self._numbers.get((file, frame.f_lineno))
                return self._add(file, frame) if number is None else number
            frame = frame.f_back
        return -1

    def of_code(self, function: object) -> int:
        """The line where a function of the user's is defined; -1 for anybody else's."""
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if code is None or not self._is_users(code.co_filename):
            return -1
        key = code.co_filename, code.co_firstlineno
        if key not in self._numbers:
            self._numbers[key] = len(self.found)
            self.found.append((*key, code.co_qualname))
        return self._numbers[key]

    def read(self, *, text: bool = True) -> list[Line]:
        """All lines met, with what stands there."""
        return [
            Line(file, number, function, linecache.getline(file, number).strip() if text else "")
            for file, number, function in self.found
        ]

    def _add(self, file: str, frame: FrameType) -> int:
        key = file, frame.f_lineno
        self._numbers[key] = len(self.found)
        self.found.append((*key, frame.f_code.co_qualname))
        return self._numbers[key]

    def _is_users(self, file: str) -> bool:
        if file.startswith((_OURS, *_GENERATED)) or any(mark in file for mark in _GENERATED_FILES):
            return False
        return not file.startswith(self._libraries)


def _library_folders() -> tuple[str, ...]:
    """Where libraries lie: the standard one, and everything that was installed."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names}
    folders |= {path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")}
    return tuple(sorted({folder + "/" for folder in folders if folder} | {str(Path(_OURS).parent) + "/"}))
