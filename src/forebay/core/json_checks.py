"""Checks of JSON values in files of unknown origin, and limits for reading these files."""

import gzip
import json
import math
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = [
    "Check",
    "any_value",
    "boolean",
    "integer",
    "list_of",
    "mapping_of",
    "number",
    "optional",
    "read_bounded",
    "parse_json",
    "record",
    "row",
    "text",
]

# Takes a value and its place in the document, which error messages name. Raises ValueError if the value is invalid.
Check = Callable[[Any, str], None]

MAX_FILE_NBYTES = 512 << 20  # bytes after decompression; a capture with the most events has 300 MB
MAX_RATIO = 100  # decompressed over compressed bytes; recorded captures reach 12, a decompression bomb 1,000
MAX_BOMB_NBYTES = 64 << 20  # decompressed bytes; a file up to this size may exceed MAX_RATIO
MAX_VALUES = 40_000_000  # values of one document; a capture with the most events has 20 million
MAX_INTEGER = 2**63 - 1  # larger numbers overflow int64
MAX_DEPTH = 20  # levels of nested lists and objects in a value that only `any_value` checks


def read_bounded(path: str | Path, *, max_nbytes: int = MAX_FILE_NBYTES) -> bytes:
    """Return the content of a file, decompressed if the file is a gzip file.

    Raise ValueError if the content has more than `max_nbytes` bytes, or if the file is damaged or a decompression bomb.
    """
    with Path(path).open("rb") as file:
        is_compressed = file.read(2) == b"\x1f\x8b"
        if is_compressed:
            max_nbytes = min(max_nbytes, max(MAX_BOMB_NBYTES, MAX_RATIO * os.fstat(file.fileno()).st_size))
    try:
        with gzip.open(path, "rb") if is_compressed else Path(path).open("rb") as file:
            content = file.read(max_nbytes + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(str(error)) from error
    if len(content) > max_nbytes:
        raise ValueError(f"it has more than {max_nbytes:,} bytes")
    return content


def parse_json(content: bytes) -> Any:
    """Parse a JSON document and return its value.

    Raise ValueError if the document is invalid, too deep or too large, or if it contains NaN or Infinity.
    """
    # Parsed values need far more memory than their text, so count the values before parsing.
    if (count := sum(map(content.count, (b"[", b"{", b",")))) > MAX_VALUES:
        raise ValueError(f"it has {count:,} values, and at most {MAX_VALUES:,} are allowed")
    try:
        return json.loads(content.decode(), parse_constant=_reject_constant)
    except RecursionError as error:
        raise ValueError("its lists and objects are nested too deeply") from error


def text(value: Any, place: str) -> None:
    if not isinstance(value, str):
        raise _unexpected(value, place, "a text")


def boolean(value: Any, place: str) -> None:
    if not isinstance(value, bool):
        raise _unexpected(value, place, "true or false")


def number(minimum: float = -math.inf, maximum: float = MAX_INTEGER) -> Check:
    """Return a check for finite numbers in a range."""

    def check(value: Any, place: str) -> None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_finite = is_number and abs(value) < math.inf  # `math.isfinite` raises OverflowError for huge integers
        if not is_finite or not minimum <= value <= maximum:
            raise _unexpected(value, place, f"a number from {minimum:g} to {maximum:g}")

    return check


def integer(minimum: int = -MAX_INTEGER, maximum: int = MAX_INTEGER) -> Check:
    """Return a check for whole numbers in a range."""

    def check(value: Any, place: str) -> None:
        if type(value) is not int or not minimum <= value <= maximum:
            raise _unexpected(value, place, f"a whole number from {minimum} to {maximum}")

    return check


def optional(check: Check) -> Check:
    """Return a check that also accepts null."""
    return lambda value, place: None if value is None else check(value, place)


def list_of(check: Check, *, max_length: int = MAX_VALUES) -> Check:
    """Return a check for lists of at most `max_length` values."""

    def check_list(value: Any, place: str) -> None:
        if not isinstance(value, list):
            raise _unexpected(value, place, "a list")
        if len(value) > max_length:
            raise ValueError(f"{place} has {len(value):,} values, and at most {max_length:,} are allowed")
        for index, item in enumerate(value):
            check(item, f"{place}[{index}]")

    return check_list


def row(*checks: Check, fewest: int | None = None) -> Check:
    """Return a check for lists whose value `i` passes `checks[i]`.

    A list may end after `fewest` values.
    """
    min_length = len(checks) if fewest is None else fewest

    def check_row(value: Any, place: str) -> None:
        if not isinstance(value, list) or not min_length <= len(value) <= len(checks):
            raise _unexpected(value, place, f"a list of {len(checks)} values")
        for index, (check, item) in enumerate(zip(checks, value, strict=False)):
            check(item, f"{place}[{index}]")

    return check_row


def mapping_of(check: Check) -> Check:
    """Return a check for objects whose values all pass `check`."""

    def check_mapping(value: Any, place: str) -> None:
        if not isinstance(value, Mapping):
            raise _unexpected(value, place, "an object")
        for name, item in value.items():
            check(item, f"{place}.{name}"[:100])

    return check_mapping


def record(required: Mapping[str, Check], possible: Mapping[str, Check] | None = None) -> Check:
    """Return a check for objects with required and possible keys.

    Unknown keys are allowed. Their values must pass `any_value`.
    """
    checks = {**required, **(possible or {})}

    def check_record(value: Any, place: str) -> None:
        if not isinstance(value, Mapping):
            raise _unexpected(value, place, "an object")
        missing = required.keys() - value.keys()
        if missing:
            raise ValueError(f"{place} has no {min(missing)}")
        for name, item in value.items():
            checks.get(name, any_value)(item, f"{place}.{name}"[:100])

    return check_record


def any_value(value: Any, place: str, *, depth: int = 0) -> None:
    """Accept any JSON value, unless it has huge numbers or is nested too deeply."""
    if depth > MAX_DEPTH:
        raise ValueError(f"{place} is nested too deeply")
    if isinstance(value, int | float) and not isinstance(value, bool):
        number(-MAX_INTEGER)(value, place)
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            any_value(item, place, depth=depth + 1)


def _unexpected(value: Any, place: str, expected: str) -> ValueError:
    shown = repr(value[:40]) if isinstance(value, str) else f"of type {type(value).__name__}"
    if isinstance(value, int | float):
        shown = str(value) if abs(value) < 1e30 else "a huge number"
    return ValueError(f"{place} is {shown}, not {expected}")


def _reject_constant(name: str) -> float:
    raise ValueError(f"it contains {name}, which is not a number")
