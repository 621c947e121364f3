"""Reads of byte ranges over HTTP.

fsspec makes the aiohttp session from the user's options. This module sends the requests itself, because the read
methods of fsspec do not return the headers of a response. A response must have the status 206 (or 200 for a whole
object), the requested range, and the version that the listing reported. The version is a strong or weak ETag, or
without an ETag the time of the last modification.
"""

from collections.abc import Mapping
from typing import Any

from aiohttp import ClientResponse, ClientResponseError, ClientTimeout
from fsspec.asyn import sync

from forebay.errors import StoreError
from forebay.sources.objects.range_backends import RangeResponse, parse_content_range
from forebay.sources.objects.stored_object import StoredObject, find_version

__all__ = ["HttpRangeBackend", "make_http_options"]

_CONNECT_TIMEOUT_SECONDS = 10.0  # for a connection attempt; the same as for S3
_READ_TIMEOUT_SECONDS = 30.0  # without a byte from the server; the same as for S3
_IDENTITY = {"Accept-Encoding": "identity"}  # no compression, so that byte ranges refer to the stored bytes
_VERSION_HEADERS = ("ETag", "Last-Modified")


def make_http_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of fsspec's HTTP file system with timeouts. Settings of the user take precedence."""
    timeout = ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_SECONDS, sock_read=_READ_TIMEOUT_SECONDS)
    return {**options, "client_kwargs": {"timeout": timeout, **(options.get("client_kwargs") or {})}}


class HttpRangeBackend:
    """Reads ranges and compares the headers of every response with the request.

    A strong ETag begins with a quote. Requests for an object with such an ETag have an `If-Match` header, so that the
    server rejects a changed object without sending it.
    """

    def __init__(self, file_system: Any) -> None:
        self._file_system = file_system

    def info(self, path: str) -> Mapping[str, Any]:
        return sync(self._file_system.loop, self._info, path)  # type: ignore[no-any-return]

    def read(self, stored_object: StoredObject, start: int, stop: int) -> RangeResponse:
        response: RangeResponse = sync(self._file_system.loop, self._read, stored_object, start, stop)
        if stored_object.version and not response.version:
            # The response has no version, so request the version after the read.
            return RangeResponse(response.data, find_version(self.info(stored_object.path)), response.content_range)
        return response

    async def _info(self, path: str) -> dict[str, Any]:
        """Return what a HEAD request reports, in the form of `info` in fsspec.

        If the server rejects HEAD or omits the length, send a GET request.
        """
        info: dict[str, Any] = {}
        for method in ("HEAD", "GET"):
            async with await self._request(method, path, {}) as response:
                if method == "GET":
                    _raise_for_status(response)
                if response.status == 200:
                    info = {name: response.headers[name] for name in _VERSION_HEADERS if name in response.headers}
                    info["size"] = None if _is_encoded(response) else response.content_length
            if info.get("size") is not None:
                break
        return {"name": path, "type": "file", "size": None, **info}

    async def _read(self, stored_object: StoredObject, start: int, stop: int) -> RangeResponse:
        headers = {"Range": f"bytes={start}-{stop - 1}"}
        if stored_object.version.startswith('"'):
            headers["If-Match"] = stored_object.version
        async with await self._request("GET", stored_object.path, headers) as response:
            _raise_for_status(response)
            content_range = parse_content_range(response.headers.get("Content-Range"))
            is_whole_object = response.status == 200 and (start, stop) == (0, stored_object.nbytes)
            if not is_whole_object and (response.status != 206 or content_range is None):
                raise StoreError(
                    f"{stored_object.url}: the server answered a request for bytes {start} to {stop} with status "
                    f"{response.status} and no valid Content-Range. The server does not support byte ranges. Download "
                    "the object first."
                )
            if _is_encoded(response):
                raise StoreError(
                    f"{stored_object.url}: the server sends the object with Content-Encoding "
                    f"{response.headers['Content-Encoding'][:40]!r}, although Forebay requests none. Download it."
                )
            data = await _read_body(response, stop - start)
            return RangeResponse(data, _find_response_version(response, stored_object.version), content_range)

    async def _request(self, method: str, path: str, headers: dict[str, str]) -> ClientResponse:
        """Send a request with the options of the user and these headers."""
        session = await self._file_system.set_session()
        options = self._file_system.kwargs
        all_headers = {**(options.get("headers") or {}), **_IDENTITY, **headers}
        url = self._file_system.encode_url(path)
        response: ClientResponse = await session.request(method, url, **{**options, "headers": all_headers})
        return response


async def _read_body(response: ClientResponse, nbytes: int) -> bytes:
    """Return the body. Raise `EOFError` if it does not have `nbytes` bytes.

    Do not read all of a longer body, because it may be endless.
    """
    length = response.content_length
    if length is not None and length != nbytes:
        raise EOFError(f"the response has {length} bytes instead of {nbytes}")
    parts, received_nbytes = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        received_nbytes += len(part)
        if received_nbytes > nbytes:
            raise EOFError(f"the response has more than {nbytes} bytes")
    return b"".join(parts)


def _raise_for_status(response: ClientResponse) -> None:
    """Raise an error unless the status is 200 or 206.

    The check of aiohttp accepts more statuses, such as a redirect without a location.
    """
    response.raise_for_status()
    if response.status not in (200, 206):
        raise ClientResponseError(
            response.request_info, response.history, status=response.status, message=response.reason or ""
        )


def _is_encoded(response: ClientResponse) -> bool:
    return response.headers.get("Content-Encoding", "identity").lower() not in ("", "identity")


def _find_response_version(response: ClientResponse, listed: str) -> str:
    """Return the version in a response, or "" if the response has none.

    The version is a date if the listed version is a date, else an ETag.
    """
    is_date = listed.endswith("GMT")
    return response.headers.get("Last-Modified" if is_date else "ETag", "")
