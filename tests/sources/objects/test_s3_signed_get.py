"""Requests that we sign: a server that verifies them takes them, and what is no plain range is left to the client."""

import json

import boto3
import numpy as np
import pytest
from tests.sources.objects.conftest import client_options, npy_bytes, serving
from tests.sources.objects.faulty_proxy import refuse

import forebay as fb
from forebay.errors import StoreError
from forebay.sources.objects.s3_signed_get import SignedReads

ROWS = np.arange(3_000_000, dtype="i4").reshape(-1, 1000)  # 12 MB: two ranges
KEYS = ("plain.npy", "a b+c%2F~é$&'(),;=:@!.npy", "a//b/../c.npy")
ALLOWED = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


@pytest.fixture(scope="module")
def verifying():
    """A server that verifies signatures after the requests it takes to set it up, and the options to read by."""
    with serving(INITIAL_NO_AUTH_ACTION_COUNT=str(4 + len(KEYS))) as port:
        yield set_up(port)


def set_up(port):
    """A user who may read, and what there is to read; the options to read it by."""
    anybody = {"aws_access_key_id": "anybody", "aws_secret_access_key": "anything", **client_options(port)}
    iam, s3 = boto3.client("iam", **anybody), boto3.client("s3", **anybody)
    iam.create_user(UserName="reader")
    made = iam.create_access_key(UserName="reader")["AccessKey"]
    iam.put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=json.dumps(ALLOWED))
    s3.create_bucket(Bucket="signed")
    for key in KEYS:
        s3.put_object(Bucket="signed", Key=key, Body=npy_bytes(ROWS))
    iam.close()
    s3.close()
    return {"key": made["AccessKeyId"], "secret": made["SecretAccessKey"], "client_kwargs": client_options(port)}


@pytest.fixture
def answers(monkeypatch):
    """What became of each signed request: its bytes, or None where the client had to ask."""
    found = []
    get = SignedReads.get

    def told(reads, asked):
        found.append(get(reads, asked))
        return found[-1]

    monkeypatch.setattr(SignedReads, "get", told)
    return found


def rows_of(url, options):
    with fb.from_files(url, storage_options=options).batch(500).feed("numpy") as feed:
        return np.concatenate([np.array(batch) for batch in feed])


@pytest.mark.parametrize("key", KEYS)
def test_signatures_are_taken_whatever_the_key_is_called(verifying, answers, key):
    assert (rows_of(f"s3://signed/{key}", verifying) == ROWS).all()
    assert len(answers) > 1
    assert None not in answers


def test_a_wrong_secret_is_refused(verifying):
    with pytest.raises(StoreError, match="not allowed"):
        rows_of("s3://signed/plain.npy", verifying | {"secret": "0123456789abcdef"})


def test_anybody_reads_what_is_public_unsigned(bucket, answers):
    url = bucket.put_npy("rows.npy", ROWS)
    options = {"anon": True, "client_kwargs": bucket.options["client_kwargs"]}
    assert (rows_of(url, options) == ROWS).all()
    assert None not in answers


def test_a_setting_that_must_be_told_is_left_to_the_client(bucket, answers):
    url = bucket.put_npy("rows.npy", ROWS)
    assert (rows_of(url, bucket.options | {"requester_pays": True}) == ROWS).all()
    assert set(answers) == {None}


def test_an_answer_that_is_no_range_is_asked_for_by_the_client_from_then_on(bucket, answers):
    url = bucket.put_npy("rows.npy", ROWS)
    pipeline = fb.from_files(url, storage_options=bucket.options).batch(500)
    bucket.proxy.faults.append(refuse(301, "PermanentRedirect"))
    answers.clear()
    with pipeline.feed("numpy") as feed:
        assert (np.concatenate([np.array(batch) for batch in feed]) == ROWS).all()
        assert None in answers
        answers.clear()
        assert sum(1 for _ in feed) == 6
    assert answers == [None] * len(answers)
