"""Readers of cases: Forebay reads rows, and the doctor reads captures."""

import io
import json
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz.sample import Sample

import forebay as fb
from forebay.errors import CaptureError

__all__ = ["READERS", "InconsistentRowsError", "ReadRows"]

MAX_ROWS = 256  # rows of one case
MAX_READ_NBYTES = 16 << 20  # bytes of rows that the fuzzer itself allocates
HELD_NBYTES = 32 << 20  # budget that the fuzzer gives to Forebay
SCATTERED_ROWS = 16


class InconsistentRowsError(Exception):
    """Two reads of the same rows differ, or a report contains control characters or markup of the capture."""


@dataclass(frozen=True, slots=True)
class ReadRows:
    """The first rows of a source, one array per leaf.

    The list is empty if there are no rows, or if rows are too large or differ in length. It is empty for captures too.
    """

    leaves: list[Any]

    def is_equal(self, other: "ReadRows") -> bool:
        """Return whether both have the same arrays, bit by bit."""
        return [_identity(leaf) for leaf in self.leaves] == [_identity(leaf) for leaf in other.leaves]

    def row_set(self) -> set[bytes]:
        """Return the bytes of each row."""
        return {b"|".join(leaf.tobytes() for leaf in row) for row in zip(*self.leaves, strict=True)}

    def contains(self, text: bytes) -> bool:
        """Return whether the rows show some bytes."""
        return any(text in leaf.tobytes() for leaf in self.leaves)


def _identity(leaf: Any) -> tuple[Any, ...]:
    return leaf.shape, leaf.dtype.str, leaf.tobytes()


def read_rows(folder: Path, sample: Sample, *, through_feed: bool) -> ReadRows:
    """Read the first rows: in order and scattered, or through a feed."""
    pipeline = fb.from_files(str(folder / sample.opened), **_with_budget(sample))
    source: Any = pipeline.source
    try:
        if through_feed:
            return _read_feed(pipeline, source)
        row_nbytes = sum(spec.nbytes for spec in source.specs)
        count = min(len(source), MAX_ROWS, MAX_READ_NBYTES // max(1, row_nbytes))
        if count == 0 or any(spec.ragged for spec in source.specs):
            return ReadRows([])
        return _gather(source, count)
    finally:
        source.close()


def _with_budget(sample: Sample) -> Mapping[str, Any]:
    return {"max_held_bytes": HELD_NBYTES, **sample.options}


def _gather(source: Any, count: int) -> ReadRows:
    rows = ReadRows([spec.empty(count) for spec in source.specs])
    source.gather(slice(0, count), rows.leaves)
    numbers = np.random.default_rng(0).integers(0, count, SCATTERED_ROWS)
    scattered = ReadRows([spec.empty(SCATTERED_ROWS) for spec in source.specs])
    source.gather(numbers, scattered.leaves)
    if not scattered.is_equal(ReadRows([leaf[numbers] for leaf in rows.leaves])):
        raise InconsistentRowsError("scattered rows differ from the same rows in order")
    last = ReadRows([spec.empty(1) for spec in source.specs])
    source.gather(slice(len(source) - 1, len(source)), last.leaves)
    return rows


def _read_feed(pipeline: Any, source: Any) -> ReadRows:
    batches = []
    with pipeline.batch(16).feed("numpy", host_bytes=HELD_NBYTES) as feed:
        for batch in feed:
            batches.append([np.array(leaf) for leaf in source.structure.flatten_like(batch)])
            if 16 * len(batches) >= MAX_ROWS:
                break
    return ReadRows([np.concatenate(leaves) for leaves in zip(*batches, strict=True)])


def read_capture(folder: Path, sample: Sample, *, through_feed: bool) -> ReadRows:
    """Load a capture and write every report."""
    from forebay.cli.main import main
    from forebay.doctor.model.capture import Capture

    path, reports = folder / sample.opened, folder / "reports"
    reports.mkdir()
    if path.read_bytes()[:2] != b"\x1f\x8b":
        Capture.load(path)  # the command would treat the file as a script
    names = {"html": reports / "page.html", "json": reports / "report.json", "trace": reports / "run.pftrace"}
    options = [word for name, report in names.items() for word in (f"--{name}", str(report))]
    printed, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(printed), redirect_stderr(errors):
        status = main(["doctor", *options, str(path)])
    if status == 2 and not names["html"].exists():
        raise CaptureError(errors.getvalue())
    _check_reports(printed.getvalue() + errors.getvalue(), names)
    return ReadRows([])


def _check_reports(printed: str, names: Mapping[str, Path]) -> None:
    if "\x1b]" in printed:
        raise InconsistentRowsError("the terminal report contains a control sequence of the capture")
    if "<script>alert" in names["html"].read_text(encoding="utf-8", errors="replace"):
        raise InconsistentRowsError("the page contains markup of the capture")
    json.loads(names["json"].read_text(encoding="utf-8"))


READERS: dict[str, Callable[..., ReadRows]] = {"rows": read_rows, "capture": read_capture}
