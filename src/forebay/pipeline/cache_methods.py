"""The pipeline method `cache`, which keeps the results of decoders and maps."""

import functools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from forebay.core.machine import Machine
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, format_nbytes, parse_nbytes
from forebay.errors import PipelineError, SpecError
from forebay.order.combined import contains_order
from forebay.order.epoch_views import EpochViews
from forebay.order.orders import Order
from forebay.pipeline.cache_key import CacheKey, identify_cached
from forebay.pipeline.description import Batching, PipelineDescription
from forebay.pipeline.familiar_words import accept_familiar_arguments
from forebay.pipeline.spec_inference import TransformSpecs, infer_specs
from forebay.sources.row_cache.cached_source import CachedSource, RowTransform
from forebay.sources.row_cache.stored_rows import RamRows, StoredRows
from forebay.transforms.augmentations import draws_by_row
from forebay.transforms.batch_context import BatchContext
from forebay.transforms.ops import Map, Transform, apply_all
from forebay.transforms.outputs import describe_transforms, write_leaves

__all__ = ["CacheMethods"]

# Texts that `cache()` refuses as wrong budgets, such as "0", "-1GB" and "8 XB". A folder with such a name needs a
# slash: "./0".
_NUMBER = re.compile(r"[-+]?[0-9][0-9.]* ?[A-Za-z]{0,3}")
MAX_SORTED_ROWS = 1 << 24  # rows of the longest order whose row numbers `cache()` sorts; it sorts these in about 1 s


@dataclass(frozen=True, slots=True)
class CacheMethods(PipelineDescription):
    """A pipeline description with the method `cache`, which returns a new pipeline."""

    @accept_familiar_arguments
    def cache(
        self,
        where: int | str | os.PathLike[str],
        *,
        path: str | os.PathLike[str] | None = None,
        version: str | None = None,
    ) -> Self:
        """Keep the rows, so that later epochs do not compute them again.

        The kept rows are the results of all decoders and maps before `cache()`. If the budget does not hold all rows,
        Forebay keeps the first rows of the source, and computes the other rows in every epoch. Several processes may
        use one folder at the same time. `cache()` refuses maps that draw random numbers (`rng`), because it would
        repeat the numbers of the first epoch. Call these maps after `cache()`.

        On disk, the names of the cache's files begin with a key. The key is a hash of the functions, with their
        closures and defaults, and of the names, sizes and modification times of the source files. If one of these
        changes, the key is different, so Forebay computes the rows again.

        Args:
            where: The budget or the folder. `cache("8GB")` keeps up to 8 GB in RAM. `cache("folder")` keeps all rows on
                disk.
            path: The folder, if `where` is a budget: `cache("8GB", path="folder")` keeps up to 8 GB on disk.
            version: A text that replaces the hash of the functions in the key, for functions that Forebay cannot hash.
                It also replaces the hash of data that Forebay cannot hash. Change it whenever these functions or data
                change.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> pipeline = fb.from_arrays(np.arange(4)).map(lambda row: row**2).cache("1MB").batch(4)
            >>> with pipeline.feed("numpy") as feed:
            ...     [batch.tolist() for epoch in range(3) for batch in feed], feed.stats()["source"]["cached_rows"]
            ([[0, 1, 4, 9], [0, 1, 4, 9], [0, 1, 4, 9]], 4)
        """
        place = _parse_place(where, path)
        if version is not None and not isinstance(version, str):
            raise PipelineError(f"cache(version={version!r}): pass a text, such as version='2'.")
        if version is not None and place.folder is None:
            raise PipelineError(
                f"cache(version={version!r}) names files on disk, but this cache is in RAM. Leave out version=."
            )
        source, order = _check_cacheable(self)
        specs = infer_specs(replace(self, batching=Batching(1, False, None)), self.transforms)
        request = _CacheRequest(source, specs, _used_rows(order, len(source)))
        key = None if place.folder is None else CacheKey.of(source, specs, version)
        store = request.open_store(place, key)
        row_transform = RowTransform(
            specs.specs,
            specs.structure,
            functools.partial(_transform_into, specs) if specs.transforms else None,
            calls_user_code=any(isinstance(transform, Map) for transform in specs.transforms),
        )
        cached = CachedSource(source, store, row_transform, used_rows=request.used_count, key=key)
        cached.cached_transforms = source.cached_transforms + len(specs.transforms)
        cached.identify = functools.partial(identify_cached, source, specs.transforms, version)
        return replace(self, source=cached, transforms=(), file_recipe=None)


@dataclass(frozen=True, slots=True)
class _CachePlace:
    """Where `cache()` keeps rows, and at most how many bytes of them."""

    folder: Path | None  # None: in RAM
    budget_nbytes: int | None  # None: no limit


@dataclass(frozen=True, slots=True)
class _CacheRequest:
    """The rows to cache: those of a source, after the transforms."""

    source: AbstractSource
    specs: TransformSpecs
    used: Array | None  # the sorted numbers of the rows that the pipeline uses; None: all rows of the source

    @property
    def used_count(self) -> int:
        return len(self.source) if self.used is None else len(self.used)

    def open_store(self, place: _CachePlace, key: CacheKey | None) -> StoredRows:
        row_nbytes = max(1, sum(spec.nbytes for spec in self.specs.specs))
        capacity = self.used_count
        if place.budget_nbytes is not None:
            capacity = min(capacity, place.budget_nbytes // row_nbytes)
        if capacity == 0:
            assert place.budget_nbytes is not None
            raise PipelineError(
                f"cache({format_nbytes(place.budget_nbytes)}) holds no row: one row takes {format_nbytes(row_nbytes)}. "
                "Pass a larger budget."
            )
        if place.folder is not None and key is not None:
            return self._open_disk(place.folder, capacity, key)
        _check_memory(capacity * row_nbytes)
        return RamRows(self.specs.specs, len(self.source), self.used, capacity)

    def _open_disk(self, folder: Path, capacity: int, key: CacheKey) -> StoredRows:
        from forebay.sources.row_cache.disk_rows import DiskRows, DiskRowsLayout  # only caches on disk need the module

        specs, names = self.specs.specs, self.specs.structure.paths
        layout = DiskRowsLayout(folder, key.digest, specs, names, len(self.source))
        stop = capacity if self.used is None else int(self.used[capacity - 1]) + 1
        return DiskRows(layout, stop, capacity)


def _parse_place(where: Any, path: Any) -> _CachePlace:
    """Return the folder and the budget that the arguments of `cache()` describe.

    If `where` is a text such as "8GB", it is a budget. Any other text is a folder.
    """
    if path is not None and not isinstance(path, str | os.PathLike):
        raise PipelineError(f"cache(path={path!r}): pass the path of a folder.")
    try:
        budget = None if isinstance(where, os.PathLike) else parse_nbytes(where, "cache")
    except SpecError:
        if not isinstance(where, str) or not where.strip() or _NUMBER.fullmatch(where.strip()):
            raise PipelineError(
                f"cache({where!r}) is neither a number of bytes nor a folder. Pass a budget such as '8GB', a folder, "
                "or both: cache('8GB', path='folder'). A folder that is named like a number needs a slash: './8GB'."
            ) from None
        budget = None
    if budget is None and path is not None:
        raise PipelineError(f"cache({str(where)!r}, path={str(path)!r}) got two folders. Pass one of them.")
    folder = where if budget is None else path
    if folder is None:
        return _CachePlace(None, budget)
    folder_path = Path(folder).expanduser()
    if "://" in str(folder):
        raise PipelineError(f"cache({str(folder)!r}) is a URL. Pass a folder of this machine.")
    return _CachePlace(folder_path, budget)


def _check_cacheable(pipeline: PipelineDescription) -> tuple[AbstractSource, Order]:
    """Return the source and the order, or raise PipelineError if the rows cannot be cached."""
    source, order = pipeline.source, pipeline.order
    if pipeline.batching is not None:
        raise PipelineError(
            f"batch({pipeline.batching.rows}) comes before cache(), which keeps rows. Call cache() first."
        )
    if order is None or not isinstance(source, AbstractSource):
        raise PipelineError(
            "cache() finds rows by their row number, but a stream and ready-made batches have none, so a resumed run "
            "would have to read the stream again. Store the rows in arrays or files, or use from_source()."
        )
    if contains_order(order, (EpochViews,)):
        raise PipelineError(
            "cache() would keep one random box of each image for all epochs. Open the images with size=, call cache(), "
            "and then map(fb.random_resized_crop(...))."
        )
    ragged = [name for spec, name in zip(source.specs, source.structure.paths, strict=True) if spec.ragged]
    if ragged:
        raise PipelineError(
            f"cache() keeps rows of one shape, but {ragged[0]!r} differs in length. Call pack() before cache(), or "
            "leave out cache()."
        )
    for transform in pipeline.transforms:
        _check_transform(transform)
    return source, order


def _check_transform(transform: Transform) -> None:
    if draws_by_row(transform) or (isinstance(transform, Map) and transform.takes_rng):
        raise PipelineError(
            f"{transform} draws random numbers, and cache() would repeat those of the first epoch. Call this map after "
            "cache()."
        )
    if isinstance(transform, Map) and transform.max_errors is not None:
        raise PipelineError(
            f"{transform} has on_error='skip', which replaces a row by another row of its batch, so the result depends "
            "on the batch. Call this map after cache(), or leave out the rows with select() before it."
        )
    if transform.where in ("process", "ray", "device"):
        raise PipelineError(
            f"{transform} has where={transform.where!r}, but Forebay computes cached rows in its worker threads. Use "
            "where='thread', or call this map after cache()."
        )


def _used_rows(order: Order, rows: int) -> Array | None:
    """Return the sorted numbers of the rows that a fixed order uses.

    `rows` is the number of rows of the source. Return None if the order may use all of them. Return None also if the
    order is not fixed or is too long to sort; then every row counts as used.
    """
    is_whole_source = order.is_sequential and order.length == rows
    if is_whole_source or not order.is_fixed or order.length is None or order.length > MAX_SORTED_ROWS:
        return None
    used = np.unique(order.rows(0, np.arange(order.length, dtype=np.int64)).astype(np.intp, copy=False))
    return None if len(used) == rows else used


def _check_memory(nbytes: int) -> None:
    memory_nbytes = Machine.detect().memory_nbytes
    if nbytes > memory_nbytes:
        raise PipelineError(
            f"cache() would keep {format_nbytes(nbytes)} in RAM, but this machine has {format_nbytes(memory_nbytes)}. "
            "Pass a smaller budget, or a folder."
        )


def _transform_into(specs: TransformSpecs, leaves: list[Array], out: Sequence[Array]) -> None:
    """Apply the transforms before `cache()` to rows, and write the results to `out`."""
    context = BatchContext.of_sample(len(out[0]))
    results, _ = apply_all(specs.transforms, leaves, specs.stages[0][1], context)
    write_leaves(results, out, specs.structure.paths, describe_transforms(specs.transforms))
