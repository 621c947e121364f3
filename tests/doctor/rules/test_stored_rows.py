"""The doctor proposes to make rows once if a dataset is small and has equal rows in every epoch.

It proposes worker processes if the loop waits long for batches.
"""

from dataclasses import replace

import pytest
from tests.doctor import device_rig as rig
from tests.doctor.captures import STEP_LINE, TORCH, batch, build, loop, prepare, script

from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.diagnosis.emulations import choose_emulation
from forebay.doctor.model.emulation import EmulationKind, FeedRows
from forebay.doctor.model.events import EventKind
from forebay.doctor.rules.input_producers import STORED_ROWS_CURE, workers_pay
from forebay.doctor.rules.registry import view_for_rules

SCRIPT = script(
    "loader = DataLoader(images, batch_size=50)",
    "for epoch in range(9):",
    "    for x, y in loader:",
    "        train(x, y)",
)
GiB = 1 << 30


def diagnosis_of(*, memory=64 * GiB, nbytes=150_000, **detail):
    """Return the diagnosis of a loader without workers, which the first line of the script builds."""
    made = build("DataLoader(...)", 0.1, line=1, **{"what": "DataLoader", "dataset_rows": 60_000} | detail)
    waits = batch(ms=8, line=3, nbytes=nbytes, batch_rows=50, workers=0, built_at=1).containing(prepare(ms=7, line=3))
    machine = {"cores": 8, "memory_nbytes": memory}
    capture = loop(waits, ms=10, before=[made], frameworks=TORCH, facts=SCRIPT, machine=machine)
    return diagnose(capture)


def cures_of(**given):
    return [cure.title for cure in diagnosis_of(**given).main.cures]


def test_a_stream_is_neither_read_by_row_number_nor_by_workers_that_each_make_all_rows():
    (cure,) = diagnosis_of(dataset_rows=None, stream="whole").main.cures
    assert cure.title == "prefetch batches during the step"
    assert "fb.from_batches(loader)" in cure.code


def test_workers_that_divide_the_rows_of_a_stream_are_offered():
    assert any("worker" in title for title in cures_of(dataset_rows=None, stream="divided"))


def test_rows_of_a_small_dataset_are_made_once():
    assert STORED_ROWS_CURE in cures_of(random_rows=False)


def test_the_code_that_makes_all_rows_says_how_long_this_takes():
    (cure,) = (cure for cure in diagnosis_of(random_rows=False).main.cures if cure.title == STORED_ROWS_CURE)
    # The loop waits 8 ms for each of 1,200 batches.
    assert "# makes all rows once (9.60 s), so it pays from the second epoch on" in cure.code


def test_the_second_run_has_batches_without_waits_if_rows_are_made_once():
    stored, random = diagnosis_of(random_rows=False), diagnosis_of(random_rows=True)
    assert choose_emulation(stored.view, stored.main).rows == FeedRows.ARRAYS
    assert choose_emulation(random.view, random.main).kind is EmulationKind.WORKERS


@pytest.mark.parametrize(
    "given",
    [
        {"random_rows": True},
        {},  # captures of older versions do not say whether rows are random
        {"random_rows": False, "memory": GiB},
        {"random_rows": False, "nbytes": 50 << 20},
        {"random_rows": False, "dataset_rows": None},
    ],
)
def test_random_rows_and_large_datasets_are_not_made_once(given):
    assert STORED_ROWS_CURE not in cures_of(**given)


@pytest.mark.parametrize(
    ("us", "nbytes", "pays"), [(8_000, 300_000, False), (12_000, 300_000, True), (8_000, 2 << 20, True)]
)
def test_workers_of_a_loop_with_a_gpu_must_save_more_than_receiving_their_batches_costs(us, nbytes, pays):
    def program(machine):
        machine.wait_for_input(us, line=STEP_LINE)
        machine.launch(500)
        machine.synchronize()

    view = view_for_rules(rig.run(program))
    (site,) = view.sites_of(EventKind.INPUT)
    events = tuple(event._replace(nbytes=nbytes) for event in site.events)
    assert workers_pay(view, replace(site, events=events), us / 1e6) is pays
