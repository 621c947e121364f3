"""Expansion of paths and globs to files in a reproducible order."""

import glob
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TypeAlias

from forebay.errors import SourceError
from forebay.sources.files.mapped import PathName, validate_file

__all__ = ["Paths", "expand_paths", "format_suffix", "has_url", "is_in_object_store", "natural_sort_key"]

Paths: TypeAlias = PathName | Iterable[PathName]


def expand_paths(paths: Paths) -> list[Path]:
    """Return every file.

    A list keeps its order; glob matches are sorted naturally: 2 before 10.

    >>> expand_paths([])
    Traceback (most recent call last):
    forebay.errors.SourceError: no files were given. Pass a path, a glob such as 'train/*.npy', or a list of them.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise SourceError("no files were given. Pass a path, a glob such as 'train/*.npy', or a list of them.")
    return [file for path in given for file in _expand(path)]


def _expand(path: PathName) -> list[Path]:
    name = os.path.expanduser(path)  # noqa: PTH111 - a Path would lose the trailing slash that the error should show
    # A file name may contain brackets, so a path that exists is never a pattern.
    if glob.has_magic(name) and not Path(name).exists():
        return _match_glob(name)
    if not _is_zarr_store(Path(name)):
        validate_file(Path(name))
    return [Path(name)]


def _match_glob(pattern: str) -> list[Path]:
    found = [Path(name) for name in glob.glob(pattern, recursive=True)]  # noqa: PTH207 - Path.glob takes no absolute pattern
    files = sorted((path for path in found if path.is_file() or _is_zarr_store(path)), key=natural_sort_key)
    if not files:
        matches = f"only directories, such as {str(found[0])!r}" if found else "nothing"
        raise SourceError(
            f"the glob {pattern!r} matches {matches}. Correct it; the current directory is {str(Path.cwd())!r}."
        )
    return files


def is_in_object_store(paths: Paths, options: Collection[str]) -> bool:
    """Tell whether the object store code reads these paths.

    It reads URLs, and local files with a cache option.
    """
    return has_url(paths) or not {"cache", "ram_bytes"}.isdisjoint(options)


def has_url(paths: Paths) -> bool:
    """Tell whether the first path is a URL."""
    first = paths if isinstance(paths, str | os.PathLike) else next(iter(paths), "")
    return "://" in str(first)


def format_suffix(path: Path) -> str:
    """Return the suffix that names the format, without a shard number (`.tfrecord-00001-of-00010`).

    `.gz` alone names no format, so the suffix before it is included.
    """
    name = Path(re.sub(r"-[0-9]+-of-[0-9]+$", "", path.name))
    return Path(name.stem).suffix + name.suffix if name.suffix.lower() == ".gz" else name.suffix


def _is_zarr_store(path: Path) -> bool:
    return path.suffix.lower() == ".zarr" and path.is_dir()


def natural_sort_key(path: Path | str) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key that orders numbers by value: 2 before 10."""
    parts = re.split(r"([0-9]+)", str(path))
    key = [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
    return key, str(path)  # the text orders names with equal numbers, such as 01 and 1
