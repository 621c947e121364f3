"""Rows over HTTP contain only the requested bytes of the listed version, and every wait for a server ends."""

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.objects.conftest import npy_bytes
from tests.sources.objects.scripted_server import Reply, ScriptedServer

from forebay.errors import SourceChangedError, SourceError, StoreError
from forebay.sources.files.many_files import open_files
from forebay.sources.objects import http, retry
from forebay.sources.objects.range_backends import parse_content_range
from forebay.testing.sources import assert_rows

ROWS = np.arange(30_000, dtype="f4").reshape(-1, 3)  # 120 KB, because the first request reads 16 KiB for the header
MONDAY, TUESDAY = "Mon, 01 Jan 2024 00:00:00 GMT", "Tue, 02 Jan 2024 00:00:00 GMT"


@pytest.fixture
def server():
    with ScriptedServer({"/a.npy": npy_bytes(ROWS)}, {"ETag": '"v1"'}) as server:
        yield server


@pytest.fixture
def short_timeouts(monkeypatch):
    monkeypatch.setattr(http, "_CONNECT_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(http, "_READ_TIMEOUT_SECONDS", 0.5)


def open_rows(server, path="/a.npy", **options):
    return open_files(server.url + path, **options)


def read_all(source):
    out = [np.empty((len(ROWS), 3), "f4")]
    source.gather(slice(0, len(ROWS)), out)
    return out[0]


def data_requests(server):
    """Requests for rows, which follow the one for the header."""
    return [request for request in server.requests if request.is_range][1:]


def change_ranges(server, **changes):
    """Change these headers in the replies to all later range requests; None removes a header."""
    headers = {name.replace("_", "-"): value for name, value in changes.items()}

    def change(request, reply):
        if request.is_range:
            merged = {name.title(): value for name, value in reply.headers.items()} | {
                name.title(): value for name, value in headers.items()
            }
            return replace(reply, headers={name: value for name, value in merged.items() if value is not None})
        return reply

    server.change = change


# Versions


@pytest.mark.parametrize(
    ("listed", "later"),
    [
        ({"ETag": '"v1"'}, {"etag": '"v2"'}),
        ({"ETag": 'W/"v1"'}, {"etag": 'W/"v2"'}),
        ({"ETag": '"v1"'}, {"etag": 'W/"v1"'}),
        ({"Last-Modified": MONDAY}, {"last_modified": TUESDAY}),
        ({"ETag": '"v1"', "Last-Modified": MONDAY}, {"etag": '"v2"'}),
    ],
    ids=str,
)
def test_a_response_with_another_version_is_refused_even_if_the_server_ignores_conditional_headers(
    server, listed, later
):
    server.headers = listed
    source = open_rows(server)
    change_ranges(server, **later)
    with pytest.raises(SourceChangedError, match=r"a\.npy was replaced .* its version was .* and is now"):
        read_all(source)


@pytest.mark.parametrize("headers", [{}, {"ETag": '"v"'}, {"ETag": 'W/"v"'}, {"Last-Modified": MONDAY}], ids=str)
def test_rows_are_read_whatever_version_header_the_server_sends(server, headers):
    server.headers = headers
    assert (read_all(open_rows(server)) == ROWS).all()


def test_a_response_without_the_listed_version_is_accepted_if_the_listing_is_unchanged(server):
    source = open_rows(server)
    change_ranges(server, etag=None)
    assert (read_all(source) == ROWS).all()


def test_a_response_without_the_listed_version_is_refused_if_the_listing_has_changed(server):
    source = open_rows(server)
    server.headers = {"ETag": '"v2"'}
    change_ranges(server, etag=None)
    with pytest.raises(SourceChangedError, match='its version was "v1" and is now "v2"'):
        read_all(source)


def test_another_length_of_the_object_is_refused(server):
    source = open_rows(server)
    server.objects["/a.npy"] += b"more"
    with pytest.raises(SourceChangedError, match=r"it had 120128 bytes and has 120132 now"):
        read_all(source)


def test_an_object_that_became_shorter_is_refused(server):
    source = open_rows(server)
    server.change = lambda request, reply: Reply(416, {"Content-Length": "0"}, b"")
    with pytest.raises(SourceChangedError, match=r"a\.npy was replaced or deleted"):
        read_all(source)


# Ranges


def test_a_response_with_another_range_is_requested_again(server):
    source = open_rows(server)
    wrong = iter(
        [
            Reply(
                206,
                {"Content-Length": "120128", "Content-Range": "bytes 9-120136/120128", "ETag": '"v1"'},
                bytes(120128),
            )
        ]
    )
    server.change = lambda request, reply: next(wrong, reply)
    assert (read_all(source) == ROWS).all()
    assert source.counters()["retries"] == 1


def test_a_server_that_always_sends_another_range_is_reported_with_both_ranges(server):
    source = open_rows(server, attempts=2)
    change_ranges(server, content_range="bytes 7-120134/120128")
    with pytest.raises(StoreError, match="the response has bytes 7 to 120135 instead of bytes 0 to 120128"):
        read_all(source)
    assert len(data_requests(server)) == 2


def test_answers_in_another_order_are_refused(server):
    """The server answers each request with the reply to the request before it."""
    server.objects["/b.npy"] = npy_bytes(-ROWS)
    replies = []

    def record(request, reply):
        replies.append(replace(reply, headers=reply.headers | {"ETag": f'"{request.path}"'}))
        return replies[-1]

    server.change = record
    source = open_files([f"{server.url}/a.npy", f"{server.url}/b.npy"], connections=1)
    server.change = lambda request, reply: (record(request, reply), replies[-2])[1]
    with pytest.raises(SourceChangedError):
        source.gather(slice(0, 2 * len(ROWS)), [np.empty((2 * len(ROWS), 3), "f4")])


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
    with pytest.raises(StoreError, match=r"with status 200 .* It does not support byte ranges\. Download"):
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


# Redirects and status codes


def test_a_redirect_is_followed(server):
    server.objects["/moved.npy"] = server.objects.pop("/a.npy")
    server.change = lambda request, reply: (
        Reply(302, {"Location": "/moved.npy", "Content-Length": "0"}, b"") if request.path == "/a.npy" else reply
    )
    assert (read_all(open_rows(server)) == ROWS).all()


def test_a_redirect_to_another_version_is_refused(server):
    source = open_rows(server)
    server.objects["/b.npy"] = npy_bytes(-ROWS)

    def redirect(request, reply):
        if request.path == "/a.npy":
            return Reply(302, {"Location": "/b.npy", "Content-Length": "0"}, b"")
        return replace(reply, headers=reply.headers | {"ETag": '"v2"'})

    server.change = redirect
    with pytest.raises(SourceChangedError, match='its version was "v1" and is now "v2"'):
        read_all(source)


@pytest.mark.parametrize("location", ["/a.npy", "file:///etc/passwd", "http://", "http://[", ""])
def test_a_redirect_that_leads_nowhere_is_reported(server, location):
    server.change = lambda request, reply: Reply(302, {"Location": location, "Content-Length": "0"}, b"")
    with pytest.raises(StoreError, match=r"cannot list http://127\.0\.0\.1"):
        open_rows(server, attempts=2)


def test_an_object_is_listed_by_a_get_request_if_the_server_rejects_head(server):
    server.change = lambda request, reply: (
        Reply(403, {"Content-Length": "0"}, b"") if request.method == "HEAD" else reply
    )
    assert (read_all(open_rows(server)) == ROWS).all()


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again(server, status):
    source = open_rows(server)
    busy = iter([Reply(status, {"Content-Length": "0"}, b"")] * 2)
    server.change = lambda request, reply: next(busy, reply)
    assert (read_all(source) == ROWS).all()
    assert source.counters()["retries"] == 2


@pytest.mark.parametrize("status", [204, 205, 304, 400, 401, 403, 405, 410, 451, 501, 505, 599])
def test_any_other_status_is_an_error(server, status):
    source = open_rows(server, attempts=1)
    server.change = lambda request, reply: Reply(status, {"Content-Length": "0"}, b"")
    with pytest.raises(StoreError):
        read_all(source)


# Attempts and timeouts


@pytest.mark.parametrize("attempts", [1, 3, 6])
def test_a_listing_takes_as_many_attempts_as_the_user_asks_for(server, attempts, monkeypatch):
    monkeypatch.setattr(retry, "_MAX_PAUSE_SECONDS", 0.01)
    server.change = lambda request, reply: Reply(503, {"Content-Length": "0"}, b"")
    with pytest.raises(StoreError, match="the store is too busy"):
        open_rows(server, attempts=attempts)
    assert [request.method for request in server.requests] == ["HEAD", "GET"] * attempts


@pytest.mark.usefixtures("short_timeouts")
def test_a_listing_ends_after_all_attempts_if_the_server_is_silent(server):
    server.change = lambda request, reply: None
    with pytest.raises(StoreError, match="the store did not answer in time"):
        open_rows(server, attempts=2)
    assert len(server.requests) == 2


@pytest.mark.usefixtures("short_timeouts")
def test_a_server_that_falls_silent_is_asked_again(server):
    source = open_rows(server)
    silent = iter([None])
    server.change = lambda request, reply: next(silent, reply)
    assert (read_all(source) == ROWS).all()
    assert source.counters()["retries"] == 1


@pytest.mark.usefixtures("short_timeouts")
def test_a_server_that_sends_a_byte_a_minute_is_given_up(server):
    source = open_rows(server, attempts=2)

    def drip(body):
        for byte in body:
            yield bytes([byte])
            server.wait_until_closed(60)

    server.change = lambda request, reply: replace(reply, pieces=drip(reply.body))
    with pytest.raises(StoreError, match="the store did not answer in time"):
        read_all(source)


def test_a_server_that_sends_bytes_just_in_time_is_given_up(server, monkeypatch):
    """No byte exceeds the read timeout. Forebay gives up because the store completes no request for a long time."""
    source = open_rows(server)
    monkeypatch.setattr(retry, "_STALL_SECONDS", 1.0)

    def drip(body):
        for byte in body:
            yield bytes([byte])
            server.wait_until_closed(0.01)

    server.change = lambda request, reply: replace(reply, pieces=drip(reply.body))
    with pytest.raises(StoreError, match="the store has completed no request for 1 seconds"):
        read_all(source)


def test_timeouts_of_the_user_take_precedence():
    options = http.make_http_options({"client_kwargs": {"timeout": 5, "trust_env": True}, "ssl": False})
    assert options == {"client_kwargs": {"timeout": 5, "trust_env": True}, "ssl": False}


# Credentials


@pytest.mark.parametrize("status", [401, 404, 500])
def test_no_error_shows_the_credentials_of_a_url(server, status):
    server.change = lambda request, reply: Reply(status, {"Content-Length": "0"}, b"")
    url = server.url.replace("://", "://me:pass-word@") + "/a.npy?X-Amz-Signature=sig-nature&token=to-ken"
    with pytest.raises(StoreError) as caught:
        open_files(url, attempts=1, storage_options={"headers": {"Authorization": "Bearer bear-er"}})
    error, shown = caught.value, []
    while error is not None:
        shown.append(f"{error!s} {error!r}")
        error = error.__cause__ or error.__context__
    assert not [secret for secret in ("pass-word", "sig-nature", "to-ken", "bear-er") if secret in " ".join(shown)]


# Names of objects


def test_a_glob_is_refused_before_any_request(server):
    with pytest.raises(SourceError, match=r"/\*\.npy is a glob, but HTTP servers have no listing .* Pass a list"):
        open_rows(server, "/*.npy")
    assert not server.requests


def test_brackets_and_a_query_are_part_of_the_name():
    with ScriptedServer({"/%5B1%5D.npy": npy_bytes(ROWS)}, {"ETag": '"v1"'}) as server:
        assert (read_all(open_rows(server, "/[1].npy?part=*")) == ROWS).all()
