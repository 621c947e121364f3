"""Downloads of whole objects whose rows cannot be read in byte ranges."""

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

_RANGE_NBYTES = 16 << 20  # bytes per request; after a failure, only these bytes are requested again

_log = logging.getLogger(__name__)


def download_objects(
    store: ObjectStore, objects: Sequence[StoredObject], folder: Path, budget_nbytes: int, threads: DaemonThreads
) -> list[Path]:
    """Download objects that are not in the folder. Return the local path of each object."""
    paths = [_local_path(folder, stored_object) for stored_object in objects]
    # The dictionary has one entry per path, so an object that is listed twice is downloaded once.
    missing_objects = {
        path: stored_object for stored_object, path in zip(objects, paths, strict=True) if not path.exists()
    }
    missing_nbytes = sum(stored_object.nbytes for stored_object in missing_objects.values())
    used_nbytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if used_nbytes + missing_nbytes > budget_nbytes:
        raise BudgetError(
            f"{len(missing_objects)} objects ({format_nbytes(missing_nbytes)} in total) must be downloaded, and "
            f"{folder} already holds {format_nbytes(used_nbytes)}. Together this exceeds "
            f"cache_bytes={format_nbytes(budget_nbytes)}. Pass a larger cache_bytes=."
        )
    if missing_objects:
        _log.info("downloading %d objects (%s) to %s", len(missing_objects), format_nbytes(missing_nbytes), folder)
    for future in [
        threads.submit(partial(_download, store, stored_object, path))
        for path, stored_object in missing_objects.items()
    ]:
        future.result()
    return paths


def _local_path(folder: Path, stored_object: StoredObject) -> Path:
    text = f"{stored_object.url}\0{stored_object.version}\0{stored_object.nbytes}"
    name = PurePosixPath(urlsplit(stored_object.url).path).name
    return folder / "whole" / hashlib.sha256(text.encode()).hexdigest()[:40] / name


def _download(store: ObjectStore, stored_object: StoredObject, path: Path) -> None:
    """Download an object to a temporary file, verify its MD5 and rename the file."""
    part_path = path.with_name(f"{path.name}.{os.getpid()}.part")
    digest = hashlib.md5(usedforsecurity=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part_path.open("wb") as file:
            for start in range(0, stored_object.nbytes, _RANGE_NBYTES):
                data = store.read(stored_object, start, min(start + _RANGE_NBYTES, stored_object.nbytes))
                digest.update(data)
                file.write(data)
        store.check_md5(stored_object, digest.hexdigest())
        part_path.rename(path)
    except (OSError, EOFError) as error:
        part_path.unlink(missing_ok=True)
        if isinstance(error, SourceError):
            raise
        raise StoreError(
            f"{stored_object.url} could not be copied to {path}: {error}. Try again, or pass another cache=."
        ) from error
