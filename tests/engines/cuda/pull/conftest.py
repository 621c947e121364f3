"""Fixtures: fake frameworks at several paces, and the threads that fill slots."""

import pytest
from tests.engines.cuda.pull.host_comparison import KINDS
from tests.engines.cuda.pull.queueing import record_threads
from tests.support.fake_cuda import PACES, MarkerFramework, StreamFramework, fake_cuda

from forebay.engines.cuda.pull.row_puller import RowPuller


def framework_name(made):
    return f"{made[0].__name__}-{made[1]}"


@pytest.fixture(
    params=[(StreamFramework, "late"), (StreamFramework, "early"), (MarkerFramework, "any")], ids=framework_name
)
def framework(request):
    kind, pace = request.param
    with fake_cuda(kind=kind, pace=pace) as made:
        yield made


@pytest.fixture(params=[(kind, pace) for kind in KINDS for pace in PACES], ids=framework_name)
def every_framework(request):
    """Every kind of framework at every pace."""
    kind, pace = request.param
    with fake_cuda(kind=kind, pace=pace) as made:
        yield made


@pytest.fixture
def fillers(monkeypatch):
    return record_threads(monkeypatch, RowPuller, "fill")
