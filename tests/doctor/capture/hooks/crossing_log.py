"""Profiles a function without a loop and returns its crossings, as a report lists them."""

from collections.abc import Callable
from typing import Any

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.crossings import Crossing, crossings_of
from forebay.doctor.capture.session import Session

__all__ = ["assert_listed", "crossings_in"]


def crossings_in(run: Callable[[], Any]) -> list[Crossing]:
    session = Session()
    session.start()
    try:
        run()
    finally:
        session.stop()
    return crossings_of(CaptureView(session.capture("train.py")))


def assert_listed(run: Callable[[], Any], expected: list[tuple[str, str, str, str]]) -> None:
    """Compare (line, API, kind, cause) of each crossing, and check that each has a time."""
    found = crossings_in(run)
    causes = {True: "implied", False: "explicit"}
    assert [(each.line.text, each.api, each.kind, causes[each.is_implied]) for each in found] == expected
    starts = [each.start for each in found]
    assert starts == sorted(starts)
    assert all(each.seconds > 0 for each in found)
