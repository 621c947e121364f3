"""The key of a cache on disk: a hash of the functions and the data, which is compared again while rows are stored."""

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
    """The key of the transformed rows of a source, and how to compute it again."""

    source: AbstractSource
    specs: TransformSpecs
    version: str | None  # of the user; stands for the functions
    identity: tuple[str, Sequence[str]]  # see `identify_cached`
    digest: str  # hexadecimal; the name of the files

    @classmethod
    def of(cls, source: AbstractSource, specs: TransformSpecs, version: str | None) -> "CacheKey":
        """Compute the key. Raise PipelineError if something has no stable hash."""
        from forebay.sources.row_cache.disk_rows import FORMAT  # needs file locks

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
                "the data before cache() changed after the call of cache(), so the rows do not belong to the key of "
                "this cache. No changed row was stored. Call cache() again after the data have changed."
            )

    def check_functions(self) -> None:
        """Raise PipelineError if a function has changed since `cache()`."""
        if self.version is not None:
            return
        digests = self.identity[1][1:]  # the first one is that of the structure
        for transform, digest in zip(self.specs.transforms, digests, strict=True):
            if _digest_again(transform) != digest:
                raise PipelineError(
                    f"{transform} changed after the call of cache(): its function, or a variable that it reads, is not "
                    "the same. Its new rows do not belong to the key of this cache, so they were not stored. Call "
                    "cache() again after the change. If the function changes such a variable itself, without an effect "
                    "on its results, pass cache(..., version='1')."
                )


def identify_cached(
    source: AbstractSource, transforms: Sequence[Transform], version: str | None
) -> tuple[str, Sequence[str]]:
    """Return what identifies the transformed rows of a source. A version stands for the functions."""
    structure = repr(source.structure)  # a map finds values by the names of fields, and data may not contain the names
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
    """Return the digest of a transform; None if it has none now, or if a thread changes a variable at this time."""
    try:
        return _digest_transform(transform)
    except (UnstableValueError, RuntimeError):
        return None
