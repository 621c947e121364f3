"""Ranges of S3 objects, asked for on condition that the object is still the one that was listed.

s3fs lists and signs in; ranges are read by botocore, which s3fs brings along, in the threads that wait for them anyway.
One event loop for all of them takes three times the CPU, and is the limit at 500 MB/s.
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

from forebay.sources.objects.range_backends import Response
from forebay.sources.objects.stored_object import StoredObject, is_md5

__all__ = ["S3Ranges", "blocking_client", "s3_options"]

_DIRECTORY_BUCKET = "--x-s3"  # signed for a session; their ETags are no checksums
_TIMEOUT_SECONDS = 30
_OF_READS = ("SSECustomer", "RequestPayer", "ExpectedBucketOwner")  # what may be said with a read, of all requests


def s3_options(options: dict[str, Any], connections: int) -> dict[str, Any]:
    """Options that leave retrying to us, where it is counted, and let every connection be used at once."""
    defaults = {
        "max_pool_connections": connections,
        "retries": {"max_attempts": 0},
        "connect_timeout": 10,
        "read_timeout": _TIMEOUT_SECONDS,
    }
    return {**options, "config_kwargs": defaults | dict(options.get("config_kwargs") or {})}


class S3Ranges:
    """Reads past s3fs, whose own reads neither pass a condition on nor show the response."""

    def __init__(self, files: Any) -> None:
        self._files = files
        files.retries = 1
        further = {name: value for name, value in files.s3_additional_kwargs.items() if name.startswith(_OF_READS)}
        self._always = files.req_kw | further
        self._on_loop = files.session is not None  # somebody's own session, which knows how to sign in
        self._client: Any = None
        self._signed: Any = None
        self._lock = threading.Lock()

    def read(self, stored: StoredObject, start: int, stop: int) -> Response:
        bucket, key, version_id = self._files.split_path(stored.path)
        condition = {"IfMatch": stored.version} if stored.version else {}
        if version_id:
            condition["VersionId"] = version_id
        asked = {"Bucket": bucket, "Key": key, "Range": f"bytes={start}-{stop - 1}", **condition, **self._always}
        given, data = sync(self._files.loop, self._get_on_loop, asked) if self._on_loop else self._get(asked)
        etag = str(given.get("ETag") or "")
        plain = given.get("ServerSideEncryption") in (None, "AES256") and not given.get("SSECustomerAlgorithm")
        is_checksum = plain and is_md5(etag) and not bucket.endswith(_DIRECTORY_BUCKET)
        return Response(data, etag, etag.strip('"') if is_checksum else None)

    def _get(self, asked: dict[str, Any]) -> tuple[Mapping[str, Any], bytes]:
        client, signed = self._own_client()
        directory = asked["Bucket"].endswith(_DIRECTORY_BUCKET)
        answer: tuple[Mapping[str, Any], bytes] | None = None if directory else signed.get(asked)
        if answer is not None:
            return answer
        given = client.get_object(**asked)
        with closing(given["Body"]) as body:
            return given, body.read()

    async def _get_on_loop(self, asked: dict[str, Any]) -> tuple[Any, bytes]:
        await self._files.set_session()
        client = await self._files.get_s3(asked["Bucket"])
        given = await client.get_object(**asked)
        async with given["Body"] as body:
            return given, await body.read()

    def _own_client(self) -> tuple[Any, Any]:
        with self._lock:  # making one is not for several threads, using it is
            if self._client is None:
                from forebay.sources.objects.s3 import blocking_client  # other stores do without botocore
                from forebay.sources.objects.s3_signed_get import SignedReads

                self._client, credentials = blocking_client(self._files)
                self._signed = SignedReads(self._client, credentials)
            return self._client, self._signed


_OF_LOOPS = ("connector_args", "http_session_cls")  # settings that only a client on an event loop has


def blocking_client(files: Any) -> tuple[Any, Any]:
    """A client with the credentials and settings of a file system of s3fs, and the credentials; None for anybody."""
    secrets = {
        "aws_access_key_id": files.key,
        "aws_secret_access_key": files.secret,
        "aws_session_token": files.token,
    }
    settings = {name: value for name, value in files.config_kwargs.items() if name not in _OF_LOOPS}
    options = {"use_ssl": files.use_ssl, "endpoint_url": files.endpoint_url, **secrets} | files.client_kwargs
    if files.anon:
        options = {name: value for name, value in options.items() if name not in secrets}
        settings["signature_version"] = UNSIGNED
    session = Session(**files.kwargs)
    client = session.create_client("s3", config=Config(**settings), **options)
    return client, None if files.anon else _credentials(session, options)


def _credentials(session: Session, options: dict[str, Any]) -> Any:
    """Those that were passed, or what the client found by itself."""
    key, secret, token = (
        options.get(f"aws_{name}") for name in ("access_key_id", "secret_access_key", "session_token")
    )
    return Credentials(key, secret, token) if key and secret else session.get_credentials()
