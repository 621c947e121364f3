"""Ranges asked for by requests of our own, each of which takes 1 to 1.5 ms of CPU less than by botocore's client.

Address, credentials, signature and connections are botocore's; left out is what it does anew for every request, which
threads wait for each other over. An answer that is not the range itself, other than of a busy store, is no answer: the
client then asks again, and knows what to make of it.
"""

import re
from typing import Any
from urllib.parse import quote

from botocore import UNSIGNED
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError
from botocore.response import StreamingBody

__all__ = ["SignedReads"]

_HEADERS = {"Range": "Range", "IfMatch": "If-Match"}  # of the arguments that a plain read has
_SIGNATURES = (None, "s3v4", UNSIGNED)
_TOLD = {  # what is looked at of an answer, by the names that the client gives it
    "ETag": "ETag",
    "ServerSideEncryption": "x-amz-server-side-encryption",
    "SSECustomerAlgorithm": "x-amz-server-side-encryption-customer-algorithm",
}
_CODE = re.compile(rb"<Code>([\w.]+)</Code>")


class SignedReads:
    """Reads with the addresses, secrets and connections of a client."""

    def __init__(self, client: Any, credentials: Any) -> None:
        self._client, self._credentials = client, credentials
        self._region = client.meta.region_name
        self._http: Any = getattr(getattr(client, "_endpoint", None), "http_session", None)
        self._bases: dict[str, str | None] = {}  # of the addresses of a bucket; None where the client must ask

    def get(self, asked: dict[str, Any]) -> tuple[dict[str, Any], bytes] | None:
        """What the client would tell of an answer, and its bytes; None where the client should ask."""
        bucket, key = asked["Bucket"], asked["Key"]
        if not asked.keys() <= {"Bucket", "Key", *_HEADERS}:
            return None
        base = self._bases[bucket] if bucket in self._bases else self._base(bucket)
        if base is None:
            return None
        headers = {header: asked[name] for name, header in _HEADERS.items() if name in asked}
        response = self._http.send(self._signed(base + _quoted(key), headers))
        if response.status_code == 429 or response.status_code >= 500:
            raise _busy(response)
        if response.status_code != 206:
            response.raw.drain_conn()
            self._bases[bucket] = None
            return None
        told = {name: response.headers.get(header) for name, header in _TOLD.items()}
        return told, StreamingBody(response.raw, response.headers.get("Content-Length")).read()

    def _signed(self, url: str, headers: dict[str, str]) -> Any:
        request = AWSRequest("GET", url, headers=headers, stream_output=True)
        if self._credentials is not None:
            S3SigV4Auth(self._credentials.get_frozen_credentials(), "s3", self._region).add_auth(request)
        return request.prepare()

    def _base(self, bucket: str) -> str | None:
        """What stands before a key in the addresses that the client makes."""
        signature = self._client.meta.config.signature_version
        plain = signature in _SIGNATURES and not bucket.startswith("arn:") and self._region not in (None, "aws-global")
        base = None
        if plain and self._http is not None:
            url = self._client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "k"}).partition("?")[0]
            base = url.removesuffix("k") if url.endswith("/k") else None
        self._bases[bucket] = base
        return base


def _quoted(key: str) -> str:
    return quote(key, safe="/~")


def _busy(response: Any) -> ClientError:
    code = _CODE.search(response.content)
    told = {"Code": code[1].decode() if code else str(response.status_code)}
    return ClientError({"Error": told, "ResponseMetadata": {"HTTPStatusCode": response.status_code}}, "GetObject")
