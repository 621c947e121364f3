"""What takes longest is begun first, so that no worker ends with it; every file finds a process as it would alone."""

import gc
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from forebay.feed import runner
from forebay.transforms.workers import process_handle, process_pool

# Clusters, and processes of frameworks that import for seconds: they mostly wait, beside whatever comes after.
FIRST = ("transforms/workers", "pipeline/ranks", "doctor", "adapters/keras", "examples", "measure/bench", "adapters")


# A machine that does something else for a second makes nothing false.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Nor does a thread or a process hang that waits some seconds for a core, so none is given up for that.
runner.JOIN_SECONDS = process_pool._CLOSE_SECONDS = process_handle._REAP_SECONDS = 60.0


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("untimed")
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # which would begin with the files that have most tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _turn(item.path))


def _turn(path: Path) -> int:
    part = path.relative_to(Path(__file__).parent).as_posix()
    return next((turn for turn, folder in enumerate(FIRST) if part.startswith(f"{folder}/")), len(FIRST))


@pytest.fixture(autouse=True, scope="module")
def _afresh() -> None:
    """As in a process of its own, whatever ran before."""
    # Ray leaves handlers of its own behind, and who is started in the background ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Tests that collect garbage look at their own: with all frameworks imported, the rest takes half a second.
    gc.collect()
    gc.freeze()
