"""How rows reach a device: resident, by DMA or by a kernel. The size of the groups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.transport_choices import GIB, cases, decision_of, transport_of

import forebay as fb
from forebay.core.spec import ArraySpec
from forebay.errors import BudgetError
from forebay.pipeline.transport import (
    DMA_ROW_NBYTES,
    MAX_GROUP_BATCHES,
    MIN_GROUPS,
    MIN_RESIDENT_GROUPS,
    MIN_RESIDENT_SHARE,
    PULL_GROUP_NBYTES,
    RESIDENT_GROUP_NBYTES,
)


class Measured:
    """Pull speeds: 10 GB/s for every row size."""

    def bytes_per_second(self, row_nbytes):
        return 10e9


# Resident rows


def test_rows_that_cannot_be_pulled_are_staged():
    assert transport_of(rows=1000, extents=()) is None


def test_rows_that_fit_in_half_of_the_available_memory_are_resident():
    transport = transport_of(rows=10**6, available=2 * 10**9)
    assert transport.resident_rows == 10**6
    assert transport.resident_nbytes == 10**9
    assert decision_of(transport, "transport").choice == "resident"
    assert decision_of(transport, "rows") is None


def test_rows_are_partly_resident_if_one_row_does_not_fit():
    transport = transport_of(rows=10**6, available=2 * 10**9 - 2)
    assert transport.resident_rows == 10**6 - 1
    assert decision_of(transport, "transport").choice == "part resident"
    assert decision_of(transport, "transport").why.startswith("100% of")


def test_at_least_a_quarter_of_the_rows_must_fit_to_be_resident():
    quarter, fewer = transport_of(rows=10**6, available=5 * 10**8), transport_of(rows=10**6, available=5 * 10**8 - 2000)
    assert quarter.resident_rows == 250_000
    assert fewer.resident_rows == 0
    assert decision_of(fewer, "transport").choice == "pull"


def test_resident_never_keeps_no_rows_on_the_device():
    transport = transport_of(rows=10**6, resident="never")
    assert transport.resident_rows == transport.resident_nbytes == 0
    assert "resident='never' was requested" in decision_of(transport, "transport").why


def test_resident_always_may_exceed_the_share_of_auto():
    always = transport_of(rows=10**6, available=15 * 10**8, resident="always")
    auto = transport_of(rows=10**6, available=15 * 10**8)
    assert auto.resident_rows < always.resident_rows == 10**6
    assert "as requested" in decision_of(always, "transport").why


def test_resident_always_is_refused_with_the_needed_memory_and_a_remedy():
    text = r"needs 954\.\d MiB on cuda:0, slots included, but only 858\.3 MiB may be used\. Use resident='auto'"
    with pytest.raises(BudgetError, match=text):
        transport_of(rows=10**6, available=9 * 10**8, resident="always")


@given(case=cases(), resident=st.sampled_from(["auto", "never"]))
def test_no_rows_or_at_least_a_quarter_are_resident(case, resident):
    transport = transport_of(case.pop("specs"), resident=resident, **case)
    assert transport.resident_rows == 0 or case["rows"] * MIN_RESIDENT_SHARE <= transport.resident_rows <= case["rows"]


# DMA and kernels


def test_large_rows_go_by_dma_and_small_rows_by_a_kernel():
    specs = (ArraySpec((DMA_ROW_NBYTES,), "uint8"), ArraySpec((DMA_ROW_NBYTES - 1,), "uint8"))
    transport = transport_of(specs, rows=10**6, resident="never", extents=(1, 1))
    assert transport.pull_methods == ("dma", "kernel")
    assert decision_of(transport, "rows").choice == "dma, kernel"
    assert decision_of(transport, "rows").why.startswith("rows of 64.0 KiB: a DMA per row")


@pytest.mark.parametrize(("cores", "method"), [(1, "kernel"), (2, "dma"), (16, "dma")])
def test_a_kernel_pulls_large_rows_if_there_is_one_cpu(cores, method):
    transport = transport_of((ArraySpec((DMA_ROW_NBYTES,), "uint8"),), rows=10**6, resident="never", cores=cores)
    assert transport.pull_methods == (method,)
    assert ("more than one CPU" in decision_of(transport, "rows").why) == (method == "kernel")


# Groups


def test_groups_of_small_rows_reach_the_planned_size():
    streamed = transport_of(rows=10**9, batch_rows=2000, resident="never")
    resident = transport_of(rows=10**7, batch_rows=5000, available=200 * GIB, resident="always")
    assert 0.97 * PULL_GROUP_NBYTES < streamed.slot_nbytes <= PULL_GROUP_NBYTES
    assert 0.97 * RESIDENT_GROUP_NBYTES < resident.slot_nbytes <= RESIDENT_GROUP_NBYTES


@pytest.mark.parametrize("resident", ["never", "always"])
def test_no_more_batches_are_handed_off_together_than_on_the_host(resident):
    transport = transport_of(rows=10**7, batch_rows=10, resident=resident)
    assert transport.group_batches == MAX_GROUP_BATCHES
    assert decision_of(transport, "group").choice == f"{MAX_GROUP_BATCHES} batches"


def test_a_batch_larger_than_a_group_is_a_group_of_its_own():
    transport = transport_of(rows=10**7, batch_rows=500_000, resident="never")
    assert transport.group_batches == 1
    assert decision_of(transport, "group").choice == "1 batch"


def test_a_group_is_at_most_a_part_of_a_pass():
    assert transport_of(rows=4000, batches=40, resident="never").group_batches == 40 // MIN_GROUPS
    assert transport_of(rows=4000, batches=40, resident="always").group_batches == 40 // MIN_RESIDENT_GROUPS
    pipeline = fb.from_arrays(np.zeros((4000, 250), np.float32)).batch(100)
    assert [made.schedule.pass_batches for made in (pipeline, pipeline.repeat(), pipeline.repeat(100))] == [40] * 3
    assert pipeline.take(7).schedule.pass_batches == 7


@given(case=cases())
def test_an_epoch_is_cut_into_enough_groups_to_overlap(case):
    case["batches"] = -(-case["rows"] // case["batch_rows"])
    transport = transport_of(case.pop("specs"), **case)
    fewest = MIN_RESIDENT_GROUPS if transport.resident_rows == case["rows"] else MIN_GROUPS
    assert 1 <= transport.group_batches <= max(1, case["batches"] // fewest)


# Expected speeds


def test_the_expected_speed_comes_from_the_measured_ceilings():
    streamed = transport_of(rows=10**6, resident="never", speeds=Measured())
    half = transport_of(rows=10**6, available=10**9, speeds=Measured())
    resident = transport_of(rows=10**6, speeds=Measured())
    assert decision_of(streamed, "speed").choice == "10 GB/s"
    assert decision_of(half, "speed").choice == "20 GB/s"
    assert decision_of(resident, "speed") is None


def test_rows_of_zero_bytes_have_no_expected_speed():
    empty = (ArraySpec((0,), "float32"),)
    assert decision_of(transport_of(empty, rows=10, resident="never", speeds=Measured()), "speed") is None
