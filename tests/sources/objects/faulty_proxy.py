"""An HTTP proxy on loopback that adds latency and injects faults into responses."""

import asyncio
import re
import socket
import struct
import threading
from collections import deque
from dataclasses import dataclass

__all__ = ["CUT", "FLIP", "RESET", "SHORT", "STALL", "FaultyProxy", "refuse"]


@dataclass(frozen=True)
class Fault:
    """A fault of one response."""

    kind: str
    status: int = 0
    code: str = ""


RESET = Fault("reset")  # the proxy resets the connection in the middle of the body
CUT = Fault("cut")  # the proxy closes the connection in the middle of the body
SHORT = Fault("short")  # the response is complete but shorter than requested
STALL = Fault("stall")  # no response arrives before the timeout
FLIP = Fault("flip")  # one byte of the body is changed


def refuse(status, code):
    """Return a fault that replaces the response with an S3 error."""
    return Fault("refuse", status, code)


class FaultyProxy:
    """Forwards requests to a server until it is closed.

    A range request takes the next fault from `faults`. Any other request takes the next fault from `refusals`.
    """

    def __init__(self, upstream_port, *, latency_seconds=0.0):
        self.faults, self.refusals = deque(), deque()
        self.ranges = []  # each requested range
        self._upstream_port, self._latency_seconds = upstream_port, latency_seconds
        self._loop, self._connections = asyncio.new_event_loop(), {}
        self._server = self._loop.run_until_complete(asyncio.start_server(self._connect, "127.0.0.1", 0, limit=1 << 20))
        self.port = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self):
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self):
        # Close the server last, because closing loses connections that it is accepting.
        for listening in self._server.sockets:
            self._loop.remove_reader(listening.fileno())
        quiet = 0
        while quiet < 3:  # an accepted connection appears after one loop iteration and closes after another
            await asyncio.sleep(0)
            for task, writer in list(self._connections.items()):
                writer.close()  # a task that is cancelled before its start closes nothing
                task.cancel()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            if left:
                await asyncio.wait(left)
            quiet = 0 if left else quiet + 1
        self._server.close()

    def _connect(self, reader, writer):
        task = self._loop.create_task(self._serve(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader, writer):
        try:
            while await self._serve_request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _serve_request(self, reader, writer):
        """Serve one request. Return False when the connection has ended."""
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(_length(head))
        fault = self._fault(head)
        await asyncio.sleep(60 if fault is STALL else self._latency_seconds)
        if fault is not None and fault.kind == "refuse":
            writer.write(_error_response(fault, with_body=not head.startswith(b"HEAD")))
            return True
        upstream, back = await asyncio.open_connection("127.0.0.1", self._upstream_port, limit=1 << 22)
        try:
            back.write(head + body)
            response = await upstream.readuntil(b"\r\n\r\n")
            has_body = not head.startswith(b"HEAD") and b" 304 " not in response and b" 204 " not in response
            return await _forward(upstream, writer, response, _length(response) if has_body else 0, fault)
        finally:
            back.close()

    def _fault(self, head):
        match = re.search(rb"(?i)\r\nrange: bytes=(\d+)-(\d+)", head)
        if match is None:
            return self.refusals.popleft() if self.refusals else None
        self.ranges.append((int(match[1]), int(match[2]) + 1))
        return self.faults.popleft() if self.faults else None


async def _forward(upstream, writer, response, nbytes, fault):
    if fault is None:
        writer.write(response)
        while nbytes:
            data = await upstream.read(min(nbytes, 1 << 20))
            writer.write(data)
            nbytes -= len(data)
            await writer.drain()
        return True
    body = await upstream.readexactly(nbytes)
    if fault.kind == "short":
        body = body[: nbytes // 2]
        response = re.sub(rb"(?i)(content-length: )\d+", rb"\g<1>%d" % len(body), response)
    if fault.kind == "flip":
        body = bytes([body[0] ^ 1]) + body[1:]
    if fault.kind in ("cut", "reset"):
        body = body[: nbytes // 2]
    writer.write(response + body)
    await writer.drain()
    if fault.kind == "reset":
        linger = struct.pack("ii", 1, 0)  # close() then resets the connection
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    return fault.kind not in ("cut", "reset")


def _error_response(fault, *, with_body):
    body = f"<?xml version='1.0'?><Error><Code>{fault.code}</Code><Message>{fault.code}, really</Message></Error>"
    head = f"HTTP/1.1 {fault.status} Refused\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + (body if with_body else "")).encode()


def _length(head):
    match = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return int(match[1]) if match else 0
