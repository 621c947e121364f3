"""Long steps that wait for a DataLoader: a cure that is in place already is never offered."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.captures import TORCH, batch, build, loop
from tests.doctor.histories import FRAMES, monitored, with_pauses

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.model.step_history import StackFrame
from forebay.doctor.rules.pauses import examine

LOADER = "torch.utils.data.dataloader."
NEXT = f"{LOADER}_MultiProcessingDataLoaderIter._next_data"
# Stacks of a line of the loop that calls a function of the loader. `BEGIN` also starts worker processes.
WAIT = (*FRAMES[:3], StackFrame(0, 3), StackFrame(3, -1, NEXT))
BEGIN = (*WAIT[:4], StackFrame(3, -1, f"{LOADER}DataLoader.__iter__"))
EPOCH = 20  # steps


def view_of(frames, *, every=EPOCH, long_ms=100, rows_at=5, **settings):
    """Return a loop of 400 steps with a DataLoader. Each `every`-th step waits `long_ms` ms longer."""
    loader = {"workers": 2, "persistent": False, "prefetch": 2} | settings
    built = build("DataLoader(...)", what="DataLoader", line=2, dataset_rows=16 * EPOCH, rows_at=rows_at, **loader)
    waits = batch("DataLoader", 1.0, line=3, batch_rows=16, nbytes=4096, built_at=2, workers=loader["workers"])
    waits = replace(waits, detail=waits.detail | {"prefetch": loader["prefetch"]})
    capture = loop(waits, before=[built], frameworks=TORCH, untraced=(0.01,) * 5)
    return CaptureView(monitored(capture, with_pauses(400, every, long_ms, frame=4), frames=frames))


def finding_of(*args, **given):
    (finding,) = examine(view_of(*args, **given))
    return finding


def test_for_workers_that_start_again_with_each_epoch_the_cure_keeps_them():
    finding = finding_of(BEGIN)
    assert finding.title.endswith("the loop waits for workers that start again")
    assert [cure.code for cure in finding.cures] == ["loader = DataLoader(..., persistent_workers=True)"]


@pytest.mark.parametrize("given", [{"persistent": True}, {"workers": 0}, {"every": 9}], ids=str)
def test_workers_do_not_start_again_if_they_persist_or_within_an_epoch(given):
    assert finding_of(BEGIN, **given).title.endswith("the loop waits for batches that take long to make")


def test_a_wait_without_a_new_iterator_is_a_slow_batch():
    finding = finding_of(WAIT)
    assert finding.title.endswith("the loop waits for batches that take long to make")
    assert "The worker processes make the rows in train.py:5 (train)." in finding.evidence


def test_without_workers_the_loop_makes_the_slow_rows():
    assert "The loop makes the rows in train.py:5 (train)." in finding_of(WAIT, workers=0).evidence
    assert not any("makes the rows" in each for each in finding_of(WAIT, rows_at=-1).evidence)


@pytest.mark.parametrize(
    ("given", "ahead"),
    [
        ({}, "prefetch_factor=6"),  # 11 batches hide 100 ms of steps of 10 ms
        ({"prefetch": 6}, ""),
        ({"long_ms": 2000}, ""),  # more batches than MAX_AHEAD
        ({"every": 4, "workers": 1}, ""),  # one worker is too slow on average
    ],
)
def test_more_batches_are_prefetched_only_if_they_hide_a_slow_batch(given, ahead):
    codes = [cure.code for cure in finding_of(WAIT, **given).cures]
    assert len(codes) == 1 + bool(ahead)
    assert ahead in codes[0]


@given(
    st.sampled_from([WAIT, BEGIN]), st.booleans(), st.integers(0, 4), st.sampled_from([None, 2, 8, 64]), st.booleans()
)
def test_no_cure_repeats_a_setting_of_the_loader(frames, persistent, workers, prefetch, is_epoch):
    settings = {"persistent": persistent, "workers": workers, "prefetch": prefetch}
    finding = finding_of(frames, every=EPOCH if is_epoch else 9, **settings)
    codes = " ".join(cure.code for cure in finding.cures)
    assert "persistent_workers" not in codes or (workers and not persistent)
    assert "prefetch_factor" not in codes or workers
    assert f"prefetch_factor={prefetch})" not in codes
