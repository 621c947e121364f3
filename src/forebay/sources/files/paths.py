"""Expansion of paths and globs to files in a reproducible order."""

import glob
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TypeAlias

from forebay.errors import SourceError
from forebay.sources.files.mapped import PathName, validate_file

__all__ = [
    "Paths",
    "expand_paths",
    "format_suffix",
    "has_url",
    "are_read_as_objects",
    "natural_sort_key",
    "stamp_files",
]

Paths: TypeAlias = PathName | Iterable[PathName]


def expand_paths(paths: Paths) -> list[Path]:
    """Return the files of a path, a glob, or a list of paths and globs.

    A list keeps its order. Files of a glob are sorted naturally: 2 before 10.

    >>> expand_paths([])
    Traceback (most recent call last):
    forebay.errors.SourceError: no files were given. Pass a path, a glob such as 'train/*.npy', or a list of them.
    """
    patterns = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not patterns:
        raise SourceError("no files were given. Pass a path, a glob such as 'train/*.npy', or a list of them.")
    return [file for pattern in patterns for file in _expand(pattern)]


def _expand(path: PathName) -> list[Path]:
    name = os.path.expanduser(path)  # noqa: PTH111 - a Path would remove the trailing slash, which errors should show
    # A file name may contain brackets, so a path that exists is never a pattern.
    if glob.has_magic(name) and not Path(name).exists():
        return _match_glob(name)
    if not _is_zarr_store(Path(name)):
        validate_file(Path(name))
    return [Path(name)]


def _match_glob(pattern: str) -> list[Path]:
    matches = []
    for name in glob.iglob(pattern, recursive=True):  # noqa: PTH207 - Path.glob takes no absolute pattern
        matches.append(Path(name))
        if "**" in pattern:
            _validate_no_loop(pattern, matches[-1])
    files = sorted((path for path in matches if path.is_file() or _is_zarr_store(path)), key=natural_sort_key)
    if not files:
        matched = f"only directories, such as {str(matches[0])!r}" if matches else "nothing"
        raise SourceError(
            f"the glob {pattern!r} matches {matched}. Correct it; the current directory is {str(Path.cwd())!r}."
        )
    return files


def _validate_no_loop(pattern: str, match: Path) -> None:
    """Raise SourceError if a link in the path points to a folder above it."""
    for folder in reversed(match.parents):
        if folder.is_symlink() and folder.resolve() in {above.resolve() for above in folder.parents}:
            raise SourceError(
                f"the glob {pattern!r} follows the link {str(folder)!r} to a folder that contains this link, so it "
                "matches the same files many times. Remove the link, or list the folders without '**'."
            )


def stamp_files(paths: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Return (absolute path, bytes, modification time in ns) of each file.

    For a folder, such as a Zarr store, return these values of all files and folders in it.
    """
    stamps = []
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            status = file.stat()
            stamps.append((str(file.absolute()), status.st_size, status.st_mtime_ns))
    return stamps


def are_read_as_objects(paths: Paths, options: Collection[str]) -> bool:
    """Return whether `forebay.sources.objects` reads these paths, as objects of a store.

    It reads URLs, and also local files if the user sets the option `cache` or `ram_bytes`.
    """
    return has_url(paths) or not {"cache", "ram_bytes"}.isdisjoint(options)


def has_url(paths: Paths) -> bool:
    """Return whether the first path is a URL."""
    first = paths if isinstance(paths, str | os.PathLike) else next(iter(paths), "")
    return "://" in str(first)


def format_suffix(path: Path) -> str:
    """Return the file suffix that identifies the format.

    A number at the end is ignored: the suffix of `x.tfrecord-00001-of-00010` is `.tfrecord`. The suffix of a `.gz` file
    includes the suffix before it: the suffix of `x.csv.gz` is `.csv.gz`.
    """
    name = Path(re.sub(r"-[0-9]+-of-[0-9]+$", "", path.name))
    return Path(name.stem).suffix + name.suffix if name.suffix.lower() == ".gz" else name.suffix


def _is_zarr_store(path: Path) -> bool:
    return path.suffix.lower() == ".zarr" and path.is_dir()


def natural_sort_key(path: Path | str) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key that orders numbers by value: 2 before 10."""
    parts = re.split(r"([0-9]+)", str(path))
    key = [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
    return key, str(path)  # the path itself decides the order of names with equal numbers, such as 01 and 1
