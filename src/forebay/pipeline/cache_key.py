"""The key of a row cache on disk: a hash of functions and data.

Forebay computes the cached rows from these functions and data. While a feed stores rows, the cache compares the hash
again, so that it stores no rows of changed functions or data under an outdated key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from forebay.core.source import AbstractSource
from forebay.errors import PipelineError, SourceError
from forebay.pipeline.spec_inference import TransformSpecs
from forebay.pipeline.stable_digest import UnstableValueError, identify_if_known, stable_digest
from forebay.transforms.ops import Map, Transform

__all__ = ["CacheKey", "identify_cached"]


@dataclass(frozen=True, slots=True)
class CacheKey:
    """The key of the transformed rows of a source, with the objects that determine it."""

    source: AbstractSource
    specs: TransformSpecs
    version: str | None  # the argument of `cache()`; if given, it replaces the hash of the functions
    identity: tuple[str, Sequence[str]]  # the result of `identify_cached`
    digest: str  # the key itself, in hexadecimal digits; the names of the cache's files begin with it

    @classmethod
    def of(cls, source: AbstractSource, specs: TransformSpecs, version: str | None) -> "CacheKey":
        """Return the key of these rows.

        Raise PipelineError if the data or a function has no hash that is equal in every process.
        """
        from forebay.sources.row_cache.disk_rows import FORMAT  # imported here: only caches on disk need the module

        fields = [(str(spec), name) for spec, name in zip(specs.specs, specs.structure.paths, strict=True)]
        layout = (FORMAT, len(source), fields)
        try:
            identity = identify_cached(source, specs.transforms, version)
            return cls(source, specs, version, identity, stable_digest((layout, identity), "the source")[:40])
        except (UnstableValueError, SourceError) as error:
            raise PipelineError(
                f"cache() on disk needs a hash of the functions and the data, but there is none for {error}. Pass "
                "cache(..., version='1'), and change the version whenever the functions or the data change."
            ) from None

    def check_data(self) -> None:
        """Raise PipelineError if the data have changed since `cache()`."""
        if self.identity[0] and identify_if_known(self.source) != self.identity[0]:
            raise PipelineError(
                "the data before cache() changed after the call of cache(), so the new rows do not belong to the key "
                "of this cache. Forebay has not stored them. Call cache() again after the data have changed."
            )

    def check_functions(self) -> None:
        """Raise PipelineError if a function has changed since `cache()`."""
        if self.version is not None:
            return
        digests = self.identity[1][1:]  # the first item describes the structure, and the others the transforms
        for transform, digest in zip(self.specs.transforms, digests, strict=True):
            if _digest_again(transform) != digest:
                raise PipelineError(
                    f"{transform} changed after the call of cache(): its function, or a variable that the function "
                    "reads, is not the same. The new rows do not belong to the key of this cache, so Forebay did not "
                    "store them. Call cache() again after the change. If the function itself changes a variable that "
                    "does not affect its results, pass cache(..., version='1')."
                )


def identify_cached(
    source: AbstractSource, transforms: Sequence[Transform], version: str | None
) -> tuple[str, Sequence[str]]:
    """Return a hash and texts that together identify the transformed rows of a source.

    The hash is that of the data. It is empty if the data have no stable hash and the user passed a version. The texts
    describe the structure of a row and the functions; a version replaces the functions.
    """
    structure = repr(source.structure)  # the result of a map depends on field names, which the data may not contain
    if version is not None:
        return identify_if_known(source), [structure, version]
    if source.identify is None:
        raise UnstableValueError(f"the source ({type(source).__name__})")
    digests = [_digest_transform(transform) for transform in transforms]
    return stable_digest(source.identify(), "the source"), [structure, *digests]


def _digest_transform(transform: Transform) -> str:
    function = transform.function if isinstance(transform, Map) else transform
    return stable_digest(function, type(transform).__name__.lower())


def _digest_again(transform: Transform) -> str | None:
    """Return the digest of a transform, or None if it has none at this moment.

    For example, the function may now read an object without a hash, or another thread may be changing a dict that the
    function reads.
    """
    try:
        return _digest_transform(transform)
    except (UnstableValueError, RuntimeError):
        return None
