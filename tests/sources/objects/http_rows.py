"""Helpers of the HTTP tests: rows on a scripted server, requests and changed replies."""

from dataclasses import replace

import numpy as np

from forebay.sources.open_paths import open_paths

ROWS = np.arange(30_000, dtype="f4").reshape(-1, 3)  # 120 KB, because the first request reads 16 KiB for the header


def open_rows(server, path="/a.npy", **options):
    return open_paths(server.url + path, **options)


def read_all(source):
    out = [np.empty((len(ROWS), 3), "f4")]
    source.gather(slice(0, len(ROWS)), out)
    return out[0]


def data_requests(server):
    """Return the requests for rows, which follow the request for the header."""
    return [request for request in server.requests if request.is_range][1:]


def change_ranges(server, **changes):
    """Change these headers in the replies to all later range requests; None removes a header."""
    headers = {name.replace("_", "-").title(): value for name, value in changes.items()}

    def change(request, reply):
        if not request.is_range:
            return reply
        merged = {name.title(): value for name, value in reply.headers.items()} | headers
        return replace(reply, headers={name: value for name, value in merged.items() if value is not None})

    server.change = change
