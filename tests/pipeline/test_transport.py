"""How rows reach a device, and how many at a time: decisions from sizes alone."""

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
SLOTS_IN_USE = 2
MIN_ALL_SLOTS = MIN_SLOTS + SLOTS_IN_USE
SPARE = 8 << 10  # bytes; the planned size of a slot may exceed its need by this
ROW = ArraySpec((250,), "float32")  # 1000 bytes
NUMBER = ArraySpec((), "float32")


def device_of(*, rows, available=100 * GIB, budget=None, resident="auto", extents=(1,), **more):
    return DeviceInput("cuda:0", available, budget, resident, rows, extents, **{"consumer_slots": LENT_SLOTS} | more)


def transport_of(specs=(ROW,), *, batch_rows=100, cores=16, **plan_input):
    return choose_transport(device_of(**plan_input), specs, batch_rows=batch_rows, cores=cores)


def decision_of(transport, name):
    return next((decision for decision in transport.decisions if decision.name == name), None)


def slot_needs(specs, batch_rows, batches=1, *, extents=1):
    """Return the bytes of the rows of a slot and of the tables for its kernels."""
    rows = Layout.of(specs, batch_rows=batch_rows, batches=batches, alignment=DEVICE_ALIGNMENT).nbytes
    return rows + KernelWorkspace.nbytes(batch_rows * batches, [3 * extents + 1] * len(specs))


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


class Measured:
    """Pull speeds: 10 GB/s for every row size."""

    def bytes_per_second(self, row_nbytes):
        return 10e9


row_specs = st.lists(st.builds(ArraySpec, st.tuples(st.integers(1, 200_000)), st.just("uint8")), min_size=1, max_size=3)


@st.composite
def cases(draw):
    """Draw rows, batches and a budget: sometimes just enough for slots, sometimes for all rows."""
    specs = tuple(draw(row_specs))
    batch_rows, rows = draw(st.integers(1, 300)), draw(st.integers(1, 10**7))
    least = MIN_ALL_SLOTS * (slot_needs(specs, batch_rows) + SPARE)
    return {
        "specs": specs,
        "rows": rows,
        "batch_rows": batch_rows,
        "batches": draw(st.none() | st.just(-(-rows // batch_rows))),
        "budget": int(least * 2 ** draw(st.floats(0, 12))) + draw(st.integers(0, 1000)),
        "extents": (1,) * len(specs),
    }


@pytest.mark.parametrize(("cores", "method"), [(1, "kernel"), (2, "dma"), (16, "dma")])
def test_a_kernel_pulls_large_rows_if_there_is_one_cpu(cores, method):
    transport = transport_of((ArraySpec((DMA_ROW_NBYTES,), "uint8"),), rows=10**6, resident="never", cores=cores)
    assert transport.pull_methods == (method,)
    assert ("one CPU" in decision_of(transport, "rows").why) == (method == "kernel")


@pytest.mark.parametrize("resident", ["auto", "always"])
def test_rows_that_fit_a_budget_with_their_slots_are_resident(resident):
    transport = transport_of(rows=768 * 1024, batch_rows=1000, budget=GIB, resident=resident)
    assert transport.resident_rows == 768 * 1024
    assert transport.device_nbytes <= GIB


def test_always_uses_smaller_groups_before_it_refuses():
    transport = transport_of(rows=10**6, budget=10**9 + 20 * MIB, resident="always")
    assert transport.resident_rows == 10**6
    assert transport.device_nbytes <= 10**9 + 20 * MIB


@pytest.mark.parametrize("resident", ["auto", "never", "always"])
def test_a_budget_is_limited_by_the_available_memory(resident):
    rows = 1000 if resident == "always" else 10**7
    larger_budget, exact_budget = (
        transport_of(rows=rows, available=64 * MIB, budget=budget, resident=resident) for budget in (GIB, 64 * MIB)
    )
    assert larger_budget == exact_budget
    assert larger_budget.device_nbytes <= 64 * MIB


def test_a_group_is_at_most_a_part_of_a_pass():
    assert transport_of(rows=4000, batches=40, resident="never").group_batches == 40 // MIN_GROUPS
    assert transport_of(rows=4000, batches=40, resident="always").group_batches == 40 // MIN_RESIDENT_GROUPS
    pipeline = fb.from_arrays(np.zeros((4000, 250), np.float32)).batch(100)
    assert [made.schedule.pass_batches for made in (pipeline, pipeline.repeat(), pipeline.repeat(100))] == [40] * 3
    assert pipeline.take(7).schedule.pass_batches == 7


def test_many_leaves_are_counted_with_their_tables():
    specs = (NUMBER,) * 100
    transport = transport_of(specs, rows=1000, extents=(1,) * 100, resident="never")
    assert transport.slot_nbytes >= slot_needs(specs, 100, transport.group_batches)


def test_rows_of_zero_bytes_have_no_expected_speed():
    empty = (ArraySpec((0,), "float32"),)
    assert decision_of(transport_of(empty, rows=10, resident="never", speeds=Measured()), "speed") is None


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


def test_never_keeps_no_rows_on_the_device():
    transport = transport_of(rows=10**6, resident="never")
    assert transport.resident_rows == transport.resident_nbytes == 0
    assert "resident='never' was requested" in decision_of(transport, "transport").why


def test_always_may_exceed_the_share_of_auto():
    always = transport_of(rows=10**6, available=15 * 10**8, resident="always")
    auto = transport_of(rows=10**6, available=15 * 10**8)
    assert auto.resident_rows < always.resident_rows == 10**6
    assert "as requested" in decision_of(always, "transport").why


def test_always_is_refused_with_the_needed_memory_and_a_remedy():
    text = r"needs 954\.\d MiB on cuda:0, slots included, but only 858\.3 MiB may be used\. Use resident='auto'"
    with pytest.raises(BudgetError, match=text):
        transport_of(rows=10**6, available=9 * 10**8, resident="always")


def test_always_stays_within_the_budget_or_is_refused():
    assert "95.4 MiB may be used" in refusal((ROW,), rows=10**6, budget=100 * 10**6, resident="always")
    assert transport_of(rows=10**6, budget=2 * 10**9, resident="always").device_nbytes <= 2 * 10**9


def test_large_rows_go_by_dma_and_small_ones_by_a_kernel():
    specs = (ArraySpec((DMA_ROW_NBYTES,), "uint8"), ArraySpec((DMA_ROW_NBYTES - 1,), "uint8"))
    transport = transport_of(specs, rows=10**6, resident="never", extents=(1, 1))
    assert transport.pull_methods == ("dma", "kernel")
    assert decision_of(transport, "rows").choice == "dma, kernel"
    assert decision_of(transport, "rows").why.startswith("rows of 48.0 KiB: a DMA per row")


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


def test_the_expected_speed_comes_from_the_measured_ceilings():
    streamed = transport_of(rows=10**6, resident="never", speeds=Measured())
    half = transport_of(rows=10**6, available=10**9, speeds=Measured())
    resident = transport_of(rows=10**6, speeds=Measured())
    assert decision_of(streamed, "speed").choice == "10 GB/s"
    assert decision_of(half, "speed").choice == "20 GB/s"
    assert decision_of(resident, "speed") is None


def test_batches_that_do_not_fit_are_refused_with_the_needed_budget():
    text = refusal((ROW,), rows=10**6, batch_rows=1000, budget=4 * MIB)
    assert text.startswith("device_bytes=4.0 MiB is too small: slots for these batches need 4.9 MiB.")
    assert recommended_budget(text) == 5 * MIB


@given(case=cases(), short=st.floats(0.01, 0.99))
def test_the_recommended_budget_is_enough(case, short):
    specs = case.pop("specs")
    least = MIN_ALL_SLOTS * slot_needs(specs, case["batch_rows"])
    text = refusal(specs, **case | {"budget": int(least * short)})
    assert refusal(specs, **case | {"budget": recommended_budget(text)}) == ""


@given(case=cases(), resident=st.sampled_from(["auto", "never"]))
def test_a_plan_stays_within_the_device_budget(case, resident):
    transport = transport_of(case.pop("specs"), resident=resident, **case)
    assert transport.device_nbytes <= case["budget"]


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


@given(case=cases(), resident=st.sampled_from(["auto", "never"]))
def test_no_rows_or_at_least_a_quarter_are_resident(case, resident):
    transport = transport_of(case.pop("specs"), resident=resident, **case)
    assert transport.resident_rows == 0 or case["rows"] * MIN_RESIDENT_SHARE <= transport.resident_rows <= case["rows"]


@given(case=cases())
def test_an_epoch_is_cut_into_enough_groups_to_overlap(case):
    case["batches"] = -(-case["rows"] // case["batch_rows"])
    transport = transport_of(case.pop("specs"), **case)
    fewest = MIN_RESIDENT_GROUPS if transport.resident_rows == case["rows"] else MIN_GROUPS
    assert 1 <= transport.group_batches <= max(1, case["batches"] // fewest)


@given(case=cases())
def test_without_a_budget_the_plan_fits_into_the_frameworks_free_memory(case):
    available = case.pop("budget")
    assert transport_of(case.pop("specs"), available=available, **case).device_nbytes <= available


def test_batches_larger_than_the_device_get_no_advice_to_raise_the_budget():
    text = refusal((ROW,), rows=10**6, batch_rows=10**5, available=100 * MIB)
    assert "Make batches smaller" in text
    assert "device_bytes" not in text


@pytest.mark.parametrize(("gib", "slots_gib"), [(8, 1), (16, 2), (64, 2), (96, 3), (128, 4)])
def test_slots_take_a_small_part_of_a_large_device(gib, slots_gib):
    transport = transport_of(rows=10**6, batch_rows=5000, available=gib * GIB, resident="always")
    slots_nbytes = transport.device_nbytes - transport.resident_nbytes
    assert 0.95 * slots_gib * GIB < slots_nbytes <= slots_gib * GIB


@pytest.mark.parametrize("files", [1, 5000])
def test_the_tables_of_the_kernels_fit_in_the_planned_slot(files):
    specs = (ArraySpec((), "float32"),)
    transport = transport_of(specs, rows=10**9, budget=64 * MIB, resident="never", extents=(files,))
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
        device=device_of(rows=rows),
    )
    return make_plan(plan_input, 16)


@pytest.mark.parametrize("host_nbytes", [62 * MIB, 70 * MIB, 256 * MIB])
def test_a_plan_stays_within_the_host_budget_if_a_device_pulls_rows(host_nbytes):
    assert planned(host_nbytes=host_nbytes).nbytes <= host_nbytes


def test_groups_become_smaller_if_the_host_has_no_room_for_row_numbers():
    ample, tight = planned(host_nbytes=4 * GIB, batch_rows=10_000), planned(host_nbytes=128 * MIB, batch_rows=10_000)
    assert 1 <= tight.group_batches < ample.group_batches
    assert tight.transport.group_batches == tight.layout.batches == tight.group_batches


def test_the_decision_about_groups_shows_the_final_plan():
    tight = planned(host_nbytes=128 * MIB, batch_rows=10_000)
    assert decision_of(tight, "group").choice == f"{tight.group_batches} batches"
    assert 0 <= tight.transport.slot_nbytes - slot_needs(tight.input.specs, 10_000, tight.group_batches) <= SPARE


def test_a_host_budget_too_small_is_refused_with_one_that_is_enough():
    with pytest.raises(BudgetError, match=r"host_bytes=16\.0 MiB is too small") as refused:
        planned(host_nbytes=16 * MIB)
    needed = parse_nbytes(re.search(r"host_bytes='(\w+)'", str(refused.value))[1], "host_bytes")
    assert 16 * MIB < planned(host_nbytes=needed).nbytes <= needed


def test_staging_buffers_are_planned_for_at_least_one_row():
    row = ArraySpec((256, 256, 256), "float32")
    plan = planned(host_nbytes=GIB, rows=400, batch_rows=2, row=row)
    stage = StagedRows(Device(), SimpleNamespace(specs=[row]), threads=plan.threads)
    assert stage._buffers._max_buffers * stage._buffers.nbytes <= plan.nbytes <= GIB
