"""An HTTP server on loopback whose responses have seeded faults."""

import http.server
import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

__all__ = ["FAULTS", "VERSION_STYLES", "FaultyServer", "ServerPlan"]

SILENCE_SECONDS = 1.5  # longer than the timeout of the client
STATUSES = (301, 400, 401, 403, 404, 408, 410, 412, 416, 418, 425, 429, 500, 502, 503, 504, 599)
# Faults of one response, which `_Handler` makes: "whole" ignores the requested range, "shifted" sends another range.
FAULTS = (
    "status",
    "stall",
    "silence",
    "cut",
    "reset",
    "short",
    "long",
    "shifted",
    "whole",
    "chunked",
    "garbage",
    "header",
)
VERSION_STYLES = ("strong ETag", "weak ETag", "Last-Modified", "none")
_BAD_HEADERS = (
    {"Content-Length": "-1"},
    {"Content-Length": "abc"},
    {"Content-Length": "9" * 19},
    {"Content-Range": "bytes 0-1/99"},
    {"Content-Range": "bytes x-y/z"},
    {"ETag": '"other"'},
    {"Content-Encoding": "gzip"},
    {"X-Long": "a" * 100_000},
)


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """The objects, the versions and the faults of the server."""

    objects: Mapping[str, tuple[bytes, bytes]]  # path -> content of the first and of the second version
    version_style: str
    faults: Mapping[int, str]  # number of a request -> fault
    change_after: int  # requests after which the objects have their second version
    seed: str
    ignores_conditions: bool = False  # the server ignores If-Match


@dataclass
class FaultyServer:
    """Serves until it is closed. The n-th request has the n-th fault of the plan, if there is one."""

    plan: ServerPlan
    requests: int = 0
    # Path -> whether the client saw the second version in its last request without a range before its first range
    # request. These early requests are its listing.
    listed: dict[str, bool] = field(default_factory=dict)
    _ranged: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> "FaultyServer":
        owner = self

        class Handler(_Handler):
            server_state = owner

        self._server = _ThreadingServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def next_request(self) -> tuple[int, str]:
        """Return the number of a request and its fault."""
        with self._lock:
            self.requests += 1
            return self.requests, self.plan.faults.get(self.requests, "")

    def note_version(self, path: str, *, is_new: bool, is_range: bool) -> None:
        """Note the version that the client last saw before its first range request for this object."""
        with self._lock:
            if is_range:
                self._ranged.add(path)
            elif path not in self._ranged:
                self.listed[path] = is_new


class _ThreadingServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing about clients that close a connection."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: FaultyServer

    def log_message(self, *arguments: Any) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self._respond(has_body=False)

    def do_GET(self) -> None:
        self._respond(has_body=True)

    def _respond(self, *, has_body: bool) -> None:
        plan = self.server_state.plan
        number, fault = self.server_state.next_request()
        rng = Random(f"{plan.seed} {number}")
        is_new = number > plan.change_after
        versions = plan.objects.get(self.path.partition("?")[0])
        if versions is None:
            self._send(404, {}, b"", has_body=has_body)
        elif fault == "status":
            status = rng.choice(STATUSES)
            extra = {"Location": self.path} if status == 301 else {"Retry-After": "0"}
            self._send(status, extra, b"fault", has_body=has_body)
        elif fault == "garbage":
            self.wfile.write(rng.randbytes(200))
            self.close_connection = True
        elif fault == "reset":
            self._reset()
        else:
            self.server_state.note_version(self.path, is_new=is_new, is_range="Range" in self.headers)
            time.sleep({"stall": rng.uniform(0.02, 0.2), "silence": SILENCE_SECONDS}.get(fault, 0))
            self._send_object(versions[is_new], _Version(plan.version_style, is_new), fault, rng, has_body)

    def _send_object(self, data: bytes, version: "_Version", fault: str, rng: Random, has_body: bool) -> None:
        headers = version.headers()
        condition = self.headers.get("If-Match")
        if condition and condition != headers.get("ETag") and not self.server_state.plan.ignores_conditions:
            self._send(412, headers, b"", has_body=has_body)
            return
        start, stop, status = self._find_range(len(data), fault)
        if fault == "shifted":
            shift = rng.randint(1, max(1, start)) if start else 0
            start, stop = start - shift, stop - shift
        body = data[start:stop]
        if status == 206:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        body = {"short": body[: len(body) // 2], "long": body + b"more"}.get(fault, body)
        if fault == "header":
            headers |= rng.choice(_BAD_HEADERS)
        self._send(status, headers, body, has_body=has_body, fault=fault)

    def _find_range(self, nbytes: int, fault: str) -> tuple[int, int, int]:
        """Return start, stop and status of the response."""
        requested = self.headers.get("Range")
        if not requested or fault == "whole":
            return 0, nbytes, 200
        first, _, last = requested.removeprefix("bytes=").partition("-")
        return int(first), min(nbytes, int(last or nbytes - 1) + 1), 206

    def _send(self, status: int, headers: Mapping[str, str], body: bytes, *, has_body: bool, fault: str = "") -> None:
        self.send_response(status)
        is_chunked = fault == "chunked" and has_body
        length = {} if is_chunked or "Content-Length" in headers else {"Content-Length": str(len(body))}
        chunked = {"Transfer-Encoding": "chunked"} if is_chunked else {}
        for name, value in {"Accept-Ranges": "bytes", **headers, **length, **chunked}.items():
            self.send_header(name, value)
        self.end_headers()
        if not has_body:
            return
        if is_chunked:
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        self.wfile.write(body[: len(body) // 2] if fault == "cut" else body)
        self.close_connection = self.close_connection or fault in ("cut", "header")

    def _reset(self) -> None:
        """Close the connection with a reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True


@dataclass(frozen=True, slots=True)
class _Version:
    style: str
    is_new: bool

    def headers(self) -> dict[str, str]:
        number = 1 + self.is_new
        return {
            "strong ETag": {"ETag": f'"v{number}"'},
            "weak ETag": {"ETag": f'W/"v{number}"'},
            "Last-Modified": {"Last-Modified": f"Mon, 0{number} Jan 2024 00:00:00 GMT"},
            "none": {},
        }[self.style].copy()
