"""The device fixture of all GPU tests. Tests are skipped without a GPU."""

import pytest


@pytest.fixture(scope="session")
def device():
    driver = pytest.importorskip("forebay.engines.cuda.driver")
    try:
        return driver.Device(0)
    except (OSError, RuntimeError) as error:
        pytest.skip(str(error))
