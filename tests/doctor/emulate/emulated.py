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
    lines, first = inspect.getsourcelines(function)
    number = first + next(index for index, line in enumerate(lines) if MARK in line)
    return Emulator(Emulation(kind, function.__code__.co_filename, number, every))


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
