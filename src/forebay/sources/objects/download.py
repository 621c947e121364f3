"""Downloads of whole objects, for formats without byte-range reads."""

import hashlib
import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from forebay.core.spec import format_nbytes
from forebay.errors import BudgetError, SourceError, StoreError
from forebay.sources.objects.daemon_threads import DaemonThreads
from forebay.sources.objects.store import ObjectStore
from forebay.sources.objects.stored_object import StoredObject

__all__ = ["download_objects"]

_RANGE_NBYTES = 16 << 20

_log = logging.getLogger(__name__)


def download_objects(
    store: ObjectStore, objects: Sequence[StoredObject], folder: Path, budget_nbytes: int, threads: DaemonThreads
) -> list[Path]:
    """Return local copies of objects; download those that the folder lacks."""
    paths = [_local_path(folder, stored) for stored in objects]
    # A dictionary by path, so that an object that is listed twice is downloaded once.
    missing = {path: stored for stored, path in zip(objects, paths, strict=True) if not path.exists()}
    needed = sum(stored.nbytes for stored in missing.values())
    used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if used + needed > budget_nbytes:
        raise BudgetError(
            f"{len(missing)} objects of {format_nbytes(needed)} must be downloaded, and {folder} holds "
            f"{format_nbytes(used)} of cache_bytes={format_nbytes(budget_nbytes)}. Pass a larger cache_bytes=."
        )
    if missing:
        _log.info("downloading %d objects (%s) to %s", len(missing), format_nbytes(needed), folder)
    for future in [threads.submit(partial(_download, store, stored, path)) for path, stored in missing.items()]:
        future.result()
    return paths


def _local_path(folder: Path, stored: StoredObject) -> Path:
    text = f"{stored.url}\0{stored.version}\0{stored.nbytes}"
    name = PurePosixPath(urlsplit(stored.url).path).name
    return folder / "whole" / hashlib.sha256(text.encode()).hexdigest()[:40] / name


def _download(store: ObjectStore, stored: StoredObject, path: Path) -> None:
    """Download an object to a temporary file; rename it when it is complete."""
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
