"""A proxy on loopback that passes HTTP on, late, and spoils the answers it is told to spoil."""

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
    """What happens to one answer."""

    kind: str
    status: int = 0
    code: str = ""


RESET = Fault("reset")  # the connection is reset in the middle of the body
CUT = Fault("cut")  # it is closed there, and fewer bytes come than were announced
SHORT = Fault("short")  # fewer bytes are announced than were asked for, and come
STALL = Fault("stall")  # nothing comes for longer than anybody should wait
FLIP = Fault("flip")  # one byte comes out different


def refuse(status, code):
    """An error in S3's own words, in place of the answer."""
    return Fault("refuse", status, code)


class FaultyProxy:
    """Serves until it is closed; `faults` are spent one by one on requests for ranges, `refusals` on all others."""

    def __init__(self, upstream_port, *, latency_seconds=0.0):
        self.faults, self.refusals = deque(), deque()
        self.ranges = []  # each range asked for
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
        for listening in self._server.sockets:
            self._loop.remove_reader(listening.fileno())  # the server is closed last: it loses what it is accepting
        quiet = 0
        while quiet < 3:  # a connection that was accepted last is made in the next turn, and closed in another
            await asyncio.sleep(0)
            for task, writer in list(self._connections.items()):
                writer.close()  # a task that is cancelled before it has begun closes nothing
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
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader, writer):
        """One request; False when the connection is over."""
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(_length(head))
        fault = self._fault(head)
        await asyncio.sleep(60 if fault is STALL else self._latency_seconds)
        if fault is not None and fault.kind == "refuse":
            writer.write(_refusal(fault, with_body=not head.startswith(b"HEAD")))
            return True
        upstream, back = await asyncio.open_connection("127.0.0.1", self._upstream_port, limit=1 << 22)
        try:
            back.write(head + body)
            answer = await upstream.readuntil(b"\r\n\r\n")
            has_body = not head.startswith(b"HEAD") and b" 304 " not in answer and b" 204 " not in answer
            return await _pass_on(upstream, writer, answer, _length(answer) if has_body else 0, fault)
        finally:
            back.close()

    def _fault(self, head):
        found = re.search(rb"(?i)\r\nrange: bytes=(\d+)-(\d+)", head)
        if found is None:
            return self.refusals.popleft() if self.refusals else None
        self.ranges.append((int(found[1]), int(found[2]) + 1))
        return self.faults.popleft() if self.faults else None


async def _pass_on(upstream, writer, answer, nbytes, fault):
    if fault is None:
        writer.write(answer)
        while nbytes:
            data = await upstream.read(min(nbytes, 1 << 20))
            writer.write(data)
            nbytes -= len(data)
            await writer.drain()
        return True
    body = await upstream.readexactly(nbytes)
    if fault.kind == "short":
        body = body[: nbytes // 2]
        answer = re.sub(rb"(?i)(content-length: )\d+", rb"\g<1>%d" % len(body), answer)
    if fault.kind == "flip":
        body = bytes([body[0] ^ 1]) + body[1:]
    if fault.kind in ("cut", "reset"):
        body = body[: nbytes // 2]
    writer.write(answer + body)
    await writer.drain()
    if fault.kind == "reset":
        linger = struct.pack("ii", 1, 0)  # closing resets the connection
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    return fault.kind not in ("cut", "reset")


def _refusal(fault, *, with_body):
    told = f"<?xml version='1.0'?><Error><Code>{fault.code}</Code><Message>{fault.code}, really</Message></Error>"
    head = f"HTTP/1.1 {fault.status} Refused\r\nContent-Type: application/xml\r\nContent-Length: {len(told)}\r\n\r\n"
    return (head + (told if with_body else "")).encode()


def _length(head):
    found = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return int(found[1]) if found else 0
