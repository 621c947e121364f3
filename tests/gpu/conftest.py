"""The device fixture of all GPU tests. Tests are skipped without a GPU."""

import pytest


@pytest.fixture(scope="session")
def device():
    pytest.importorskip("cuda.bindings.driver")
    from forebay.engines.cuda import driver

    try:
        return driver.Device(0)
    except (OSError, RuntimeError) as error:
        pytest.skip(str(error))
