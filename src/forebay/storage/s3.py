"""Ranges of S3 objects, asked for on condition that the object is still the one that was listed."""

from typing import Any

from fsspec.asyn import sync

from forebay.storage.objects import StoredObject, is_md5
from forebay.storage.ranges import Response

__all__ = ["S3Ranges", "s3_options"]

_DIRECTORY_BUCKET = "--x-s3"  # whose ETags are no checksums
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
    """Reads through the client that s3fs made: s3fs's own reads neither pass a condition on nor show the response."""

    def __init__(self, files: Any) -> None:
        self._files = files
        files.retries = 1
        further = {name: value for name, value in files.s3_additional_kwargs.items() if name.startswith(_OF_READS)}
        self._always = files.req_kw | further

    def read(self, stored: StoredObject, start: int, stop: int) -> Response:
        response: Response = sync(self._files.loop, self._read, stored, start, stop)
        return response

    async def _read(self, stored: StoredObject, start: int, stop: int) -> Response:
        files = self._files
        bucket, key, _ = files.split_path(stored.path)
        await files.set_session()
        client = await files.get_s3(bucket)
        condition = {"IfMatch": stored.version} if stored.version else {}
        span = f"bytes={start}-{stop - 1}"
        given = await client.get_object(Bucket=bucket, Key=key, Range=span, **condition, **self._always)
        async with given["Body"] as body:
            data = await body.read()
        etag = str(given.get("ETag", ""))
        plain = given.get("ServerSideEncryption") in (None, "AES256") and not given.get("SSECustomerAlgorithm")
        is_checksum = plain and is_md5(etag) and not bucket.endswith(_DIRECTORY_BUCKET)
        return Response(data, etag, etag.strip('"') if is_checksum else None)
