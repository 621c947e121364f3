"""An index of the lines of a text file.

The index stores the offset of every `step`-th line. If it has more than `_MAX_OFFSETS` offsets, the scan drops every
second offset and doubles the step, so the index uses about 8 MiB at most. To find a line, the index reads from the
nearest stored offset at or before that line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.progress_line import ProgressLine
from forebay.core.rows import split_runs
from forebay.core.spec import Array
from forebay.errors import SourceError
from forebay.sources.files.mapped import MappedFile

__all__ = ["LineIndex", "scan_lines"]

_FIRST_STEP = 32  # lines; a larger step needs fewer offsets, but reads more text to find a line
_MAX_OFFSETS = 2**20  # offsets of 8 bytes each, 8 MiB in total
_SCAN_NBYTES = 4 * 2**20  # bytes that the scan reads at a time
_MAX_LINE_NBYTES = 16 * 2**20  # bytes; a longer line means that the file is not a table


@dataclass(frozen=True, slots=True, eq=False)
class LineIndex:
    """Finds the lines of one file.

    Lines at the end of the file that are empty, or have only white space, do not count.
    """

    offsets: np.ndarray[Any, np.dtype[np.int64]]  # first byte of line `step * i`
    step: int
    count: int  # number of lines

    def read(self, file: MappedFile, first: int, stop: int) -> list[str]:
        """Return the lines from `first` to `stop` (exclusive), without newlines."""
        if first >= stop:
            return []
        block, skipped_lines = divmod(first, self.step)
        start = int(self.offsets[block])
        end_block = -(-stop // self.step)
        end = int(self.offsets[end_block]) if end_block < len(self.offsets) else file.nbytes
        lines = _read_text(file, start, end).split("\n")
        return lines[skipped_lines : skipped_lines + stop - first]

    def read_selected(self, file: MappedFile, numbers: Sequence[int] | Array) -> list[str]:
        """Return the lines with the given numbers, which must be sorted."""
        lines: list[str] = []
        numbers = np.asarray(numbers)
        for _, run in split_runs(numbers // self.step):
            run_numbers = numbers[run]
            first = int(run_numbers[0])
            run_lines = self.read(file, first, int(run_numbers[-1]) + 1)
            lines += [run_lines[number - first] for number in run_numbers.tolist()]
        return lines


def scan_lines(file: MappedFile) -> LineIndex:
    """Read a file once and return an index of its lines."""
    with ProgressLine(f"indexing {file.path}", file.nbytes) as progress:
        return _scan_lines(file, progress)


def _scan_lines(file: MappedFile, progress: ProgressLine) -> LineIndex:
    offsets, step, newlines, line_start = [np.zeros(1, np.int64)], _FIRST_STEP, 0, 0
    for start in range(0, file.nbytes, _SCAN_NBYTES):
        progress.done = start
        data = np.frombuffer(file.read(start, _SCAN_NBYTES), np.uint8)
        line_starts = np.flatnonzero(data == ord("\n")) + (start + 1)
        lengths = np.diff(line_starts, prepend=line_start, append=start + len(data))
        lengths[:-1] -= 1  # without the newline
        if lengths.max() > _MAX_LINE_NBYTES:
            raise SourceError(
                f"line {newlines + lengths.argmax() + 1} of {file.path} is longer than {_MAX_LINE_NBYTES} bytes, so "
                "this is not a text table. Check the file."
            )
        line_start = int(line_starts[-1]) if len(line_starts) else line_start
        # line_starts[i] is the offset of line newlines + 1 + i. Store the lines whose number is a multiple of the step.
        offsets.append(line_starts[-(newlines + 1) % step :: step])
        newlines += len(line_starts)
        if newlines // step > _MAX_OFFSETS:
            offsets, step = [np.concatenate(offsets)[::2]], step * 2
    return LineIndex(np.concatenate(offsets), step, _count_lines(file, newlines))


def _count_lines(file: MappedFile, newlines: int) -> int:
    """Return the number of lines up to the last line with more than white space."""
    for stop in range(file.nbytes, 0, -_SCAN_NBYTES):
        start = max(0, stop - _SCAN_NBYTES)
        data = file.read(start, stop - start)
        text = data.rstrip()
        newlines -= data.count(b"\n", len(text))
        if text:
            return newlines + 1
    return 0


def _read_text(file: MappedFile, start: int, end: int) -> str:
    try:
        text = file.read(start, end - start).decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"{file.path} is not UTF-8 text at byte {start + error.start}. Save it as UTF-8.") from error
    # Spreadsheet programs begin a file with a byte order mark.
    return text.removeprefix("\ufeff") if start == 0 else text
