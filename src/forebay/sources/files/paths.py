"""Which files are meant: one path, a glob, or a list of them, in an order that is the same everywhere."""

import glob
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TypeAlias

from forebay.errors import SourceError
from forebay.sources.files.mapped import PathName, check_is_file

__all__ = ["Paths", "expand_paths", "is_address", "natural_key", "suffix_of"]

Paths: TypeAlias = PathName | Iterable[PathName]


def expand_paths(paths: Paths) -> list[Path]:
    """Every file that is meant. A list keeps its order; what a glob matches is sorted as people do: 2 before 10.

    >>> expand_paths([])
    Traceback (most recent call last):
    forebay.errors.SourceError: no files were given: pass a path, a glob such as 'train/*.npy', or a list of them.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise SourceError("no files were given: pass a path, a glob such as 'train/*.npy', or a list of them.")
    return [file for path in given for file in _expand(path)]


def _expand(path: PathName) -> list[Path]:
    name = os.path.expanduser(path)  # noqa: PTH111 - a Path would lose the trailing slash that the error should show
    # A file may have brackets in its name; only what is not there can be a pattern.
    if glob.has_magic(name) and not Path(name).exists():
        return _matches(name)
    if not _is_store(Path(name)):
        check_is_file(Path(name))
    return [Path(name)]


def _matches(pattern: str) -> list[Path]:
    found = [Path(name) for name in glob.glob(pattern, recursive=True)]  # noqa: PTH207 - Path.glob takes no absolute pattern
    files = sorted((path for path in found if path.is_file() or _is_store(path)), key=natural_key)
    if not files:
        told = f"only directories, such as {str(found[0])!r}" if found else "nothing"
        raise SourceError(f"the glob {pattern!r} matches {told}. The current directory is {str(Path.cwd())!r}.")
    return files


def is_address(paths: Paths, options: Collection[str]) -> bool:
    """Whether files are read through a store: addresses are, and files with a tier in front of them."""
    first = paths if isinstance(paths, str | os.PathLike) else next(iter(paths), "")
    return "://" in str(first) or not {"cache", "ram_bytes"}.isdisjoint(options)


def suffix_of(path: Path) -> str:
    """What tells the format of a file, without a shard's number (`.tfrecord-00001-of-00010`); `.gz` alone does not."""
    name = Path(re.sub(r"-[0-9]+-of-[0-9]+$", "", path.name))
    return Path(name.stem).suffix + name.suffix if name.suffix.lower() == ".gz" else name.suffix


def _is_store(path: Path) -> bool:
    """Whether this is a folder that is one thing: a Zarr store."""
    return path.suffix.lower() == ".zarr" and path.is_dir()


def natural_key(path: Path | str) -> tuple[list[tuple[int, str]], str]:
    """What to sort names by as people do: 2 before 10."""
    parts = re.split(r"([0-9]+)", str(path))
    key = [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
    return key, str(path)  # 01 and 1 are the same number: the text decides
