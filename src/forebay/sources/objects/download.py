"""Downloads of whole objects whose rows cannot be read in byte ranges.

The copy of an object in the cache folder is named `HASH.whole.NAME`. Its length and checksum are in `HASH.crc32`. The
hash is that of URL, version and size, so that a changed object gets a new name. Forebay verifies a copy whenever it
opens the object. It downloads an object without a version again each time, because the copy may be out of date.
"""

import hashlib
import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from forebay.core.progress_line import ProgressLine
from forebay.core.spec import format_nbytes
from forebay.errors import BudgetError, SourceError, StoreError
from forebay.sources.objects.cache_folder import CacheFolder, UnpublishedFile
from forebay.sources.objects.daemon_threads import DaemonThreads
from forebay.sources.objects.retry import wait_for_result
from forebay.sources.objects.store import ObjectStore
from forebay.sources.objects.stored_object import StoredObject

__all__ = ["download_objects"]

_RANGE_NBYTES = 16 << 20  # bytes per request; after a failure, only these bytes are requested again
_CHECK_NBYTES = 1 << 20  # bytes per read when a copy is verified
_MAX_CHECKSUM_NBYTES = 40  # of the file with length and checksum
_MAX_NAME_NBYTES = 150  # of an object's name in the name of its copy; file systems allow 255 bytes in all

_log = logging.getLogger(__name__)


def download_objects(
    store: ObjectStore, objects: Sequence[StoredObject], cache: CacheFolder, threads: DaemonThreads
) -> list[Path]:
    """Download objects without a valid copy in the cache folder. Return all local paths."""
    names = cache.names()
    # One download per digest, so an object that is listed twice is downloaded once.
    downloads = {_digest(stored_object): _Download(store, stored_object, cache) for stored_object in objects}
    missing = [each for each in downloads.values() if not each.stored_object.version or each.name not in names]
    for download in missing:
        cache.delete_copy_of_version_0_1(_digest(download.stored_object))
    missing_nbytes = sum(download.stored_object.nbytes for download in missing)
    new = [download.stored_object.nbytes for download in missing if download.name not in names]
    if cache.used_nbytes + sum(new) > cache.budget_nbytes:
        raise _budget_error(cache, len(new), sum(new))
    if missing:
        _log.info("downloading %d objects (%s) to %s", len(missing), format_nbytes(missing_nbytes), cache.path)
    futures = {digest: threads.submit(download.provide) for digest, download in downloads.items()}
    with ProgressLine(
        f"downloading {len(missing)} objects ({format_nbytes(missing_nbytes)})", len(futures)
    ) as progress:
        paths = {}
        for progress.done, (digest, future) in enumerate(futures.items()):
            paths[digest] = wait_for_result(future, store.counters)
    return [paths[_digest(stored_object)] for stored_object in objects]


@dataclass(frozen=True, slots=True)
class _Download:
    """Provides the copy of one object in the cache folder. Downloads the object if necessary."""

    store: ObjectStore
    stored_object: StoredObject
    cache: CacheFolder

    @property
    def name(self) -> str:
        return f"{_digest(self.stored_object)}.whole.{_object_name(self.stored_object)}"

    @property
    def checksum_name(self) -> str:
        return f"{_digest(self.stored_object)}.crc32"

    def provide(self) -> Path:
        """Return the path of a verified copy. Download the object if there is none."""
        with self.cache.hold_object_lock(_digest(self.stored_object), self.store.counters.note_progress):
            try:
                if not (self.stored_object.version and self._has_valid_copy()):
                    self._download()
            except (OSError, EOFError) as error:
                if isinstance(error, SourceError):
                    raise
                raise StoreError(
                    f"{self.stored_object.url} could not be copied to {self.cache.path}: {error}. Try again, or pass "
                    "another cache=."
                ) from error
        return self.cache.path / self.name

    def _has_valid_copy(self) -> bool:
        """Return whether the copy has the right length and checksum. Delete a damaged copy."""
        actual, expected = self._describe_copy(), self._read_checksum()
        if actual is None:
            return False
        if actual == expected and actual.startswith(f"{self.stored_object.nbytes} "):
            return True
        _log.warning("the cached copy of %s is damaged; Forebay downloads it again", self.stored_object.url)
        self.cache.delete(self.name)
        return False

    def _describe_copy(self) -> str | None:
        """Return length and checksum of the copy as text; None if there is no copy."""
        file = self.cache.open(self.name)
        if file is None:
            return None
        nbytes = checksum = 0
        with file:
            while data := file.read(_CHECK_NBYTES):
                nbytes, checksum = nbytes + len(data), zlib.crc32(data, checksum)
                self.store.counters.note_progress()
        return f"{nbytes} {checksum:08x}"

    def _read_checksum(self) -> str | None:
        file = self.cache.open(self.checksum_name)
        if file is None:
            return None
        with file:
            return file.read(_MAX_CHECKSUM_NBYTES).decode(errors="replace")

    def _download(self) -> None:
        """Download the object and publish its copy.

        If the budget has no room for both copies, delete the old copy first, unless the object still equals it.
        """
        if self.cache.problem:
            raise StoreError(
                f"{self.stored_object.url} must be downloaded, but the cache folder cannot be written: "
                f"{self.cache.problem}. Pass another cache=."
            )
        try:
            self._publish_copy()
        except BudgetError:
            description = self._describe_copy()
            if description is None:
                raise
            # Another process may use the copy. So before deleting it, read the object to see whether they are equal.
            if self._read_object() != description:
                self.cache.delete(self.name)
                self._publish_copy()

    def _publish_copy(self) -> None:
        """Write the object to a temporary file, verify its MD5 and publish the file."""
        with self._reserve(self.stored_object.nbytes) as unpublished:
            description = self._read_object(unpublished.write)
            with self._reserve(0) as checksum_file:  # the few bytes of a checksum do not count towards the budget
                checksum_file.write(description.encode())
                self.cache.publish(checksum_file, self.checksum_name, replace=True)
            # For an object without a version, another process may use an equal copy. Do not replace this copy.
            if self._describe_copy() != description:
                self.cache.publish(unpublished, self.name, replace=True)

    @contextmanager
    def _reserve(self, nbytes: int) -> Iterator[UnpublishedFile]:
        """Create a temporary file of `nbytes` in the cache folder.

        Delete the file at the end of the `with` block, unless it was published.
        """
        unpublished = self.cache.reserve(nbytes)
        if unpublished is None:
            raise _budget_error(self.cache, 1, nbytes)
        try:
            yield unpublished
        finally:
            self.cache.discard(unpublished)

    def _read_object(self, write: Callable[[bytes], None] = lambda data: None) -> str:
        """Pass the bytes of the object to `write`, part by part. Return their length and checksum as text."""
        checksum, md5, nbytes = 0, hashlib.md5(usedforsecurity=False), self.stored_object.nbytes
        for start in range(0, nbytes, _RANGE_NBYTES):
            data = self.store.read(self.stored_object, start, min(start + _RANGE_NBYTES, nbytes))
            checksum = zlib.crc32(data, checksum)
            md5.update(data)
            write(data)
        self.store.check_md5(self.stored_object, md5.hexdigest())
        return f"{nbytes} {checksum:08x}"


def _budget_error(cache: CacheFolder, count: int, nbytes: int) -> BudgetError:
    return BudgetError(
        f"{count} objects ({format_nbytes(nbytes)} in total) must be downloaded, and {cache.path} already holds "
        f"{format_nbytes(cache.used_nbytes)}. Together this exceeds cache_bytes={format_nbytes(cache.budget_nbytes)}. "
        "Pass a larger cache_bytes=."
    )


def _digest(stored_object: StoredObject) -> str:
    text = f"{stored_object.url}\0{stored_object.version}\0{stored_object.nbytes}"
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _object_name(stored_object: StoredObject) -> str:
    """Return the end of the object's name, which has the suffix of the format."""
    name = PurePosixPath(urlsplit(stored_object.url).path).name.replace("\0", "_")
    return name.encode(errors="replace")[-_MAX_NAME_NBYTES:].decode(errors="ignore")
