"""Processes of frameworks are begun together, as soon as the first test wants one of them."""

from collections.abc import Iterator

import pytest
from tests.doctor.processes import Processes


@pytest.fixture(scope="session")
def processes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Each file of tests names those that it waits for in PROCESSES."""
    found = Processes(tmp_path_factory.mktemp("processes"))
    modules = dict.fromkeys(getattr(item, "module", None) for item in request.session.items)
    found.begin(name for module in modules for name in getattr(module, "PROCESSES", ()))
    yield found
    found.close()
