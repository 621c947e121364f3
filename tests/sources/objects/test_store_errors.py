"""What errors of other libraries come to: try again or not, and never a secret in what is told."""

import socket

import pytest

from forebay.sources.objects.redact import Scrubber, scrub_url
from forebay.sources.objects.retry import Retry, Traffic
from forebay.sources.objects.store_errors import Blame, blame, cause_of
from forebay.sources.objects.stored_object import is_md5, md5_of, version_of


class ClientError(Exception):
    """As botocore raises them."""

    def __init__(self, status, code):
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


class ClientResponseError(Exception):
    """As aiohttp raises them."""

    def __init__(self, status):
        self.status = status


class NoCredentialsError(Exception):
    """As botocore raises it."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ClientError(503, "SlowDown"), Blame.BUSY),
        (ClientError(500, "InternalError"), Blame.BUSY),
        (ClientError(412, "PreconditionFailed"), Blame.CHANGED),
        (ClientError(404, "NoSuchBucket"), Blame.MISSING),
        (ClientError(403, "AccessDenied"), Blame.REFUSED),
        (ClientError(400, "ExpiredToken"), Blame.EXPIRED),
        (ClientError(400, "InvalidArgument"), Blame.LASTING),
        (ClientResponseError(429), Blame.BUSY),
        (ClientResponseError(401), Blame.REFUSED),
        (NoCredentialsError(), Blame.NO_CREDENTIALS),
        (FileNotFoundError("a"), Blame.MISSING),
        (PermissionError("a"), Blame.REFUSED),
        (ConnectionResetError(), Blame.CUT),
        (TimeoutError(), Blame.CUT),
        (EOFError(), Blame.CUT),
        (ConnectionRefusedError(), Blame.UNREACHABLE),
        (socket.gaierror(), Blame.UNREACHABLE),
        (KeyError("a"), Blame.LASTING),
    ],
    ids=repr,
)
def test_errors_are_told_apart(error, expected):
    assert blame(error) is expected


def test_an_error_is_looked_through_to_what_it_came_of():
    wrapped = OSError(5, "something")
    wrapped.__cause__ = ClientError(503, "SlowDown")
    assert blame(wrapped) is Blame.BUSY
    assert cause_of(wrapped) == "503 SlowDown"


def test_what_passes_is_tried_again_and_counted():
    traffic, answers = Traffic(), iter([TimeoutError(), ClientError(503, "SlowDown"), "data"])
    assert Retry(5, traffic)(lambda: _next(answers)) == "data"
    assert traffic.counts()["requests"] == 3
    assert traffic.causes() == {"TimeoutError": 1, "503 SlowDown": 1}


def test_what_lasts_is_not_tried_again():
    traffic, answers = Traffic(), iter([ClientError(403, "AccessDenied"), "data"])
    with pytest.raises(ClientError):
        Retry(5, traffic)(lambda: _next(answers))
    assert traffic.counts()["requests"] == 1


def test_trying_has_an_end():
    traffic, answers = Traffic(), iter([TimeoutError()] * 9)
    with pytest.raises(TimeoutError):
        Retry(3, traffic)(lambda: _next(answers))
    assert traffic.counts()["requests"] == 3


def _next(answers):
    answer = next(answers)
    if isinstance(answer, Exception):
        raise answer
    return answer


def test_secrets_of_options_are_taken_out_wherever_they_lie():
    scrub = Scrubber({"key": "AKIA123", "client_kwargs": {"aws_session_token": "tok-tok"}, "anon": False})
    assert scrub("failed with AKIA123 and tok-tok") == "failed with *** and ***"


def test_an_error_is_unclean_if_what_it_came_of_is():
    error = ValueError("plain")
    error.__cause__ = ValueError("with AKIA123 in it")
    assert not Scrubber({"key": "AKIA123"}).is_clean(error)
    assert Scrubber({"key": "other"}).is_clean(error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://me:pw@host/a.npy", "https://***@host/a.npy"),
        ("https://h/a?X-Amz-Signature=ab&x=1", "https://h/a?X-Amz-Signature=***&x=1"),
        ("https://h/a?sv=1&sig=ab%3D", "https://h/a?sv=1&sig=***"),
        ("Authorization: Bearer abcdefgh.ijk", "Authorization: Bearer ***"),
        ("s3://bucket/keys/a.npy", "s3://bucket/keys/a.npy"),
    ],
)
def test_addresses_are_shown_without_credentials(text, expected):
    assert scrub_url(text) == expected


def test_an_etag_of_parts_is_no_checksum():
    assert is_md5('"d41d8cd98f00b204e9800998ecf8427e"')
    assert not is_md5('"d41d8cd98f00b204e9800998ecf8427e-2"')


def test_checksums_in_base64_are_read():
    assert md5_of({"md5Hash": "1B2M2Y8AsgTpgAmY7PhCfg=="}) == "d41d8cd98f00b204e9800998ecf8427e"


def test_a_version_is_the_best_thing_the_store_tells():
    assert version_of({"ETag": '"a"', "LastModified": "now"}) == '"a"'
    assert version_of({"size": 3}) == ""
