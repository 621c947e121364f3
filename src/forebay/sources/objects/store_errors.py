"""Classification of store errors, for retries and error messages.

Stores raise errors of several libraries: botocore, aiohttp, file systems of fsspec, sockets. This module imports none
of them. It looks at the HTTP status, the error code, the class name and the built-in base classes of an error.
"""

import re
import socket
from collections.abc import Iterator
from enum import Enum
from typing import Any

__all__ = ["StoreFault", "classify", "describe_cause"]

_BUSY_STATUSES = {408, 425, 429, 500, 502, 503, 504}
# Parts of the class names of errors:
_CONNECTION_ERRORS = (  # no connection
    "Connector",
    "ConnectTimeout",
    "ConnectionTimeout",
    "EndpointConnection",
    "ProxyConnection",
    "SSL",
)
_BODY_ERRORS = (  # an incomplete or malformed response, such as one with more bytes than its Content-Length
    "Payload",
    "ContentLength",
    "TransferEncoding",
    "IncompleteRead",
    "Checksum",
    "BadStatusLine",
    "BadHttpMessage",
)
_STREAM_ERRORS = ("Disconnected", "HTTPClient", "Streaming", "Closed")  # a connection broke during a response


class StoreFault(Enum):
    """The kind of a store error.

    `BAD_RESPONSE` means that a connection broke, or that a response had the wrong length, range or bytes. `PERMANENT`
    is any error without a kind of its own.
    """

    CHANGED = "changed"
    MISSING = "missing"
    EXPIRED = "expired credentials"
    NO_CREDENTIALS = "no credentials"
    DENIED = "access denied"
    BUSY = "busy"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed out"
    BAD_RESPONSE = "bad response"
    PERMANENT = "failed"

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self in (StoreFault.BUSY, StoreFault.UNREACHABLE, StoreFault.TIMED_OUT, StoreFault.BAD_RESPONSE)


def classify(error: BaseException) -> StoreFault:
    """Return the kind of an error, from the error itself and its causes."""
    chain = list(_error_chain(error))
    code = next(filter(None, map(_error_code, chain)), "")
    status = next(filter(None, map(_http_status, chain)), 0)
    if "Expired" in code or any("Expired" in type(link).__name__ for link in chain):
        return StoreFault.EXPIRED
    if any(_has_name_part(link, ("NoCredentials", "CredentialRetrieval")) for link in chain):
        return StoreFault.NO_CREDENTIALS
    # Test this before the status, because aiohttp sets a status that the server did not send.
    if any(_has_name_part(link, _BODY_ERRORS) for link in chain):
        return StoreFault.BAD_RESPONSE
    return _classify_status(status, code) or _classify_type(chain)


def describe_cause(error: BaseException) -> str:
    """Return a short description: HTTP status and error code, or the class name."""
    chain = list(_error_chain(error))
    status = next(filter(None, map(_http_status, chain)), 0)
    code = next(filter(None, map(_error_code, chain)), "")
    if status and classify(error) not in (StoreFault.TIMED_OUT, StoreFault.BAD_RESPONSE):
        return f"{status} {code}".strip() if code != str(status) else code
    return type(error).__name__


def _classify_status(status: int, code: str) -> StoreFault | None:
    # 416: the object has become shorter than the requested range
    if status in (412, 416) or code in ("PreconditionFailed", "InvalidRange"):
        return StoreFault.CHANGED
    if status in _BUSY_STATUSES or code in ("SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout"):
        return StoreFault.BUSY
    if status == 404 or code in ("NoSuchBucket", "NoSuchKey"):
        return StoreFault.MISSING
    if status in (401, 403):
        return StoreFault.DENIED
    return StoreFault.PERMANENT if status >= 400 else None


def _classify_type(chain: list[BaseException]) -> StoreFault:
    if any(isinstance(link, FileNotFoundError) for link in chain):
        return StoreFault.MISSING
    if any(isinstance(link, PermissionError) for link in chain):
        return StoreFault.DENIED
    if any(isinstance(link, EOFError) for link in chain):
        return StoreFault.BAD_RESPONSE
    unreachable = ConnectionRefusedError | socket.gaierror
    if any(isinstance(link, unreachable) or _has_name_part(link, _CONNECTION_ERRORS) for link in chain):
        return StoreFault.UNREACHABLE
    if any(isinstance(link, TimeoutError) or _has_name_part(link, ("Timeout",)) for link in chain):
        return StoreFault.TIMED_OUT
    if any(isinstance(link, ConnectionError) or _has_name_part(link, _STREAM_ERRORS) for link in chain):
        return StoreFault.BAD_RESPONSE
    return StoreFault.PERMANENT


def _has_name_part(error: BaseException, parts: tuple[str, ...]) -> bool:
    return any(part in type(error).__name__ for part in parts)


def _error_chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _error_code(error: BaseException) -> str:
    response: Any = getattr(error, "response", None)
    code = response.get("Error", {}).get("Code", "") if isinstance(response, dict) else ""
    return str(code)


def _http_status(error: BaseException) -> int:
    """Return the HTTP status of an error, or 0 if it has none.

    The status is in the attribute `response` (botocore), `status` (aiohttp) or `code` (gcsfs).
    """
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    else:
        status = getattr(error, "status", None)
        status = getattr(error, "code", 0) if status is None else status  # aiohttp warns if `code` is read
    return int(status) if isinstance(status, int) or re.fullmatch("[0-9]{1,9}", str(status)) else 0
