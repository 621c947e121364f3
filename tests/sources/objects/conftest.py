"""Servers on loopback: a scripted HTTP server, and an S3 server behind a faulty proxy.

The S3 server is moto in its own process. The proxy injects faults into its responses.
"""

import io
import itertools
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3
import numpy as np
import pytest
from tests.sources.objects.faulty_proxy import FaultyProxy
from tests.sources.objects.http_rows import ROWS
from tests.sources.objects.scripted_server import ScriptedServer

from forebay.sources.objects import prefetch

KEY, SECRET = "AKIATESTKEY", "a-very-secret-secret"
_NAMES = itertools.count()

# The script binds a free port, prints the port when the server listens, and serves until its stdin is closed.
SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@dataclass
class Bucket:
    """A new bucket for each test.

    Requests with `options` go through the proxy. Requests of `client` go to the server directly.
    """

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
    """Return the bytes that `numpy.save` writes."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.fixture
def server():
    with ScriptedServer({"/a.npy": npy_bytes(ROWS)}, {"ETag": '"v1"'}) as server:
        yield server


@pytest.fixture(scope="session")
def s3_port():
    with s3_server_process() as port:
        yield port


@contextmanager
def s3_server_process(**environment):
    """Run an S3 server in its own process; yield its port."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", SERVER], env=os.environ | environment, **pipes) as server:
        yield int(server.stdout.readline())
        server.kill()


@pytest.fixture
def patient(monkeypatch):
    """Wait up to 60 s for a prefetched group, because the test machine may be busy."""
    monkeypatch.setattr(prefetch, "_WAIT_SECONDS", 60.0)


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


def client_options(port):
    return {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": "us-east-1"}
