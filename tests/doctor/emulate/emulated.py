"""Runs a function while a cure is emulated on its marked line."""

import inspect
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from forebay.doctor.capture.session import Session
from forebay.doctor.emulate.emulator import Emulator
from forebay.doctor.model.emulation import Emulation, EmulationKind

MARK = "# target"


def emulator_for(function: Callable[..., Any], kind: EmulationKind, every: int = 0) -> Emulator:
    return Emulator(Emulation(kind, function.__code__.co_filename, _marked_line(function), every))


def _marked_line(function: Callable[..., Any]) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(index for index, line in enumerate(lines) if MARK in line)


def without_setting(
    setting: str, function: Callable[[], Any], target: Callable[..., Any] | None = None
) -> tuple[Any, int]:
    """Return the result of the function without a debug setting, and the number of calls that were left out.

    A callback is left out on the marked line of `target`.
    """
    file, number = (target.__code__.co_filename, _marked_line(target)) if target else ("", 0)
    emulator, session = Emulator(Emulation(EmulationKind.OFF, file, number, setting=setting)), Session()
    emulator.start()
    session.start()
    try:
        result = function()
    finally:
        session.stop()
        emulator.stop()
    assert emulator.notes == ()
    return result, emulator.replaced


@contextmanager
def emulating(function, kind, every=0):
    """Run an emulator below the hooks, as in a real run."""
    emulator, session = emulator_for(function, kind, every), Session()
    emulator.start()
    session.start()
    try:
        yield emulator
    finally:
        session.stop()
        emulator.stop()


def emulated(function: Callable[[], Any], kind: EmulationKind, every: int = 0) -> tuple[Any, int]:
    """Return the result of the function, and the number of calls that were not made as written."""
    with emulating(function, kind, every) as emulator:
        result = function()
    assert emulator.notes == ()
    return result, emulator.replaced
