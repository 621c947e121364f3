"""`open_paths`: opens paths and URLs as local files or as objects of a store."""

import os
from functools import partial
from typing import Any

from forebay.core import registry
from forebay.core.source import AbstractSource
from forebay.core.spec import Tree
from forebay.sources.files.many_files import open_files
from forebay.sources.files.paths import Paths, are_read_as_objects

__all__ = ["open_paths"]

# Options of `open_files` that also apply to downloaded objects.
_FILE_OPTIONS = ("max_open_files", "max_held_bytes")


def open_paths(paths: Paths, *, spec: Tree | None = None, **options: Any) -> AbstractSource:
    """Open paths, URLs or globs as one source. The options are those of `from_files`."""
    paths = paths if isinstance(paths, str | os.PathLike) else list(paths)
    if not are_read_as_objects(paths, options):
        return open_files(paths, spec=spec, **options)
    file_options = {name: options.pop(name) for name in _FILE_OPTIONS if name in options}
    open_local = partial(open_files, **file_options)
    remote: AbstractSource = registry.load_object_opener()(paths, open_local=open_local, spec=spec, **options)
    return remote
