"""A feed of S3 objects beside parallel ranged downloads with the same clients: moto on loopback, 5 ms added.

    python benchmarks/s3_loopback.py [--mib 512] [--turns 5] [--rate 1000] [--bulk moto] [--json FILE]

The server and the proxy that adds the latency run in processes of their own. Ranges are sent by the proxy itself, from
files by the kernel, since moto takes longer over them than any client; with `--bulk moto` it sends them all the same.
The downloads ask for the same ranges, with s3fs's client on its event loop, with botocore's in threads, and in threads
with the requests that the feed itself sends, and throw the bytes away; the best of all is the ceiling. Turns alternate.
Without `--rate` that is what the CPU has left for a client which does nothing with what it is sent; with it the server
has a ceiling of its own, as many megabytes a second over all its connections, as behind any network.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import s3fs
from fsspec.asyn import sync

import forebay as fb
from forebay.sources.objects.s3 import blocking_client
from forebay.sources.objects.s3_signed_get import SignedReads

LATENCY_SECONDS = 0.005
CONCURRENCIES = (8, 16, 32)
RANGE_NBYTES = 8 << 20
EPOCHS = 8  # by the feed, which has begun to read one more when the last of them ends
OBJECT_ROWS, ROW_SHAPE = 2048, (64, 64, 3)
BUCKET = f"bucket-{os.getpid()}"
SECRETS = {"key": "S3RVER", "secret": "S3RVER"}
PACED_NBYTES = 256 << 10  # sent at a time, where there is a rate
WORTH_SLEEPING = 0.002  # seconds: what is less is made up for later


def main() -> None:
    asked = parse_arguments()
    server_port = asked.port or free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(server_port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = None if asked.port else subprocess.Popen(command, **quiet)
    here, there = multiprocessing.Pipe()
    folder = tempfile.TemporaryDirectory()
    given = (server_port, folder.name if asked.bulk == "proxy" else None, asked.rate, there)
    proxy = multiprocessing.get_context("spawn").Process(target=serve_proxy, args=given, daemon=True)
    proxy.start()
    try:
        await_port(server_port)
        objects = max(1, (asked.mib << 20) // (OBJECT_ROWS * int(np.prod(ROW_SHAPE))))
        keys = upload(server_port, Path(folder.name), objects)
        report(measure(here.recv(), keys, asked.turns), asked.json)
    finally:
        proxy.terminate()
        if server is not None:
            server.terminate()
        folder.cleanup()


def measure(port: int, keys: dict[str, int], turns: int) -> dict[str, list[tuple[float, float]]]:
    """Megabytes a second of each contender, and seconds of our own CPU a gigabyte, turn by turn."""
    contenders = {
        f"download, s3fs, {number} at a time": partial(download, port, keys, number) for number in CONCURRENCIES
    } | {f"download, {number} threads": partial(download_by_threads, port, keys, number) for number in CONCURRENCIES}
    contenders |= {
        f"download, signed, {number}": partial(download_signed, port, keys, number) for number in CONCURRENCIES
    }
    contenders["feed in order"] = lambda: feed(port, shuffled=False)
    contenders["feed shuffled by block"] = lambda: feed(port, shuffled=True)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for turn in range(turns + 1):  # the first is not counted
        for name, contender in contenders.items():
            measured = contender()
            if turn:
                found[name].append(measured)
    return found


def download(port: int, keys: dict[str, int], concurrency: int) -> tuple[float, float]:
    files = s3fs.S3FileSystem(**options(port, concurrency), skip_instance_cache=True)

    async def read_all() -> None:
        await files.set_session()
        client, places = await files.get_s3(BUCKET), asyncio.Semaphore(concurrency)

        async def read(key: str, start: int, stop: int) -> None:
            async with places:
                given = await client.get_object(Bucket=BUCKET, Key=key, Range=f"bytes={start}-{stop - 1}")
                async with given["Body"] as body:
                    await body.read()

        await asyncio.gather(*(read(*wanted) for wanted in ranges_of(keys)))

    began = time.perf_counter(), time.process_time()
    sync(files.loop, read_all)
    return figures(sum(keys.values()), *began)


def download_by_threads(port: int, keys: dict[str, int], concurrency: int) -> tuple[float, float]:
    client, _ = client_of(port, concurrency)
    return read_by_threads(keys, concurrency, lambda asked: client.get_object(**asked)["Body"].read())


def download_signed(port: int, keys: dict[str, int], concurrency: int) -> tuple[float, float]:
    return read_by_threads(keys, concurrency, SignedReads(*client_of(port, concurrency)).get)


def client_of(port: int, concurrency: int) -> tuple[Any, Any]:
    return blocking_client(s3fs.S3FileSystem(**options(port, concurrency), skip_instance_cache=True))


def read_by_threads(
    keys: dict[str, int], concurrency: int, read: Callable[[dict[str, str]], Any]
) -> tuple[float, float]:
    asked = [{"Bucket": BUCKET, "Key": key, "Range": f"bytes={a}-{b - 1}"} for key, a, b in ranges_of(keys)]
    began = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(concurrency) as pool:
        assert all(pool.map(read, asked))
    return figures(sum(keys.values()), *began)


def ranges_of(keys: dict[str, int]) -> list[tuple[str, int, int]]:
    return [
        (key, start, min(start + RANGE_NBYTES, nbytes))
        for key, nbytes in keys.items()
        for start in range(0, nbytes, RANGE_NBYTES)
    ]


def feed(port: int, *, shuffled: bool) -> tuple[float, float]:
    pipeline = fb.from_files(f"s3://{BUCKET}/*.npy", storage_options=options(port, 16), connections=16)
    pipeline = pipeline.shuffle(seed=0, block=512) if shuffled else pipeline
    nbytes = 0
    with pipeline.batch(256).feed("numpy") as running:
        began = time.perf_counter(), time.process_time()
        for batch in chain.from_iterable(running for _ in range(EPOCHS)):
            nbytes += batch.nbytes
        found = figures(nbytes, *began)
    pipeline.source.close()
    return found


def figures(nbytes: int, began: float, used: float) -> tuple[float, float]:
    return nbytes / (time.perf_counter() - began) / 1e6, (time.process_time() - used) / nbytes * 1e9


def options(port: int, connections: int) -> dict[str, object]:
    client = {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": "us-east-1"}
    return {**SECRETS, "client_kwargs": client, "config_kwargs": {"max_pool_connections": connections}}


def upload(port: int, folder: Path, objects: int) -> dict[str, int]:
    """Put objects into the bucket, and beside it into a folder; their lengths."""
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id=SECRETS["key"],
        aws_secret_access_key=SECRETS["secret"],
    )
    client.create_bucket(Bucket=BUCKET)
    for number in range(objects):
        path = folder / f"{number}.npy"
        np.save(path, np.random.default_rng(number).integers(0, 255, (OBJECT_ROWS, *ROW_SHAPE), dtype="u1"))
        given = client.put_object(Bucket=BUCKET, Key=path.name, Body=path.read_bytes())
        path.with_suffix(".etag").write_text(given["ETag"])
    return {path.name: path.stat().st_size for path in folder.glob("*.npy")}


def report(found: dict[str, list[tuple[float, float]]], path: str | None) -> None:
    downloads = [turns for name, turns in found.items() if name.startswith("download")]
    ceilings = [max(speed for speed, _ in turn) for turn in zip(*downloads, strict=True)]  # the best of each turn
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, s3fs {s3fs.__version__}; medians of turns")
    for name, turns in found.items():
        speed, used = (statistics.median(column) for column in zip(*turns, strict=True))
        ratios = sorted(speed / ceiling for (speed, _), ceiling in zip(turns, ceilings, strict=True))
        told = f"{statistics.median(ratios):.2f} x the turn's best download ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"  {name:<29} {speed:6.1f} MB/s  {used:5.2f} s of CPU a GB  {told}")
    if path is not None:
        Path(path).write_text(json.dumps({"turns": found, "latency_seconds": LATENCY_SECONDS}, indent=1))


class Pace:
    """What is sent in all: so many megabytes a second at most, or as many as can be."""

    def __init__(self, rate: float | None) -> None:
        self._seconds_each = 1e-6 / rate if rate else 0.0  # a byte
        self._lock = threading.Lock()
        self._due = 0.0  # when all that was sent would have been, at that rate
        self.most = PACED_NBYTES if rate else 1 << 62

    def sent(self, nbytes: int) -> None:
        with self._lock:
            now = time.perf_counter()
            self._due = max(self._due, now) + nbytes * self._seconds_each
            ahead = self._due - now
        if ahead > WORTH_SLEEPING:
            time.sleep(ahead)


def serve_proxy(
    upstream_port: int, folder: str | None, rate: float | None, told: "multiprocessing.connection.Connection"
) -> None:
    """Answers come late and untouched: the kernel moves them from socket to socket, for this takes cores from both."""
    pace = Pace(rate)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        told.send(listening.getsockname()[1])
        while True:
            client, _ = listening.accept()
            threading.Thread(target=relay, args=(client, upstream_port, folder, pace), daemon=True).start()


def relay(client: socket.socket, upstream_port: int, folder: str | None, pace: Pace) -> None:
    upstream = socket.create_connection(("127.0.0.1", upstream_port))
    source, target = os.pipe()
    while head := read_head(client):
        time.sleep(LATENCY_SECONDS)
        asked = re.match(rb"GET /[^/]+/(\d+)\.npy.*\r\nrange: bytes=(\d+)-(\d+)\r\n", head, re.DOTALL | re.IGNORECASE)
        if asked and folder is not None:
            send_range(client, Path(folder) / f"{int(asked[1])}.npy", int(asked[2]), int(asked[3]) + 1, pace)
            continue
        upstream.sendall(head)
        answer = read_head(upstream)
        client.sendall(answer)
        left = 0 if head.startswith(b"HEAD") else length_after(answer)
        while left > 0:
            moved = os.splice(upstream.fileno(), target, min(left, 1 << 20))
            left -= moved
            while moved:
                moved -= os.splice(source, client.fileno(), moved)


def send_range(client: socket.socket, path: Path, start: int, stop: int, pace: Pace) -> None:
    """As S3 would: the condition that comes along is met, since nobody changes objects here."""
    with path.open("rb") as file:
        lines = [
            "HTTP/1.1 206 Partial Content",
            f"Content-Length: {stop - start}",
            f"Content-Range: bytes {start}-{stop - 1}/{os.fstat(file.fileno()).st_size}",
            f"ETag: {path.with_suffix('.etag').read_text()}",
            "Content-Type: binary/octet-stream",
        ]
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        while start < stop:
            sent = os.sendfile(client.fileno(), file.fileno(), start, min(stop - start, pace.most))
            start += sent
            pace.sent(sent)


def read_head(connection: socket.socket) -> bytes:
    """A head, and with it what of the body came along."""
    head = b""
    while b"\r\n\r\n" not in head:
        data = connection.recv(1 << 16)
        if not data:
            return b""
        head += data
    return head


def length_after(answer: bytes) -> int:
    head, _, begun = answer.partition(b"\r\n\r\n")
    found = re.search(rb"(?i)content-length: (\d+)", head)
    return int(found[1]) - len(begun) if found else 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def await_port(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError("the S3 server did not start")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--port", type=int, help="of an S3-protocol server that runs already; moto is started otherwise"
    )
    parser.add_argument("--bulk", choices=("proxy", "moto"), default="proxy", help="who sends ranges")
    parser.add_argument(
        "--rate", type=float, help="megabytes a second that the server sends at most, with --bulk proxy"
    )
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json")
    asked = parser.parse_args()
    if asked.rate is not None and asked.rate <= 0:
        parser.error(f"--rate {asked.rate:g} sends nothing: pass megabytes a second, or leave it out for no limit.")
    return asked


if __name__ == "__main__":
    main()
