"""JSON files in the cache folder: conversion from and to dataclasses, and atomic writes."""

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

__all__ = ["SCHEMA_VERSION", "cache_folder", "from_json", "to_json", "write_atomically"]

SCHEMA_VERSION = 1
_NUMBER_LIMIT = 2**63  # `from_json` rejects this and larger numbers, because they overflow int64
T = TypeVar("T")


def cache_folder() -> Path:
    """Return $XDG_CACHE_HOME/forebay, or ~/.cache/forebay if the variable is unset or relative."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path("~/.cache").expanduser()) / "forebay"


def to_json(value: Any) -> dict[str, Any]:
    """Convert a dataclass to a JSON document with a schema version."""
    document: dict[str, Any] = _to_json_value(value)
    return {"schema_version": SCHEMA_VERSION, **document}


def from_json(kind: type[T], document: Any) -> T:
    """Return the dataclass `kind` that a JSON document describes.

    Raise ValueError if the schema version differs, or if a field is missing or has an invalid value.
    """
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise ValueError(f"schema_version is {version!r}, but this version of Forebay reads {SCHEMA_VERSION}")
    value: T = _parse(kind, document, kind.__name__)
    return value


def write_atomically(path: Path, document: dict[str, Any]) -> None:
    """Write a document to a file in one step.

    A reader of the file sees the whole old or the whole new document.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(document, file, indent=1)
            file.write("\n")
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


def _to_json_value(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _to_json_value(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_to_json_value(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


def _parse(kind: Any, value: Any, where: str) -> Any:
    """Convert a JSON value to the type `kind`. `where` names the field in error messages."""
    if isinstance(kind, type) and is_dataclass(kind):
        return _parse_dataclass(kind, value, where)
    if get_origin(kind) is UnionType:  # the only union in these dataclasses is `X | None`
        return None if value is None else _parse(get_args(kind)[0], value, where)
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_parse(get_args(kind)[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if kind is datetime and isinstance(value, str):
        return datetime.fromisoformat(value)
    return _parse_scalar(kind, value, where)


def _parse_dataclass(kind: type[Any], value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object, not {value!r}")
    hints = get_type_hints(kind)
    missing = [name for name in hints if name not in value]
    if missing:
        raise ValueError(f"{where} has no {missing[0]}")
    return kind(**{name: _parse(hint, value[name], f"{where}.{name}") for name, hint in hints.items()})


def _parse_scalar(kind: Any, value: Any, where: str) -> Any:
    """Return a string, a count (int >= 0) or a measurement (float > 0)."""
    if kind is str and isinstance(value, str):
        return value
    if kind is int and type(value) is int and 0 <= value < _NUMBER_LIMIT:
        return value
    if kind is float and type(value) in (int, float) and 0 < value < _NUMBER_LIMIT:
        return float(value)
    raise ValueError(f"{where} has the invalid value {value!r}")
