"""The plan of a feed whose rows the device pulls stays within the host budget."""

import math
import re
from types import SimpleNamespace

import pytest
from tests.pipeline.transport_choices import GIB, MIB, NUMBER, SPARE, decision_of, device_of, slot_needs
from tests.support.fake_device import Device

from forebay.core.spec import DEVICE_ALIGNMENT, ArraySpec, Structure, parse_nbytes
from forebay.engines.cuda.pull.staged_rows import StagedRows
from forebay.errors import BudgetError
from forebay.pipeline.plan import PlanInput
from forebay.pipeline.planner import make_plan


def plan_feed(*, host_nbytes, rows=10**9, batch_rows=1000, row=NUMBER):
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
    assert plan_feed(host_nbytes=host_nbytes).nbytes <= host_nbytes


def test_groups_become_smaller_if_the_host_has_no_room_for_row_numbers():
    ample, tight = (
        plan_feed(host_nbytes=4 * GIB, batch_rows=10_000),
        plan_feed(host_nbytes=128 * MIB, batch_rows=10_000),
    )
    assert 1 <= tight.group_batches < ample.group_batches
    assert tight.transport.group_batches == tight.layout.batches == tight.group_batches


def test_the_decision_about_groups_shows_the_final_plan():
    tight = plan_feed(host_nbytes=128 * MIB, batch_rows=10_000)
    assert decision_of(tight, "group").choice == f"{tight.group_batches} batches"
    assert 0 <= tight.transport.slot_nbytes - slot_needs(tight.input.specs, 10_000, tight.group_batches) <= SPARE


def test_a_host_budget_too_small_is_refused_with_a_budget_that_is_enough():
    with pytest.raises(BudgetError, match=r"host_bytes=16\.0 MiB is too small") as refused:
        plan_feed(host_nbytes=16 * MIB)
    needed = parse_nbytes(re.search(r"host_bytes='(\w+)'", str(refused.value))[1], "host_bytes")
    assert 16 * MIB < plan_feed(host_nbytes=needed).nbytes <= needed


def test_staging_buffers_are_planned_for_at_least_one_row():
    row = ArraySpec((256, 256, 256), "float32")
    plan = plan_feed(host_nbytes=GIB, rows=400, batch_rows=2, row=row)
    stage = StagedRows(Device(), SimpleNamespace(specs=[row]), threads=plan.threads)
    assert stage._buffers._max_buffers * stage._buffers.nbytes <= plan.nbytes <= GIB
