"""HTTP requests follow redirects, are retried and time out. No error shows credentials."""

from dataclasses import replace

import pytest
from tests.sources.objects.conftest import npy_bytes
from tests.sources.objects.http_rows import ROWS, open_rows, read_all
from tests.sources.objects.scripted_server import ScriptedServer, empty_reply

from forebay.errors import SourceError, StoreError
from forebay.sources.objects import http, retry
from forebay.sources.open_paths import open_paths


@pytest.fixture
def short_timeouts(monkeypatch):
    monkeypatch.setattr(http, "_CONNECT_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(http, "_READ_TIMEOUT_SECONDS", 0.5)


def drip(server, seconds):
    """Make the server wait this long after every byte."""

    def pieces(body):
        for byte in body:
            yield bytes([byte])
            server.wait_until_closed(seconds)

    server.change = lambda request, reply: replace(reply, pieces=pieces(reply.body))


# Redirects and status codes


def test_a_redirect_is_followed(server):
    server.objects["/moved.npy"] = server.objects.pop("/a.npy")
    server.change = lambda request, reply: (
        empty_reply(302, Location="/moved.npy") if request.path == "/a.npy" else reply
    )
    assert (read_all(open_rows(server)) == ROWS).all()


@pytest.mark.parametrize("location", ["/a.npy", "file:///etc/passwd", "http://", "http://[", ""])
def test_an_invalid_or_endless_redirect_is_reported(server, location):
    server.change = lambda request, reply: empty_reply(302, Location=location)
    with pytest.raises(StoreError, match=r"cannot list http://127\.0\.0\.1"):
        open_rows(server, attempts=2)


def test_an_object_is_listed_by_a_get_request_if_the_server_rejects_head(server):
    server.change = lambda request, reply: empty_reply(403) if request.method == "HEAD" else reply
    assert (read_all(open_rows(server)) == ROWS).all()


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_request_to_a_busy_server_is_sent_again(server, status):
    source = open_rows(server)
    busy = iter([empty_reply(status)] * 2)
    server.change = lambda request, reply: next(busy, reply)
    assert (read_all(source) == ROWS).all()
    assert source.counters()["retries"] == 2


@pytest.mark.parametrize("status", [204, 205, 304, 400, 401, 403, 405, 410, 451, 501, 505, 599])
def test_any_other_status_is_an_error(server, status):
    source = open_rows(server, attempts=1)
    server.change = lambda request, reply: empty_reply(status)
    with pytest.raises(StoreError):
        read_all(source)


# Attempts and timeouts


@pytest.mark.parametrize("attempts", [1, 3, 6])
def test_a_listing_takes_as_many_attempts_as_the_user_asks_for(server, attempts, monkeypatch):
    monkeypatch.setattr(retry, "_MAX_PAUSE_SECONDS", 0.01)
    server.change = lambda request, reply: empty_reply(503)
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
def test_a_request_without_a_response_is_sent_again(server):
    source = open_rows(server)
    silent = iter([None])
    server.change = lambda request, reply: next(silent, reply)
    assert (read_all(source) == ROWS).all()
    assert source.counters()["retries"] == 1


@pytest.mark.usefixtures("short_timeouts")
def test_a_read_from_a_server_that_sends_one_byte_a_minute_raises_an_error(server):
    source = open_rows(server, attempts=2)
    drip(server, 60)
    with pytest.raises(StoreError, match="the store did not answer in time"):
        read_all(source)


def test_a_read_that_makes_too_little_progress_raises_an_error(server, monkeypatch):
    """Each byte arrives within the read timeout, but the store completes no request for a long time."""
    source = open_rows(server)
    monkeypatch.setattr(retry, "_STALL_SECONDS", 1.0)
    drip(server, 0.01)
    with pytest.raises(StoreError, match="the store has completed no request for 1 seconds"):
        read_all(source)


def test_timeouts_of_the_user_take_precedence():
    options = http.make_http_options({"client_kwargs": {"timeout": 5, "trust_env": True}, "ssl": False})
    assert options == {"client_kwargs": {"timeout": 5, "trust_env": True}, "ssl": False}


# Credentials and names


@pytest.mark.parametrize("status", [401, 404, 500])
def test_no_error_shows_the_credentials_of_a_url(server, status):
    server.change = lambda request, reply: empty_reply(status)
    url = server.url.replace("://", "://me:pass-word@") + "/a.npy?X-Amz-Signature=sig-nature&token=to-ken"
    with pytest.raises(StoreError) as caught:
        open_paths(url, attempts=1, storage_options={"headers": {"Authorization": "Bearer bear-er"}})
    error, shown = caught.value, []
    while error is not None:
        shown.append(f"{error!s} {error!r}")
        error = error.__cause__ or error.__context__
    assert not [secret for secret in ("pass-word", "sig-nature", "to-ken", "bear-er") if secret in " ".join(shown)]


def test_a_glob_is_refused_before_any_request(server):
    with pytest.raises(SourceError, match=r"/\*\.npy is a glob, but HTTP servers have no listing .* Pass a list"):
        open_rows(server, "/*.npy")
    assert not server.requests


def test_brackets_and_a_query_are_part_of_the_name():
    with ScriptedServer({"/%5B1%5D.npy": npy_bytes(ROWS)}, {"ETag": '"v1"'}) as server:
        assert (read_all(open_rows(server, "/[1].npy?part=*")) == ROWS).all()
