"""What takes longest is begun first, so that no worker ends with it; every file finds a process as it would alone."""

import gc
import signal
from pathlib import Path

import pytest

# Clusters, and processes of frameworks that import for seconds: they mostly wait, beside whatever comes after.
FIRST = ("on_ray", "ranks", "doctor", "adapters", "test_examples.py", "bench", "handoff", "executors")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # which would begin with the files that have most tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _turn(item.path))


def _turn(path: Path) -> int:
    part = path.relative_to(Path(__file__).parent).parts[0]
    return FIRST.index(part) if part in FIRST else len(FIRST)


@pytest.fixture(autouse=True, scope="module")
def _afresh() -> None:
    """As in a process of its own, whatever ran before."""
    # Ray leaves handlers of its own behind, and who is started in the background ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Tests that collect garbage look at their own: with all frameworks imported, the rest takes half a second.
    gc.collect()
    gc.freeze()
