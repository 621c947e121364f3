"""Finds the line of user code that caused a call.

This is the line of the innermost stack frame outside of libraries, generated code and Forebay.
"""

import linecache
import sys
import sysconfig
import threading
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType

from forebay.doctor.capture.notebook_cells import MAGIC_FILES, cell_name, find_magic_line
from forebay.doctor.model.events import Line

__all__ = ["SourceLines"]

_DOCTOR_FOLDER = str(Path(__file__).parent.parent)
# File names of generated code start with one of `_GENERATED_PREFIXES` or contain one of `_GENERATED_PARTS`.
_GENERATED_PREFIXES = ("<frozen", "<__array_function__", "<string>", "<attrs", "<decorator", "<eval_with_key>")
_GENERATED_PARTS = ("__autograph_generated_file", "torchinductor_")


class SourceLines:
    """Gives each line of user code an index, so that events store one integer.

    Every event looks up its line. Two caches make this fast: one by file name and one by bytecode instruction.
    """

    def __init__(self) -> None:
        self.locations: list[tuple[str, int, str]] = []  # file, line number, function
        self.user_file_cache: dict[str, bool] = {}  # file name -> whether it is user code
        self._indices: dict[tuple[str, int], int] = {}
        self._texts: dict[tuple[str, int], str] = {}  # source text of cell lines that a magic runs
        self._lock = threading.RLock()  # reentrant: a signal handler may run while its thread holds the lock
        # Cache, because `frame.f_lineno` scans the line table from the start of the function.
        self._index_by_instruction: dict[tuple[int, int], int] = {}  # key: id of the code object, instruction offset
        self._known_code: dict[int, CodeType] = {}  # keeps code objects alive, so that Python does not reuse their ids
        self._library_folders, self._pip_folders = _find_library_folders(), _find_pip_folders()

    def current_line(self, depth: int = 1) -> int:
        """Return the index of the innermost line of user code on the stack, or -1.

        The search skips `depth` frames, beginning with the caller.
        """
        frame: FrameType | None = sys._getframe(depth + 1)
        user_file_cache = self.user_file_cache
        while frame is not None:
            if user_file_cache.get(frame.f_code.co_filename) is not False:
                index = self.line_of_frame(frame)
                if index >= 0:
                    return index
            frame = frame.f_back
        return -1

    def line_of_frame(self, frame: FrameType) -> int:
        """Return the index of the line that a frame executes; -1 outside of user code."""
        code = frame.f_code
        is_user = self.user_file_cache.get(code.co_filename)
        if is_user is None:
            is_user = self.user_file_cache[code.co_filename] = self._is_user_code(code.co_filename)
        if not is_user:
            return -1
        index = self._index_by_instruction.get((id(code), frame.f_lasti))
        return self._add_frame(frame) if index is None else index

    @staticmethod
    def is_doctor(file: str) -> bool:
        """Whether a file belongs to the doctor."""
        return file.startswith(_DOCTOR_FOLDER)

    def line_of_function(self, function: object) -> int:
        """Return the index of the line that defines a user function; -1 for other functions."""
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if code is None or not self._is_user_code(code.co_filename):
            return -1
        return self._index_of(code.co_filename, code.co_firstlineno, code.co_qualname)

    def first_user_line(self, frames: Iterable[tuple[str, int, str]]) -> int:
        """Return the index of the first line of user code in `frames`, or -1.

        Each frame is (file, line number, function). The innermost frame comes first.
        """
        for file, number, function in frames:
            if self._is_user_code(file):
                return self._index_of(file, number, function)
        return -1

    def read(self, *, text: bool = True) -> list[Line]:
        """Return all lines in the order of their indices; `text=False` omits the source text."""
        return [
            Line(cell_name(file) or file, number, function, self._read_text(file, number) if text else "")
            for file, number, function in self.locations
        ]

    def _read_text(self, file: str, number: int) -> str:
        return self._texts.get((file, number)) or linecache.getline(file, number).strip()

    def _add_frame(self, frame: FrameType) -> int:
        code = frame.f_code
        # In Python 3.11, `f_lineno` is None for some instructions.
        file, number = code.co_filename, frame.f_lineno or code.co_firstlineno
        if file in MAGIC_FILES and (line := find_magic_line(frame)) is not None:
            file, number = line.file, line.number
            self._texts[file, number] = line.text
        index = self._index_of(file, number, code.co_qualname)
        self._known_code[id(code)] = code
        self._index_by_instruction[id(code), frame.f_lasti] = index
        return index

    def _index_of(self, file: str, number: int, function: str) -> int:
        key = file, number
        with self._lock:  # threads of the script and the sampler add lines
            if key not in self._indices:
                self._indices[key] = len(self.locations)
                self.locations.append((*key, function))
        return self._indices[key]

    def _is_user_code(self, file: str) -> bool:
        if file.startswith((_DOCTOR_FOLDER, *_GENERATED_PREFIXES)) or any(mark in file for mark in _GENERATED_PARTS):
            return False
        if file.startswith(self._library_folders):
            return False
        # Files directly in a `pip install --target` folder are user code; its subfolders are installed packages.
        return not any(file.startswith(folder) and "/" in file[len(folder) :] for folder in self._pip_folders)


def _find_library_folders() -> tuple[str, ...]:
    """Return the folders of the standard library, of installed packages and of Forebay."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names}
    folders |= {path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")}
    return tuple(sorted({folder + "/" for folder in folders if folder} | {str(Path(_DOCTOR_FOLDER).parent) + "/"}))


def _find_pip_folders() -> tuple[str, ...]:
    """Return the folders on `sys.path` into which pip has installed packages, for example with `--target`."""
    return tuple(f"{path}/" for path in sys.path if path and any(Path(path).glob("*.dist-info")))
