"""The arguments of `from_files`, with which another machine opens the same source."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from forebay.core.redact import redact_text
from forebay.core.source import AbstractSource
from forebay.core.spec import ArraySpec, Tree
from forebay.errors import SourceChangedError, SourceError
from forebay.sources.files.paths import Paths, are_read_as_objects, expand_paths, has_url, stamp_files
from forebay.sources.open_paths import open_paths

__all__ = ["FileSourceRecipe"]

# Options that change how Forebay reads the rows, but not the values of the rows. Some contain credentials.
_READING_OPTIONS = frozenset(
    (
        *("storage_options", "cache", "cache_bytes", "ram_bytes", "ahead_bytes", "connections", "attempts"),
        *("max_open_files", "max_held_bytes", "external_files", "filters"),
    )
)


@dataclass(frozen=True, slots=True)
class FileSourceRecipe:
    """The arguments of `from_files`, and the version of the objects that it opened."""

    paths: Paths
    spec: Tree | None
    options: dict[str, Any]
    version: str = ""  # of objects of a store; empty for files, whose times differ between machines

    def __repr__(self) -> str:
        """Return a text without the options, because these may contain credentials of a store."""
        return f"FileSourceRecipe({self})"

    def __str__(self) -> str:
        return redact_text(str(self.paths))

    def identify(self) -> tuple[Any, ...]:
        """Return what identifies the rows: files, options and spec.

        Raise SourceError if the paths are objects of a store whose version is not known.
        """
        options = {name: value for name, value in self.options.items() if name not in _READING_OPTIONS}
        if not are_read_as_objects(self.paths, self.options):
            return stamp_files(expand_paths(self.paths)), options, self.spec
        if not self.version:
            # The callers put this text after "there is no hash for", and add what the user can do.
            raise SourceError(f"{self} (the version of these objects is not known)")
        return str(self), self.version, options, self.spec

    def with_absolute_paths(self) -> "FileSourceRecipe":
        """Return a recipe with absolute paths, for any working directory. URLs stay unchanged."""
        if has_url(self.paths):
            return self
        return FileSourceRecipe([str(path.absolute()) for path in expand_paths(self.paths)], self.spec, self.options)

    def open(self, rows: int, specs: Iterable[ArraySpec]) -> AbstractSource:
        """Open the source again.

        Raise SourceChangedError unless the source has `rows` rows, these specs and the version of this recipe. An empty
        version is not compared.
        """
        source = open_paths(self.paths, spec=self.spec, **self.options)
        if self.version and source.version != self.version:
            source.close()
            raise SourceChangedError(f"{self} was replaced after the feed was made. Make the pipeline again.")
        expected_specs = tuple(specs)
        if len(source) == rows and tuple(source.specs) == expected_specs:
            return source
        specs_text, expected_text = (", ".join(map(str, leaves)) for leaves in (source.specs, expected_specs))
        source.close()
        raise SourceChangedError(
            f"the files hold {len(source)} rows of {specs_text} on this machine, but {rows} rows of {expected_text} on "
            "the machine of the feed. Copy the same files to both machines."
        )
