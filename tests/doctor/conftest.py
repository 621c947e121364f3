"""Processes of frameworks are begun together, as soon as the first test wants one of them."""

import os
from collections.abc import Iterator

import pytest
from tests.doctor.processes import Processes


@pytest.fixture(scope="session")
def processes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Each file of tests names those that it waits for in PROCESSES."""
    folder = tmp_path_factory.getbasetemp()
    shared = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "processes"
    shared.mkdir(exist_ok=True)
    found = Processes(shared)
    modules = dict.fromkeys(getattr(item, "module", None) for item in request.session.items)
    found.begin(name for module in modules for name in getattr(module, "PROCESSES", ()))
    yield found
    found.close()
