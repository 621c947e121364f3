"""Objects fetched whole into a folder: for what cannot be read in ranges."""

import hashlib
import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from forebay.core.spec import format_nbytes
from forebay.errors import BudgetError, SourceError, StoreError
from forebay.sources.objects.daemon_threads import Workers
from forebay.sources.objects.store import Store
from forebay.sources.objects.stored_object import StoredObject

__all__ = ["fetch_whole"]

_RANGE_NBYTES = 16 << 20

_log = logging.getLogger(__name__)


def fetch_whole(
    store: Store, objects: Sequence[StoredObject], folder: Path, budget_nbytes: int, workers: Workers
) -> list[Path]:
    """Local copies of objects, each under its own name; those that are there already are not fetched again."""
    paths = [_path(folder, stored) for stored in objects]
    # By path: what was named twice is fetched once.
    missing = {path: stored for stored, path in zip(objects, paths, strict=True) if not path.exists()}
    needed = sum(stored.nbytes for stored in missing.values())
    taken = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if taken + needed > budget_nbytes:
        raise BudgetError(
            f"{len(missing)} objects of {format_nbytes(needed)} must be fetched whole, and {folder} holds "
            f"{format_nbytes(taken)} of cache_bytes={format_nbytes(budget_nbytes)}. Pass a larger cache_bytes=."
        )
    if missing:
        _log.info("fetching %d objects whole, %s, into %s", len(missing), format_nbytes(needed), folder)
    for future in [workers.submit(partial(_fetch, store, stored, path)) for path, stored in missing.items()]:
        future.result()
    return paths


def _path(folder: Path, stored: StoredObject) -> Path:
    told = f"{stored.url}\0{stored.version}\0{stored.nbytes}"
    name = PurePosixPath(urlsplit(stored.url).path).name
    return folder / "whole" / hashlib.sha256(told.encode()).hexdigest()[:40] / name


def _fetch(store: Store, stored: StoredObject, path: Path) -> None:
    """Range after range under another name, renamed when it is whole."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    digest = hashlib.md5(usedforsecurity=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            for start in range(0, stored.nbytes, _RANGE_NBYTES):
                data = store.read(stored, start, min(start + _RANGE_NBYTES, stored.nbytes))
                digest.update(data)
                file.write(data)
        store.check_md5(stored, digest.hexdigest())
        part.rename(path)
    except (OSError, EOFError) as error:
        part.unlink(missing_ok=True)
        if isinstance(error, SourceError):
            raise
        raise StoreError(f"{stored.url} could not be copied to {path}: {error}. Pass another cache=.") from error
