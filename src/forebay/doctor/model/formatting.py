"""Formats numbers, source locations and other texts for the reports."""

from pathlib import Path

from forebay.doctor.model.events import Line

__all__ = [
    "format_count",
    "is_wide_range",
    "format_location",
    "format_ordinal",
    "format_percent",
    "format_rate",
    "format_seconds",
    "format_seconds_range",
    "format_speedup",
    "format_timestamp",
    "predicted_step_seconds",
    "replace_control_characters",
    "to_one_line",
    "truncate",
]

# No report predicts a step below this share of the present step time. This limits the speedup to a factor of 100.
MIN_STEP_SHARE = 0.01
# If the largest predicted speedup is more than this many times the smallest, a report shows only the largest.
WIDEST_RATIO = 1.5


def format_seconds(value: float) -> str:
    """Format a time with three significant digits.

    >>> format_seconds(0.00123)
    '1.23 ms'
    """
    factor, unit = _choose_unit(value)
    return f"{_format_three_digits(value * factor)} {unit}"


def format_seconds_range(low: float, high: float) -> str:
    """Format two times in one unit, or one time if both have the same text.

    >>> format_seconds_range(0.0049, 0.0112)
    '4.90 to 11.2 ms'
    """
    factor, unit = _choose_unit(high)
    least, most = _format_three_digits(low * factor), _format_three_digits(high * factor)
    return f"{most} {unit}" if least == most else f"{least} to {most} {unit}"


def format_timestamp(value: float) -> str:
    """Format the time since the start of a run with a precision of one millisecond.

    >>> format_timestamp(3.01204)
    '3.012 s'
    """
    return f"{value:,.3f} s"


def format_percent(share: float) -> str:
    """Format a share as a percentage, with one decimal from 0.05 % to 10 %.

    >>> format_percent(0.547), format_percent(0.0312)
    ('55%', '3.1%')
    """
    # With one decimal, shares from 0.0995 would read 10.0%, and shares below 0.0005 would read 0.0%.
    return f"{share:.0%}" if share >= 0.0995 or share < 0.0005 else f"{share:.1%}"


def predicted_step_seconds(low: float, high: float, step: float) -> tuple[float, float]:
    """Return the shortest and longest step time if a cure saves `low` to `high` seconds.

    `step` is the present step time in seconds.
    """
    return max(step - high, step * MIN_STEP_SHARE), max(step - low, step * MIN_STEP_SHARE)


def format_speedup(low: float, high: float, step: float) -> str:
    """Format the speedup if a cure saves `low` to `high` seconds of a step.

    >>> format_speedup(0.4, 0.5, 1.0), format_speedup(0.0, 0.5, 1.0)
    ('1.7 to 2.0 x', 'up to 2.0 x')
    """
    if not step:
        return "1.00 x"
    best, worst = predicted_step_seconds(low, high, step)
    if is_wide_range(low, high, step):
        return f"up to {step / best:.{1 if step / best < 9.95 else 0}f} x"
    # A speedup of 9.95 or more would read 10.0 with one decimal.
    digits = 2 if step / worst < 1.1 else 1 if step / best < 9.95 else 0
    slowest, fastest = f"{step / worst:.{digits}f}", f"{step / best:.{digits}f}"
    return f"{fastest} x" if slowest == fastest else f"{slowest} to {fastest} x"


def is_wide_range(low: float, high: float, step: float) -> bool:
    """Whether the predicted step times differ by more than a factor of WIDEST_RATIO.

    A cure saves `low` to `high` seconds of the present step time `step`.

    >>> is_wide_range(0.4, 0.5, 1.0), is_wide_range(0.0, 0.5, 1.0)
    (False, True)
    """
    best, worst = predicted_step_seconds(low, high, step)
    return worst > WIDEST_RATIO * best


def format_count(count: int, noun: str) -> str:
    """Format a number and a noun, which becomes plural if needed.

    >>> format_count(1, "step"), format_count(1200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_ordinal(number: int) -> str:
    """Format a number as an ordinal.

    >>> format_ordinal(20), format_ordinal(21), format_ordinal(112), format_ordinal(1003)
    ('20th', '21st', '112th', '1,003rd')
    """
    last = 0 if number % 100 in (11, 12, 13) else number % 10
    return f"{number:,}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(last, 'th') }"


def to_one_line(text: str) -> str:
    """Return the text on one line, with single spaces between words.

    >>> to_one_line("x = 1\\n\\x1b[2J")
    'x = 1 [2J'
    """
    return " ".join(replace_control_characters(text).split())


def replace_control_characters(text: str) -> str:
    """Return the text with spaces instead of control characters, which could change a terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def format_location(line: Line, script: str) -> str:
    """Format a line as `path:number`, with a short path, or as `Cell In[9], line 12`.

    The path is relative to the folder of the script. For files outside this folder, it is the last two path parts.
    """
    if line.is_in_cell:
        return str(line)
    path, script_path = Path(line.file), Path(script)
    for folder in (script_path.parent, script_path.parent.absolute()):
        if path.is_relative_to(folder):
            return f"{path.relative_to(folder)}:{line.number}"
    # The capture may come from another folder or machine. If the path ends with that of the script, it is the script.
    if path.parts[-len(script_path.parts) :] == script_path.parts:
        return f"{path.name}:{line.number}"
    return f"{Path(*path.parts[-2:])}:{line.number}"


def format_rate(count: float) -> str:
    """Format a number of calls per step.

    >>> format_rate(1.0), format_rate(0.25), format_rate(1234.5)
    ('1', '0.25', '1,234')
    """
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def truncate(text: str, length: int) -> str:
    """Shorten a text that is longer than `length` characters, and end it with three dots."""
    return text if len(text) <= length else text[: length - 3].rstrip() + "..."


def _choose_unit(value: float) -> tuple[float, str]:
    """Return the factor and the name of the unit for a time in seconds."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if value * factor >= 0.9995:  # rounds to 1.00 of this unit
            return factor, unit
    # Below 0.5 ns the unit is s: 0 reads "0 s", and other times read "0.00 s".
    return (1e9, "ns") if value * 1e9 >= 0.5 else (1.0, "s")


def _format_three_digits(value: float) -> str:
    """Format a number with three significant digits.

    Numbers below 1 have two decimals, and numbers from 1,000 on have all digits before the decimal point.
    """
    if value >= 99.95 or not value:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
