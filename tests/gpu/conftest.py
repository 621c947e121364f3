"""What every test of a real GPU stands on: that there is one."""

import pytest


@pytest.fixture(scope="session")
def device():
    driver = pytest.importorskip("forebay.engines.cuda.driver")
    try:
        return driver.Device(0)
    except (OSError, RuntimeError) as error:
        pytest.skip(str(error))
