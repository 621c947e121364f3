"""An HTTP server on loopback. A test can change its responses, also to invalid ones."""

import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Reply", "Request", "ScriptedServer", "empty_reply"]


@dataclass(frozen=True)
class Request:
    """A request: its number from 0, method, path and headers with lower-case names."""

    number: int
    method: str
    path: str
    headers: dict[str, str]

    @property
    def is_range(self) -> bool:
        return "range" in self.headers


@dataclass
class Reply:
    """A response. The server sends `pieces` instead of the body, if there are any, and then closes the connection."""

    status: int
    headers: dict[str, str]
    body: bytes
    pieces: Iterable[bytes] | None = None


@dataclass
class ScriptedServer:
    """Serves objects with byte ranges. `change` may replace a reply; if it returns None, the server sends no reply."""

    objects: dict[str, bytes]
    headers: dict[str, str] = field(default_factory=dict)  # of every reply, such as ETag
    change: Callable[[Request, Reply], Reply | None] = lambda request, reply: reply
    requests: list[Request] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "ScriptedServer":
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._start(self._accept)
        return self

    def __exit__(self, *_: Any) -> None:
        self._stopped.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def wait_until_closed(self, seconds: float) -> None:
        """Wait until the server is closed, but at most this long."""
        self._stopped.wait(seconds)

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        threading.Thread(target=target, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._start(self._serve, self._listening.accept()[0])

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as file:
            while line := file.readline():
                self._answer(connection, self._parse(line.decode(), file))

    def _parse(self, line: str, file: Any) -> Request:
        method, path, _ = line.split()
        lines = iter(lambda: file.readline().decode().strip(), "")
        headers = {name.lower(): value.strip() for name, _, value in (header.partition(":") for header in lines)}
        self.requests.append(Request(len(self.requests), method, path, headers))
        return self.requests[-1]

    def _answer(self, connection: socket.socket, request: Request) -> None:
        reply = self.change(request, self._reply(request))
        if reply is None:
            self._stopped.wait()
            raise OSError("closed")
        lines = [f"HTTP/1.1 {reply.status} Reply", *(f"{name}: {value}" for name, value in reply.headers.items())]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        if request.method == "HEAD":
            return
        for piece in [reply.body] if reply.pieces is None else reply.pieces:
            connection.sendall(piece)
        if reply.pieces is not None:
            raise OSError("closed")

    def _reply(self, request: Request) -> Reply:
        data = self.objects.get(request.path.partition("?")[0])
        if data is None:
            return empty_reply(404)
        if not request.is_range:
            return Reply(200, {"Content-Length": str(len(data)), **self.headers}, data)
        start, stop = (int(number) for number in request.headers["range"].removeprefix("bytes=").split("-"))
        body = data[start : stop + 1]
        content_range = f"bytes {start}-{start + len(body) - 1}/{len(data)}"
        return Reply(206, {"Content-Length": str(len(body)), "Content-Range": content_range, **self.headers}, body)


def empty_reply(status: int, **headers: str) -> Reply:
    """Return a response without a body."""
    return Reply(status, {"Content-Length": "0", **headers}, b"")
