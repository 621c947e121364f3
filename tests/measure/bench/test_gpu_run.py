"""The bench on a real GPU: small, and only that everything can be measured there."""

from dataclasses import replace

import numpy as np
import pytest

from forebay.measure.bench.cases.gpu import GPU_CASES
from forebay.measure.bench.choose import choose
from forebay.measure.bench.gpu_facts import gpu_facts
from forebay.measure.bench.meters import Pace
from forebay.measure.bench.model import quicker
from forebay.measure.bench.run import run_cases

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not gpu_facts(), reason="no GPU that CUDA can use is here"),
]
QUICKEST = Pace(seconds=0.1, warm_up_seconds=0.1, repeats=1)


def statuses(name: str, *contenders: str) -> dict[str, tuple[str, str]]:
    (case,) = choose(GPU_CASES, case_names=[name], contenders=contenders)
    (result,) = run_cases([quicker(case, 10)], QUICKEST, device="cuda").cases
    return {row.label: (row.status, row.reason) for row in result.rows}


@pytest.mark.parametrize(
    "name",
    ["gpu-images", "gpu-images-busy", "gpu-images-npy", "gpu-rows", "gpu-rows-one-thread", "gpu-resident", "gpu-step"],
)
def test_a_feed_of_torch_is_measured_in_every_case(name):
    found = statuses(name, "gpu_forebay_torch", "gpu_dma_peak")
    assert set(found.values()) == {("measured", "")}


def test_the_first_batch_is_measured():
    assert statuses("gpu-first-batch", "gpu_forebay_torch") == {"forebay to torch": ("measured", "")}


def test_pieces_of_page_locked_memory_arrive_as_they_were():
    from forebay.measure.bench.dma_peak import Link  # needs cuda-bindings, which only come with a GPU

    rows = np.random.default_rng(0).integers(0, 256, (4, 1 << 20), np.uint8)
    out = np.empty_like(rows)
    with Link(rows) as link:
        for number, place in enumerate(link.pieces(1 << 20, 4)):
            link.download(place, out[number])
    assert np.array_equal(out, rows)


def test_a_contender_in_trouble_leaves_the_peak_alone():
    (case,) = choose(GPU_CASES, case_names=["gpu-images"], contenders=["index + pin"])
    broken = replace(case.entries[1], options={**case.entries[1].options, "consumer": "no_such_consumer"})
    (result,) = run_cases([replace(quicker(case, 10), entries=(case.entries[0], broken))], QUICKEST).cases
    assert [row.status for row in result.rows] == ["measured", "failed"]
