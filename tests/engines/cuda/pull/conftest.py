"""Fixtures: fake frameworks at several paces, and the threads that fill slots."""

import pytest
from tests.engines.cuda.pull.queueing import record_threads
from tests.support.fake_cuda import MarkerFramework, StreamFramework, fake_cuda

from forebay.engines.cuda.pull.row_puller import RowPuller


@pytest.fixture(
    params=[(StreamFramework, "late"), (StreamFramework, "early"), (MarkerFramework, "any")],
    ids=lambda made: f"{made[0].__name__}-{made[1]}",
)
def framework(request):
    kind, pace = request.param
    with fake_cuda(kind=kind, pace=pace) as made:
        yield made


@pytest.fixture
def fillers(monkeypatch):
    return record_threads(monkeypatch, RowPuller, "fill")
