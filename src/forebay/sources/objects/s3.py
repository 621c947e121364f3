"""Reads of byte ranges from S3.

If the listing reports an ETag, every request has an `If-Match` condition, so that S3 rejects a changed object.

s3fs lists the objects. The user passes the credentials, or a botocore session finds them. Three clients read ranges:

- `SignedGet` reads most ranges.
- botocore's client handles requests that `SignedGet` does not support: redirects, access points, customer keys,
  requester-pays and directory buckets.
- If the user passes a session object, s3fs reads on its event loop, because only its client knows the session's
  credentials and hooks.

`SignedGet` and botocore's client block the calling thread. The client of s3fs takes two to three times the CPU time of
`SignedGet` per byte and reaches about a third of its speed (`docs/remote.md`, section "How fast").
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

from forebay.sources.objects.range_backends import RangeResponse, parse_content_range
from forebay.sources.objects.s3_signed_get import SignedGet, find_read_limit
from forebay.sources.objects.stored_object import StoredObject, is_md5

__all__ = ["S3RangeBackend", "make_blocking_client", "make_s3_options"]

# Directory buckets use session signatures, and their ETags are not MD5s.
_DIRECTORY_BUCKET_SUFFIX = "--x-s3"
_CONNECT_TIMEOUT_SECONDS = 10  # for a connection attempt
_READ_TIMEOUT_SECONDS = 30  # without a byte from the server
# Prefixes of the `s3_additional_kwargs` that `get_object` accepts.
_READ_ARGUMENT_PREFIXES = ("SSECustomer", "RequestPayer", "ExpectedBucketOwner")
# Settings of aiobotocore, which botocore's `Config` rejects.
_EVENT_LOOP_SETTINGS = ("connector_args", "http_session_cls")


def make_s3_options(options: dict[str, Any], connections: int) -> dict[str, Any]:
    """Return s3fs options with enough connections, with timeouts and without retries.

    Forebay's `Retry` repeats requests and counts them. Settings of the user take precedence.
    """
    defaults = {
        "max_pool_connections": connections,
        "retries": {"max_attempts": 0},
        "connect_timeout": _CONNECT_TIMEOUT_SECONDS,
        "read_timeout": _READ_TIMEOUT_SECONDS,
    }
    return {**options, "config_kwargs": defaults | dict(options.get("config_kwargs") or {})}


class S3RangeBackend:
    """Reads ranges with an `If-Match` condition.

    The read methods of s3fs can neither send this condition nor return the response headers.
    """

    def __init__(self, file_system: Any) -> None:
        self._file_system = file_system
        file_system.retries = 1  # s3fs counts attempts: 1 means no retry
        extra = {
            name: value
            for name, value in file_system.s3_additional_kwargs.items()
            if name.startswith(_READ_ARGUMENT_PREFIXES)
        }
        self._extra_arguments = file_system.req_kw | extra
        self._has_user_session = file_system.session is not None
        self._client: Any = None
        self._signed_get: Any = None
        self._lock = threading.Lock()

    def info(self, path: str) -> Mapping[str, Any]:
        info: Mapping[str, Any] = self._file_system.info(path)
        return info

    def read(self, stored_object: StoredObject, start: int, stop: int) -> RangeResponse:
        bucket, key, version_id = self._file_system.split_path(stored_object.path)
        arguments = {"Bucket": bucket, "Key": key, "Range": f"bytes={start}-{stop - 1}", **self._extra_arguments}
        if stored_object.version:
            arguments["IfMatch"] = stored_object.version  # the ETag from the listing
        if version_id:
            arguments["VersionId"] = version_id
        if self._has_user_session:
            headers, data = sync(self._file_system.loop, self._get_on_event_loop, arguments)
        else:
            headers, data = self._get_blocking(arguments)
        etag = str(headers.get("ETag") or "")
        md5 = etag.strip('"') if _is_object_md5(bucket, etag, headers) else None
        return RangeResponse(data, etag, parse_content_range(headers.get("ContentRange")), md5)

    def _get_blocking(self, arguments: dict[str, Any]) -> tuple[Mapping[str, Any], bytes]:
        client, signed_get = self._blocking_clients()
        is_directory_bucket = arguments["Bucket"].endswith(_DIRECTORY_BUCKET_SUFFIX)
        headers_and_data: tuple[Mapping[str, Any], bytes] | None = None
        if not is_directory_bucket:
            headers_and_data = signed_get.get(arguments)
        if headers_and_data is not None:
            return headers_and_data
        response = client.get_object(**arguments)
        with closing(response["Body"]) as body:
            return response, body.read(find_read_limit(response.get("ContentLength"), arguments))

    async def _get_on_event_loop(self, arguments: dict[str, Any]) -> tuple[Any, bytes]:
        await self._file_system.set_session()
        client = await self._file_system.get_s3(arguments["Bucket"])
        response = await client.get_object(**arguments)
        async with response["Body"] as body:
            limit = find_read_limit(response.get("ContentLength"), arguments)
            data = b"" if limit else await body.read()
            while limit and len(data) < limit and (part := await body.read(limit - len(data))):
                data += part
            return response, data

    def _blocking_clients(self) -> tuple[Any, Any]:
        with self._lock:  # the methods of a botocore client are thread-safe, but its creation is not
            if self._client is None:
                self._client, credentials = make_blocking_client(self._file_system)
                self._signed_get = SignedGet(self._client, credentials)
            return self._client, self._signed_get


def make_blocking_client(file_system: Any) -> tuple[Any, Any]:
    """Make a botocore client with the settings of an s3fs file system.

    Return the client and its credentials, which are None for anonymous access.
    """
    credential_options = {
        "aws_access_key_id": file_system.key,
        "aws_secret_access_key": file_system.secret,
        "aws_session_token": file_system.token,
    }
    settings = {name: value for name, value in file_system.config_kwargs.items() if name not in _EVENT_LOOP_SETTINGS}
    options = {
        "use_ssl": file_system.use_ssl,
        "endpoint_url": file_system.endpoint_url,
        **credential_options,
    } | file_system.client_kwargs
    if file_system.anon:
        options = {name: value for name, value in options.items() if name not in credential_options}
        settings["signature_version"] = UNSIGNED
    session = Session(**file_system.kwargs)
    client = session.create_client("s3", config=Config(**settings), **options)
    return client, None if file_system.anon else _credentials(session, options)


def _credentials(session: Session, options: dict[str, Any]) -> Any:
    """Return the credentials in the options, or those that the session finds."""
    key, secret, token = (
        options.get(f"aws_{name}") for name in ("access_key_id", "secret_access_key", "session_token")
    )
    return Credentials(key, secret, token) if key and secret else session.get_credentials()


def _is_object_md5(bucket: str, etag: str, headers: Mapping[str, Any]) -> bool:
    """Return whether an ETag is the MD5 of the object.

    With KMS or customer keys, the ETag looks like an MD5 but is not one.
    """
    has_md5_etag = headers.get("ServerSideEncryption") in (None, "AES256") and not headers.get("SSECustomerAlgorithm")
    return has_md5_etag and is_md5(etag) and not bucket.endswith(_DIRECTORY_BUCKET_SUFFIX)
