"""A device of plain memory, by each way a framework has to tell of its work, and who fills slots on it."""

import pytest
from tests.engines.cuda.pull.queueing import recorded
from tests.support.plain_cuda import Marking, Telling, plain_cuda

from forebay.engines.cuda.pull.fetcher import Fetcher


@pytest.fixture(
    params=[(Telling, "late"), (Telling, "early"), (Marking, "any")], ids=lambda made: f"{made[0].__name__}-{made[1]}"
)
def side(request):
    kind, pace = request.param
    with plain_cuda(kind=kind, pace=pace) as made:
        yield made


@pytest.fixture
def fillers(monkeypatch):
    return recorded(monkeypatch, Fetcher, "fill")
