"""Small cases and fixed results that the bench tests share."""

from collections.abc import Callable

import pytest

from forebay.measure.bench.cases.gpu import GPU_CASES
from forebay.measure.bench.meters import RunSettings
from forebay.measure.bench.model import Case, Entry, PerformanceTarget, ResultColumn, Workload, select_cases
from forebay.measure.bench.results import BenchResults, CaseResult, ResultRow

THROUGHPUT_COLUMNS = (
    ResultColumn("idle", "rows/s", "idle rows/s", ratio=True),
    ResultColumn("busy", "rows/s", "busy rows/s", ratio=True),
    ResultColumn("step", "x", "step"),
)


@pytest.fixture
def tiny_case() -> Callable[..., Case]:
    """Return a function that makes a case of a few rows with the given entries."""
    return make_tiny_case


@pytest.fixture
def fixed_results() -> BenchResults:
    entries = (
        Entry("np.take loop", "floor"),
        Entry("forebay", "forebay"),
        Entry("DataLoader 2 workers", "torch_loader", {"workers": 2}),
        Entry("Grain 2 threads", "grain_loader"),
        Entry("tf.data shuffle(4096)", "tf_slices"),
        Entry("Keras array adapter", "keras_adapter"),
    )
    floor = {"idle": (9.4e6, 9.0e6, 9.9e6), "busy": (2.1e6, 2.0e6, 2.2e6), "step": (1.01, 1.0, 1.02)}
    forebay = {"idle": (12.0e6, 11.8e6, 12.1e6), "busy": (3.0e6, 2.9e6, 3.3e6), "step": (1.3, 1.25, 1.31)}
    workers = {"idle": (22e3, 21e3, 23e3), "busy": (900.0, 800.0, 990.0), "step": (12.5, 12.0, 14.0)}
    rows = (
        ResultRow("np.take loop", "floor", samples=floor),
        ResultRow("forebay", "forebay", samples=forebay),
        ResultRow("DataLoader 2 workers", "torch_loader", samples=workers),
        ResultRow("Grain 2 threads", "grain_loader", "not installed", "pip install grain"),
        ResultRow(
            "tf.data shuffle(4096)", "tf_slices", "failed", "its process was ended by SIGSEGV: it printed nothing"
        ),
        ResultRow("Keras array adapter", "keras_adapter", "skipped", "needs more memory"),
    )
    return BenchResults(
        machine={"cpu": "A CPU", "cores": 2, "memory_nbytes": 24 * 2**30, "system": "Linux 6", "python": "3.12.1"},
        versions={"numpy": "2.1.0", "torch": "2.13.0"},
        settings=RunSettings(),
        quick=False,
        consumer="30 tiny torch operations on the CPU",
        cases=(CaseResult(make_tiny_case(*entries), rows),),
    )


@pytest.fixture
def fixed_gpu_results() -> BenchResults:
    (case,) = select_cases(GPU_CASES, case_names=["gpu-images"], contenders=["forebay to torch", "loader 14", "spdl"])
    rows = (
        ResultRow(
            "page-locked DMA peak", "gpu_dma_peak", samples={"speed": (54.8, 54.6, 54.9), "cpu": (0.02, 0.02, 0.03)}
        ),
        ResultRow(
            "forebay to torch", "gpu_forebay_torch", samples={"speed": (50.1, 49.8, 50.3), "cpu": (0.2, 0.21, 0.19)}
        ),
        ResultRow("SPDL 12 threads, pinned", "gpu_spdl", "not installed", "pip install spdl-core torch"),
        ResultRow(
            "DataLoader 14 workers + pin", "gpu_torch_loader", samples={"speed": (2.1, 2.0, 2.3), "cpu": (14, 14, 13)}
        ),
    )
    machine = {"cpu": "A CPU", "cores": 16, "memory_nbytes": 128 * 2**30, "system": "Linux 6", "python": "3.12.1"}
    return BenchResults(
        machine={**machine, "gpu": "NVIDIA H200", "cuda": "13.0"},
        versions={"numpy": "2.1.0", "torch": "2.11.0"},
        settings=RunSettings(0.4, 0.6, 3),
        quick=False,
        consumer="",
        cases=(CaseResult(case, rows),),
    )


def make_tiny_case(*entries: Entry) -> Case:
    return Case(
        name="tiny",
        title="500 x 4 float32, batch 32, shuffled",
        meaning="Too small to mean anything.",
        work=Workload(500, (4,), 32),
        meter="throughput",
        columns=THROUGHPUT_COLUMNS,
        entries=entries,
        baseline="np.take loop",
        targets=(
            PerformanceTarget("forebay", "idle", at_least=2, over="np.take loop"),
            PerformanceTarget("forebay", "step", at_most=1.2),
            PerformanceTarget("Grain 2 threads", "idle", at_least=1, over="np.take loop"),
        ),
    )
