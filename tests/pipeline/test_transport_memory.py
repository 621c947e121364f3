"""The memory of transports: within the device, or refused with a sufficient budget."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.transport_choices import (
    GIB,
    MIB,
    MIN_ALL_SLOTS,
    NUMBER,
    ROW,
    SLOTS_IN_USE,
    SPARE,
    cases,
    decision_of,
    slot_needs,
    transport_of,
)

from forebay.core.spec import parse_nbytes
from forebay.errors import BudgetError
from forebay.pipeline.transport import PULL_SLOTS


def refusal(specs, **options):
    """Return the text of the error, or an empty string."""
    try:
        transport_of(specs, **options)
    except BudgetError as error:
        return str(error)
    return ""


def recommended_budget(text):
    """Return the budget that an error recommends, in bytes."""
    return parse_nbytes(re.search(r"device_bytes='(\w+)'", text)[1], "device_bytes")


# Budgets


@given(case=cases(), resident=st.sampled_from(["auto", "never"]))
def test_a_plan_stays_within_the_device_budget(case, resident):
    transport = transport_of(case.pop("specs"), resident=resident, **case)
    assert transport.device_nbytes <= case["budget"]


@given(case=cases())
def test_without_a_budget_the_plan_fits_into_the_frameworks_free_memory(case):
    available = case.pop("budget")
    assert transport_of(case.pop("specs"), available=available, **case).device_nbytes <= available


@pytest.mark.parametrize("resident", ["auto", "never", "always"])
def test_a_budget_is_limited_by_the_available_memory(resident):
    rows = 1000 if resident == "always" else 10**7
    larger_budget, exact_budget = (
        transport_of(rows=rows, available=64 * MIB, budget=budget, resident=resident) for budget in (GIB, 64 * MIB)
    )
    assert larger_budget == exact_budget
    assert larger_budget.device_nbytes <= 64 * MIB


@pytest.mark.parametrize("resident", ["auto", "always"])
def test_rows_that_fit_a_budget_with_their_slots_are_resident(resident):
    transport = transport_of(rows=768 * 1024, batch_rows=1000, budget=GIB, resident=resident)
    assert transport.resident_rows == 768 * 1024
    assert transport.device_nbytes <= GIB


def test_resident_always_uses_smaller_groups_before_it_is_refused():
    transport = transport_of(rows=10**6, budget=10**9 + 20 * MIB, resident="always")
    assert transport.resident_rows == 10**6
    assert transport.device_nbytes <= 10**9 + 20 * MIB


def test_resident_always_stays_within_the_budget_or_is_refused():
    assert "95.4 MiB may be used" in refusal((ROW,), rows=10**6, budget=100 * 10**6, resident="always")
    assert transport_of(rows=10**6, budget=2 * 10**9, resident="always").device_nbytes <= 2 * 10**9


def test_batches_that_do_not_fit_are_refused_with_the_needed_budget():
    text = refusal((ROW,), rows=10**6, batch_rows=1000, budget=4 * MIB)
    assert text.startswith("device_bytes=4.0 MiB is too small: slots for these batches need 5.0 MiB.")
    assert recommended_budget(text) == 5 * MIB


@given(case=cases(), short=st.floats(0.01, 0.99))
def test_the_recommended_budget_is_enough(case, short):
    specs = case.pop("specs")
    least = MIN_ALL_SLOTS * slot_needs(specs, case["batch_rows"])
    text = refusal(specs, **case | {"budget": int(least * short)})
    assert refusal(specs, **case | {"budget": recommended_budget(text)}) == ""


def test_batches_larger_than_the_device_get_no_advice_to_raise_the_budget():
    text = refusal((ROW,), rows=10**6, batch_rows=10**5, available=100 * MIB)
    assert "Make batches smaller" in text
    assert "device_bytes" not in text


# Slots


@given(case=cases(), resident=st.sampled_from(["auto", "never"]))
def test_sizes_are_those_of_the_chosen_transport(case, resident):
    specs, batch_rows = case.pop("specs"), case["batch_rows"]
    transport = transport_of(specs, resident=resident, **case)
    assert 0 <= transport.slot_nbytes - slot_needs(specs, batch_rows, transport.group_batches) <= SPARE
    assert transport.resident_nbytes == transport.resident_rows * sum(spec.nbytes for spec in specs)
    assert transport.slots <= PULL_SLOTS
    assert (
        transport.device_nbytes == (transport.slots + SLOTS_IN_USE) * transport.slot_nbytes + transport.resident_nbytes
    )


@pytest.mark.parametrize(("batches", "filling"), [(5, 3), (6, 4), (8, 6), (80, 6)])
def test_the_number_of_slots_depends_on_the_memory(batches, filling):
    budget = batches * (slot_needs((ROW,), 10_000) + SPARE)
    transport = transport_of(rows=10**6, batch_rows=10_000, budget=budget, resident="never")
    assert (transport.slots, transport.group_batches) == (filling, max(1, batches // 8))


@pytest.mark.parametrize(("gib", "slots_gib"), [(8, 1), (16, 2), (64, 2), (96, 3), (128, 4)])
def test_slots_take_a_small_part_of_a_large_device(gib, slots_gib):
    transport = transport_of(rows=10**6, batch_rows=5000, available=gib * GIB, resident="always")
    slots_nbytes = transport.device_nbytes - transport.resident_nbytes
    assert 0.95 * slots_gib * GIB < slots_nbytes <= slots_gib * GIB


def test_many_leaves_are_counted_with_their_tables():
    specs = (NUMBER,) * 100
    transport = transport_of(specs, rows=1000, extents=(1,) * 100, resident="never")
    assert transport.slot_nbytes >= slot_needs(specs, 100, transport.group_batches)


@pytest.mark.parametrize("files", [1, 5000])
def test_the_tables_of_the_kernels_fit_in_the_planned_slot(files):
    specs = (NUMBER,)
    transport = transport_of(specs, rows=10**9, budget=64 * MIB, resident="never", extents=(files,))
    assert slot_needs(specs, 100, transport.group_batches, extents=files) <= transport.slot_nbytes


def test_tables_of_the_order_count_as_device_memory():
    without, tables = (transport_of(rows=10**6, available=10 * GIB, order_nbytes=nbytes) for nbytes in (0, GIB))
    assert tables.computes_row_numbers
    assert tables.order_nbytes == GIB
    assert tables.device_nbytes == GIB + without.device_nbytes
    assert decision_of(tables, "row numbers").choice == "device"
    assert decision_of(without, "row numbers") is None


def test_large_tables_of_the_order_stay_on_the_host():
    transport = transport_of(rows=10**6, available=4 * GIB, order_nbytes=GIB)
    assert not transport.computes_row_numbers
    assert decision_of(transport, "row numbers").choice == "host"
    assert transport.device_nbytes == transport_of(rows=10**6, available=4 * GIB).device_nbytes
    assert not transport_of(rows=10**6, order_nbytes=10 * MIB, budget=50 * MIB).computes_row_numbers
