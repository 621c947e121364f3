"""Runs a function while a cure is emulated on its marked line."""

import inspect
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np

from forebay.doctor.capture.session import Session
from forebay.doctor.emulate.emulator import Emulator
from forebay.doctor.model.emulation import Emulation, EmulationKind

MARK = "# target"
# Host data that the cases upload.
DATA = np.arange(4096, dtype="float32")
OTHERS = [np.full(4096, number, dtype="float32") for number in range(4)]


def emulation_for(function: Callable[..., Any], kind: EmulationKind, every: int = 0) -> Emulation:
    return Emulation(kind, function.__code__.co_filename, _marked_line(function), every)


def emulator_for(function: Callable[..., Any], kind: EmulationKind, every: int = 0) -> Emulator:
    return Emulator(emulation_for(function, kind, every))


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
    emulator = Emulator(Emulation(EmulationKind.OFF, file, number, setting=setting))
    with running(emulator):
        result = function()
    assert emulator.notes == ()
    return result, emulator.replaced


@contextmanager
def emulating(function, kind, every=0):
    emulator = emulator_for(function, kind, every)
    with running(emulator):
        yield emulator


@contextmanager
def running(emulator):
    """Start an emulator and then the hooks, in the order of a real run. Stop both at the end."""
    session = Session()
    emulator.start()
    session.start()
    try:
        yield
    finally:
        session.stop()
        emulator.stop()


def emulated(function: Callable[[], Any], kind: EmulationKind, every: int = 0) -> tuple[Any, int]:
    """Return the result of the function, and the number of calls that the emulation replaced."""
    with emulating(function, kind, every) as emulator:
        result = function()
    assert emulator.notes == ()
    return result, emulator.replaced


def distinct_count(values):
    return len({id(value) for value in values})
