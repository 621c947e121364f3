"""`ObjectStore`: lists objects, and reads and verifies byte ranges.

A response must have the requested range and length, and the version in the listing. `ObjectStore` repeats a request
whose response has a different range or length. If the version is different, it raises an error with the URL.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from fsspec.core import has_magic, url_to_fs

from forebay.core.redact import Redactor
from forebay.errors import FrameworkError, SourceChangedError, SourceError, StoreError
from forebay.sources.objects.range_backends import FsspecRangeBackend, RangeBackend, RangeResponse
from forebay.sources.objects.retry import RequestCounters, Retry
from forebay.sources.objects.store_errors import StoreFault, classify, describe_cause
from forebay.sources.objects.stored_object import StoredObject, find_md5, find_version

__all__ = ["ObjectStore"]

Result = TypeVar("Result")

_UNREACHABLE_ATTEMPTS = 4  # attempts to list; fewer than the default of 8, so that a wrong host name fails soon
_MAX_MESSAGE_LENGTH = 500  # characters of a message of another library
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
    StoreFault.TIMED_OUT: (
        "the store did not answer in time. Check the network, or pass longer timeouts in storage_options"
    ),
    StoreFault.BAD_RESPONSE: (
        "every attempt ended with an incomplete or wrong response. Check the network, proxies, and whether the object "
        "is complete"
    ),
    StoreFault.CHANGED: "the object has changed. Create the pipeline again",
    StoreFault.PERMANENT: "the request failed. A plain status 400 usually means expired credentials; renew them",
}


class ObjectStore:
    """Lists and reads the objects of one fsspec protocol, such as `s3` or `https`."""

    def __init__(self, urls: Sequence[str], options: Mapping[str, Any], *, attempts: int, connections: int) -> None:
        self.counters = RequestCounters()
        self._md5s: dict[str, str] = {}  # path -> MD5 of the whole object, from response headers
        self.redact = Redactor(options, urls)
        self._retry = Retry(attempts, self.counters)
        self.protocol = urls[0].partition("://")[0]
        self._is_http = self.protocol in ("http", "https")
        self._file_system, self._backend = self._open(urls[0], dict(options), connections)

    def list_objects(self, url: str) -> list[StoredObject]:
        """Return the object at a URL, or all objects that a glob matches."""
        if self._is_http and "*" in url.partition("?")[0]:
            raise SourceError(
                f"{self.redact(url)} is a glob, but HTTP servers have no listing of objects. Pass a list of URLs."
            )
        return self._send(
            lambda: self._retry(lambda: self._request_listing(url), unreachable_attempts=_UNREACHABLE_ATTEMPTS),
            lambda error: self._make_error(error, "cannot list", self.redact(url)),
        )

    def read(self, stored_object: StoredObject, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop` (exclusive) of the listed version."""

        def make_error(error: Exception) -> Exception:
            if classify(error) in (StoreFault.CHANGED, StoreFault.MISSING):
                return self._changed_error(stored_object, "the store no longer has the listed version")
            return self._make_error(error, f"cannot read bytes {start} to {stop} of", stored_object.url)

        return self._send(lambda: self._retry(lambda: self._request_range(stored_object, start, stop)), make_error)

    def check_md5(self, stored_object: StoredObject, actual: str) -> None:
        """Raise `EOFError` if an MD5 differs from the MD5 that the store reports.

        Do nothing if the store reports no MD5. `Retry` repeats a request that raises `EOFError`.
        """
        expected = self._md5s.get(stored_object.path, stored_object.md5)
        if expected is not None and actual != expected:
            raise EOFError(f"the bytes of {stored_object.url} have the MD5 {actual}, but the store reports {expected}")

    def close(self) -> None:
        """End all pauses between attempts. New reads get one attempt."""
        self._retry.stop()

    def _send(self, send: Callable[[], Result], make_error: Callable[[Exception], Exception]) -> Result:
        """Call `send`, and replace an error of another library by an error of Forebay.

        Chain the original error only if it contains no secret. Raise outside of the `except` block, so that Python does
        not store the original error in `__context__`.
        """
        try:
            return send()
        except (SourceError, FrameworkError):
            raise
        except Exception as error:
            cause = error
        raise make_error(cause) from (cause if self.redact.is_clean(cause) else None)

    def _open(self, url: str, options: dict[str, Any], connections: int) -> tuple[Any, RangeBackend]:
        protocol = self.protocol.rpartition("::")[2]
        return self._send(
            lambda: _open_backend(protocol, url, options, connections),
            lambda error: self._make_error(error, "cannot open", self.redact(url)),
        )

    def _request_listing(self, url: str) -> list[StoredObject]:
        path = self._file_system._strip_protocol(url)
        if not self._is_glob(path):
            return [self._make_stored_object(self._backend.info(path))]
        infos = self._file_system.glob(path, detail=True)
        if not infos and self._file_system.exists(path):  # brackets may be part of an object's name
            infos = {path: self._backend.info(path)}
        return [self._make_stored_object(info) for info in infos.values() if info["type"] == "file"]

    def _is_glob(self, path: str) -> bool:
        """Return whether a path has wildcards.

        The "?" before an S3 version is not a wildcard. An HTTP URL never has wildcards here: fsspec would search web
        pages for links, without a limit on the size of the pages or on the time, and would report no lengths.
        """
        return not self._is_http and bool(has_magic(path.partition("?versionId=")[0]))

    def _make_stored_object(self, info: Mapping[str, Any]) -> StoredObject:
        url = self.redact.url(self._file_system.unstrip_protocol(info["name"]))
        if info["type"] != "file":
            raise SourceError(f"{url} is a folder. Pass a glob of its objects, like {url.rstrip('/') + '/*.npy'!r}.")
        if info.get("size") is None:
            raise SourceError(
                f"the store reports no length for {url}, so byte ranges cannot be read. Download it first."
            )
        return StoredObject(url, self._file_system_path(info), int(info["size"]), find_version(info), find_md5(info))

    def _file_system_path(self, info: Mapping[str, Any]) -> str:
        """Return the path of an object for fsspec.

        A version-aware s3fs expects the version id in the path.
        """
        version = info.get("VersionId") if getattr(self._file_system, "version_aware", False) else None
        return f"{info['name']}?versionId={version}" if version else str(info["name"])

    def _request_range(self, stored_object: StoredObject, start: int, stop: int) -> bytes:
        response = self._backend.read(stored_object, start, stop)
        self._verify_version(stored_object, response)
        self._verify_range(stored_object, start, stop, response)
        if response.md5 is not None:
            self._md5s[stored_object.path] = response.md5
        if stop - start == stored_object.nbytes:
            self.check_md5(stored_object, hashlib.md5(response.data, usedforsecurity=False).hexdigest())
        self.counters.add(fetched_nbytes=stop - start)
        return response.data

    def _verify_version(self, stored_object: StoredObject, response: RangeResponse) -> None:
        if stored_object.version and response.version != stored_object.version:
            versions = f"its version was {stored_object.version} and is now {response.version or 'unknown'}"
            raise self._changed_error(stored_object, versions)
        content_range = response.content_range
        if content_range is not None and content_range.object_nbytes not in (None, stored_object.nbytes):
            lengths = f"it had {stored_object.nbytes} bytes and has {content_range.object_nbytes} now"
            raise self._changed_error(stored_object, lengths)

    def _verify_range(self, stored_object: StoredObject, start: int, stop: int, response: RangeResponse) -> None:
        """Raise `EOFError` if a response is not the requested range.

        `Retry` then repeats the request. If the server does not support ranges, raise `StoreError` instead, because a
        retry would not help.
        """
        content_range, nbytes = response.content_range, len(response.data)
        if content_range is not None and content_range[:2] != (start, stop):
            raise EOFError(f"the response has {content_range} instead of bytes {start} to {stop}")
        if content_range is None and nbytes > stop - start:
            raise StoreError(
                f"{stored_object.url} returned {nbytes} bytes instead of {stop - start}: its server does not support "
                "byte ranges. Download it first."
            )
        if nbytes != stop - start:
            raise EOFError(f"the response has {nbytes} bytes instead of {stop - start}")

    def _make_error(self, error: Exception, action: str, url: str) -> StoreError:
        """Return a `StoreError` with the message of `error` and advice."""
        message = self.redact(f"{describe_cause(error)}: {error}".strip(": "))
        if len(message) > _MAX_MESSAGE_LENGTH:
            message = f"{message[:_MAX_MESSAGE_LENGTH]}..."
        return StoreError(f"{action} {url}: {message}: {_ADVICE[classify(error)]}.")

    def _changed_error(self, stored_object: StoredObject, reason: str) -> SourceChangedError:
        return SourceChangedError(
            f"{stored_object.url} was replaced or deleted after it was listed: {reason}. Do not change objects while a "
            "feed reads them. Create the pipeline again."
        )


def _open_backend(protocol: str, url: str, options: dict[str, Any], connections: int) -> tuple[Any, RangeBackend]:
    """Return the file system of a URL and the backend that reads from it."""
    try:
        # Imported here, because other stores need neither botocore nor aiohttp.
        if protocol in ("s3", "s3a"):
            from forebay.sources.objects.s3 import S3RangeBackend, make_s3_options

            file_system = _open_file_system(url, make_s3_options(options, connections))
            return file_system, S3RangeBackend(file_system)
        if protocol in ("http", "https"):
            from forebay.sources.objects.http import HttpRangeBackend, make_http_options

            file_system = _open_file_system(url, make_http_options(options))
            return file_system, HttpRangeBackend(file_system)
        file_system = _open_file_system(url, options)
        return file_system, FsspecRangeBackend(file_system)
    except ImportError as error:
        raise FrameworkError(
            f"{protocol}:// needs a package that is not installed: {error}. "
            "For s3 and http, run pip install 'forebay[remote]'.",
            name=protocol,
        ) from error


def _open_file_system(url: str, options: dict[str, Any]) -> Any:
    # By default, fsspec shares a file system object between callers. A shared object would return old listings, and
    # other callers would get our settings.
    return url_to_fs(url, skip_instance_cache=True, use_listings_cache=False, **options)[0]
