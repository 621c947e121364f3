"""Values as JSON, and back: read by the types of their fields, so that a damaged file is found out, not used."""

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
_MOST = 2**63  # of any count or speed: beyond, arithmetic fails instead of the file
T = TypeVar("T")


def cache_folder() -> Path:
    """XDG_CACHE_HOME/forebay, or ~/.cache/forebay."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path("~/.cache").expanduser()) / "forebay"


def to_json(value: Any) -> dict[str, Any]:
    """Plain data, with its version."""
    plain: dict[str, Any] = _plain(value)
    return {"schema_version": SCHEMA_VERSION, **plain}


def from_json(kind: type[T], document: Any) -> T:
    """The value that was written, or ValueError: nothing is guessed."""
    found = document.get("schema_version") if isinstance(document, dict) else None
    if found != SCHEMA_VERSION:
        raise ValueError(f"schema_version is {found!r}, this version reads {SCHEMA_VERSION}")
    value: T = _typed(kind, document, kind.__name__)
    return value


def write_atomically(path: Path, document: dict[str, Any]) -> None:
    """Readers find the old file or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(document, file, indent=1)
            file.write("\n")
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


def _typed(kind: Any, value: Any, where: str) -> Any:
    if isinstance(kind, type) and is_dataclass(kind):
        return _record(kind, value, where)
    if get_origin(kind) is UnionType:  # the only one: something or None
        return None if value is None else _typed(get_args(kind)[0], value, where)
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_typed(get_args(kind)[0], item, f"{where}[{place}]") for place, item in enumerate(value))
    if kind is datetime and isinstance(value, str):
        return datetime.fromisoformat(value)
    return _scalar(kind, value, where)


def _record(kind: type[Any], value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object, not {value!r}")
    hints = get_type_hints(kind)
    missing = [name for name in hints if name not in value]
    if missing:
        raise ValueError(f"{where} has no {missing[0]}")
    return kind(**{name: _typed(hint, value[name], f"{where}.{name}") for name, hint in hints.items()})


def _scalar(kind: Any, value: Any, where: str) -> Any:
    """A text, a count, or a measured number: those are never nought."""
    if kind is str and isinstance(value, str):
        return value
    if kind is int and type(value) is int and 0 <= value < _MOST:
        return value
    if kind is float and type(value) in (int, float) and 0 < value < _MOST:
        return float(value)
    raise ValueError(f"{where} cannot be {value!r}")
