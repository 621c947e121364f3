"""The public surface as plain values: names, keywords, errors, commands, flags, options of file formats.

This module imports only public modules of Forebay, so that it works with version 0.1 and with this version.
`python -m tests.compat.surface` prints the part that needs frameworks.
"""

import importlib
import inspect
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.compat.commands import forebay_each

import forebay as fb

__all__ = ["MODULES", "entry_points", "framework_surface", "help_pages", "light_surface", "parse_help"]

MODULES = ("forebay", "forebay.errors", "forebay.testing", "forebay.doctor")
FRAMEWORK_MODULES = ("forebay.adapters.ray",)
# Functions return these classes; their constructors are private.
PRIVATE_CONSTRUCTORS = ("forebay.Pipeline", "forebay.doctor.Watch", "Feed", "Epoch", "Batches")
SUFFIXES = [
    ".npy",
    ".npz",
    ".csv",
    ".txt",
    ".bin",
    ".h5",
    ".hdf5",
    ".parquet",
    ".pq",
    ".arrow",
    ".feather",
    ".ipc",
    ".zarr",
    ".tar",
    ".tar.gz",
    ".tgz",
    ".tfrecord",
    ".tfrecords",
    ".tfrecord.gz",
    ".png",
    ".jpg",
    ".jpeg",
    ".bmp",
    ".gif",
    ".tif",
    ".tiff",
    ".webp",
]
TARGETS = ("numpy", "torch", "jax", "tensorflow", "cupy", "keras")

Parameter = list[Any]  # name, kind, default (absent if there is none)


def light_surface() -> dict[str, Any]:
    """Return the part of the surface that needs no framework."""
    found = _surface(MODULES, leave_out=("KerasWatch",))
    with fb.from_arrays(np.arange(4)).batch(2).feed("numpy") as feed:
        found = _merge(found, _members("Feed", type(feed)), _members("Epoch", type(iter(feed))))
    return found | {"errors": dict(_errors())}


def framework_surface() -> dict[str, Any]:
    """Return the part of the surface that needs Keras or Ray."""
    watch = importlib.import_module("forebay.doctor").KerasWatch
    found = _merge(_surface(FRAMEWORK_MODULES), _members("forebay.doctor.KerasWatch", watch, own_only=True))
    rows = (np.zeros((4, 2), "f4"), np.zeros(4, "f4"))
    with fb.from_arrays(rows).batch(2).feed("keras") as feed:
        return _merge(found, _members("KerasFeed", type(feed), own_only=True), _members("Batches", type(iter(feed))))


def help_pages(commands: list[list[str]]) -> dict[str, str]:
    """Return the output of `forebay COMMAND --help` for each command."""
    pages = forebay_each([[*command, "--help"] for command in commands])
    return {" ".join(command): page.stdout for command, page in zip(commands, pages, strict=True)}


def parse_help(page: str) -> dict[str, Any]:
    """Parse a help page.

    Return each flag with its sorted choices, or with whether it takes a value, and the positional arguments.
    """
    flags: dict[str, Any] = {}
    positions: list[str] = []
    heading = ""
    for line in page.splitlines():
        if re.match(r"\S", line):
            heading = line.strip().rstrip(":")
        entry = re.match(r"  (\S.*?)(?:\s{2,}|$)", line)
        if entry is None or heading not in ("options", "positional arguments"):
            continue
        if heading == "positional arguments":
            positions.append(entry[1])
            continue
        names = re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", entry[1])
        values = re.sub(r"(?<![\w-])--?[A-Za-z][\w-]*|,(?![^{]*})", " ", entry[1]).split()
        choices = re.search(r"{(.*?)}", entry[1])
        flags |= {name: sorted(choices[1].split(",")) if choices else bool(values) for name in names}
    return {"flags": flags, "positions": positions}


def commands_of(page: str) -> list[str]:
    """Return the commands that `forebay --help` lists."""
    listed = page.partition("positional arguments:")[2].partition("options:")[0]
    return re.findall(r"^    (\w+)\s", listed, re.MULTILINE)


def format_options(suffix: str) -> str:
    """Return the error text of `from_files` that names every option of a format."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"rows{suffix}"
        file.mkdir() if suffix == ".zarr" else file.touch()
        try:
            fb.from_files(file, no_such_option=1)
        except fb.ForebayError as error:
            return str(error).replace(str(file), file.name)
    raise AssertionError(f"{suffix} files take an option that does not exist")


def entry_points() -> list[str]:
    """Return the entry points of the installed package."""
    from importlib.metadata import distribution

    return sorted(f"{point.group}: {point.name}" for point in distribution("forebay").entry_points)


def _surface(modules: tuple[str, ...], *, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {"names": {}, "signatures": {}, "attributes": {}}
    for module_name in modules:
        module = importlib.import_module(module_name)
        found["names"][module_name] = sorted(module.__all__)
        for name in module.__all__:
            if module_name != "forebay.errors" and name not in leave_out:
                found = _merge(found, _describe(f"{module_name}.{name}", getattr(module, name)))
    return found


def _describe(name: str, what: Any) -> dict[str, Any]:
    if inspect.isclass(what):
        return _members(name, what)
    return {"signatures": {name: _parameters(what)}} if callable(what) else {}


def _members(name: str, kind: type, *, own_only: bool = False) -> dict[str, Any]:
    """Return public methods with their parameters, and other public attributes, without test methods."""
    names = vars(kind) if own_only else dir(kind)
    public = [member for member in names if not member.startswith(("_", "test_")) or member == "__init__"]
    signatures, attributes = {}, []
    for member in sorted(public):
        found = inspect.getattr_static(kind, member)
        if member == "__init__":
            if name not in PRIVATE_CONSTRUCTORS and not issubclass(kind, BaseException):
                signatures[name] = _parameters(kind)
        elif isinstance(found, classmethod | staticmethod) or inspect.isfunction(found):
            signatures[f"{name}.{member}"] = _parameters(getattr(kind, member))
        else:
            attributes.append(member)
    return {"signatures": signatures, "attributes": {name: attributes}}


def _parameters(function: Any) -> list[Parameter]:
    """Return name, kind and default of each public parameter."""
    return [
        [
            parameter.name,
            parameter.kind.name,
            *([] if parameter.default is parameter.empty else [_default(parameter.default)]),
        ]
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in ("self", "cls") and not parameter.name.startswith("_")
    ]


def _default(value: Any) -> str:
    return repr(value) if isinstance(value, str | int | float | bool | tuple | None) else type(value).__name__


def _errors() -> Iterator[tuple[str, list[str]]]:
    """Yield each error with its base classes."""
    module = importlib.import_module("forebay.errors")
    for name in module.__all__:
        yield name, [kind.__name__ for kind in getattr(module, name).__mro__[1:-1]]


def _merge(*parts: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            merged[key] = merged.get(key, {}) | value
    return merged


if __name__ == "__main__":
    json.dump(framework_surface(), sys.stdout)
