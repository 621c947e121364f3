"""Fixtures: a process pool and a block of shared memory."""

import pytest
from tests.transforms.workers.pool_actions import NBYTES, act

from forebay.core.shared_memory import SharedBlock
from forebay.transforms.workers.process_pool import ProcessPool


@pytest.fixture
def pool():
    with ProcessPool(act, 1) as pool:
        yield pool


@pytest.fixture
def block():
    with SharedBlock(NBYTES) as block:
        yield block
