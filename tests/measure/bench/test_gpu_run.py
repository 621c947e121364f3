"""The bench measures cases with small data on a real GPU."""

from dataclasses import replace

import numpy as np
import pytest

from forebay.measure.bench.cases.gpu import GPU_CASES
from forebay.measure.bench.gpu_facts import gpu_facts
from forebay.measure.bench.meters import RunSettings
from forebay.measure.bench.model import select_cases, with_fewer_rows
from forebay.measure.bench.run import run_cases

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not gpu_facts(), reason="CUDA finds no usable GPU"),
]
QUICKEST = RunSettings(seconds=0.1, warm_up_seconds=0.1, repeats=1)


def statuses(name: str, *contenders: str) -> dict[str, tuple[str, str]]:
    (case,) = select_cases(GPU_CASES, case_names=[name], contenders=contenders)
    (result,) = run_cases([with_fewer_rows(case, 10)], QUICKEST, device="cuda").cases
    return {row.label: (row.status, row.reason) for row in result.rows}


@pytest.mark.parametrize(
    "name",
    ["gpu-images", "gpu-images-busy", "gpu-images-npy", "gpu-rows", "gpu-rows-one-thread", "gpu-resident", "gpu-step"],
)
def test_a_torch_feed_is_measured_in_every_case(name):
    found = statuses(name, "gpu_forebay_torch", "gpu_dma_peak")
    assert set(found.values()) == {("measured", "")}


def test_the_first_batch_is_measured():
    assert statuses("gpu-first-batch", "gpu_forebay_torch") == {"forebay to torch": ("measured", "")}


def test_blocks_of_page_locked_memory_arrive_unchanged():
    from forebay.measure.bench.dma_peak import DmaCopies  # needs cuda-bindings

    rows = np.random.default_rng(0).integers(0, 256, (4, 1 << 20), np.uint8)
    out = np.empty_like(rows)
    with DmaCopies(rows) as copies:
        for number, address in enumerate(copies.copy_blocks(1 << 20, 4)):
            copies.download(address, out[number])
    assert np.array_equal(out, rows)


def test_copies_of_page_locked_memory_close_their_events_and_stream(monkeypatch):
    from forebay.engines.cuda.driver import Event, Stream
    from forebay.measure.bench.dma_peak import DmaCopies

    closed = []
    for resource in (Event, Stream):
        close = resource.close
        monkeypatch.setattr(resource, "close", lambda self, close=close: closed.append(self) or close(self))
    with DmaCopies(np.zeros((4, 1 << 20), np.uint8)) as copies:
        handles = [*copies._events, copies._stream]
    assert closed == handles


def test_a_failing_contender_does_not_affect_the_baseline():
    (case,) = select_cases(GPU_CASES, case_names=["gpu-images"], contenders=["index + pin"])
    broken = replace(case.entries[1], options={**case.entries[1].options, "consumer": "no_such_consumer"})
    (result,) = run_cases([replace(with_fewer_rows(case, 10), entries=(case.entries[0], broken))], QUICKEST).cases
    assert [row.status for row in result.rows] == ["measured", "failed"]
