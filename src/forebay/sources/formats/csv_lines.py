"""Where the lines of a text file begin: an index of a few megabytes for a file of any size.

Only every `step`-th line is remembered, and where there are too many of those, every second one is forgotten and the
step doubled. A line is then found by reading the few that follow the remembered one before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.spec import Array
from forebay.errors import SourceError
from forebay.sources.files.mapped import MappedFile

__all__ = ["LineIndex", "scan_lines"]

_FIRST_STEP = 32
_MAX_OFFSETS = 2**20  # 8 MiB of them
_SCAN_NBYTES = 4 * 2**20
_MAX_LINE_NBYTES = 16 * 2**20  # anything longer is no table, and one line must fit in memory


@dataclass(frozen=True, slots=True, eq=False)
class LineIndex:
    """The lines of one file, without the empty ones at its end."""

    offsets: np.ndarray[Any, np.dtype[np.int64]]  # where line `step * i` begins
    step: int
    count: int

    def read(self, file: MappedFile, first: int, stop: int) -> list[str]:
        """Lines that follow each other, without their line ends."""
        if first >= stop:
            return []
        block, skipped = divmod(first, self.step)
        start = int(self.offsets[block])
        end_block = -(-stop // self.step)
        end = int(self.offsets[end_block]) if end_block < len(self.offsets) else file.nbytes
        lines = _decode(file, start, end).split("\n")
        return lines[skipped : skipped + stop - first]

    def pick(self, file: MappedFile, numbers: Sequence[int] | Array) -> list[str]:
        """Chosen lines; the numbers must ascend."""
        lines: list[str] = []
        numbers = np.asarray(numbers)
        blocks = numbers // self.step
        for wanted in np.split(numbers, np.flatnonzero(np.diff(blocks)) + 1):
            first = int(wanted[0])
            read = self.read(file, first, int(wanted[-1]) + 1)
            lines += [read[number - first] for number in wanted.tolist()]
        return lines


def scan_lines(file: MappedFile) -> LineIndex:
    """Read through a file once and remember where its lines begin."""
    found, step, newlines, line_start = [np.zeros(1, np.int64)], _FIRST_STEP, 0, 0
    for start in range(0, file.nbytes, _SCAN_NBYTES):
        piece = np.frombuffer(file.read(start, _SCAN_NBYTES), np.uint8)
        begins = np.flatnonzero(piece == ord("\n")) + (start + 1)
        line_start = int(begins[-1]) if len(begins) else line_start
        if start + len(piece) - line_start > _MAX_LINE_NBYTES:
            raise SourceError(f"line {newlines + len(begins) + 1} of {file.path} is endless: this is not a text table.")
        # begins[i] is where line newlines + 1 + i starts; the first of these that the step divides:
        found.append(begins[-(newlines + 1) % step :: step])
        newlines += len(begins)
        if newlines // step > _MAX_OFFSETS:
            found, step = [np.concatenate(found)[::2]], step * 2
    return LineIndex(np.concatenate(found), step, _count(file, newlines))


def _count(file: MappedFile, newlines: int) -> int:
    """How many lines there are up to the last that is not empty."""
    for stop in range(file.nbytes, 0, -_SCAN_NBYTES):
        start = max(0, stop - _SCAN_NBYTES)
        piece = file.read(start, stop - start)
        kept = piece.rstrip()
        newlines -= piece.count(b"\n", len(kept))
        if kept:
            return newlines + 1
    return 0


def _decode(file: MappedFile, start: int, end: int) -> str:
    try:
        text = file.read(start, end - start).decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"{file.path} is not UTF-8 text at byte {start + error.start}: save it as UTF-8.") from error
    return text.removeprefix("\ufeff") if start == 0 else text  # spreadsheets put a byte order mark first
