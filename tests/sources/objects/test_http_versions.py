"""Rows over HTTP are rows of the listed version of an object."""

from dataclasses import replace

import numpy as np
import pytest
from tests.sources.objects.conftest import npy_bytes
from tests.sources.objects.http_rows import ROWS, change_ranges, open_rows, read_all
from tests.sources.objects.scripted_server import empty_reply

from forebay.errors import SourceChangedError
from forebay.sources.open_paths import open_paths

MONDAY, TUESDAY = "Mon, 01 Jan 2024 00:00:00 GMT", "Tue, 02 Jan 2024 00:00:00 GMT"


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
    server.change = lambda request, reply: empty_reply(416)
    with pytest.raises(SourceChangedError, match=r"a\.npy was replaced or deleted"):
        read_all(source)


def test_responses_in_another_order_are_refused(server):
    """The server answers each request with the reply to the request before it."""
    server.objects["/b.npy"] = npy_bytes(-ROWS)
    replies = []

    def record(request, reply):
        replies.append(replace(reply, headers=reply.headers | {"ETag": f'"{request.path}"'}))
        return replies[-1]

    server.change = record
    source = open_paths([f"{server.url}/a.npy", f"{server.url}/b.npy"], connections=1)
    server.change = lambda request, reply: (record(request, reply), replies[-2])[1]
    with pytest.raises(SourceChangedError):
        source.gather(slice(0, 2 * len(ROWS)), [np.empty((2 * len(ROWS), 3), "f4")])


def test_a_redirect_to_another_version_is_refused(server):
    source = open_rows(server)
    server.objects["/b.npy"] = npy_bytes(-ROWS)

    def redirect(request, reply):
        if request.path == "/a.npy":
            return empty_reply(302, Location="/b.npy")
        return replace(reply, headers=reply.headers | {"ETag": '"v2"'})

    server.change = redirect
    with pytest.raises(SourceChangedError, match='its version was "v1" and is now "v2"'):
        read_all(source)
