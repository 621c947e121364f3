"""An index of the lines of a text file.

It takes a few megabytes for a file of any size.

The index stores the position of every `step`-th line. If there are too many positions, every second one is dropped and
the step is doubled. To find a line, the index reads on from the nearest stored position before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.rows import split_runs
from forebay.core.spec import Array
from forebay.errors import SourceError
from forebay.sources.files.mapped import MappedFile

__all__ = ["LineIndex", "scan_lines"]

_FIRST_STEP = 32
_MAX_OFFSETS = 2**20  # 8 MiB of offsets
_SCAN_NBYTES = 4 * 2**20
_MAX_LINE_NBYTES = 16 * 2**20  # bytes; a longer line means that the file is not a table


@dataclass(frozen=True, slots=True, eq=False)
class LineIndex:
    """The lines of one file, without empty lines at its end."""

    offsets: np.ndarray[Any, np.dtype[np.int64]]  # first byte of line `step * i`
    step: int
    count: int

    def read(self, file: MappedFile, first: int, stop: int) -> list[str]:
        """Return consecutive lines without their line ends."""
        if first >= stop:
            return []
        block, skipped = divmod(first, self.step)
        start = int(self.offsets[block])
        end_block = -(-stop // self.step)
        end = int(self.offsets[end_block]) if end_block < len(self.offsets) else file.nbytes
        lines = _decode(file, start, end).split("\n")
        return lines[skipped : skipped + stop - first]

    def pick(self, file: MappedFile, numbers: Sequence[int] | Array) -> list[str]:
        """Return the lines with these numbers, which must be sorted."""
        lines: list[str] = []
        numbers = np.asarray(numbers)
        for _, run in split_runs(numbers // self.step):
            wanted = numbers[run]
            first = int(wanted[0])
            found = self.read(file, first, int(wanted[-1]) + 1)
            lines += [found[number - first] for number in wanted.tolist()]
        return lines


def scan_lines(file: MappedFile) -> LineIndex:
    """Read a file once and store where its lines begin."""
    found, step, newlines, line_start = [np.zeros(1, np.int64)], _FIRST_STEP, 0, 0
    for start in range(0, file.nbytes, _SCAN_NBYTES):
        part = np.frombuffer(file.read(start, _SCAN_NBYTES), np.uint8)
        line_starts = np.flatnonzero(part == ord("\n")) + (start + 1)
        line_start = int(line_starts[-1]) if len(line_starts) else line_start
        if start + len(part) - line_start > _MAX_LINE_NBYTES:
            raise SourceError(
                f"line {newlines + len(line_starts) + 1} of {file.path} is longer than {_MAX_LINE_NBYTES} bytes, so "
                "this is not a text table. Check the file."
            )
        # line_starts[i] begins line newlines + 1 + i. Store the lines whose number is a multiple of the step.
        found.append(line_starts[-(newlines + 1) % step :: step])
        newlines += len(line_starts)
        if newlines // step > _MAX_OFFSETS:
            found, step = [np.concatenate(found)[::2]], step * 2
    return LineIndex(np.concatenate(found), step, _count_lines(file, newlines))


def _count_lines(file: MappedFile, newlines: int) -> int:
    """Return the number of lines up to the last one that is not empty."""
    for stop in range(file.nbytes, 0, -_SCAN_NBYTES):
        start = max(0, stop - _SCAN_NBYTES)
        part = file.read(start, stop - start)
        text = part.rstrip()
        newlines -= part.count(b"\n", len(text))
        if text:
            return newlines + 1
    return 0


def _decode(file: MappedFile, start: int, end: int) -> str:
    try:
        text = file.read(start, end - start).decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"{file.path} is not UTF-8 text at byte {start + error.start}. Save it as UTF-8.") from error
    return text.removeprefix("\ufeff") if start == 0 else text  # spreadsheets write a byte order mark first
