"""Classification of store errors: whether to retry, and what to tell the user.

Stores raise errors of several libraries: botocore, aiohttp, file systems of fsspec, sockets. The classification uses
their status, their code, their class name and their built-in base classes. It imports none of these libraries.
"""

import socket
from collections.abc import Iterator
from enum import Enum
from typing import Any

__all__ = ["StoreFault", "cause_of", "classify"]

_BUSY_STATUSES = {408, 425, 429, 500, 502, 503, 504}
_CONNECTION_ERRORS = ("Connector", "ConnectTimeout", "EndpointConnection", "ProxyConnection", "SSL")
_BODY_ERRORS = ("Payload", "ContentLength", "TransferEncoding", "IncompleteRead", "Checksum")
_STREAM_ERRORS = ("Disconnected", "HTTPClient", "Streaming", "Timeout", "Closed")


class StoreFault(Enum):
    """The kind of a store error."""

    CHANGED = "changed"
    MISSING = "missing"
    EXPIRED = "expired credentials"
    NO_CREDENTIALS = "no credentials"
    DENIED = "access denied"
    BUSY = "busy"
    UNREACHABLE = "unreachable"
    TRUNCATED = "truncated"
    PERMANENT = "failed"

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self in (StoreFault.BUSY, StoreFault.UNREACHABLE, StoreFault.TRUNCATED)


def classify(error: BaseException) -> StoreFault:
    """Return the kind of an error. The causes of the error count too."""
    chain = list(_chain(error))
    code = next(filter(None, map(_code, chain)), "")
    status = next(filter(None, map(_status, chain)), 0)
    if "Expired" in code or any("Expired" in type(link).__name__ for link in chain):
        return StoreFault.EXPIRED
    if any(_has_name(link, ("NoCredentials", "CredentialRetrieval")) for link in chain):
        return StoreFault.NO_CREDENTIALS
    if any(_has_name(link, _BODY_ERRORS) for link in chain):  # aiohttp adds a status that the server did not send
        return StoreFault.TRUNCATED
    return _classify_status(status, code) or _classify_type(chain)


def cause_of(error: BaseException) -> str:
    """Return a short name of the cause.

    This is the status and the code, or the class of the error.
    """
    chain = list(_chain(error))
    status = next(filter(None, map(_status, chain)), 0)
    code = next(filter(None, map(_code, chain)), "")
    if status and classify(error) is not StoreFault.TRUNCATED:
        return f"{status} {code}".strip() if code != str(status) else code
    return type(error).__name__


def _classify_status(status: int, code: str) -> StoreFault | None:
    if status == 412 or code == "PreconditionFailed":
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
        return StoreFault.TRUNCATED
    unreachable = ConnectionRefusedError | socket.gaierror
    if any(isinstance(link, unreachable) or _has_name(link, _CONNECTION_ERRORS) for link in chain):
        return StoreFault.UNREACHABLE
    if any(isinstance(link, TimeoutError | ConnectionError) or _has_name(link, _STREAM_ERRORS) for link in chain):
        return StoreFault.TRUNCATED
    return StoreFault.PERMANENT


def _has_name(error: BaseException, names: tuple[str, ...]) -> bool:
    return any(name in type(error).__name__ for name in names)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _code(error: BaseException) -> str:
    response: Any = getattr(error, "response", None)
    found = response.get("Error", {}).get("Code", "") if isinstance(response, dict) else ""
    return str(found)


def _status(error: BaseException) -> int:
    """Return the HTTP status: in the response (botocore), as `status` (aiohttp) or as `code` (gcsfs)."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    else:
        found = getattr(error, "status", None) or getattr(error, "code", None) or 0
    return int(found) if isinstance(found, int) or str(found).isdecimal() else 0
