"""A real S3-protocol server on loopback (moto, in a process of its own), behind a proxy that injects faults."""

import io
import itertools
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import boto3
import numpy as np
import pytest
from tests.storage.faulty_proxy import FaultyProxy

KEY, SECRET = "AKIATESTKEY", "a-very-secret-secret"
_NAMES = itertools.count()


@dataclass
class Bucket:
    """A bucket of its own for each test, reached through the proxy or past it."""

    name: str
    client: Any
    proxy: FaultyProxy
    options: dict[str, Any] = field(default_factory=dict)

    def url(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    def put(self, key: str, data: bytes) -> str:
        self.client.put_object(Bucket=self.name, Key=key, Body=data, ACL="public-read")
        return self.url(key)

    def put_npy(self, key: str, array: np.ndarray) -> str:
        return self.put(key, npy_bytes(array))


def npy_bytes(array):
    """What `numpy.save` writes."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.fixture(scope="session")
def s3_port():
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    await_port(port)
    yield port
    server.terminate()
    server.wait(10)


@pytest.fixture(scope="session")
def client(s3_port):
    client = boto3.client("s3", **client_options(s3_port), aws_access_key_id=KEY, aws_secret_access_key=SECRET)
    yield client
    client.close()


@pytest.fixture
def bucket(s3_port, client):
    proxy = FaultyProxy(s3_port)
    name = f"bucket-{next(_NAMES)}"
    client.create_bucket(Bucket=name)
    yield Bucket(name, client, proxy, {"key": KEY, "secret": SECRET, "client_kwargs": client_options(proxy.port)})
    proxy.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def client_options(port):
    return {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": "us-east-1"}


def await_port(port):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError("the S3 server did not start")
