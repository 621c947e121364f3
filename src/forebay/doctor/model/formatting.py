"""Numbers and texts in the form that reports show."""

from pathlib import Path

from forebay.doctor.model.events import Line

__all__ = [
    "format_count",
    "format_percent",
    "format_rate",
    "format_seconds",
    "format_seconds_range",
    "format_speedup",
    "one_line",
    "predicted_step_seconds",
    "printable",
    "short_location",
    "truncate",
]

MIN_STEP_SHARE = 0.01  # of a step: what remains even if a cure is predicted to save the whole step


def format_seconds(value: float) -> str:
    """Format a time with three significant digits.

    >>> format_seconds(0.00123)
    '1.23 ms'
    """
    factor, unit = _unit(value)
    return f"{_three_digits(value * factor)} {unit}"


def format_seconds_range(low: float, high: float) -> str:
    """Format two times in one unit, or one time if both read the same.

    >>> format_seconds_range(0.0049, 0.0112)
    '4.90 to 11.2 ms'
    """
    factor, unit = _unit(high)
    least, most = _three_digits(low * factor), _three_digits(high * factor)
    return f"{most} {unit}" if least == most else f"{least} to {most} {unit}"


def format_percent(share: float) -> str:
    """Format a share; shares below 10 % get one decimal.

    >>> format_percent(0.547), format_percent(0.0312)
    ('55%', '3.1%')
    """
    return f"{share:.0%}" if share >= 0.0995 or share < 0.0005 else f"{share:.1%}"


def predicted_step_seconds(low: float, high: float, step: float) -> tuple[float, float]:
    """Return the best and the worst step time if between `low` and `high` seconds are saved."""
    return max(step - high, step * MIN_STEP_SHARE), max(step - low, step * MIN_STEP_SHARE)


def format_speedup(low: float, high: float, step: float) -> str:
    """Format the speedup of a step if between `low` and `high` of its seconds are saved.

    >>> format_speedup(0.4, 0.5, 1.0)
    '1.7 to 2.0 x'
    """
    best, worst = predicted_step_seconds(low, high, step)
    digits = 2 if step / worst < 1.1 else 1 if step / best < 9.95 else 0
    slowest, fastest = f"{step / worst:.{digits}f}", f"{step / best:.{digits}f}"
    return f"{fastest} x" if slowest == fastest else f"{slowest} to {fastest} x"


def format_count(count: int, noun: str) -> str:
    """Format a number with its noun.

    >>> format_count(1, "step"), format_count(1200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def one_line(text: str) -> str:
    """Put a text on one line, with single spaces between its words.

    >>> one_line("x = 1\\n\\x1b[2J")
    'x = 1 [2J'
    """
    return " ".join(printable(text).split())


def printable(text: str) -> str:
    """Replace characters that control a terminal by spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def short_location(line: Line, script: str) -> str:
    """Format a line with a path relative to the folder of the script, or with the last two path parts."""
    path, own = Path(line.file), Path(script)
    for start in (own.parent, own.parent.absolute()):
        if path.is_relative_to(start):
            return f"{path.relative_to(start)}:{line.number}"
    if path.parts[-len(own.parts) :] == own.parts:  # the script itself; its folder or the machine has changed since
        return f"{path.name}:{line.number}"
    return f"{Path(*path.parts[-2:])}:{line.number}"


def format_rate(count: float) -> str:
    """Format how often something happens in a step.

    >>> format_rate(1.0), format_rate(0.25), format_rate(1234.5)
    ('1', '0.25', '1,234')
    """
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def truncate(text: str, length: int) -> str:
    """Shorten a text to `length` characters and end it with three dots."""
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
