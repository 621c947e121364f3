"""Signed GET requests for byte ranges of S3 objects, without the overhead of botocore's client.

This module uses URLs, credentials, signatures and connections of botocore. It skips the other work of botocore's
client, which takes 1 ms of CPU time per request and makes threads wait for each other. If the response is neither the
requested range nor a "busy" error (status 429, or 500 and above), the caller repeats the request with botocore's
client. All later requests for that bucket also use botocore's client.

Measured on 2026-11-17 at commit 1482c34 (`docs/measurements.md`, section "S3 requests"): two ARM cores shared with
other work, a server on loopback, 5 ms latency, 16 threads. Requests per second relative to this module:

    range      botocore   s3fs   obstore 0.12.1
    64 KiB     0.51       0.46   1.67
    1 MiB      0.53       0.47   1.60
    8 MiB      0.82       0.46   1.06

The library obstore is faster for small ranges, but cannot replace this module yet. Its responses have no encryption
header, so Forebay could not know whether an ETag is an MD5. It raises an error for a redirect to another region, so
Forebay would still need botocore's client.
"""

import re
from contextlib import closing
from typing import Any
from urllib.parse import quote

from botocore import UNSIGNED
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError
from botocore.response import StreamingBody

__all__ = ["SignedGet", "find_read_limit"]

_REQUEST_HEADERS = {"Range": "Range", "IfMatch": "If-Match"}  # argument of `client.get_object` -> header
_SIGNATURES = (None, "s3v4", UNSIGNED)  # signature versions that this module supports
_RESPONSE_HEADERS = {  # key in the response of `client.get_object` -> header
    "ContentRange": "Content-Range",
    "ETag": "ETag",
    "ServerSideEncryption": "x-amz-server-side-encryption",
    "SSECustomerAlgorithm": "x-amz-server-side-encryption-customer-algorithm",
}
_MAX_ERROR_NBYTES = 64 * 1024  # bytes of an error response in which Forebay searches the error code
_ERROR_CODE = re.compile(rb"<Code>([\w.]+)</Code>")


class SignedGet:
    """Sends GET requests with the URLs, credentials and connections of a botocore client."""

    def __init__(self, client: Any, credentials: Any) -> None:
        self._client, self._credentials = client, credentials
        self._region = client.meta.region_name
        self._http: Any = getattr(getattr(client, "_endpoint", None), "http_session", None)
        # Bucket -> URL before the key; None if botocore's client must send the requests for this bucket.
        self._base_urls: dict[str, str | None] = {}

    def get(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], bytes] | None:
        """Return headers and bytes, or None if botocore's client must send the request.

        Raise botocore's `ClientError` if the store is busy.
        """
        bucket, key = arguments["Bucket"], arguments["Key"]
        if not arguments.keys() <= {"Bucket", "Key", *_REQUEST_HEADERS}:
            return None
        base_url = self._base_urls[bucket] if bucket in self._base_urls else self._find_base_url(bucket)
        if base_url is None:
            return None
        headers = {header: arguments[name] for name, header in _REQUEST_HEADERS.items() if name in arguments}
        response = self._http.send(self._sign(base_url + quote(key, safe="/~"), headers))
        if response.status_code == 429 or response.status_code >= 500:
            raise _make_busy_error(response)
        if response.status_code != 206:
            response.raw.close()  # the body may be endless
            self._base_urls[bucket] = None
            return None
        response_headers = {name: response.headers.get(header) for name, header in _RESPONSE_HEADERS.items()}
        length = response.headers.get("Content-Length")
        with closing(StreamingBody(response.raw, length)) as body:
            return response_headers, body.read(find_read_limit(length, arguments))

    def _sign(self, url: str, headers: dict[str, str]) -> Any:
        request = AWSRequest("GET", url, headers=headers, stream_output=True)
        if self._credentials is not None:
            S3SigV4Auth(self._credentials.get_frozen_credentials(), "s3", self._region).add_auth(request)
        return request.prepare()

    def _find_base_url(self, bucket: str) -> str | None:
        """Return the URL of a bucket, as botocore's client uses it, up to the key.

        Return None if botocore's client must send the requests for this bucket.
        """
        signature = self._client.meta.config.signature_version
        is_supported = signature in _SIGNATURES and not bucket.startswith("arn:")
        base_url = None
        if is_supported and self._region not in (None, "aws-global") and self._http is not None:
            url = self._client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "k"}).partition("?")[0]
            base_url = url.removesuffix("k") if url.endswith("/k") else None
        self._base_urls[bucket] = base_url
        return base_url


def find_read_limit(length: int | str | None, arguments: dict[str, Any]) -> int | None:
    """Return how many bytes of a response to read, or None for all bytes.

    If the response may be longer than requested, read one byte more. So Forebay detects a longer response, but does not
    read all of it. For other responses, return None, because urllib3 copies the data one time less without a limit.
    """
    first, last = map(int, arguments["Range"].removeprefix("bytes=").split("-"))
    nbytes = last - first + 1
    return None if length is not None and int(length) <= nbytes else nbytes + 1


def _make_busy_error(response: Any) -> ClientError:
    with closing(response.raw) as body:
        code = _ERROR_CODE.search(body.read(_MAX_ERROR_NBYTES))
    error = {"Code": code[1].decode() if code else str(response.status_code)}
    return ClientError({"Error": error, "ResponseMetadata": {"HTTPStatusCode": response.status_code}}, "GetObject")
