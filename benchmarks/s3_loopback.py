"""Compare a feed of S3 objects with parallel downloads of their byte ranges.

    python benchmarks/s3_loopback.py [--mib 512] [--turns 5] [--rate 1000] [--bulk moto] [--json FILE]

The S3 server (moto) and a proxy that adds 5 ms of latency run in their own processes on this machine. The proxy sends
byte ranges itself, from files with `sendfile`, because moto is slower than any client. With `--bulk moto`, moto sends
them.

All downloads request the same byte ranges, N at a time, and discard the bytes. s3fs uses its event loop; the others use
threads: botocore (`download, N threads`), Forebay's own signed requests (`signed`), and obstore if it is installed. The
fastest download of a turn is the ceiling. The contenders run in turn.

Without `--rate`, the CPU limits all contenders. With `--rate`, the proxy sends at most this many MB/s over all
connections, like a network.
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
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import s3fs
from fsspec.asyn import sync

import forebay as fb
from forebay.sources.objects.s3 import make_blocking_client
from forebay.sources.objects.s3_signed_get import SignedGet

LATENCY_SECONDS = 0.005
CONCURRENCIES = (8, 16, 32)  # byte ranges that a download requests at the same time
RANGE_NBYTES = 8 << 20
EPOCHS = 8  # of a feed per turn; the feed also starts to read a ninth, which takes little time
OBJECT_ROWS, ROW_SHAPE = 2048, (64, 64, 3)  # rows per object
BUCKET = f"bucket-{os.getpid()}"
SECRETS = {"key": "S3RVER", "secret": "S3RVER"}
RATE_LIMITED_NBYTES = 256 << 10  # bytes per send if the rate is limited
MIN_SLEEP_SECONDS = 0.002  # a thread does not sleep for shorter delays; they add up until the next sleep


def main() -> None:
    arguments = parse_arguments()
    server_port = arguments.port or free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(server_port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = None if arguments.port else subprocess.Popen(command, **quiet)
    receiver, sender = multiprocessing.Pipe()
    folder = tempfile.TemporaryDirectory()
    proxy_arguments = (server_port, folder.name if arguments.bulk == "proxy" else None, arguments.rate, sender)
    proxy = multiprocessing.get_context("spawn").Process(target=serve_proxy, args=proxy_arguments, daemon=True)
    proxy.start()
    try:
        wait_for_port(server_port)
        objects = max(1, (arguments.mib << 20) // (OBJECT_ROWS * int(np.prod(ROW_SHAPE))))
        keys = upload(server_port, Path(folder.name), objects)
        report(measure(receiver.recv(), keys, arguments.turns), arguments.json)
    finally:
        proxy.terminate()
        if server is not None:
            server.terminate()
        folder.cleanup()


def measure(port: int, keys: dict[str, int], turns: int) -> dict[str, list[tuple[float, float]]]:
    """Return the MB/s and the CPU seconds per GB of each contender in each turn."""
    downloads = {"s3fs, {} at a time": download_s3fs, "{} threads": download_botocore, "signed, {}": download_signed}
    if find_spec("obstore") is not None:
        downloads["obstore, {}"] = download_obstore
    contenders: dict[str, Callable[[], tuple[float, float]]] = {
        f"download, {label.format(concurrency)}": partial(download, port, keys, concurrency)
        for label, download in downloads.items()
        for concurrency in CONCURRENCIES
    }
    contenders["feed in order"] = lambda: feed(port, shuffled=False)
    contenders["feed shuffled by block"] = lambda: feed(port, shuffled=True)
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for turn in range(turns + 1):  # the first turn is a warm-up
        for name, contender in contenders.items():
            sample = contender()
            if turn:
                samples[name].append(sample)
    return samples


def download_s3fs(port: int, keys: dict[str, int], concurrency: int) -> tuple[float, float]:
    files = s3fs.S3FileSystem(**options(port, concurrency), skip_instance_cache=True)

    async def read_all() -> None:
        await files.set_session()
        client, semaphore = await files.get_s3(BUCKET), asyncio.Semaphore(concurrency)

        async def read(key: str, start: int, stop: int) -> None:
            async with semaphore:
                response = await client.get_object(Bucket=BUCKET, Key=key, Range=f"bytes={start}-{stop - 1}")
                async with response["Body"] as body:
                    await body.read()

        await asyncio.gather(*(read(*byte_range) for byte_range in split_into_ranges(keys)))

    start_times = time.perf_counter(), time.process_time()
    sync(files.loop, read_all)
    return speed_and_cpu(sum(keys.values()), *start_times)


def download_botocore(port: int, keys: dict[str, int], concurrency: int) -> tuple[float, float]:
    client, _ = make_client(port, concurrency)
    return download_in_threads(keys, concurrency, lambda arguments: client.get_object(**arguments)["Body"].read())


def download_signed(port: int, keys: dict[str, int], concurrency: int) -> tuple[float, float]:
    return download_in_threads(keys, concurrency, SignedGet(*make_client(port, concurrency)).get)


def download_obstore(port: int, keys: dict[str, int], concurrency: int) -> tuple[float, float]:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        endpoint=f"http://127.0.0.1:{port}",
        region="us-east-1",
        access_key_id=SECRETS["key"],
        secret_access_key=SECRETS["secret"],
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )

    def read(arguments: dict[str, str]) -> Any:
        start, last = map(int, arguments["Range"].removeprefix("bytes=").split("-"))
        return obstore.get(store, arguments["Key"], options={"range": (start, last + 1)}).bytes()

    return download_in_threads(keys, concurrency, read)


def make_client(port: int, concurrency: int) -> tuple[Any, Any]:
    return make_blocking_client(s3fs.S3FileSystem(**options(port, concurrency), skip_instance_cache=True))


def download_in_threads(
    keys: dict[str, int], concurrency: int, read: Callable[[dict[str, str]], Any]
) -> tuple[float, float]:
    ranges = split_into_ranges(keys)
    arguments = [{"Bucket": BUCKET, "Key": key, "Range": f"bytes={start}-{stop - 1}"} for key, start, stop in ranges]
    start_times = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(concurrency) as pool:
        assert all(pool.map(read, arguments))
    return speed_and_cpu(sum(keys.values()), *start_times)


def split_into_ranges(keys: dict[str, int]) -> list[tuple[str, int, int]]:
    """Return key, start and stop of each byte range; `keys` contains the object sizes."""
    return [
        (key, start, min(start + RANGE_NBYTES, nbytes))
        for key, nbytes in keys.items()
        for start in range(0, nbytes, RANGE_NBYTES)
    ]


def feed(port: int, *, shuffled: bool) -> tuple[float, float]:
    pipeline = fb.from_files(f"s3://{BUCKET}/*.npy", storage_options=options(port, 16), connections=16)
    pipeline = pipeline.shuffle(seed=0, block=512) if shuffled else pipeline
    nbytes = 0
    with pipeline.batch(256).feed("numpy") as running_feed:
        start_times = time.perf_counter(), time.process_time()
        for batch in chain.from_iterable(running_feed for _ in range(EPOCHS)):
            nbytes += batch.nbytes
        sample = speed_and_cpu(nbytes, *start_times)
    pipeline.source.close()
    return sample


def speed_and_cpu(nbytes: int, start: float, cpu_start: float) -> tuple[float, float]:
    """Return MB/s and CPU seconds per GB since these clock readings."""
    return nbytes / (time.perf_counter() - start) / 1e6, (time.process_time() - cpu_start) / nbytes * 1e9


def options(port: int, connections: int) -> dict[str, object]:
    client = {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": "us-east-1"}
    return {**SECRETS, "client_kwargs": client, "config_kwargs": {"max_pool_connections": connections}}


def upload(port: int, folder: Path, objects: int) -> dict[str, int]:
    """Write objects to the bucket and to a folder, and return their sizes."""
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
        response = client.put_object(Bucket=BUCKET, Key=path.name, Body=path.read_bytes())
        path.with_suffix(".etag").write_text(response["ETag"])
    return {path.name: path.stat().st_size for path in folder.glob("*.npy")}


def report(samples: dict[str, list[tuple[float, float]]], path: str | None) -> None:
    downloads = [turns for name, turns in samples.items() if name.startswith("download")]
    ceilings = [max(speed for speed, _ in turn) for turn in zip(*downloads, strict=True)]  # one per turn
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, s3fs {s3fs.__version__}; medians of all turns")
    for name, turns in samples.items():
        speed, cpu_seconds = (statistics.median(column) for column in zip(*turns, strict=True))
        ratios = sorted(speed / ceiling for (speed, _), ceiling in zip(turns, ceilings, strict=True))
        ratio = f"{statistics.median(ratios):.2f} x the fastest download ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"  {name:<29} {speed:6.1f} MB/s  {cpu_seconds:5.2f} CPU s per GB  {ratio}")
    if path is not None:
        Path(path).write_text(json.dumps({"turns": samples, "latency_seconds": LATENCY_SECONDS}, indent=1))


class RateLimit:
    """Limits all connections together to `rate` MB/s. Without a rate, it limits nothing."""

    def __init__(self, rate: float | None) -> None:
        self._seconds_per_byte = 1e-6 / rate if rate else 0.0
        self._lock = threading.Lock()
        self._next_send_at = 0.0  # time at which the rate allows the next byte
        self.max_send_nbytes = RATE_LIMITED_NBYTES if rate else 1 << 62

    def wait_after(self, nbytes: int) -> None:
        """Sleep until the rate allows more bytes than the `nbytes` just sent."""
        with self._lock:
            now = time.perf_counter()
            self._next_send_at = max(self._next_send_at, now) + nbytes * self._seconds_per_byte
            delay = self._next_send_at - now
        if delay > MIN_SLEEP_SECONDS:
            time.sleep(delay)


def serve_proxy(
    upstream_port: int, folder: str | None, rate: float | None, sender: "multiprocessing.connection.Connection"
) -> None:
    """Accept connections, and relay each one in its own thread."""
    limit = RateLimit(rate)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        sender.send(listening.getsockname()[1])
        while True:
            client, _ = listening.accept()
            threading.Thread(target=relay, args=(client, upstream_port, folder, limit), daemon=True).start()


def relay(client: socket.socket, upstream_port: int, folder: str | None, limit: RateLimit) -> None:
    """Answer requests after the latency: byte ranges from the folder, others from the server."""
    # The kernel copies the bodies (sendfile, splice), so that the proxy takes little CPU time from the contenders.
    upstream = socket.create_connection(("127.0.0.1", upstream_port))
    source, target = os.pipe()
    while head := read_head(client):
        time.sleep(LATENCY_SECONDS)
        match = re.match(rb"GET /[^/]+/(\d+)\.npy.*\r\nrange: bytes=(\d+)-(\d+)\r\n", head, re.DOTALL | re.IGNORECASE)
        if match and folder is not None:
            send_range(client, Path(folder) / f"{int(match[1])}.npy", int(match[2]), int(match[3]) + 1, limit)
            continue
        upstream.sendall(head)
        response = read_head(upstream)
        client.sendall(response)
        remaining = 0 if head.startswith(b"HEAD") else remaining_body_nbytes(response)
        while remaining > 0:
            in_pipe = os.splice(upstream.fileno(), target, min(remaining, 1 << 20))
            remaining -= in_pipe
            while in_pipe:
                in_pipe -= os.splice(source, client.fileno(), in_pipe)


def send_range(client: socket.socket, path: Path, start: int, stop: int, limit: RateLimit) -> None:
    """Send a byte range like S3, but without checking `If-Match`: objects never change."""
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
            sent = os.sendfile(client.fileno(), file.fileno(), start, min(stop - start, limit.max_send_nbytes))
            start += sent
            limit.wait_after(sent)


def read_head(connection: socket.socket) -> bytes:
    """Return the head of the next message and any bytes received after it; b"" if the peer closed."""
    head = b""
    while b"\r\n\r\n" not in head:
        received = connection.recv(1 << 16)
        if not received:
            return b""
        head += received
    return head


def remaining_body_nbytes(response: bytes) -> int:
    head, _, body_start = response.partition(b"\r\n\r\n")
    match = re.search(rb"(?i)content-length: (\d+)", head)
    return int(match[1]) - len(body_start) if match else 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"no S3 server listens on port {port} after 30 seconds")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, help="port of a running S3 server; default: start moto")
    parser.add_argument("--bulk", choices=("proxy", "moto"), default="proxy", help="process that sends byte ranges")
    parser.add_argument("--rate", type=float, help="maximum MB/s of the proxy, with --bulk proxy")
    parser.add_argument("--mib", type=int, default=512, help="MiB of all objects together")
    parser.add_argument("--turns", type=int, default=5, help="measured turns, after one turn of warm-up")
    parser.add_argument("--json", help="write all samples to this file")
    arguments = parser.parse_args()
    if arguments.rate is not None and arguments.rate <= 0:
        parser.error(f"--rate {arguments.rate:g} is not positive. Pass MB/s, or omit --rate for no limit.")
    return arguments


if __name__ == "__main__":
    main()
