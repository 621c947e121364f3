"""Which way rows cross, and how much at a time: choices from sizes alone."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fake_device import Device

import forebay as fb
from forebay.core.spec import DEVICE_ALIGNMENT, ArraySpec, Layout, Structure, parse_nbytes
from forebay.engines.cuda.kernel_workspace import KernelWorkspace
from forebay.engines.cuda.pull.staged_rows import StagedRows
from forebay.errors import BudgetError
from forebay.pipeline.plan import LENT_SLOTS, PlanInput
from forebay.pipeline.planner import make_plan
from forebay.pipeline.transport import (
    DMA_ROW_NBYTES,
    MAX_GROUP_BATCHES,
    MIN_GROUPS,
    MIN_RESIDENT_GROUPS,
    MIN_RESIDENT_SHARE,
    MIN_SLOTS,
    PULL_GROUP_NBYTES,
    PULL_SLOTS,
    RESIDENT_GROUP_NBYTES,
    DeviceInput,
    choose_transport,
)

MIB, GIB = 2**20, 2**30
IN_USE = 2
FEWEST_SLOTS = MIN_SLOTS + IN_USE
SPARE = 8 << 10  # a slot may be counted for so many bytes more than it needs
ROW = ArraySpec((250,), "float32")  # 1000 bytes
NUMBER = ArraySpec((), "float32")


def asked(*, rows, available=100 * GIB, budget=None, resident="auto", extents=(1,), **more):
    return DeviceInput("cuda:0", available, budget, resident, rows, extents, **{"slots_in_use": LENT_SLOTS} | more)


def chosen(specs=(ROW,), *, batch_rows=100, cores=16, **plan_input):
    return choose_transport(asked(**plan_input), specs, batch_rows=batch_rows, cores=cores)


def reason(transport, name):
    return next((reason for reason in transport.decisions if reason.name == name), None)


def slot_needs(specs, batch_rows, batches=1, *, extents=1):
    """Rows, and what the kernels of a slot read beside them."""
    rows = Layout.of(specs, batch_rows=batch_rows, batches=batches, alignment=DEVICE_ALIGNMENT).nbytes
    return rows + KernelWorkspace.nbytes(batch_rows * batches, [3 * extents + 1] * len(specs))


def refusal(specs, **options):
    """The text of the error, or nothing."""
    try:
        chosen(specs, **options)
    except BudgetError as error:
        return str(error)
    return ""


def way_out(text):
    """The budget that an error recommends, in bytes."""
    return parse_nbytes(re.search(r"device_bytes='(\w+)'", text)[1], "device_bytes")


class Measured:
    """Every row at ten gigabytes a second."""

    def bytes_per_second(self, row_nbytes):
        return 10e9


row_specs = st.lists(st.builds(ArraySpec, st.tuples(st.integers(1, 200_000)), st.just("uint8")), min_size=1, max_size=3)


@st.composite
def cases(draw):
    """Rows, batches and a budget that is at times just enough for slots, at times for everything."""
    specs = tuple(draw(row_specs))
    batch_rows, rows = draw(st.integers(1, 300)), draw(st.integers(1, 10**7))
    least = FEWEST_SLOTS * (slot_needs(specs, batch_rows) + SPARE)
    return {
        "specs": specs,
        "rows": rows,
        "batch_rows": batch_rows,
        "batches": draw(st.none() | st.just(-(-rows // batch_rows))),
        "budget": int(least * 2 ** draw(st.floats(0, 12))) + draw(st.integers(0, 1000)),
        "extents": (1,) * len(specs),
    }


@pytest.mark.parametrize(("cores", "way"), [(1, "kernel"), (2, "dma"), (16, "dma")])
def test_where_there_is_one_cpu_large_rows_are_left_to_a_kernel_and_it_is_told(cores, way):
    transport = chosen((ArraySpec((DMA_ROW_NBYTES,), "uint8"),), rows=10**6, resident="never", cores=cores)
    assert transport.pull_methods == (way,)
    assert ("one CPU" in reason(transport, "rows").why) == (way == "kernel")


@pytest.mark.parametrize("resident", ["auto", "always"])
def test_what_fits_a_budget_with_the_slots_it_needs_is_resident(resident):
    transport = chosen(rows=768 * 1024, batch_rows=1000, budget=GIB, resident=resident)
    assert transport.resident_rows == 768 * 1024
    assert transport.device_nbytes <= GIB


def test_always_takes_smaller_groups_rather_than_refuse():
    transport = chosen(rows=10**6, budget=10**9 + 20 * MIB, resident="always")
    assert transport.resident_rows == 10**6
    assert transport.device_nbytes <= 10**9 + 20 * MIB


@pytest.mark.parametrize("resident", ["auto", "never", "always"])
def test_a_budget_beyond_what_the_framework_can_give_is_that(resident):
    rows = 1000 if resident == "always" else 10**7
    beyond, none = (
        chosen(rows=rows, available=64 * MIB, budget=budget, resident=resident) for budget in (GIB, 64 * MIB)
    )
    assert beyond == none
    assert beyond.device_nbytes <= 64 * MIB


def test_no_group_is_larger_than_a_part_of_a_pass():
    assert chosen(rows=4000, batches=40, resident="never").group_batches == 40 // MIN_GROUPS
    assert chosen(rows=4000, batches=40, resident="always").group_batches == 40 // MIN_RESIDENT_GROUPS
    pipeline = fb.from_arrays(np.zeros((4000, 250), np.float32)).batch(100)
    assert [made.schedule.pass_batches for made in (pipeline, pipeline.repeat(), pipeline.repeat(100))] == [40] * 3
    assert pipeline.take(7).schedule.pass_batches == 7


def test_many_leaves_are_counted_with_their_tables():
    specs = (NUMBER,) * 100
    transport = chosen(specs, rows=1000, extents=(1,) * 100, resident="never")
    assert transport.slot_nbytes >= slot_needs(specs, 100, transport.group_batches)


def test_rows_without_a_byte_promise_no_speed():
    empty = (ArraySpec((0,), "float32"),)
    assert reason(chosen(empty, rows=10, resident="never", speeds=Measured()), "speed") is None


def test_rows_that_cannot_be_fetched_are_staged():
    assert chosen(rows=1000, extents=()) is None


def test_what_fits_into_half_of_what_the_framework_can_give_is_resident():
    transport = chosen(rows=10**6, available=2 * 10**9)
    assert transport.resident_rows == 10**6
    assert transport.resident_nbytes == 10**9
    assert reason(transport, "transport").choice == "resident"
    assert reason(transport, "rows") is None


def test_a_byte_more_than_fits_leaves_some_rows_where_they_are():
    transport = chosen(rows=10**6, available=2 * 10**9 - 2)
    assert transport.resident_rows == 10**6 - 1
    assert reason(transport, "transport").choice == "part resident"
    assert reason(transport, "transport").why.startswith("100% of")


def test_memory_for_a_quarter_of_the_rows_is_used_and_for_fewer_left_to_the_model():
    quarter, fewer = chosen(rows=10**6, available=5 * 10**8), chosen(rows=10**6, available=5 * 10**8 - 2000)
    assert quarter.resident_rows == 250_000
    assert fewer.resident_rows == 0
    assert reason(fewer, "transport").choice == "pull"


def test_never_keeps_nothing_however_much_would_fit():
    transport = chosen(rows=10**6, resident="never")
    assert transport.resident_rows == transport.resident_nbytes == 0
    assert "resident='never' was requested" in reason(transport, "transport").why


def test_always_keeps_more_than_the_share_that_auto_would_take():
    always = chosen(rows=10**6, available=15 * 10**8, resident="always")
    auto = chosen(rows=10**6, available=15 * 10**8)
    assert auto.resident_rows < always.resident_rows == 10**6
    assert "as requested" in reason(always, "transport").why


def test_always_says_how_much_is_missing_and_what_to_do():
    text = r"needs 954\.\d MiB on cuda:0, slots included, but only 858\.3 MiB may be used\. Use resident='auto'"
    with pytest.raises(BudgetError, match=text):
        chosen(rows=10**6, available=9 * 10**8, resident="always")


def test_always_keeps_the_budget_too_or_says_that_it_cannot():
    assert "95.4 MiB may be used" in refusal((ROW,), rows=10**6, budget=100 * 10**6, resident="always")
    assert chosen(rows=10**6, budget=2 * 10**9, resident="always").device_nbytes <= 2 * 10**9


def test_large_rows_go_by_dma_and_small_ones_by_a_kernel():
    specs = (ArraySpec((DMA_ROW_NBYTES,), "uint8"), ArraySpec((DMA_ROW_NBYTES - 1,), "uint8"))
    transport = chosen(specs, rows=10**6, resident="never", extents=(1, 1))
    assert transport.pull_methods == ("dma", "kernel")
    assert reason(transport, "rows").choice == "dma, kernel"
    assert reason(transport, "rows").why.startswith("rows of 48.0 KiB: a DMA per row")


def test_groups_of_small_rows_fill_a_window_and_resident_ones_more():
    streamed = chosen(rows=10**9, batch_rows=2000, resident="never")
    resident = chosen(rows=10**7, batch_rows=5000, available=200 * GIB, resident="always")
    assert 0.97 * PULL_GROUP_NBYTES < streamed.slot_nbytes <= PULL_GROUP_NBYTES
    assert 0.97 * RESIDENT_GROUP_NBYTES < resident.slot_nbytes <= RESIDENT_GROUP_NBYTES


@pytest.mark.parametrize("resident", ["never", "always"])
def test_no_more_batches_are_handed_off_together_than_on_the_host(resident):
    transport = chosen(rows=10**7, batch_rows=10, resident=resident)
    assert transport.group_batches == MAX_GROUP_BATCHES
    assert reason(transport, "group").choice == f"{MAX_GROUP_BATCHES} batches"


def test_a_batch_larger_than_any_group_goes_alone():
    transport = chosen(rows=10**7, batch_rows=500_000, resident="never")
    assert transport.group_batches == 1
    assert reason(transport, "group").choice == "1 batch"


def test_what_the_machine_was_measured_to_do_is_expected_of_what_crosses():
    streamed = chosen(rows=10**6, resident="never", speeds=Measured())
    half = chosen(rows=10**6, available=10**9, speeds=Measured())
    resident = chosen(rows=10**6, speeds=Measured())
    assert reason(streamed, "speed").choice == "10 GB/s"
    assert reason(half, "speed").choice == "20 GB/s"
    assert reason(resident, "speed") is None


def test_batches_that_cannot_fit_are_refused_with_the_budget_that_they_need():
    text = refusal((ROW,), rows=10**6, batch_rows=1000, budget=4 * MIB)
    assert text.startswith("device_bytes=4.0 MiB is too small: slots for these batches need 4.9 MiB.")
    assert way_out(text) == 5 * MIB


@given(case=cases(), short=st.floats(0.01, 0.99))
def test_the_budget_an_error_asks_for_is_enough(case, short):
    specs = case.pop("specs")
    least = FEWEST_SLOTS * slot_needs(specs, case["batch_rows"])
    text = refusal(specs, **case | {"budget": int(least * short)})
    assert refusal(specs, **case | {"budget": way_out(text)}) == ""


@given(case=cases(), resident=st.sampled_from(["auto", "never"]))
def test_a_budget_is_kept(case, resident):
    transport = chosen(case.pop("specs"), resident=resident, **case)
    assert transport.device_nbytes <= case["budget"]


@given(case=cases(), resident=st.sampled_from(["auto", "never"]))
def test_sizes_are_those_of_what_was_chosen(case, resident):
    specs, batch_rows = case.pop("specs"), case["batch_rows"]
    transport = chosen(specs, resident=resident, **case)
    assert 0 <= transport.slot_nbytes - slot_needs(specs, batch_rows, transport.group_batches) <= SPARE
    assert transport.resident_nbytes == transport.resident_rows * sum(spec.nbytes for spec in specs)
    assert transport.slots <= PULL_SLOTS
    assert transport.device_nbytes == (transport.slots + IN_USE) * transport.slot_nbytes + transport.resident_nbytes


@pytest.mark.parametrize(("batches", "filling"), [(5, 3), (6, 4), (8, 6), (80, 6)])
def test_as_many_groups_are_ahead_as_there_is_memory_for(batches, filling):
    budget = batches * (slot_needs((ROW,), 10_000) + SPARE)
    transport = chosen(rows=10**6, batch_rows=10_000, budget=budget, resident="never")
    assert (transport.slots, transport.group_batches) == (filling, max(1, batches // 8))


@given(case=cases(), resident=st.sampled_from(["auto", "never"]))
def test_rows_are_kept_where_it_is_worth_it_or_not_at_all(case, resident):
    transport = chosen(case.pop("specs"), resident=resident, **case)
    assert transport.resident_rows == 0 or case["rows"] * MIN_RESIDENT_SHARE <= transport.resident_rows <= case["rows"]


@given(case=cases())
def test_an_epoch_is_cut_into_enough_groups_to_overlap(case):
    case["batches"] = -(-case["rows"] // case["batch_rows"])
    transport = chosen(case.pop("specs"), **case)
    fewest = MIN_RESIDENT_GROUPS if transport.resident_rows == case["rows"] else MIN_GROUPS
    assert 1 <= transport.group_batches <= max(1, case["batches"] // fewest)


@given(case=cases())
def test_without_a_budget_no_more_is_planned_than_the_framework_can_give(case):
    available = case.pop("budget")
    assert chosen(case.pop("specs"), available=available, **case).device_nbytes <= available


def test_batches_larger_than_the_device_are_not_told_to_ask_for_more_of_it():
    text = refusal((ROW,), rows=10**6, batch_rows=10**5, available=100 * MIB)
    assert "Make batches smaller" in text
    assert "device_bytes" not in text


@pytest.mark.parametrize(("gib", "slots_gib"), [(8, 1), (16, 2), (64, 2), (96, 3), (128, 4)])
def test_slots_take_a_small_part_of_a_large_device(gib, slots_gib):
    transport = chosen(rows=10**6, batch_rows=5000, available=gib * GIB, resident="always")
    slots_nbytes = transport.device_nbytes - transport.resident_nbytes
    assert 0.95 * slots_gib * GIB < slots_nbytes <= slots_gib * GIB


@pytest.mark.parametrize("files", [1, 5000])
def test_what_the_kernels_of_a_slot_read_is_within_what_a_slot_takes(files):
    specs = (ArraySpec((), "float32"),)
    transport = chosen(specs, rows=10**9, budget=64 * MIB, resident="never", extents=(files,))
    assert slot_needs(specs, 100, transport.group_batches, extents=files) <= transport.slot_nbytes


# On the host


def planned(*, host_nbytes, rows=10**9, batch_rows=1000, row=NUMBER):
    specs = (row,)
    plan_input = PlanInput(
        framework="torch",
        engine="cuda",
        alignment=DEVICE_ALIGNMENT,
        batch_rows=batch_rows,
        batches=math.ceil(rows / batch_rows),
        source_specs=specs,
        specs=specs,
        structure=Structure(None),
        transforms=(),
        indexed=True,
        row_by_row=False,
        fixed_size=True,
        shuffle_window_nbytes=0,
        host_nbytes=host_nbytes,
        device=asked(rows=rows),
    )
    return make_plan(plan_input, 16)


@pytest.mark.parametrize("host_nbytes", [62 * MIB, 70 * MIB, 256 * MIB])
def test_the_budget_of_the_host_is_kept_where_a_device_fetches_rows(host_nbytes):
    assert planned(host_nbytes=host_nbytes).nbytes <= host_nbytes


def test_groups_are_made_smaller_where_the_host_has_no_room_for_their_row_numbers():
    ample, tight = planned(host_nbytes=4 * GIB, batch_rows=10_000), planned(host_nbytes=128 * MIB, batch_rows=10_000)
    assert 1 <= tight.group_batches < ample.group_batches
    assert tight.transport.group_batches == tight.layout.batches == tight.group_batches


def test_what_is_told_of_a_group_is_what_was_planned_in_the_end():
    tight = planned(host_nbytes=128 * MIB, batch_rows=10_000)
    assert reason(tight, "group").choice == f"{tight.group_batches} batches"
    assert 0 <= tight.transport.slot_nbytes - slot_needs(tight.input.specs, 10_000, tight.group_batches) <= SPARE


def test_a_host_budget_that_cannot_be_kept_is_refused_with_one_that_can():
    with pytest.raises(BudgetError, match=r"host_bytes=16\.0 MiB is too small") as refused:
        planned(host_nbytes=16 * MIB)
    needed = parse_nbytes(re.search(r"host_bytes='(\w+)'", str(refused.value))[1], "host_bytes")
    assert 16 * MIB < planned(host_nbytes=needed).nbytes <= needed


def test_buffers_that_rows_are_staged_through_are_counted_as_large_as_a_row_makes_them():
    row = ArraySpec((256, 256, 256), "float32")
    plan = planned(host_nbytes=GIB, rows=400, batch_rows=2, row=row)
    stage = StagedRows(Device(), SimpleNamespace(specs=[row]), threads=plan.threads)
    assert stage._buffers._max_buffers * stage._buffers.nbytes <= plan.nbytes <= GIB
