"""A store: what fsspec opens, listed once and read in ranges, every answer checked against the listing.

An answer is as long as was asked for and comes from the version that was listed, or it is none: one that is cut off
is asked for again, one from a changed object is an error that names it.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, NoReturn

from fsspec.core import has_magic, url_to_fs

from forebay.errors import FrameworkError, SourceChangedError, SourceError, StoreError
from forebay.sources.objects.range_backends import AnyRanges, HttpRanges, Ranges
from forebay.sources.objects.redact import Scrubber
from forebay.sources.objects.retry import Retry, Traffic
from forebay.sources.objects.s3 import S3Ranges, s3_options
from forebay.sources.objects.store_errors import Blame, blame, cause_of
from forebay.sources.objects.stored_object import StoredObject, md5_of, version_of

__all__ = ["Store"]

_LIST_ATTEMPTS = 4  # a host that is not there at all should not be waited for
_WAYS_OUT = {
    Blame.MISSING: "it is not there. Look at the address, and at the name of the bucket",
    Blame.EXPIRED: "the credentials have expired. Renew them, and make the pipeline again",
    Blame.NO_CREDENTIALS: (
        "there are no credentials. Pass storage_options={...}, set them in the environment, or pass "
        "storage_options={'anon': True} for what is public"
    ),
    Blame.REFUSED: "it is not allowed. Look at the credentials, and at what they may list and read",
    Blame.BUSY: "the store is too busy to answer. Try again later, or with fewer connections=",
    Blame.UNREACHABLE: "the store cannot be reached. Look at the network, and at endpoint_url in storage_options",
    Blame.CUT: "the answer keeps being cut off. Look at the network, and at whether the object is whole",
    Blame.CHANGED: "it has changed. Make the pipeline again",
    Blame.LASTING: "it failed. The store's own words are above; a bare 400 mostly means expired credentials",
}


class Store:
    """Objects behind one kind of address."""

    def __init__(self, url: str, options: Mapping[str, Any], *, attempts: int, connections: int) -> None:
        self.traffic = Traffic()
        self._md5s: dict[str, str] = {}  # what responses said of whole objects
        self.scrub = Scrubber(options)
        self._retry = Retry(attempts, self.traffic)
        self.protocol = url.partition("://")[0]
        self._files, self._ranges = self._open(url, dict(options), connections)

    def listing(self, url: str) -> list[StoredObject]:
        """The object of this address, or all that a pattern matches, as they are now."""
        try:
            return self._retry(lambda: self._list(url), attempts=_LIST_ATTEMPTS)
        except Exception as error:
            self._refuse(error, "cannot list", self.scrub(url))

    def read(self, stored: StoredObject, start: int, stop: int) -> bytes:
        """Bytes of an object, all of them and of the version that was listed."""
        try:
            return self._retry(lambda: self._read(stored, start, stop))
        except SourceError:
            raise
        except Exception as error:
            if blame(error) in (Blame.CHANGED, Blame.MISSING):
                raise self._changed(stored, "it is not the object that was listed any more") from self._shown(error)
            self._refuse(error, f"cannot read bytes {start} to {stop} of", stored.url)

    def check_md5(self, stored: StoredObject, found: str) -> None:
        """Compare the checksum of a whole object with the store's, where it gives one."""
        expected = self._md5s.get(stored.path, stored.md5)
        if expected is not None and found != expected:
            raise EOFError(f"the bytes of {stored.url} have the MD5 {found}, the store says {expected}")

    def close(self) -> None:
        """Let nobody wait for a second try any longer."""
        self._retry.stop()

    def _open(self, url: str, options: dict[str, Any], connections: int) -> tuple[Any, Ranges]:
        protocol = self.protocol.rpartition("::")[2]
        try:
            if protocol in ("s3", "s3a"):
                files, _ = _opened(url, s3_options(options, connections))
                return files, S3Ranges(files)
            files, _ = _opened(url, options)
        except ImportError as error:
            raise FrameworkError(
                f"{protocol}:// needs a package that is not installed: {error}. "
                "pip install 'forebay[remote]' brings what s3 and http need.",
                name=protocol,
            ) from error
        except Exception as error:
            self._refuse(error, "cannot open", self.scrub(url))
        return files, HttpRanges(files) if protocol in ("http", "https") else AnyRanges(files)

    def _list(self, url: str) -> list[StoredObject]:
        path = self._files._strip_protocol(url)
        if not self._is_pattern(path):
            return [self._stored(self._files.info(path))]
        found = self._files.glob(path, detail=True)
        if not found and self._files.exists(path):  # an object may have brackets in its name
            found = {path: self._files.info(path)}
        return [self._stored(info) for info in found.values() if info["type"] == "file"]

    def _is_pattern(self, path: str) -> bool:
        """Whether a path has wildcards; a query of HTTP begins with what is one elsewhere, and so does a version."""
        query = "?" if self.protocol in ("http", "https") else "?versionId="
        return bool(has_magic(path.partition(query)[0]))

    def _stored(self, info: Mapping[str, Any]) -> StoredObject:
        url = self.scrub(self._files.unstrip_protocol(info["name"]))
        if info["type"] != "file":
            raise SourceError(
                f"{url} is a folder: pass a glob of its objects, for example {url.rstrip('/') + '/*.npy'!r}."
            )
        if info.get("size") is None:
            raise SourceError(f"{url} does not say how long it is, so it cannot be read in ranges: download it first.")
        return StoredObject(url, self._path(info), int(info["size"]), version_of(info), md5_of(info))

    def _path(self, info: Mapping[str, Any]) -> str:
        """What the file system calls an object; s3fs with the version, once it was asked for one."""
        version = info.get("VersionId") if getattr(self._files, "version_aware", False) else None
        return f"{info['name']}?versionId={version}" if version else str(info["name"])

    def _read(self, stored: StoredObject, start: int, stop: int) -> bytes:
        response = self._ranges.read(stored, start, stop)
        if stored.version and response.version != stored.version:
            raise self._changed(stored, f"its version was {stored.version} and is {response.version or 'untold'} now")
        if len(response.data) > stop - start:
            raise StoreError(
                f"{stored.url} came with {len(response.data)} bytes when {stop - start} were asked for: its server "
                "does not serve ranges. Download it first."
            )
        if len(response.data) != stop - start:
            raise EOFError(f"{len(response.data)} bytes came instead of {stop - start}")
        if response.md5 is not None:
            self._md5s[stored.path] = response.md5
        if stop - start == stored.nbytes:
            self.check_md5(stored, hashlib.md5(response.data, usedforsecurity=False).hexdigest())
        self.traffic.add(fetched_nbytes=stop - start)
        return response.data

    def _refuse(self, error: Exception, what: str, url: str) -> NoReturn:
        """Raise what the user should read."""
        if isinstance(error, SourceError):
            raise error
        words = self.scrub(f"{cause_of(error)}: {error}".strip())
        raise StoreError(f"{what} {url}: {words}: {_WAYS_OUT[blame(error)]}.") from self._shown(error)

    def _shown(self, error: Exception) -> Exception | None:
        """The error as a cause; None where its traceback would show a secret."""
        return error if self.scrub.is_clean(error) else None

    def _changed(self, stored: StoredObject, how: str) -> SourceChangedError:
        return SourceChangedError(
            f"{stored.url} was replaced or deleted while it was being read: {how}. Leave objects alone while they are "
            "fed, and make the pipeline again."
        )


def _opened(url: str, options: dict[str, Any]) -> tuple[Any, str]:
    # An instance of our own: those that fsspec shares keep listings, and would share our settings with others.
    opened: tuple[Any, str] = url_to_fs(url, skip_instance_cache=True, use_listings_cache=False, **options)
    return opened
