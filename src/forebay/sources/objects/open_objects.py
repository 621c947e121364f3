"""Addresses of a store -> a source: listed once, opened by their headers, and given their tiers."""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urlsplit

from forebay.core.source import Source
from forebay.core.spec import Tree, parse_nbytes
from forebay.errors import SourceError, SpecError
from forebay.sources.files.match_spec import describe
from forebay.sources.files.paths import natural_key, suffix_of
from forebay.sources.objects.cache_tiers import RamTier, Tier
from forebay.sources.objects.daemon_threads import Workers
from forebay.sources.objects.disk_cache import DiskTier
from forebay.sources.objects.download import fetch_whole
from forebay.sources.objects.header_reads import ObjectFile
from forebay.sources.objects.object_layout import Laid, NotInRangesError, layout_of
from forebay.sources.objects.objects_source import ObjectsSource
from forebay.sources.objects.range_reader import Reader
from forebay.sources.objects.store import Store
from forebay.sources.objects.stored_object import StoredObject

__all__ = ["open_addresses"]

Result = TypeVar("Result")


def open_addresses(
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    open_local: Callable[..., Source],
    spec: Tree | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_bytes: int | str = "10GiB",
    ram_bytes: int | str | None = None,
    ahead_bytes: int | str = "256MiB",
    connections: int = 16,
    attempts: int = 8,
    **options: Any,
) -> Source:
    """Open one address, a glob, or a list of either as one source.

    `storage_options` go to fsspec. Blocks that were read stay in the folder `cache`, up to `cache_bytes` in all; what
    has no place there stays in RAM, up to `ram_bytes`; nothing is evicted. Up to `ahead_bytes` are read ahead of need.
    What cannot be read in ranges is fetched whole into `cache` and opened by `open_local`.
    """
    if not isinstance(storage_options, Mapping | None):
        raise SourceError(f"storage_options must be a dict, not {type(storage_options).__name__}.")
    _check_counts(connections=connections, attempts=attempts)
    given = [_as_url(url) for url in ([urls] if isinstance(urls, str | os.PathLike) else urls)]
    store = Store(_one_kind(given), storage_options or {}, attempts=attempts, connections=connections)
    workers = Workers(connections)
    try:
        objects = _list(store, given, workers)
        lay = _layout(objects, options)
        try:
            laid = _together(workers, [partial(lay, ObjectFile(store, stored), spec=spec) for stored in objects])
        except NotInRangesError as error:
            paths = fetch_whole(
                store, objects, _folder(cache, error), parse_nbytes(cache_bytes, "cache_bytes"), workers
            )
            return open_local(paths, spec=spec, **options)
    finally:
        workers.close()
    for stored, one in zip(objects, laid, strict=True):
        _check_same(objects[0], laid[0], stored, one)
    tiers = _tiers(cache, cache_bytes, ram_bytes)
    return ObjectsSource(
        objects,
        laid,
        Reader(store, objects, tiers, connections),
        ahead_nbytes=parse_nbytes(ahead_bytes, "ahead_bytes"),
        kept_nbytes=sum(tier.budget_nbytes for tier in tiers),
    )


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if not isinstance(count, int) or count < 1:
            raise SourceError(f"{name}={count!r} must be a whole number of at least 1.")


def _as_url(path: str | os.PathLike[str]) -> str:
    """A plain path becomes an address too: a slow disk may well have a tier in front of it."""
    name = os.fspath(path)
    return name if "://" in name else f"file://{Path(name).expanduser().absolute()}"


def _one_kind(urls: Sequence[str]) -> str:
    if not urls:
        raise SourceError(
            "no files were given: pass an address, a glob such as 's3://bucket/*.npy', or a list of them."
        )
    kinds = sorted({url.partition("://")[0] for url in urls})
    if len(kinds) > 1:
        raise SourceError(f"files of one pipeline come from one kind of store, but here are {' and '.join(kinds)}.")
    return urls[0]


def _list(store: Store, urls: Sequence[str], workers: Workers) -> list[StoredObject]:
    found = _together(workers, [partial(store.listing, url) for url in urls])
    for url, listed in zip(urls, found, strict=True):
        if not listed:
            raise SourceError(f"the glob {store.scrub(url)!r} matches nothing. Look at the address, and at the bucket.")
    return [stored for listed in found for stored in sorted(listed, key=lambda stored: natural_key(stored.path))]


def _layout(objects: Sequence[StoredObject], options: Mapping[str, Any]) -> Callable[..., Laid]:
    suffixes = sorted({suffix_of(Path(PurePosixPath(urlsplit(stored.url).path).name)) for stored in objects})
    lay = layout_of(suffixes[0]) if len(suffixes) == 1 else None
    if lay is None:
        return partial(_refuse_ranges, " and ".join(map(repr, suffixes)))
    known = [name for name, taken in inspect.signature(lay).parameters.items() if taken.kind is taken.KEYWORD_ONLY]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise SourceError(f"{suffixes[0]} files take no option {unknown[0]!r}: their options are {', '.join(known)}.")
    return partial(lay, **options)


def _refuse_ranges(suffixes: str, file: ObjectFile, *, spec: Tree | None = None) -> Laid:
    raise NotInRangesError(f"{file} ends in {suffixes}, which is not read in ranges")


def _folder(cache: str | os.PathLike[str] | None, error: NotInRangesError) -> Path:
    if cache is None:
        raise SourceError(
            f"{error}: such objects are fetched whole. Say where to: cache='/scratch/forebay', cache_bytes='50GiB'."
        ) from error
    return Path(cache).expanduser()


def _tiers(cache: str | os.PathLike[str] | None, cache_bytes: int | str, ram_bytes: int | str | None) -> list[Tier]:
    """The disk first, since what lies there lasts, and is in RAM as well while the system has room for it."""
    tiers: list[Tier] = []
    if cache is not None:
        tiers.append(DiskTier(cache, parse_nbytes(cache_bytes, "cache_bytes")))
    if ram_bytes is not None:
        tiers.append(RamTier(parse_nbytes(ram_bytes, "ram_bytes")))
    return tiers


def _check_same(first: StoredObject, one: Laid, other: StoredObject, two: Laid) -> None:
    if one.structure.paths == two.structure.paths and one.specs == two.specs and _alike(one, two):
        return
    raise SpecError(
        f"objects fed together must hold the same rows, but {first.url} has {describe(one.structure.paths, one.specs)} "
        f"and {other.url} has {describe(two.structure.paths, two.specs)}. Feed them apart, or convert one of them."
    )


def _alike(one: Laid, two: Laid) -> bool:
    """Byte order too: a column is one dtype."""
    return [column.record for column in one.columns] == [column.record for column in two.columns]


def _together(workers: Workers, jobs: Sequence[Callable[[], Result]]) -> list[Result]:
    return [future.result() for future in [workers.submit(job) for job in jobs]]
