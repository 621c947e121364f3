"""Test tiers, framework processes, and a clean process state for every test file.

`pytest -m "not slow"` runs the fast tier: no framework process, no cluster, no browser. `-m "not long"`, the
command of the README, leaves out the files in LONG and the tests marked `long`. `.ci/run` runs these long tests with a
second command.
"""

import gc
import os
import signal
import sys
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.support import profiles  # noqa: F401  # loads the Hypothesis profile
from tests.support.framework_processes import FrameworkProcesses

from forebay.feed import runner
from forebay.transforms.workers import process_handle, process_pool

# The longest files start first, so that no test worker ends with one of them alone. The files of hooks profile the
# scripts of all frameworks. Other files of the doctor, which would wait for these captures, come later.
FIRST = (
    "test_framework_cases",
    "doctor/capture/hooks",
    "transforms/workers/on_ray",
    "pipeline/ranks",
    "doctor",
    "examples",
    "adapters",
    "measure/bench",
    "compat",
)
# Folders and files that start frameworks, clusters, browsers, servers or many processes, or that compute for more than
# five seconds. Tests with the fixture `framework_processes` are slow too. All others carry the marker themselves.
SLOW = (
    "cli",
    "compat/test_v0_1_files",
    "docs/test_pages",
    "doctor/analyse/test_drift",
    "doctor/capture/test_plain_python",
    "doctor/capture/test_session_history",
    "doctor/capture/test_step_monitor",
    "doctor/diagnosis/test_compare_ranks",
    "doctor/predict/test_recorded_captures",
    "doctor/rules/test_recorded_faults",
    "engines/cuda/decode",
    "engines/cuda/pull",
    "engines/cuda/test_engine",
    "engines/cuda/test_multi_device_feed",
    "feed/test_faults_in_",
    "gpu",
    "measure/bench/test_disk",
    "measure/simulate/test_simulate",
    "pipeline/ranks/test_ray_train",
    "pipeline/test_combine",
    "pipeline/test_from_images",
    "sources/direct/test_feeds",
    "sources/direct/test_readers",
    "sources/formats/test_arrow",
    "sources/formats/test_hdf5",
    "sources/formats/test_image_containers",
    "sources/formats/test_tfrecord",
    "sources/formats/test_webdataset",
    "sources/formats/test_zarr",
    "sources/objects/test_http",
    "sources/objects/test_page",
    "sources/objects/test_s3",
    "sources/objects/test_store",
    "sources/test_fuzz",
    "test_portability",
    "transforms/workers/test_process_handle",
    "transforms/workers/test_process_pool",
)
# Folders and files that repeat the tests of one framework for another, run whole scripts, or take longer than most.
# They are slow tests too.
LONG = (
    "adapters/test_script_end",
    "doctor/capture/hooks/test_jax.py",
    "doctor/capture/hooks/test_keras.py",
    "doctor/capture/hooks/test_tensorflow.py",
    "doctor/capture/hooks/test_torch.py",
    "doctor/diagnosis/test_measured_settings",
    "doctor/diagnosis/test_verify",
    "doctor/report/test_browser",
    "doctor/rules/test_applied_cures",
    "doctor/test_situations",
    "engines/cuda/pull/test_row_puller_streams",
    "examples",
    "feed/test_faults_in_scripts",
    "feed/test_memory",
    "fuzz/test_fuzz",
    "measure/bench/test_bench_command",
    "measure/bench/test_run",
    "pipeline/ranks/test_processes",
    "transforms/workers/on_ray",
)

# On a busy machine, a thread or a process may wait seconds for a core. The tests must not treat this wait as a hang.
runner.JOIN_SECONDS = process_pool._CLOSE_SECONDS = process_handle._REAP_SECONDS = 60.0


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # keep FIRST; xdist would put large files first


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist, there is no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, run all tests of `on_ray` in one test worker: they share a cluster."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folder, found, _ = nodeid.partition("/on_ray/")
            return folder + found if found else super()._split_scope(nodeid)

    return Scheduler(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect all tests without garbage collections, which would free nothing: pytest keeps its 15,000 items."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        waits = "framework_processes" in getattr(item, "fixturenames", ())
        if waits:
            item.add_marker(pytest.mark.timeout(1000))  # the test may run a framework process
        if _relative(item.path).startswith(LONG):
            item.add_marker(pytest.mark.long)
        if waits or _relative(item.path).startswith(SLOW) or item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    path = _relative(item.path)
    return next((turn for turn, folder in enumerate(FIRST) if path.startswith(folder)), len(FIRST))


@cache
def _relative(path: Path) -> str:
    return path.relative_to(Path(__file__).parent).as_posix()


@pytest.fixture(scope="session")
def framework_processes(tmp_path_factory: pytest.TempPathFactory) -> FrameworkProcesses:
    folder = tmp_path_factory.getbasetemp()
    shared = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "framework_processes"
    shared.mkdir(exist_ok=True)
    return FrameworkProcesses(shared)


@pytest.fixture(autouse=True, scope="module")
def _clean_process_state() -> Generator[None]:
    """Undo what other test files left in this process."""
    # Ray leaves its signal handlers installed, and a process started in the background ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # After the freeze, garbage collections skip the objects of earlier files. If all frameworks are imported, each
    # collection would otherwise take 0.5 s.
    gc.collect()
    gc.freeze()
    main = sys.modules["__main__"]
    yield
    assert sys.modules["__main__"] is main, "a worker process would run the script that a test left as __main__"
