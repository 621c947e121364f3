"""The cases of `--device cuda`: names, targets and sizes."""

import pytest

from forebay.measure.bench.cases.cpu import CASES
from forebay.measure.bench.cases.gpu import GPU_CASES
from forebay.measure.bench.contenders import CONTENDERS
from forebay.measure.bench.model import select_cases, with_fewer_rows


def test_every_entry_and_target_of_every_case_is_known():
    for case in GPU_CASES:
        labels = [entry.label for entry in case.entries]
        assert len(set(labels)) == len(labels)
        assert {entry.contender for entry in case.entries} <= set(CONTENDERS)
        assert {target.of for target in case.targets} <= set(labels)
        assert {target.over for target in case.targets} <= {*labels, None}
        assert {target.column for target in case.targets} <= {column.name for column in case.columns}
        assert case.baseline in (None, case.entries[0].label)


def test_no_case_shares_a_name_with_another():
    names = [case.name for case in (*CASES, *GPU_CASES)]
    assert len(set(names)) == len(names)


def test_every_case_has_a_target():
    assert [case.name for case in GPU_CASES if not case.targets] == []


def test_epochs_are_whole_batches_also_with_fewer_rows():
    assert [case.work.rows % case.work.batch for case in GPU_CASES] == [0] * len(GPU_CASES)
    assert [with_fewer_rows(case, 10).work.rows % case.work.batch for case in GPU_CASES] == [0] * len(GPU_CASES)
    assert [with_fewer_rows(case, 10**9).work.batches for case in GPU_CASES] == [4] * len(GPU_CASES)


def test_streamed_data_is_four_gigabytes_and_rows_can_be_numbered_in_float32():
    images, rows = (next(case for case in GPU_CASES if case.name == name).work for name in ("gpu-images", "gpu-rows"))
    assert 4.0 < images.rows * 224 * 224 * 3 / 2**30 < 4.1
    assert 4.0 < rows.rows * 400 / 2**30 < 4.1
    assert rows.rows < 2**24


def test_the_baseline_stays_when_one_contender_is_selected():
    (case,) = select_cases(GPU_CASES, case_names=["gpu-images"], contenders=["spdl"])
    assert [entry.label for entry in case.entries] == ["page-locked DMA peak", "SPDL 12 threads, pinned"]


@pytest.mark.parametrize("name", ["gpu-windows", "gpu-token-windows"])
def test_windows_are_measured_in_three_frameworks(name):
    cases = [case for case in GPU_CASES if case.name.startswith(name)]
    frameworks = [{entry.options["to"] for entry in case.entries} for case in cases]
    assert frameworks == [{"torch"}, {"jax"}, {"tensorflow"}]
    assert [case.work.options.get("consumer", "") for case in cases] in (["torch_bytes", "jax", "tensorflow"], [""] * 3)


def test_chosen_rows_are_compared_with_loaders_of_each_framework():
    cases = [case for case in GPU_CASES if case.name.startswith("gpu-chosen-rows")]
    others = [[entry for entry in case.entries if "forebay" not in entry.contender] for case in cases]
    assert [{entry.contender for entry in entries} for entries in others] == [
        {"gpu_torch_sampler"},
        {"gpu_grain_mixture"},
        {"gpu_tf_mixture"},
    ]
    assert all(entry.options["chooses_rows"] for entries in others for entry in entries)


def test_every_gpu_contender_is_in_some_case():
    used = {entry.contender for case in GPU_CASES for entry in case.entries}
    assert {name for name in CONTENDERS if name.startswith("gpu_")} == used
