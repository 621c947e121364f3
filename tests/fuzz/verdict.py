"""The verdict on one case."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.fuzz.attacks import CANARY_TEXT
from tests.fuzz.case import Case
from tests.fuzz.readers import InconsistentRowsError, ReadRows

from forebay.errors import ForebayError

__all__ = ["Kind", "Verdict", "judge"]

_HERE, _PROJECT = str(Path(__file__).parent), Path(__file__).parents[2]


class Kind(StrEnum):
    """The classes of the table. All classes after REFUSED are failures."""

    SAME = "same rows"  # the rows of the undamaged sample
    OTHER = "other rows"  # other rows, and no checksum covers the damage; or rows of an attack that did no harm
    REFUSED = "refused"  # a Forebay error
    WRONG = "wrong rows"  # other rows although a checksum covers the damage, or `InconsistentRowsError`
    UNTYPED = "untyped error"  # an exception that is no Forebay error
    MEMORY = "memory"  # more memory than the budget
    HARM = "harm"  # code was executed, or a file outside was used
    HANG = "hang"  # the worker did not answer in time
    CRASH = "crash"  # the worker process ended

    @property
    def is_failure(self) -> bool:
        return self not in (Kind.SAME, Kind.OTHER, Kind.REFUSED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The class of one case, and what happened."""

    kind: Kind
    detail: str = ""


def judge(case: Case, expected: ReadRows | None, read: Callable[[], ReadRows]) -> Verdict:
    """Read a case, and compare the rows with those of the undamaged sample."""
    try:
        rows = read()
    except ForebayError as error:
        return Verdict(Kind.REFUSED, f"{type(error).__name__}: {error}")
    except InconsistentRowsError as error:
        return Verdict(Kind.WRONG, str(error))
    except MemoryError as error:
        return Verdict(Kind.MEMORY, _describe(error))
    except BaseException as error:
        return Verdict(Kind.UNTYPED, _describe(error))
    if rows.contains(CANARY_TEXT[:16]):
        return Verdict(Kind.HARM, "file outside touched: the rows contain the canary")
    return _compare(case, expected, rows)


def _compare(case: Case, expected: ReadRows | None, rows: ReadRows) -> Verdict:
    if expected is None:
        return Verdict(Kind.OTHER)
    if rows.is_equal(expected):
        return Verdict(Kind.SAME)
    if case.is_under_checksum:
        return Verdict(Kind.WRONG, f"other rows ({case.sample.name}), although a checksum covers the damage")
    if case.sample.has_row_checksums and not case.forged and not rows.row_set() <= expected.row_set():
        return Verdict(Kind.WRONG, f"a row ({case.sample.name}) that the undamaged file does not have")
    return Verdict(Kind.OTHER)


def _describe(error: BaseException) -> str:
    """Return the error, and the innermost line of Forebay that raised it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/src/forebay/" in frame.filename]
    place = f"{Path(frames[-1].filename).relative_to(_PROJECT)}:{frames[-1].lineno}" if frames else "outside Forebay"
    text = " ".join(str(error).split())
    return f"{type(error).__name__} at {place}: {text}"[:300]
