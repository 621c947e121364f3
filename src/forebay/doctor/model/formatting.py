"""Numbers and texts as people read them."""

from pathlib import Path

from forebay.doctor.model.events import Line

__all__ = [
    "at_most",
    "counted",
    "interval",
    "near",
    "percent",
    "plain",
    "predicted",
    "printable",
    "seconds",
    "seconds_between",
    "times",
]

FASTEST = 0.01  # of a step: what is left of it when all of it is said to be won


def seconds(value: float) -> str:
    """A time with as many digits as matter.

    >>> seconds(0.00123)
    '1.23 ms'
    """
    factor, unit = _unit(value)
    return f"{_three_digits(value * factor)} {unit}"


def seconds_between(low: float, high: float) -> str:
    """Two times in one unit, or one where they read the same.

    >>> seconds_between(0.0049, 0.0112)
    '4.90 to 11.2 ms'
    """
    factor, unit = _unit(high)
    least, most = _three_digits(low * factor), _three_digits(high * factor)
    return f"{most} {unit}" if least == most else f"{least} to {most} {unit}"


def percent(share: float) -> str:
    """A share of a whole; no more digits than are known.

    >>> percent(0.547), percent(0.0312)
    ('55%', '3.1%')
    """
    return f"{share:.0%}" if share >= 0.0995 or share < 0.0005 else f"{share:.1%}"


def predicted(low: float, high: float, step: float) -> tuple[float, float]:
    """How long a step takes once so many of its seconds are won: at best, and at worst."""
    return max(step - high, step * FASTEST), max(step - low, step * FASTEST)


def interval(low: float, high: float, step: float) -> str:
    """How many times as fast a step becomes when so many of its seconds are won.

    >>> interval(0.4, 0.5, 1.0)
    '1.7 to 2.0 x'
    """
    best, worst = predicted(low, high, step)
    digits = 2 if step / worst < 1.1 else 1 if step / best < 9.95 else 0
    slowest, fastest = f"{step / worst:.{digits}f}", f"{step / best:.{digits}f}"
    return f"{fastest} x" if slowest == fastest else f"{slowest} to {fastest} x"


def counted(count: int, noun: str) -> str:
    """
    >>> counted(1, "step"), counted(1200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def plain(text: str) -> str:
    """The text on one line, single spaces between its words.

    >>> plain("x = 1\\n\\x1b[2J")
    'x = 1 [2J'
    """
    return " ".join(printable(text).split())


def printable(text: str) -> str:
    """The text without characters that would steer a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def near(line: Line, script: str) -> str:
    """A line by the shortest path that is clear: from the script's folder, or the last two names of it."""
    path, own = Path(line.file), Path(script)
    for start in (own.parent, own.parent.absolute()):
        if path.is_relative_to(start):
            return f"{path.relative_to(start)}:{line.number}"
    if path.parts[-len(own.parts) :] == own.parts:  # the script itself, that has left its folder since, or its machine
        return f"{path.name}:{line.number}"
    return f"{Path(*path.parts[-2:])}:{line.number}"


def times(count: float) -> str:
    """How often something happens in a step.

    >>> times(1.0), times(0.25), times(1234.5)
    ('1', '0.25', '1,234')
    """
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def at_most(text: str, length: int) -> str:
    """The text, or its beginning and three dots."""
    return text if len(text) <= length else text[: length - 3].rstrip() + "..."


def _unit(value: float) -> tuple[float, str]:
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if value * factor >= 0.9995:  # rounds to 1.00 of this unit
            return factor, unit
    return (1e9, "ns") if value * 1e9 >= 0.5 else (1.0, "s")


def _three_digits(value: float) -> str:
    if value >= 99.95 or not value:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
