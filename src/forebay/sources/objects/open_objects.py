"""`open_urls`: opens URLs of an object store as one source."""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urlsplit

from forebay.core.source import AbstractSource
from forebay.core.spec import Tree, parse_nbytes
from forebay.errors import SourceError, SpecError
from forebay.sources.files.match_spec import describe_leaves
from forebay.sources.files.paths import format_suffix, natural_sort_key
from forebay.sources.objects.cache_folder import CacheFolder
from forebay.sources.objects.cache_tiers import CacheTier, RamTier
from forebay.sources.objects.daemon_threads import DaemonThreads
from forebay.sources.objects.disk_cache import DiskTier
from forebay.sources.objects.download import download_objects
from forebay.sources.objects.header_reads import HeaderReads
from forebay.sources.objects.object_layout import ObjectLayout, RangesUnsupportedError, find_layout_reader
from forebay.sources.objects.objects_source import ObjectsSource
from forebay.sources.objects.range_reader import RangeReader
from forebay.sources.objects.retry import wait_for_result
from forebay.sources.objects.store import ObjectStore
from forebay.sources.objects.stored_object import StoredObject, combine_versions

__all__ = ["open_urls"]

Result = TypeVar("Result")


def open_urls(
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    open_local: Callable[..., AbstractSource],
    spec: Tree | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_bytes: int | str = "10GiB",
    ram_bytes: int | str | None = None,
    ahead_bytes: int | str = "256MiB",
    connections: int = 16,
    attempts: int = 8,
    **options: Any,
) -> AbstractSource:
    """Open one URL, a glob, or a list of URLs and globs as one source.

    fsspec receives `storage_options`. The source caches blocks (byte ranges of at most 8 MiB; more only for a larger
    row) in the folder `cache`, up to `cache_bytes`, and further blocks in RAM, up to `ram_bytes`. It never evicts a
    block. Without `cache` and `ram_bytes`, it caches nothing. It prefetches up to `ahead_bytes`, sends up to
    `connections` requests at a time, and sends a failing request up to `attempts` times. `options` are the options of
    the file format.

    If any object cannot be read in byte ranges, Forebay downloads all objects to `cache`, and `open_local` opens them.
    """
    if not isinstance(storage_options, Mapping | None):
        raise SourceError(f"storage_options is a {type(storage_options).__name__}. Pass a dict.")
    _validate_counts(connections=connections, attempts=attempts)
    url_list = [_make_url(url) for url in ([urls] if isinstance(urls, str | os.PathLike) else urls)]
    _validate_one_protocol(url_list)
    store = ObjectStore(url_list, storage_options or {}, attempts=attempts, connections=connections)
    threads = DaemonThreads(connections)
    try:
        objects = _list_objects(store, url_list, threads)
        read_layout = _choose_layout_reader(objects, options)
        try:
            jobs = [partial(read_layout, HeaderReads(store, stored_object), spec=spec) for stored_object in objects]
            layouts = _run_all(store, threads, jobs)
        except RangesUnsupportedError as error:
            budget_nbytes = parse_nbytes(cache_bytes, "cache_bytes")
            folder = CacheFolder(_download_folder(cache, error), budget_nbytes)
            paths = download_objects(store, objects, folder, threads)
            source = open_local(paths, spec=spec, **options)
            source.version = combine_versions(objects)
            return source
    finally:
        threads.close()
    for stored_object, layout in zip(objects, layouts, strict=True):
        _validate_same_specs(objects[0], layouts[0], stored_object, layout)
    tiers = _make_tiers(cache, cache_bytes, ram_bytes)
    return ObjectsSource(
        objects,
        layouts,
        RangeReader(store, objects, tiers, connections),
        prefetch_nbytes=parse_nbytes(ahead_bytes, "ahead_bytes"),
        cache_nbytes=sum(tier.budget_nbytes for tier in tiers),
    )


def _validate_counts(**counts: int) -> None:
    for name, count in counts.items():
        if not isinstance(count, int) or count < 1:
            raise SourceError(f"{name}={count!r} is not a positive integer. Pass 1 or more.")


def _make_url(path: str | os.PathLike[str]) -> str:
    """Return the `file://` URL of a local path; return a URL unchanged.

    Local paths are allowed, because a cache speeds up a slow disk.
    """
    name = os.fspath(path)
    return name if "://" in name else f"file://{Path(name).expanduser().absolute()}"


def _validate_one_protocol(urls: Sequence[str]) -> None:
    if not urls:
        raise SourceError("no files were given. Pass a URL, a glob such as 's3://bucket/*.npy', or a list of them.")
    protocols = sorted({url.partition("://")[0] for url in urls})
    if len(protocols) > 1:
        raise SourceError(
            f"the files are in several kinds of stores: {' and '.join(protocols)}. Pass files of one kind of store."
        )


def _list_objects(store: ObjectStore, urls: Sequence[str], threads: DaemonThreads) -> list[StoredObject]:
    listings = _run_all(store, threads, [partial(store.list_objects, url) for url in urls])
    for url, listing in zip(urls, listings, strict=True):
        if not listing:
            raise SourceError(f"the glob {store.redact(url)!r} matches no object. Check the URL and the bucket.")
    return [
        stored_object
        for listing in listings
        for stored_object in sorted(listing, key=lambda stored_object: natural_sort_key(stored_object.path))
    ]


def _choose_layout_reader(objects: Sequence[StoredObject], options: Mapping[str, Any]) -> Callable[..., ObjectLayout]:
    suffixes = sorted(
        {format_suffix(Path(PurePosixPath(urlsplit(stored_object.url).path).name)) for stored_object in objects}
    )
    read_layout = find_layout_reader(suffixes[0]) if len(suffixes) == 1 else None
    if read_layout is None:
        return partial(_raise_ranges_unsupported, " and ".join(map(repr, suffixes)))
    parameters = inspect.signature(read_layout).parameters.items()
    known = [name for name, parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise SourceError(
            f"{suffixes[0]} files have no option {unknown[0]!r}. Choose from these options: {', '.join(known)}."
        )
    return partial(read_layout, **options)


def _raise_ranges_unsupported(suffixes: str, file: HeaderReads, *, spec: Tree | None = None) -> ObjectLayout:
    raise RangesUnsupportedError(
        f"{file} cannot be read in byte ranges. Byte ranges need objects with one common suffix: .npy, .npz or .bin. "
        f"These objects end in {suffixes}"
    )


def _download_folder(cache: str | os.PathLike[str] | None, error: RangesUnsupportedError) -> Path:
    if cache is None:
        raise SourceError(
            f"{error}. So the objects must be downloaded. Pass a folder: cache='/scratch/forebay', cache_bytes='50GiB'."
        ) from error
    return Path(cache)


def _make_tiers(
    cache: str | os.PathLike[str] | None, cache_bytes: int | str, ram_bytes: int | str | None
) -> list[CacheTier]:
    """Return the cache tiers in the order in which `RangeReader` uses them.

    The disk is first, because its blocks outlive the process and the page cache keeps them in RAM as well.
    """
    tiers: list[CacheTier] = []
    if cache is not None:
        tiers.append(DiskTier(cache, parse_nbytes(cache_bytes, "cache_bytes")))
    if ram_bytes is not None:
        tiers.append(RamTier(parse_nbytes(ram_bytes, "ram_bytes")))
    return tiers


def _validate_same_specs(
    first_object: StoredObject, first: ObjectLayout, other_object: StoredObject, other: ObjectLayout
) -> None:
    if first.structure.paths != other.structure.paths or first.specs != other.specs:
        raise SpecError(
            f"the rows of the objects have different specs: {first_object.url} has "
            f"{describe_leaves(first.structure.paths, first.specs)} and {other_object.url} has "
            f"{describe_leaves(other.structure.paths, other.specs)}. Use one pipeline for each, or convert one object."
        )
    if not _has_same_stored_dtypes(first, other):
        raise SpecError(
            f"the objects have different byte orders: {first_object.url} stores {_describe_dtypes(first)} and "
            f"{other_object.url} stores {_describe_dtypes(other)}. Use one pipeline for each, or convert one object."
        )


def _has_same_stored_dtypes(first: ObjectLayout, other: ObjectLayout) -> bool:
    """Return whether two objects store their rows with equal dtypes and byte orders.

    A source reads each column of all objects with one dtype, and specs do not include the byte order.
    """
    return [column.record for column in first.columns] == [column.record for column in other.columns]


def _describe_dtypes(layout: ObjectLayout) -> str:
    """Return the stored dtypes as text, such as `>f4, <i8`."""
    return ", ".join(column.record.base.str for column in layout.columns)


def _run_all(store: ObjectStore, threads: DaemonThreads, jobs: Sequence[Callable[[], Result]]) -> list[Result]:
    return [wait_for_result(future, store.counters) for future in [threads.submit(job) for job in jobs]]
