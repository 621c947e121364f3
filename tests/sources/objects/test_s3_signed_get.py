"""A server that verifies signatures accepts signed requests. Other requests go to botocore's client."""

import json

import boto3
import numpy as np
import pytest
from tests.sources.objects.conftest import client_options, npy_bytes, s3_server_process
from tests.sources.objects.faulty_proxy import refuse
from tests.sources.objects.scripted_server import Reply, ScriptedServer

import forebay as fb
from forebay.errors import StoreError
from forebay.sources.objects.s3_signed_get import SignedGet

ROWS = np.arange(3_000_000, dtype="i4").reshape(-1, 1000)  # 12 MB: two ranges
KEYS = ("plain.npy", "a b+c%2F~é$&'(),;=:@!.npy", "a//b/../c.npy")
ALLOWED = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


@pytest.fixture(scope="module")
def verifying():
    """Options for a server that verifies signatures after its setup requests."""
    with s3_server_process(INITIAL_NO_AUTH_ACTION_COUNT=str(4 + len(KEYS))) as port:
        yield set_up(port)


def set_up(port):
    """Create a user and the objects. Return the storage options of the user."""
    anybody = {"aws_access_key_id": "anybody", "aws_secret_access_key": "anything", **client_options(port)}
    iam, s3 = boto3.client("iam", **anybody), boto3.client("s3", **anybody)
    iam.create_user(UserName="reader")
    access_key = iam.create_access_key(UserName="reader")["AccessKey"]
    iam.put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=json.dumps(ALLOWED))
    s3.create_bucket(Bucket="signed")
    for key in KEYS:
        s3.put_object(Bucket="signed", Key=key, Body=npy_bytes(ROWS))
    iam.close()
    s3.close()
    return {
        "key": access_key["AccessKeyId"],
        "secret": access_key["SecretAccessKey"],
        "client_kwargs": client_options(port),
    }


@pytest.fixture
def results(monkeypatch):
    """Record the result of each signed request; None if the client must send it."""
    recorded = []
    get = SignedGet.get

    def record(signed_get, arguments):
        recorded.append(get(signed_get, arguments))
        return recorded[-1]

    monkeypatch.setattr(SignedGet, "get", record)
    return recorded


def rows_of(url, options):
    with fb.from_files(url, storage_options=options).batch(500).feed("numpy") as feed:
        return np.concatenate([np.array(batch) for batch in feed])


@pytest.mark.parametrize("key", KEYS)
def test_signatures_are_accepted_for_any_key(verifying, results, key):
    assert (rows_of(f"s3://signed/{key}", verifying) == ROWS).all()
    assert len(results) > 1
    assert None not in results


def test_a_wrong_secret_is_refused(verifying):
    with pytest.raises(StoreError, match="access was denied"):
        rows_of("s3://signed/plain.npy", verifying | {"secret": "0123456789abcdef"})


def test_anonymous_requests_are_not_signed(bucket, results):
    url = bucket.put_npy("rows.npy", ROWS)
    options = {"anon": True, "client_kwargs": bucket.options["client_kwargs"]}
    assert (rows_of(url, options) == ROWS).all()
    assert None not in results


def test_requests_with_other_arguments_go_to_the_client(bucket, results):
    url = bucket.put_npy("rows.npy", ROWS)
    assert (rows_of(url, bucket.options | {"requester_pays": True}) == ROWS).all()
    assert set(results) == {None}


def test_after_a_redirect_all_requests_of_a_bucket_go_to_the_client(bucket, results):
    url = bucket.put_npy("rows.npy", ROWS)
    pipeline = fb.from_files(url, storage_options=bucket.options).batch(500)
    bucket.proxy.faults.append(refuse(301, "PermanentRedirect"))
    results.clear()
    with pipeline.feed("numpy") as feed:
        assert (np.concatenate([np.array(batch) for batch in feed]) == ROWS).all()
        assert None in results
        results.clear()
        assert sum(1 for _ in feed) == 6
    assert results == [None] * len(results)


@pytest.mark.parametrize("length", [{"Content-Length": str(10**12)}, {}], ids=["with a length", "without a length"])
@pytest.mark.parametrize("status", [200, 206, 503])
def test_an_endless_response_is_not_read_to_its_end(length, status):
    sent = []

    def endless(request, reply):
        headers = {name: value for name, value in reply.headers.items() if name != "Content-Length"} | length
        return Reply(status, headers, b"", pieces(sent)) if request.is_range else reply

    with ScriptedServer({"/bucket/a.npy": npy_bytes(ROWS)}, {"ETag": '"v1"'}, change=endless) as server:
        options = {"anon": True, "client_kwargs": {"endpoint_url": server.url, "region_name": "eu-west-1"}}
        with pytest.raises(StoreError, match=r"bytes instead of|wrong response|does not support byte ranges|too busy"):
            fb.from_files("s3://bucket/a.npy", storage_options=options, attempts=1)
    assert sum(sent) < 64 * 2**20  # the client closed the connection; socket buffers hold the first pieces


def pieces(sent):
    """Yield 256 MiB in pieces. Record the bytes that the server sends before the client closes the connection."""
    for _ in range(256):
        sent.append(2**20)
        yield bytes(2**20)
