"""Reads of byte ranges from S3 objects that have not changed.

If the listing reports an ETag, every request has it as a condition.

s3fs lists objects and finds credentials. botocore, which s3fs installs, reads the ranges in the threads that wait for
them. One event loop for all reads takes three times the CPU time and is limited to 500 MB/s.

Plain ranges use `SignedGet`. There are two exceptions. botocore's own client handles what that
does not support: redirects, access points, customer keys, requester-pays, directory buckets. A session object that the
user passes is used through s3fs on its event loop, because only that client knows the session's credentials and hooks.
"""

import threading
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from botocore import UNSIGNED
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.session import Session
from fsspec.asyn import sync

from forebay.sources.objects.range_backends import RangeResponse
from forebay.sources.objects.s3_signed_get import SignedGet
from forebay.sources.objects.stored_object import StoredObject, is_md5

__all__ = ["S3RangeBackend", "blocking_client", "s3_options"]

_DIRECTORY_BUCKET = "--x-s3"  # suffix; such buckets have session signatures, and their ETags are no checksums
_READ_TIMEOUT_SECONDS = 30
_READ_ARGUMENTS = (
    "SSECustomer",
    "RequestPayer",
    "ExpectedBucketOwner",
)  # prefixes of arguments for reads
_EVENT_LOOP_SETTINGS = ("connector_args", "http_session_cls")  # botocore's client does not know them


def s3_options(options: dict[str, Any], connections: int) -> dict[str, Any]:
    """Return s3fs options without its own retries and with enough connections.

    `Retry` repeats requests instead, so that Forebay can count them.
    """
    defaults = {
        "max_pool_connections": connections,
        "retries": {"max_attempts": 0},
        "connect_timeout": 10,
        "read_timeout": _READ_TIMEOUT_SECONDS,
    }
    return {**options, "config_kwargs": defaults | dict(options.get("config_kwargs") or {})}


class S3RangeBackend:
    """Reads ranges with `If-Match`.

    The reads of s3fs neither pass that condition nor return the response headers.
    """

    def __init__(self, files: Any) -> None:
        self._files = files
        files.retries = 1
        extra = {name: value for name, value in files.s3_additional_kwargs.items() if name.startswith(_READ_ARGUMENTS)}
        self._extra_arguments = files.req_kw | extra
        self._has_own_session = files.session is not None
        self._client: Any = None
        self._signed_get: Any = None
        self._lock = threading.Lock()

    def read(self, stored: StoredObject, start: int, stop: int) -> RangeResponse:
        bucket, key, version_id = self._files.split_path(stored.path)
        arguments = {"Bucket": bucket, "Key": key, "Range": f"bytes={start}-{stop - 1}", **self._extra_arguments}
        if stored.version:
            arguments["IfMatch"] = stored.version
        if version_id:
            arguments["VersionId"] = version_id
        if self._has_own_session:
            headers, data = sync(self._files.loop, self._get_on_event_loop, arguments)
        else:
            headers, data = self._get(arguments)
        etag = str(headers.get("ETag") or "")
        return RangeResponse(data, etag, etag.strip('"') if _is_checksum(bucket, etag, headers) else None)

    def _get(self, arguments: dict[str, Any]) -> tuple[Mapping[str, Any], bytes]:
        client, signed_get = self._blocking_clients()
        is_directory_bucket = arguments["Bucket"].endswith(_DIRECTORY_BUCKET)
        found: tuple[Mapping[str, Any], bytes] | None = None if is_directory_bucket else signed_get.get(arguments)
        if found is not None:
            return found
        response = client.get_object(**arguments)
        with closing(response["Body"]) as body:
            return response, body.read()

    async def _get_on_event_loop(self, arguments: dict[str, Any]) -> tuple[Any, bytes]:
        await self._files.set_session()
        client = await self._files.get_s3(arguments["Bucket"])
        response = await client.get_object(**arguments)
        async with response["Body"] as body:
            return response, await body.read()

    def _blocking_clients(self) -> tuple[Any, Any]:
        with self._lock:  # botocore allows several threads to use a client, but not to make one
            if self._client is None:
                self._client, credentials = blocking_client(self._files)
                self._signed_get = SignedGet(self._client, credentials)
            return self._client, self._signed_get


def blocking_client(files: Any) -> tuple[Any, Any]:
    """Make a botocore client with the settings of an s3fs file system.

    Return the client and its credentials.

    The credentials are None for anonymous access.
    """
    secrets = {
        "aws_access_key_id": files.key,
        "aws_secret_access_key": files.secret,
        "aws_session_token": files.token,
    }
    settings = {name: value for name, value in files.config_kwargs.items() if name not in _EVENT_LOOP_SETTINGS}
    options = {"use_ssl": files.use_ssl, "endpoint_url": files.endpoint_url, **secrets} | files.client_kwargs
    if files.anon:
        options = {name: value for name, value in options.items() if name not in secrets}
        settings["signature_version"] = UNSIGNED
    session = Session(**files.kwargs)
    client = session.create_client("s3", config=Config(**settings), **options)
    return client, None if files.anon else _credentials(session, options)


def _credentials(session: Session, options: dict[str, Any]) -> Any:
    """Return the credentials that were passed, or those that the session finds."""
    key, secret, token = (
        options.get(f"aws_{name}") for name in ("access_key_id", "secret_access_key", "session_token")
    )
    return Credentials(key, secret, token) if key and secret else session.get_credentials()


def _is_checksum(bucket: str, etag: str, headers: Mapping[str, Any]) -> bool:
    """Return whether an ETag is the MD5 of the object.

    With KMS or customer keys, it has the form of an MD5 but is none.
    """
    is_plain = headers.get("ServerSideEncryption") in (None, "AES256") and not headers.get("SSECustomerAlgorithm")
    return is_plain and is_md5(etag) and not bucket.endswith(_DIRECTORY_BUCKET)
