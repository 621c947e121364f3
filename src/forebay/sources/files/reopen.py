"""Files that were opened here, to be opened again on another machine."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from forebay.core.source import AbstractSource
from forebay.core.spec import ArraySpec, Tree
from forebay.errors import SourceChangedError
from forebay.sources.files.many_files import open_files
from forebay.sources.files.paths import Paths, expand_paths, is_address
from forebay.sources.objects.redact import redact_url

__all__ = ["Opening"]


@dataclass(frozen=True, slots=True)
class Opening:
    """How `from_files` opened its source."""

    paths: Paths
    spec: Tree | None
    options: dict[str, Any]
    version: str = ""  # of all objects, where a store tells it; local files are not asked: copies may differ in age

    def __repr__(self) -> str:
        """Without the options: a store's have credentials in them."""
        return f"Opening({self})"

    def __str__(self) -> str:
        return redact_url(str(self.paths))

    def everywhere(self) -> "Opening":
        """The same files by names that mean the same in another directory and on another machine."""
        if is_address(self.paths, self.options) and not _only_cached(self.paths):
            return self
        return Opening([str(path.absolute()) for path in expand_paths(self.paths)], self.spec, self.options)

    def open(self, rows: int, specs: Iterable[ArraySpec]) -> AbstractSource:
        """The source again, if it still is what it was."""
        source = open_files(self.paths, spec=self.spec, **self.options)
        if self.version and source.version != self.version:
            source.close()
            raise SourceChangedError(f"{self} was replaced since the feed was made. Make the pipeline again.")
        if len(source) == rows and tuple(source.specs) == tuple(specs):
            return source
        told = ", ".join(map(str, source.specs))
        source.close()
        raise SourceChangedError(f"the files hold {len(source)} rows of {told} here, but {rows} where the feed is.")


def _only_cached(paths: Paths) -> bool:
    """Whether these are local files after all, read through a store for the sake of its tiers."""
    first = paths if isinstance(paths, str | os.PathLike) else next(iter(paths), "")
    return "://" not in str(first)
