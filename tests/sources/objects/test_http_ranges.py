"""Rows over HTTP contain only the requested bytes, and every response has the right length."""

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.objects.conftest import npy_bytes
from tests.sources.objects.http_rows import ROWS, change_ranges, data_requests, open_rows, read_all
from tests.sources.objects.scripted_server import Reply

from forebay.errors import SourceError, StoreError
from forebay.sources.objects.range_backends import parse_content_range
from forebay.testing.sources import assert_rows

# Ranges


def test_a_response_with_another_range_is_requested_again(server):
    source = open_rows(server)
    headers = {"Content-Length": "120128", "Content-Range": "bytes 9-120136/120128", "ETag": '"v1"'}
    wrong = iter([Reply(206, headers, bytes(120128))])
    server.change = lambda request, reply: next(wrong, reply)
    assert (read_all(source) == ROWS).all()
    assert source.counters()["retries"] == 1


def test_a_server_that_always_sends_another_range_is_reported_with_both_ranges(server):
    source = open_rows(server, attempts=2)
    change_ranges(server, content_range="bytes 7-120134/120128")
    with pytest.raises(StoreError, match="the response has bytes 7 to 120135 instead of bytes 0 to 120128"):
        read_all(source)
    assert len(data_requests(server)) == 2


@pytest.mark.parametrize("header", [None, "bytes */120128", "rows 0-9/10", "bytes 0-1/2, bytes 3-4/5"])
def test_a_partial_response_without_its_range_is_refused(server, header):
    source = open_rows(server)
    change_ranges(server, content_range=header)
    with pytest.raises(StoreError, match=r"with status 206 and no valid Content-Range"):
        read_all(source)


def test_a_large_object_of_a_server_without_ranges_is_not_read_to_its_end(server):
    sent_nbytes = []

    def pieces():
        for _ in range(256):
            sent_nbytes.append(2**20)
            yield bytes(2**20)

    server.change = lambda request, reply: Reply(200, {"Content-Length": str(10**12), "ETag": '"v1"'}, b"", pieces())
    with pytest.raises(StoreError, match=r"with status 200 .* The server does not support byte ranges\. Download"):
        open_rows(server)
    assert sum(sent_nbytes) < 64 * 2**20  # the client closed the connection; socket buffers hold the first pieces


def test_a_whole_small_object_is_accepted_from_a_server_without_ranges(server):
    server.objects["/small.npy"] = npy_bytes(ROWS[:20])
    server.change = lambda request, reply: Reply(
        200, {"Content-Length": str(len(server.objects["/small.npy"])), "ETag": '"v1"'}, server.objects["/small.npy"]
    )
    assert_rows(open_rows(server, "/small.npy"), slice(0, 20), [ROWS[:20]])


def test_a_compressed_response_is_refused(server):
    source = open_rows(server)
    change_ranges(server, content_encoding="deflate")
    with pytest.raises(StoreError, match="Content-Encoding 'deflate'"):
        read_all(source)


@given(st.integers(0, 10**18), st.integers(1, 10**9), st.none() | st.integers(0, 10**18))
def test_a_content_range_is_parsed(start, nbytes, total):
    text = f"bytes {start}-{start + nbytes - 1}/{'*' if total is None else total}"
    assert parse_content_range(text) == (start, start + nbytes, total)


@given(st.text())
def test_a_text_that_is_no_content_range_is_parsed_as_none(text):
    assert parse_content_range(text) is None


# Lengths


def test_a_connection_that_closes_early_is_retried(server):
    source = open_rows(server)
    faults = iter([True])
    server.change = lambda request, reply: replace(reply, pieces=[reply.body[:999]]) if next(faults, False) else reply
    assert (read_all(source) == ROWS).all()
    assert source.counters()["retries"] == 1


@pytest.mark.parametrize("length", ["5", "120127", "120129", "99999999999"])
def test_another_content_length_is_refused_before_the_body_is_read(server, length):
    source = open_rows(server, attempts=2)
    change_ranges(server, content_length=length)
    with pytest.raises(StoreError, match="every attempt ended with an incomplete or wrong response"):
        read_all(source)


def test_bytes_after_the_content_length_are_ignored(server):
    source = open_rows(server)
    server.change = lambda request, reply: replace(reply, pieces=[reply.body, b"and more"])
    assert (read_all(source) == ROWS).all()


def test_a_body_without_an_end_is_refused(server):
    source = open_rows(server, attempts=1)

    def endless(request, reply):
        headers = {name: value for name, value in reply.headers.items() if name != "Content-Length"}
        return replace(reply, headers=headers, pieces=iter(lambda: bytes(65536), b""))

    server.change = endless
    with pytest.raises(StoreError, match="the response has more than 120128 bytes"):
        read_all(source)


@pytest.mark.parametrize("size", ["", "-5", "1e9", "99999999999999999999999"])
def test_a_listing_without_a_valid_length_is_refused(server, size):
    server.change = lambda request, reply: replace(reply, headers=reply.headers | {"Content-Length": size})
    with pytest.raises(SourceError):
        open_rows(server, attempts=1)


def test_an_object_of_absurd_length_is_refused(server):
    """The table of blocks grows with the length of an object, so Forebay limits the number of blocks."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**16, 3)})
    body = header.getvalue().ljust(16384, b"\0")

    def claim(request, reply):
        headers = {"Content-Range": f"bytes 0-16383/{10**18}", "Content-Length": "16384", "ETag": '"v1"'}
        return Reply(206, headers, body) if request.is_range else Reply(200, {"Content-Length": str(10**18)}, b"")

    server.change = claim
    with pytest.raises(SourceError, match=r"10000000000000000 rows in \d+ blocks, .* with 1000000000000000000 bytes"):
        open_rows(server)
