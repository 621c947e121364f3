"""Runs a function with a cure emulated on the line of it that says so."""

import inspect
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from forebay.doctor.capture.session import Session
from forebay.doctor.emulate.emulator import Emulator
from forebay.doctor.model.emulation import Emulation, Way

MARK = "# accused"


def emulator_for(function: Callable[..., Any], way: Way, every: int = 0) -> Emulator:
    lines, first = inspect.getsourcelines(function)
    number = first + next(index for index, line in enumerate(lines) if MARK in line)
    return Emulator(Emulation(way, function.__code__.co_filename, number, every))


@contextmanager
def emulating(function, way, every=0):
    """The emulator, at work; as in a real run, the hooks lie above it."""
    emulator, session = emulator_for(function, way, every), Session()
    emulator.start()
    session.start()
    try:
        yield emulator
    finally:
        session.stop()
        emulator.stop()


def emulated(function: Callable[[], Any], way: Way, every: int = 0) -> tuple[Any, int]:
    """What the function gives, and how many of its calls were not made as they are written."""
    with emulating(function, way, every) as emulator:
        result = function()
    assert emulator.notes == ()
    return result, emulator.replaced
