"""An object store: listed once and read in byte ranges.

Every response is checked against the listing.

A response must have the requested length and come from the listed version. A truncated response is requested again. A
changed object raises an error with its URL.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, NoReturn

from fsspec.core import has_magic, url_to_fs

from forebay.errors import FrameworkError, SourceChangedError, SourceError, StoreError
from forebay.sources.objects.range_backends import FsspecRangeBackend, HttpRangeBackend, RangeBackend
from forebay.sources.objects.redact import Redactor
from forebay.sources.objects.retry import RequestCounters, Retry
from forebay.sources.objects.store_errors import StoreFault, cause_of, classify
from forebay.sources.objects.stored_object import StoredObject, md5_of, version_of

__all__ = ["ObjectStore"]

_LIST_ATTEMPTS = 4  # fewer than for reads: with a wrong host name the user should not wait long
_ADVICE = {
    StoreFault.MISSING: "the bucket or object does not exist. Check the URL and the name of the bucket",
    StoreFault.EXPIRED: "the credentials have expired. Renew them and create the pipeline again",
    StoreFault.NO_CREDENTIALS: (
        "no credentials were found. Pass storage_options={...}, set them in the environment, or pass "
        "storage_options={'anon': True} for public data"
    ),
    StoreFault.DENIED: "access was denied. Check the credentials and their permissions to list and read",
    StoreFault.BUSY: "the store is too busy. Try again later, or pass a smaller connections=",
    StoreFault.UNREACHABLE: "the store cannot be reached. Check the network and endpoint_url in storage_options",
    StoreFault.TRUNCATED: "the response is truncated every time. Check the network and whether the object is complete",
    StoreFault.CHANGED: "the object has changed. Create the pipeline again",
    StoreFault.PERMANENT: "the request failed. A plain status 400 usually means expired credentials; renew them",
}


class ObjectStore:
    """The objects of one kind of URL."""

    def __init__(self, url: str, options: Mapping[str, Any], *, attempts: int, connections: int) -> None:
        self.counters = RequestCounters()
        self._md5s: dict[str, str] = {}  # MD5s of whole objects, found in responses
        self.redact = Redactor(options)
        self._retry = Retry(attempts, self.counters)
        self.protocol = url.partition("://")[0]
        self._files, self._ranges = self._open(url, dict(options), connections)

    def list_objects(self, url: str) -> list[StoredObject]:
        """Return the object of a URL, or all objects that a glob matches."""
        try:
            return self._retry(lambda: self._list(url), attempts=_LIST_ATTEMPTS)
        except Exception as error:
            self._raise(error, "cannot list", self.redact(url))

    def read(self, stored: StoredObject, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop` of the listed version."""
        try:
            return self._retry(lambda: self._read(stored, start, stop))
        except SourceError:
            raise
        except Exception as error:
            if classify(error) in (StoreFault.CHANGED, StoreFault.MISSING):
                raise self._changed_error(stored, "the listed object does not exist any more") from self._shown(error)
            self._raise(error, f"cannot read bytes {start} to {stop} of", stored.url)

    def check_md5(self, stored: StoredObject, found: str) -> None:
        """Raise an error if an object's MD5 differs from the reported one.

        Stores that report no MD5 are not checked.
        """
        expected = self._md5s.get(stored.path, stored.md5)
        if expected is not None and found != expected:
            raise EOFError(f"the bytes of {stored.url} have the MD5 {found}, but the store reports {expected}")

    def close(self) -> None:
        """End all pauses between attempts."""
        self._retry.stop()

    def _open(self, url: str, options: dict[str, Any], connections: int) -> tuple[Any, RangeBackend]:
        protocol = self.protocol.rpartition("::")[2]
        try:
            if protocol in ("s3", "s3a"):
                from forebay.sources.objects.s3 import S3RangeBackend, s3_options  # other stores need no botocore

                files = _open_file_system(url, s3_options(options, connections))
                return files, S3RangeBackend(files)
            files = _open_file_system(url, options)
        except ImportError as error:
            raise FrameworkError(
                f"{protocol}:// needs a package that is not installed: {error}. "
                "For s3 and http, run pip install 'forebay[remote]'.",
                name=protocol,
            ) from error
        except Exception as error:
            self._raise(error, "cannot open", self.redact(url))
        return files, HttpRangeBackend(files) if protocol in ("http", "https") else FsspecRangeBackend(files)

    def _list(self, url: str) -> list[StoredObject]:
        path = self._files._strip_protocol(url)
        if not self._is_glob(path):
            return [self._stored_object(self._files.info(path))]
        found = self._files.glob(path, detail=True)
        if not found and self._files.exists(path):  # the name of an object may contain brackets
            found = {path: self._files.info(path)}
        return [self._stored_object(info) for info in found.values() if info["type"] == "file"]

    def _is_glob(self, path: str) -> bool:
        """Return whether a path has wildcards.

        The "?" before an HTTP query or an S3 version is not a wildcard.
        """
        query = "?" if self.protocol in ("http", "https") else "?versionId="
        return bool(has_magic(path.partition(query)[0]))

    def _stored_object(self, info: Mapping[str, Any]) -> StoredObject:
        url = self.redact(self._files.unstrip_protocol(info["name"]))
        if info["type"] != "file":
            raise SourceError(f"{url} is a folder. Pass a glob of its objects, like {url.rstrip('/') + '/*.npy'!r}.")
        if info.get("size") is None:
            raise SourceError(f"{url} has no known length, so byte ranges of it cannot be read. Download it first.")
        return StoredObject(url, self._path(info), int(info["size"]), version_of(info), md5_of(info))

    def _path(self, info: Mapping[str, Any]) -> str:
        """Return the path for the file system.

        If the user's URL has a version, s3fs needs it in the path.
        """
        version = info.get("VersionId") if getattr(self._files, "version_aware", False) else None
        return f"{info['name']}?versionId={version}" if version else str(info["name"])

    def _read(self, stored: StoredObject, start: int, stop: int) -> bytes:
        response = self._ranges.read(stored, start, stop)
        if stored.version and response.version != stored.version:
            versions = f"its version was {stored.version} and is now {response.version or 'unknown'}"
            raise self._changed_error(stored, versions)
        if len(response.data) > stop - start:
            raise StoreError(
                f"{stored.url} returned {len(response.data)} bytes instead of {stop - start}: its server does not "
                "support byte ranges. Download it first."
            )
        if len(response.data) != stop - start:
            raise EOFError(f"the response has {len(response.data)} bytes instead of {stop - start}")
        if response.md5 is not None:
            self._md5s[stored.path] = response.md5
        if stop - start == stored.nbytes:
            self.check_md5(stored, hashlib.md5(response.data, usedforsecurity=False).hexdigest())
        self.counters.add(fetched_nbytes=stop - start)
        return response.data

    def _raise(self, error: Exception, action: str, url: str) -> NoReturn:
        """Raise an error with the message of the store and advice."""
        if isinstance(error, SourceError):
            raise error
        message = self.redact(f"{cause_of(error)}: {error}".strip())
        raise StoreError(f"{action} {url}: {message}: {_ADVICE[classify(error)]}.") from self._shown(error)

    def _shown(self, error: Exception) -> Exception | None:
        """Return the error to chain, or None if it would show a secret."""
        return error if self.redact.is_clean(error) else None

    def _changed_error(self, stored: StoredObject, how: str) -> SourceChangedError:
        return SourceChangedError(
            f"{stored.url} was replaced or deleted during a read: {how}. Do not change objects while a feed reads "
            "them. Create the pipeline again."
        )


def _open_file_system(url: str, options: dict[str, Any]) -> Any:
    # fsspec shares its instances by default. A shared one keeps old listings and would pass our settings to others.
    return url_to_fs(url, skip_instance_cache=True, use_listings_cache=False, **options)[0]
