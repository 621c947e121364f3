"""Forebay classifies errors of other libraries, and retries a request after a transient error."""

import socket

import pytest

from forebay.sources.objects.retry import RequestCounters, Retry
from forebay.sources.objects.store_errors import StoreFault, classify, describe_cause
from forebay.sources.objects.stored_object import find_md5, find_version, is_md5


class ClientError(Exception):
    """An error like those of botocore."""

    def __init__(self, status, code):
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


class ClientResponseError(Exception):
    """An error like those of aiohttp."""

    def __init__(self, status):
        self.status = status


class NoCredentialsError(Exception):
    """An error like that of botocore."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ClientError(503, "SlowDown"), StoreFault.BUSY),
        (ClientError(500, "InternalError"), StoreFault.BUSY),
        (ClientError(412, "PreconditionFailed"), StoreFault.CHANGED),
        (ClientError(404, "NoSuchBucket"), StoreFault.MISSING),
        (ClientError(403, "AccessDenied"), StoreFault.DENIED),
        (ClientError(400, "ExpiredToken"), StoreFault.EXPIRED),
        (ClientError(400, "InvalidArgument"), StoreFault.PERMANENT),
        (ClientResponseError(429), StoreFault.BUSY),
        (ClientResponseError(401), StoreFault.DENIED),
        (NoCredentialsError(), StoreFault.NO_CREDENTIALS),
        (FileNotFoundError("a"), StoreFault.MISSING),
        (PermissionError("a"), StoreFault.DENIED),
        (ConnectionResetError(), StoreFault.BAD_RESPONSE),
        (TimeoutError(), StoreFault.TIMED_OUT),
        (ClientError(416, "InvalidRange"), StoreFault.CHANGED),
        (EOFError(), StoreFault.BAD_RESPONSE),
        (ConnectionRefusedError(), StoreFault.UNREACHABLE),
        (socket.gaierror(), StoreFault.UNREACHABLE),
        (KeyError("a"), StoreFault.PERMANENT),
    ],
    ids=repr,
)
def test_errors_are_classified(error, expected):
    assert classify(error) is expected


def test_the_cause_of_an_error_is_classified():
    wrapped = OSError(5, "something")
    wrapped.__cause__ = ClientError(503, "SlowDown")
    assert classify(wrapped) is StoreFault.BUSY
    assert describe_cause(wrapped) == "503 SlowDown"


def test_requests_with_transient_errors_are_retried_and_counted():
    counters, answers = RequestCounters(), iter([TimeoutError(), ClientError(503, "SlowDown"), "data"])
    assert Retry(5, counters)(lambda: _next(answers)) == "data"
    assert counters.counts()["requests"] == 3
    assert counters.retry_causes() == {"TimeoutError": 1, "503 SlowDown": 1}


def test_requests_with_permanent_errors_are_not_retried():
    counters, answers = RequestCounters(), iter([ClientError(403, "AccessDenied"), "data"])
    with pytest.raises(ClientError):
        Retry(5, counters)(lambda: _next(answers))
    assert counters.counts()["requests"] == 1


def test_retries_end_after_the_last_attempt():
    counters, answers = RequestCounters(), iter([TimeoutError()] * 9)
    with pytest.raises(TimeoutError):
        Retry(3, counters)(lambda: _next(answers))
    assert counters.counts()["requests"] == 3


def test_a_request_can_limit_the_attempts_to_reach_a_store():
    counters, answers = RequestCounters(), iter([ConnectionRefusedError()] * 9)
    with pytest.raises(ConnectionRefusedError):
        Retry(5, counters)(lambda: _next(answers), unreachable_attempts=2)
    assert counters.counts()["requests"] == 2


def test_a_stopped_retry_sends_one_more_request():
    counters = RequestCounters()
    retry = Retry(9, counters)

    def fail():
        retry.stop()
        raise TimeoutError

    with pytest.raises(TimeoutError):
        retry(fail)
    assert counters.counts()["requests"] == 2


def _next(answers):
    answer = next(answers)
    if isinstance(answer, Exception):
        raise answer
    return answer


def test_the_etag_of_a_multipart_upload_is_not_an_md5():
    assert is_md5('"d41d8cd98f00b204e9800998ecf8427e"')
    assert not is_md5('"d41d8cd98f00b204e9800998ecf8427e-2"')


def test_an_md5_in_base64_is_decoded():
    assert find_md5({"md5Hash": "1B2M2Y8AsgTpgAmY7PhCfg=="}) == "d41d8cd98f00b204e9800998ecf8427e"


def test_the_version_is_the_best_value_that_the_store_reports():
    assert find_version({"ETag": '"a"', "LastModified": "now"}) == '"a"'
    assert find_version({"size": 3}) == ""
