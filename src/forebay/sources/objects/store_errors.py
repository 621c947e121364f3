"""What an error of a store means: whether to try again, and if not, what to tell the user.

Stores fail in the words of several libraries: botocore, aiohttp, fsspec's file systems, sockets. Their errors are told
apart by what they carry (a status, a code) and by the built-in errors they are; none of the libraries is imported.
"""

import socket
from collections.abc import Iterator
from enum import Enum
from typing import Any

__all__ = ["Blame", "blame", "cause_of"]

_BUSY = {408, 425, 429, 500, 502, 503, 504}
_CONNECTION_NAMES = ("Connector", "ConnectTimeout", "EndpointConnection", "ProxyConnection", "SSL")
_BODY_NAMES = ("Payload", "ContentLength", "TransferEncoding", "IncompleteRead", "Checksum")
_STREAM_NAMES = ("Disconnected", "HTTPClient", "Streaming", "Timeout", "Closed")


class Blame(Enum):
    """Who or what is at fault."""

    CHANGED = "changed"
    MISSING = "missing"
    EXPIRED = "expired credentials"
    NO_CREDENTIALS = "no credentials"
    REFUSED = "not allowed"
    BUSY = "busy"
    UNREACHABLE = "unreachable"
    CUT = "cut off"
    LASTING = "failed"

    @property
    def passing(self) -> bool:
        """Whether it may well go by itself."""
        return self in (Blame.BUSY, Blame.UNREACHABLE, Blame.CUT)


def blame(error: BaseException) -> Blame:
    """What is behind an error, looking through what it was wrapped in."""
    chain = list(_chain(error))
    code = next(filter(None, map(_code, chain)), "")
    status = next(filter(None, map(_status, chain)), 0)
    if "Expired" in code or any("Expired" in type(link).__name__ for link in chain):
        return Blame.EXPIRED
    if any("NoCredentials" in type(link).__name__ or "CredentialRetrieval" in type(link).__name__ for link in chain):
        return Blame.NO_CREDENTIALS
    if any(_is_named(link, _BODY_NAMES) for link in chain):  # aiohttp gives them a status of its own making
        return Blame.CUT
    return _by_status(status, code) or _by_type(chain)


def cause_of(error: BaseException) -> str:
    """A few words that name a cause, the same for all its like."""
    chain = list(_chain(error))
    status = next(filter(None, map(_status, chain)), 0)
    code = next(filter(None, map(_code, chain)), "")
    if status and blame(error) is not Blame.CUT:
        return f"{status} {code}".strip() if code != str(status) else code
    return type(error).__name__


def _by_status(status: int, code: str) -> Blame | None:
    if status == 412 or code == "PreconditionFailed":
        return Blame.CHANGED
    if status in _BUSY or code in ("SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout"):
        return Blame.BUSY
    if status == 404 or code in ("NoSuchBucket", "NoSuchKey"):
        return Blame.MISSING
    if status in (401, 403):
        return Blame.REFUSED
    return Blame.LASTING if status >= 400 else None


def _by_type(chain: list[BaseException]) -> Blame:
    if any(isinstance(link, FileNotFoundError) for link in chain):
        return Blame.MISSING
    if any(isinstance(link, PermissionError) for link in chain):
        return Blame.REFUSED
    if any(isinstance(link, EOFError) for link in chain):
        return Blame.CUT
    unreachable = ConnectionRefusedError | socket.gaierror
    if any(isinstance(link, unreachable) or _is_named(link, _CONNECTION_NAMES) for link in chain):
        return Blame.UNREACHABLE
    if any(isinstance(link, TimeoutError | ConnectionError) or _is_named(link, _STREAM_NAMES) for link in chain):
        return Blame.CUT
    return Blame.LASTING


def _is_named(error: BaseException, names: tuple[str, ...]) -> bool:
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
    """botocore keeps it in a response, aiohttp as `status`, gcsfs as `code`."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    else:
        found = getattr(error, "status", None) or getattr(error, "code", None) or 0
    return int(found) if isinstance(found, int) or str(found).isdecimal() else 0
